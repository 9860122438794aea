"""Estimates of outcomes, and what can be compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fsframework.api.components import component
from fsframework.api.running import Run, load_run, load_runs, runs
from fsframework.components.registry import Registry
from fsframework.errors import DataError, OptionError, RecordError
from fsframework.interfaces.statistic import Statistic
from fsframework.records import RECORD_NAME, RunRecord, read_outcomes
from fsframework.statistics.estimation import estimates_of
from fsframework.statistics.estimators import Interval, IntervalChoice
from fsframework.statistics.facts import options_told
from fsframework.statistics.results import (
    MethodResult,
    joined_over_seeds,
)
from fsframework.values import ArmOutcomes, Estimates, ImagePool

__all__ = [
    "Comparable",
    "estimate",
    "finished_of",
    "method_result",
    "results_of",
    "statistic_of_run",
    "statistics_of",
]

Comparable = Run | MethodResult | ArmOutcomes | str | Path
"""What can be compared: a run, a folder or name of runs, or outcomes."""


def statistics_of(
    registry: Registry, requests: Any, results: Iterable[MethodResult] = ()
) -> dict[str, Statistic]:
    """Return statistics by name, from one request or several.

    Args:
        requests: a name, a mapping with options, a class or an instance; or several of these.
        results: of runs, whose recorded options a statistic given by its name has.

    Raises:
        DataError: the runs have different options of a statistic.
    """
    several = requests if isinstance(requests, (list, tuple)) else [requests]
    records = [run for one in results for run in one.records]
    found: dict[str, Statistic] = {}
    for request in several:
        if isinstance(request, str):
            request = _as_recorded(request, records)
        chosen = component(registry, "statistic", request)
        found[chosen.name] = chosen.create()
    return found


def _as_recorded(name: str, records: Sequence[RunRecord]) -> Any:
    """Return a statistic with the options with which runs have computed it."""
    known = {options_told(one, name): one for one in records if name in one.statistics}
    if len(known) > 1:
        raise DataError(
            f"these runs have different options of {name}: {' and '.join(known)}; run them again "
            "with equal ones"
        )
    return next((one.statistic_tree(name) for one in known.values()), name)


def statistic_of_run(registry: Registry, name: str, *records: RunRecord) -> Statistic:
    """Return a statistic as a run computed it, or all of several that did.

    Raises:
        DataError: they computed it with different options, or its code is another now.
    """
    found = component(registry, "statistic", records[0].statistic_tree(name))
    asked = [records[0], *(one for one in records if name in one.statistics)]
    if any(one.statistics.get(name) != found.fingerprint for one in asked):
        raise DataError(f"its runs computed {name} with other options or another version")
    made: Statistic = found.create()
    return made


def estimate(
    outcomes: ArmOutcomes | Run,
    statistic: Any | Sequence[Any] = "wacc",
    *,
    level: float = 0.95,
    interval: Interval = "student-t",
    pool: ImagePool | None = None,
) -> Estimates:
    """Estimate statistics of every arm, and of their contrast.

    Whether an interval is open (it holds for the data's distribution) or closed (for this data set)
    is decided from the tasks; see ``Estimate.scope``. Paired arms are compared task by task, others
    by Welch's interval. A gap is positive where the tested arm is worse.

    Args:
        outcomes: what ``fsframework.evaluate`` returned, or a run.
        statistic: a name (``acc``, ``wacc``), a mapping of a name and options, a class or an
            instance; or several of these.
        level: confidence level, 0 < level < 1.
        interval: ``student-t``, ``percentile``, ``bca``, ``image-level`` or ``class-level``; only
            the first for runs of several seeds.
        pool: that the tasks were drawn from, for the last two.

    Raises:
        OptionError: the level or the interval is not allowed.
        DataError: a statistic cannot be computed from these outcomes.
    """
    choice = IntervalChoice(level, interval)
    given = [outcomes] if isinstance(outcomes, Run) else {"these outcomes": outcomes}
    [result] = joined_over_seeds(list(results_of(given, Path(), pool)))
    statistics = statistics_of(Registry(), statistic, [result])
    return Estimates(estimates_of(statistics, result, choice))


def method_result(run: Run) -> MethodResult:
    """Return a run as one result, of one model or of those of several seeds.

    Raises:
        RecordError: it has no outcomes.
    """
    [joined] = joined_over_seeds([_of_run(one) for one in run.runs])
    return joined


def _of_run(run: Run) -> MethodResult:
    """Return a run of one model as a result."""
    folder, record = run.folder, run.record
    if not _is_evaluated(run):
        state = "it is not finished" if record.status == "unfinished" else "nothing was evaluated"
        raise RecordError(f"{folder}: has no outcomes to compare, {state}")
    if record.method is None or record.backbone is None:
        # Accuracies measured elsewhere: only the name of their tasks is known.
        label = folder.name if record.imported is None else record.imported.method
        loaded = read_outcomes(folder, record)
        named = " and ".join(arm.name for arm in record.arms.values())
        return MethodResult(label, loaded, task_set=named, source=folder, records=(record,))
    found, sizes = run.outcomes, record.tested.class_sizes if record.tested is not None else ()
    label = record.method.called
    return MethodResult(label, dict(found), found.arms, "", sizes, folder, (record,))


def _is_evaluated(run: Run) -> bool:
    files = [run.record.outcomes_file(run.folder, arm) for arm in run.record.arms]
    ended = run.record.status != "unfinished"
    return ended and bool(files) and all(file.exists() for file in files)


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
        if path is None or (path / RECORD_NAME).exists():
            kept.append(one)
            continue
        holds_runs = any(path.glob(f"*/{RECORD_NAME}"))
        listed = runs(path) if holds_runs else load_runs(path, folder)
        if len(listed) == 1 and not holds_runs:
            kept += listed
            continue
        for reason in listed.broken.values():
            raise RecordError(reason)
        ended = [run for run in listed if _is_evaluated(run)]
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


def _result(one: Comparable, label: str | None, folder: Path) -> list[MethodResult]:
    if isinstance(one, MethodResult):
        return [one]
    if isinstance(one, Run):
        return [_of_run(run) for run in one.runs]
    if isinstance(one, ArmOutcomes):
        if label is None:
            raise OptionError("outcomes have no name: give a mapping of labels to outcomes")
        return [MethodResult(label, dict(one), one.arms)]
    found, _ = finished_of(one, folder)
    return [_of_run(each if isinstance(each, Run) else load_run(each, folder)) for each in found]
