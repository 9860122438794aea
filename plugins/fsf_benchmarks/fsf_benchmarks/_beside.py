"""Printed values: what publications have for the cell of a run, through installed benchmarks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fsf_benchmarks.interfaces import Benchmark, Cell, PrintedValue
from fsf_reports.values import Quantity
from fsframework.api.components import component
from fsframework.api.running import Run, load_run
from fsframework.api.session import open_session
from fsframework.errors import FsfError
from fsframework.interfaces import contained
from fsframework.values import Estimate

__all__ = ["PrintedValue", "beside_printed", "printed_of_runs", "printed_values"]


def printed_values(
    run: Run | str | Path, *, runs_dir: str | Path | None = None
) -> tuple[PrintedValue, ...]:
    """Return what publications print for the method, backbone, data and tasks of a run.

    Every installed benchmark is asked. Only values of measures that the run has are returned.

    Caveats: the training, the images and the number of tasks of a publication may differ from those
    of the run; ``apart`` says what else is known to differ.

    Args:
        run: a run, runs over seeds, or the folder or name of a run.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.

    Raises:
        RecordError: the run does not exist.
    """
    if not isinstance(run, Run):
        run = load_run(run, runs_dir)
    (found,) = printed_of_runs([run])
    return found


def printed_of_runs(runs: Iterable[Run]) -> Iterator[tuple[PrintedValue, ...]]:
    """Yield the printed values of each run; the benchmarks are opened once."""
    benchmarks = list(_benchmarks())
    for run in runs:
        cell = _cell(run.record)
        asked = [] if cell is None else [_printed(one, cell) for one in benchmarks]
        values = itertools.chain.from_iterable(asked)
        yield tuple(value for value in values if value.measure in run.estimates)


def _cell(record: Any) -> Cell | None:
    """Return the cell of a run; ``None`` for accuracies measured elsewhere."""
    method, backbone, sampler = record.method, record.backbone, record.components.get("sampler")
    data, detector = record.components.get("dataset"), record.components.get("detector")
    if method is None or backbone is None or sampler is None or data is None:
        return None
    return Cell(
        method=method.called,
        backbone=backbone.called,
        dataset=data.name,
        sampler=sampler.to_tree(),
        detector="" if detector is None else detector.called,
        recipe=str(record.settings.get("recipe") or ""),
    )


def _benchmarks() -> Iterator[Benchmark]:
    registry = open_session(progress=False).registry
    for name in registry.names("benchmark"):
        try:
            yield component(registry, "benchmark", name).create()
        except FsfError:
            continue  # a broken plugin has no printed values


def _printed(benchmark: Benchmark, cell: Cell) -> Sequence[PrintedValue]:
    """Return what a benchmark has for a cell; whatever is wrong with it must not harm a run."""
    try:
        with contained():
            return [one for one in benchmark.printed(cell) if isinstance(one, PrintedValue)]
    except FsfError:
        return ()


def beside_printed(run: Run) -> str:
    """Return where a run stands beside the printed value of its cell, in a sentence.

    It is about the gap if one is printed, else about the run's last measure that is. Empty where
    nothing is printed.
    """
    found = {value.measure: value for value in printed_values(run)}
    names = [name for name in run.estimates if name in found]
    if not names:
        return ""
    gaps = [name for name in names if len(run.estimates[name].arms) == 2]
    chosen = (gaps or names)[-1]
    return _sentence(run.record, run.estimates[chosen], found[chosen])


def _sentence(record: Any, estimate: Estimate, printed: PrintedValue) -> str:
    called = record.labels.get(estimate.statistic) or estimate.statistic
    is_gap = len(estimate.arms) == 2
    what = f"a gap of {called}" if is_gap else record.label(estimate)
    unit = "" if not printed.value.unit else " points" if is_gap else " %"
    where = ", ".join(filter(None, (printed.table, printed.apart)))
    return (
        f"{printed.source} ({where}) prints {what} of {_told(printed.value)}{unit} for this "
        "method, backbone, data set and shape of tasks; "
        f"{_beside(Quantity.of(estimate), printed.value)}."
    )


def _beside(measured: Quantity, printed: Quantity) -> str:
    """Return how a measured value differs from the printed one."""
    difference = measured.minus(printed)
    if difference.low <= 0 <= difference.high:
        return "the value here cannot be distinguished from it"
    size = Quantity.around(abs(difference.value), difference.half_width)
    direction = "larger" if difference.value > 0 else "smaller"
    return f"the value here is {_told(size)}{' points' * bool(measured.unit)} {direction}"


def _told(value: Quantity) -> str:
    digits = 1 if value.unit else 3
    half = f" ± {value.half_width:.{digits}f}" if value.has_interval else ""
    return f"{value.value:.{digits}f}{half}"
