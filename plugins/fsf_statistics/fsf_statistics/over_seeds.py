"""Estimates over training seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from fsf_statistics.estimating import method_result, statistic_of_run
from fsf_statistics.seed_groups import grouped_by_seeds
from fsframework.api.components import Registry
from fsframework.api.running import Run
from fsframework.api.session import open_session
from fsframework.errors import FsfError, OptionError, RecordError, argument
from fsframework.interfaces.statistic import Statistic
from fsframework.statistics.estimation import estimates_of
from fsframework.statistics.estimators import IntervalChoice
from fsframework.values import Estimate, Estimates

__all__ = ["TWO_SEEDS", "joined"]

TWO_SEEDS = (
    "two seeds say little about the variance between seeds: the interval is wide, and may contain "
    "the true value less often than its level says"
)


def joined(
    runs: Sequence[Run], level: float | None, statistics: Mapping[str, Statistic]
) -> list[Run]:
    """Return runs with those that differ only in their training seed as one; see ``Runs``."""
    for run in runs:
        if run.record.status == "unfinished":
            raise RecordError(
                f"{run.folder}: is not finished; run the command that made it again, or leave it "
                "out"
            )
    once = {run.record.fingerprint: run for run in reversed(runs)}
    registry = open_session(progress=False).registry
    groups = grouped_by_seeds(
        list(reversed(once.values())), lambda run: (run.record.group, run.record.training_seed)
    )
    return [
        group[0]
        if len(group) == 1 and level is None
        else _joined(group, _level(group) if level is None else level, registry, statistics)
        for group in groups
    ]


def _joined(
    runs: Sequence[Run], level: float, registry: Registry, statistics: Mapping[str, Statistic]
) -> Run:
    """Return runs, in the order of their seeds, as one."""
    records, reused = [run.record for run in runs], all(run.reused for run in runs)
    first = records[0]
    made = Run(runs[0].folder, first, reused, of_seeds=tuple(runs))
    result = method_result(made)
    estimates: dict[str, Estimate] = {}
    notes = list(_notes(runs))
    for name in dict.fromkeys(own.statistic for own in first.estimates.values()):
        try:
            statistic = statistics.get(name) or statistic_of_run(registry, name, *records)
            estimates |= estimates_of({name: statistic}, result, IntervalChoice(level))
        except FsfError as error:
            notes.append(f"without {name}: {error}")
    return dataclasses.replace(made, estimates=Estimates(estimates), seed_notes=tuple(notes))


def _level(runs: Sequence[Run]) -> float:
    levels = {float(run.record.settings["level"]): run for run in runs}
    if len(levels) > 1:
        said = " and ".join(f"{100 * one:g} %" for one in sorted(levels))
        names = " and ".join(str(run.folder) for run in levels.values())
        raise OptionError(
            f"{names}: their intervals have the levels {said}; run them again with one "
            f"{argument('level')}"
        )
    return next(iter(levels))


def _notes(runs: Sequence[Run]) -> Iterable[str]:
    """Yield what the runs of a group mean for its intervals."""
    weights = {run.record.digests.get("weights", run.name) for run in runs}
    if len(weights) == 1 < len(runs):
        yield (
            f"all {len(runs)} seeds have the same weights, since nothing random decides them: the "
            "seeds say nothing"
        )
    elif len(runs) == 2:
        yield TWO_SEEDS
    intervals = dict.fromkeys(str(run.record.settings.get("interval")) for run in runs)
    if others := [name for name in intervals if name != "student-t"]:
        yield (
            f"the intervals of the single runs are {', '.join(others)}; those over seeds and tasks "
            "are student-t"
        )
