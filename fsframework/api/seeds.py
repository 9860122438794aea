"""Runs of several training seeds as one result."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsframework.api.components import component
from fsframework.api.experiments import Description
from fsframework.api.running import Run, run_described
from fsframework.api.session import open_session
from fsframework.components.registry import Registry
from fsframework.errors import DataError, FsfError, OptionError, RecordError, argument
from fsframework.interfaces.statistic import Statistic
from fsframework.pipeline.experiment.configuration import Experiment
from fsframework.pipeline.experiment.stages import OVERRIDING
from fsframework.records import RunRecord
from fsframework.statistics.comparison import estimates_of_methods, values_of
from fsframework.statistics.differences import ComparisonOptions
from fsframework.statistics.estimators import IntervalChoice
from fsframework.statistics.measures import Measure
from fsframework.statistics.results import joined_over_seeds, result_of_run
from fsframework.statistics.seeds import grouped_by_seeds
from fsframework.values import Estimate, Estimates

__all__ = ["SeedGroup", "StatisticsOfRuns", "groups_over_seeds", "over_seeds", "run_over_seeds"]


@dataclass(frozen=True, repr=False, eq=False)
class SeedGroup:
    """Runs that differ only in their training seed: one method, trained several times.

    Args:
        runs: in the order of their seeds, all evaluated on the same tasks.
        estimates: over seeds and tasks, by name: ``wacc-random``, ``wacc-gap``, ...; with one run,
            those of the run.
        notes: what a reader of the estimates must know, besides the notes of the runs.
    """

    runs: tuple[Run, ...]
    estimates: Estimates
    notes: tuple[str, ...] = ()

    @property
    def seeds(self) -> tuple[int | None, ...]:
        """Training seed of each run, ``None`` where it is not known."""
        return tuple(run.record.training_seed for run in self.runs)

    @property
    def name(self) -> str:
        """Name of its first run."""
        return self.runs[0].name

    @property
    def record(self) -> RunRecord:
        """Record of its first run, which those of the others equal but for seed and results."""
        return self.runs[0].record

    def to_json(self) -> dict[str, Any]:
        """Return seeds, estimates, notes and folders of the runs as JSON values."""
        return {
            "seeds": list(self.seeds),
            "estimates": {name: one.to_json() for name, one in self.estimates.items()},
            "notes": list(self.notes),
            "folders": [str(run.folder) for run in self.runs],
        }

    def _described(self) -> str:
        shown = ", ".join("unknown" if seed is None else str(seed) for seed in self.seeds)
        return f"{'seed' if len(self.runs) == 1 else 'seeds'} {shown}"

    def __repr__(self) -> str:
        lines = [f"<SeedGroup {self.name}: {self._described()}>", repr(self.estimates)]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        from html import escape

        title = f"<p><b>{escape(self.name)}</b>: {escape(self._described())}</p>"
        notes = "".join(f"<p>note: {escape(note)}</p>" for note in self.notes)
        return title + self.estimates._repr_html_() + notes


def run_over_seeds(description: Description, seeds: Sequence[int]) -> SeedGroup:
    """Run a described experiment once for each training seed, all on the same tasks.

    Each is the run that the same experiment with this ``training_seed`` makes, so that finished
    ones are reused.

    Args:
        seeds: of the trainings.

    Raises:
        OptionError: there are no seeds, or the experiment cannot have several; the message says
            why.
    """
    experiment, session = description.experiment, description.session
    if not seeds:
        raise OptionError(f"{argument('seeds')} must have at least one seed")
    _check_several(experiment)
    # Every seed is checked before the first run.
    for seed in seeds:
        _trained_with(experiment, seed)
    runs = []
    for place, seed in enumerate(seeds, start=1):
        session.reporter.say(f"training seed {seed}, {place} of {len(seeds)}")
        own = dataclasses.replace(description, experiment=_trained_with(experiment, seed))
        runs.append(run_described(own))
    statistics = {name: one.create() for name, one in experiment.statistics.items()}
    return over_seeds(runs, level=experiment.settings.level, statistics=statistics)


def _trained_with(experiment: Experiment, seed: int) -> Experiment:
    return dataclasses.replace(
        experiment,
        settings=dataclasses.replace(experiment.settings, training_seed=seed),
        given={**experiment.given, "training_seed": seed},
        origins={**experiment.origins, "training_seed": argument("seeds")},
    )


def _check_several(experiment: Experiment) -> None:
    """Check that an experiment can be run with several training seeds."""
    settings, seeds = experiment.settings, argument("seeds")
    if "training_seed" in experiment.given and experiment.origins["training_seed"] in OVERRIDING:
        raise OptionError(f"{seeds} sets the training seeds; leave out {argument('training_seed')}")
    if settings.model is not None:
        raise OptionError(
            f"{argument('model', str(settings.model))}: nothing is trained, so there are no "
            f"training seeds; leave out {seeds}, and evaluate the run of each seed"
        )
    if experiment.name:
        raise OptionError(
            f"{argument('name', experiment.name)} names one run, and {seeds} makes several; leave "
            "one out"
        )
    if settings.interval != "student-t":
        raise OptionError(
            f"{argument('interval', settings.interval)} is for one model; intervals over seeds "
            f"are {argument('interval', 'student-t')}"
        )


def over_seeds(
    runs: Iterable[Run],
    *,
    level: float | None = None,
    statistics: Mapping[str, Statistic] | None = None,
) -> SeedGroup:
    """Estimate over training seeds and tasks from runs that differ only in their training seed.

    Seeds and tasks are crossed random effects: the interval adds the variance between seeds to
    that between tasks. It speaks of the method trained again with another seed, on other tasks of
    the same kind; as any interval over tasks that share images, of this data set only.

    Caveats: two seeds say little of the variance between them. In simulations 95 % intervals held
    the truth in 94.5 to 96.7 % with 3 to 10 seeds, and in 92.3 to 96.7 % with 2. They say nothing
    of other hyperparameters or training data.

    Args:
        runs: finished; ``fsframework.run(seeds=...)`` makes them.
        level: confidence level; by default that of the runs.
        statistics: by name, for those whose options or classes a record does not hold.

    Raises:
        OptionError: the runs differ in more than the seed, or two have the same seed, or they have
            different levels and none is given.
        RecordError: a run is not finished.

    >>> import fsframework as fsf
    >>> both = fsf.run(
    ...     method="ncc", sampler="random", tasks=20, way=2, shot=1, queries=2, progress=False,
    ...     dataset={"name": "planted", "n_per_class": 8, "size": 16}, training={"epochs": 0},
    ...     seeds=range(2),
    ... )
    >>> both.seeds, both.estimates["acc-random"].n_seeds
    ((0, 1), 2)
    """
    given = list(runs)
    if not given:
        raise OptionError("estimates over seeds need at least one run, and none is given")
    groups = groups_over_seeds(given, level=level, statistics=statistics)
    if len(groups) > 1:
        raise OptionError(_why_apart(groups[0].runs, groups[1].runs[0]))
    return groups[0]


def _why_apart(group: Sequence[Run], other: Run) -> str:
    """Return why a run does not belong to a group, as a sentence."""
    first, seed = group[0], other.record.training_seed
    if first.record.group and first.record.group == other.record.group:
        [same] = (run for run in group if run.record.training_seed == seed)
        return (
            f"{same.folder} and {other.folder} have the same training seed, {seed}; give one of "
            "them"
        )
    return f"{first.folder} and {other.folder} differ in more than their training seed"


def groups_over_seeds(
    runs: Sequence[Run],
    *,
    level: float | None = None,
    statistics: Mapping[str, Statistic] | None = None,
) -> list[SeedGroup]:
    """Return runs as groups that differ only in their training seed, with estimates of each.

    Groups are in the order of their first runs. Two runs belong to one group if their records say
    so (``RunRecord.group``: all that decides the outcomes but the training seed is equal). A run of
    another seed only and an imported one are groups of one run, with the estimates and the
    intervals of that run. The same run given twice counts once;
    another run with a seed that its group already has begins another group.

    Args:
        runs: finished.
        level: confidence level; by default that of the runs.
        statistics: by name, for those whose options or classes a record does not hold.

    Raises:
        RecordError: a run is not finished.
        OptionError: the runs of a group have different levels and none is given.
        DataError: files of a run are damaged.
    """
    for run in runs:
        if run.record.status == "unfinished":
            raise RecordError(
                f"{run.folder}: is not finished; run the command that made it again, or leave it "
                "out"
            )
    once = {run.record.fingerprint: run for run in reversed(runs)}
    made = StatisticsOfRuns(dict(statistics or {}))
    groups = grouped_by_seeds(
        list(reversed(once.values())), lambda run: (run.record.group, run.record.training_seed)
    )
    return [_group(group, level, made) for group in groups]


class StatisticsOfRuns:
    """Statistics by name, made when they are needed."""

    def __init__(self, given: Mapping[str, Statistic] | None = None) -> None:
        self._given = dict(given or {})
        self._registry: Registry | None = None

    def of(self, name: str, record: RunRecord) -> Statistic:
        """Return a statistic as a run computed it.

        Raises:
            DataError: the record does not hold its options.
        """
        if name in self._given:
            return self._given[name]
        self._registry = self._registry or open_session(progress=False).registry
        found = component(self._registry, "statistic", name)
        if found.fingerprint != record.statistics.get(name):
            raise DataError(f"its runs computed {name} with other options or another version")
        made: Statistic = found.create()
        return made


def _group(runs: Sequence[Run], level: float | None, statistics: StatisticsOfRuns) -> SeedGroup:
    """Return the group of runs in the order of their seeds."""
    if len(runs) == 1 and level is None:
        return SeedGroup(tuple(runs), runs[0].estimates)
    how = ComparisonOptions(IntervalChoice(_level(runs) if level is None else level))
    [joined] = joined_over_seeds([result_of_run(run.folder, run.record) for run in runs])
    first = runs[0].record
    estimates: dict[str, Estimate] = {}
    notes = list(_notes(runs))
    for name, own in first.estimates.items():
        try:
            statistic = statistics.of(own.statistic, first)
            values = values_of([joined], Measure(own.statistic, own.arms), statistic)
        except FsfError as error:
            notes.append(f"without {name}: {error}")
            continue
        [one] = estimates_of_methods([name], values, how).values()
        estimates[name] = dataclasses.replace(one, higher_is_better=own.higher_is_better)
    return SeedGroup(tuple(runs), Estimates(estimates), tuple(notes))


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
        yield (
            "two seeds say little of the variance between seeds; intervals are wide, and may hold "
            "the truth less often than their level"
        )
    intervals = dict.fromkeys(str(run.record.settings.get("interval")) for run in runs)
    if others := [name for name in intervals if name != "student-t"]:
        yield (
            f"the intervals of the single runs are {', '.join(others)}; those over seeds and tasks "
            "are student-t"
        )
