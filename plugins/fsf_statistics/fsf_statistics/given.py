"""What can be compared: runs, folders and selectors of runs, and outcomes, as results."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fsf_statistics.estimating import is_evaluated, method_result
from fsf_statistics.path_names import PathNames
from fsf_statistics.seed_groups import joined_over_seeds
from fsframework.api.running import Run, load_run, load_runs, runs
from fsframework.errors import OptionError, RecordError
from fsframework.statistics.results import MethodResult
from fsframework.values import ArmOutcomes, ImagePool

__all__ = ["Comparable", "collect_results", "finished_of", "results_of"]

_RECORD = "run.json"

Comparable = Run | MethodResult | ArmOutcomes | str | Path
"""What can be compared: a run, a folder or name of runs, or outcomes."""


def finished_of(given: Any, folder: Path | None = None) -> tuple[Any, str]:
    """Return what is given, folders and selectors as those of their runs that were evaluated.

    Returns:
        What is given, and a sentence that names the runs left out; empty if all are kept.

    Raises:
        RecordError: a run of a folder is damaged, or none of them was evaluated.
    """
    if isinstance(given, Mapping):
        return given, ""
    kept: list[Any] = []
    left: list[str] = []
    for one in [given] if isinstance(given, (str, Path, Run)) else given:
        path = Path(one) if isinstance(one, (str, Path)) and str(one).strip() else None
        if path is None or (path / _RECORD).exists():
            kept.append(one)
            continue
        holds_runs = any(path.glob(f"*/{_RECORD}"))
        listed = runs(path) if holds_runs else load_runs(path, folder)
        if len(listed) == 1 and not holds_runs:
            kept += listed
            continue
        for reason in listed.broken.values():
            raise RecordError(reason)
        ended = [run for run in listed if is_evaluated(run)]
        if not ended:
            raise RecordError(f"{path}: no run in it is finished")
        kept += ended
        left += [run.name for run in listed if run not in ended]
    some = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
    return kept, f"left out, not finished: {some}" if left else ""


def results_of(
    given: Iterable[Comparable] | Mapping[str, Comparable],
    folder: Path,
    pool: ImagePool | None = None,
) -> Iterator[MethodResult]:
    """Yield results with their labels.

    Args:
        given: what ``fsframework.compare`` takes.
        folder: of runs given by name.
        pool: that the tasks of outcomes were drawn from, if it is known.

    Raises:
        OptionError: outcomes have no label, or a label is given to several methods.
        RecordError: a run does not exist, or has no outcomes.
    """
    given, _ = finished_of(given, folder)
    named: Iterable[tuple[str | None, Comparable]]
    named = given.items() if isinstance(given, Mapping) else ((None, one) for one in given)
    for label, one in named:
        found = _result(one, label, folder)
        if label is not None and (n := len(joined_over_seeds(found))) != 1:
            raise OptionError(f"{label}: {one} holds the results of {n} methods, not one")
        for result in found:
            if label is not None:
                result = dataclasses.replace(result, label=label)
            if pool is not None and not result.class_sizes:
                sizes = tuple(int(n) for n in pool.class_sizes)
                result = dataclasses.replace(result, class_sizes=sizes)
            yield result


def collect_results(
    given: Iterable[Comparable] | Mapping[str, Comparable],
    folder: Path,
    pool: ImagePool | None = None,
) -> list[MethodResult]:
    """Return results to show: those of several seeds as one, files and folders by their names.

    Args:
        given: as for ``results_of``; ``folder`` and ``pool`` likewise.

    Raises:
        OptionError: as ``results_of``.
        RecordError: as ``results_of``.
    """
    names = PathNames()
    return [
        dataclasses.replace(
            one,
            label=names.in_value(one.label),
            task_set=names.in_value(one.task_set),
            records=tuple(map(names.in_record, one.records)),
        )
        for one in joined_over_seeds(list(results_of(given, folder, pool)))
    ]


def _result(one: Comparable, label: str | None, folder: Path) -> list[MethodResult]:
    if isinstance(one, MethodResult):
        return [one]
    if isinstance(one, Run):
        return [method_result(run) for run in one.runs]
    if isinstance(one, ArmOutcomes):
        if label is None:
            raise OptionError("outcomes have no name: give a mapping of labels to outcomes")
        return [MethodResult(label, dict(one), one.arms)]
    if not isinstance(one, (str, Path, Iterable)):
        raise OptionError(f"results must be runs, their names or folders, or outcomes, not {one!r}")
    found, _ = finished_of(one, folder)
    return [
        method_result(each if isinstance(each, Run) else load_run(each, folder)) for each in found
    ]
