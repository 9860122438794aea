"""Estimates of outcomes, and runs as results."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fsf_statistics.seed_groups import joined_over_seeds
from fsframework.api.components import Registry, component, layer
from fsframework.api.running import Run, read_outcomes
from fsframework.errors import DataError, RecordError
from fsframework.interfaces.statistic import Statistic
from fsframework.statistics.estimation import estimates_of
from fsframework.statistics.estimators import Interval, IntervalChoice
from fsframework.statistics.facts import options_told
from fsframework.statistics.results import MethodResult
from fsframework.values import ArmOutcomes, Estimates, ImagePool

if TYPE_CHECKING:
    from fsframework.api.imports import RunRecord

__all__ = [
    "estimate",
    "is_evaluated",
    "method_result",
    "statistic_of_run",
    "statistics_of",
]


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
        elif isinstance(request, Mapping):
            request = layer(request, "call")
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
    if isinstance(outcomes, Run):
        result = method_result(outcomes)
    else:
        result = MethodResult("these outcomes", dict(outcomes), outcomes.arms)
    if pool is not None and not result.class_sizes:
        result = dataclasses.replace(result, class_sizes=tuple(map(int, pool.class_sizes)))
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
    if not is_evaluated(run):
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


def is_evaluated(run: Run) -> bool:
    """Return whether a run is finished and has the outcomes of every arm."""
    files = [run.record.outcomes_file(run.folder, arm) for arm in run.record.arms]
    ended = run.record.status != "unfinished"
    return ended and bool(files) and all(file.exists() for file in files)
