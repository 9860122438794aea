"""Runs as figures and tables see them: methods on sets of equal tasks, and their estimates."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import fsf_statistics
import fsframework as fsf
from fsf_reports.values import Quantity
from fsf_statistics import (
    ComparedHeadline,
    cautions_of,
    collect_results,
    facts_of,
    finished_of,
    labelled,
    labels_of,
    measures_named,
    sets_of,
    statistics_of,
    tasks_told_apart,
)
from fsframework.api.imports import RunRecord
from fsframework.api.session import open_session
from fsframework.errors import DataError, OptionError
from fsframework.interfaces import Statistic
from fsframework.statistics.differences import ComparisonOptions
from fsframework.statistics.estimators import IntervalChoice
from fsframework.statistics.facts import called
from fsframework.statistics.facts import facts_of as facts_of_run
from fsframework.statistics.measures import Measure
from fsframework.statistics.results import MethodResult
from fsframework.statistics.task_values import estimates_of_methods, values_of
from fsframework.values import Estimate, footnotes, label_in_arms

__all__ = ["Group", "Results", "Shown", "data_of", "natural", "reading", "some_of", "title_of"]


_MOST_CAUTIONS = 2
"""More make a caption unreadable; ``fsf runs list`` has all."""


@dataclass(frozen=True, eq=False)
class Shown:
    """A method on its tasks.

    Args:
        label: its name, unique among the methods on equal tasks.
        result: its answers.
        open_run: opens its run.
    """

    label: str
    result: MethodResult
    open_run: Callable[[], fsf.Run]

    @cached_property
    def run(self) -> fsf.Run:
        """Its run, the first of several seeds."""
        return self.open_run()

    @property
    def record(self) -> RunRecord:
        """The record of its run, the first of several seeds, with names for its paths."""
        return self.result.records[0] if self.result.records else self.run.record

    @property
    def name(self) -> str:
        """The name of its run, the first of several seeds, or its label without one."""
        return self.label if self.result.source is None else self.result.source.name

    @property
    def n_shot(self) -> int:
        """Support images per class of its tasks."""
        if self.result.arms is None:
            raise DataError(
                f"{self.label}: its tasks were drawn elsewhere, their shots are unknown"
            )
        return self.result.arms.tested.n_shot

    @property
    def trained_shot(self) -> int | None:
        """Support images per class of its training episodes; ``None`` where nothing was trained."""
        record = self.run.record
        if not record.training.history:
            return None
        told = [stage.options.get("n_shot") for stage in record.stages]
        return int(next((n for n in told if n is not None), None) or self.n_shot)


@dataclass(frozen=True, eq=False)
class Group:
    """Methods on equal tasks.

    Args:
        shown: the methods.
        told: what tells these tasks from those of the other groups, by name.
    """

    shown: tuple[Shown, ...]
    told: Mapping[str, str] = field(default_factory=dict)

    @property
    def first(self) -> MethodResult:
        """The result of its first method."""
        return self.shown[0].result

    @property
    def apart(self) -> dict[str, str]:
        """What tells these tasks from others besides data set, ways and shots, by name."""
        return {name: v for name, v in self.told.items() if name not in ("data", "tasks")}

    @property
    def title(self) -> str:
        """Data set, ways and shots, and what else tells these tasks from others."""
        return ", ".join(part for part in (self.tasks, called(self.apart)) if part)

    @cached_property
    def facts(self) -> Mapping[str, str]:
        """What is known of the tasks, by name; see ``facts_of``."""
        return facts_of(self.first)

    @property
    def panel(self) -> str:
        """What tells these tasks from those of the other groups, as the title of a panel."""
        return title_of(self.told)

    @property
    def tasks(self) -> str:
        """Data set, ways and shots."""
        return ", ".join(filter(None, (self.facts["data"], self.facts["tasks"])))

    def arms(self) -> tuple[str, str]:
        """Return control and tested arm.

        Raises:
            DataError: the tasks have one arm only.
        """
        if self.first.contrast is None:
            raise DataError(
                f"{self.title}: these tasks have one arm, and this needs two that are compared, as "
                "from the sampler fewstab"
            )
        return self.first.contrast.arms

    def label(self, measure: Measure, statistic: Statistic) -> str:
        """Return what a measure is called, such as ``wAcc-R``."""
        name = statistic.label or measure.statistic
        if measure.is_gap:
            return f"{name} {'drop' if measure.relative else 'gap'}"
        symbols = {} if self.first.arms is None else self.first.arms.symbols
        only = len(self.first.outcomes) == 1
        return label_in_arms(name, measure.arms, symbols, only=only)


@dataclass(frozen=True, eq=False)
class Results:
    """The runs that a figure or a table is made of.

    Args:
        groups: methods by equal tasks, in the order in which the tasks first appear.
        level: confidence level of the intervals.
        statistic_of: makes a statistic by name.
        statistics: names of the known ones.
        left_out: a sentence on unfinished runs, or empty.
    """

    groups: tuple[Group, ...]
    level: float
    statistic_of: Callable[[str], Statistic]
    statistics: tuple[str, ...] = ()
    left_out: str = ""

    @classmethod
    def of(
        cls,
        results: Any,
        *,
        level: float = 0.95,
        runs_dir: str | Path | None = None,
        plugins: Sequence[str | Path] = (),
    ) -> Results:
        """Open runs; see ``fsframework.compare`` for what may be given.

        Raises:
            RecordError: a run does not exist, or has no outcomes.
            OptionError: no run is given, or the level is out of range.
        """
        session = open_session(runs_dir=runs_dir, plugins=plugins, progress=False)
        IntervalChoice(level)
        results, left_out = finished_of(results, session.workspace.runs)
        found = collect_results(results, session.workspace.runs)
        if not found:
            raise OptionError("there is nothing to show: no run is given")
        groups = []
        for group in sets_of(_models_told_apart(found)):
            named = zip(labels_of(group), group, strict=True)
            groups.append(Group(tuple(Shown(name, one, _opener(one)) for name, one in named)))
        made: dict[str, Statistic] = {}

        def statistic_of(name: str) -> Statistic:
            if name not in made:
                made.update(statistics_of(session.registry, name, found))
            return made[name]

        known = tuple(session.registry.names("statistic"))
        return cls(_told_apart(groups), level, statistic_of, known, left_out)

    def with_two_arms(self) -> Results:
        """Return the runs whose tasks have two arms, where there are any; the others are named."""
        kept = tuple(group for group in self.groups if group.first.contrast is not None)
        if not kept or len(kept) == len(self.groups):
            return self
        left = [one.name for group in self.groups if group not in kept for one in group.shown]
        said = [self.left_out, f"left out, as their tasks have one arm: {some_of(left)}"]
        left_out = "; ".join(filter(None, said))
        return dataclasses.replace(self, groups=_told_apart(kept), left_out=left_out)

    @property
    def shown(self) -> tuple[Shown, ...]:
        """All methods on all tasks."""
        return tuple(one for group in self.groups for one in group.shown)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What must be known of these runs, each sentence once."""
        of = cautions_of({one.label: one.result.records for one in self.shown})
        first = next(iter(of.values()), ())
        shared = [one for one in first if all(one in own for own in of.values())]
        others = footnotes({k: [one for one in own if one not in shared] for k, own in of.items()})
        return (*shared, *others)

    @property
    def left_told(self) -> str:
        """A sentence on what is left out, or nothing."""
        return f"{self.left_out[:1].upper()}{self.left_out[1:]}." if self.left_out else ""

    @property
    def cautions(self) -> list[str]:
        """What must stand under everything that shows these runs, in short.

        What a run only suspects is in its own notes.
        """
        found = [one for one in self.remarks if "possible contamination:" not in one.lower()]
        more = len(found) - _MOST_CAUTIONS
        told = [*found[:_MOST_CAUTIONS], *([f"{more} more: fsf runs list"] if more > 0 else [])]
        return [*told, *filter(None, [self.left_told])]

    def estimate(self, one: Shown, measure: Measure) -> Estimate:
        """Return a measure of a method with its interval, as ``fsframework.compare`` does.

        Raises:
            DataError: it cannot be computed from the method's answers.
        """
        statistic = self.statistic_of(measure.statistic)
        values = values_of([one.result], measure, statistic)
        how = ComparisonOptions(IntervalChoice(self.level))
        [found] = estimates_of_methods([one.label], values, how).values()
        return found

    def quantity(self, one: Shown, measure: Measure) -> Quantity:
        """Return the same, shares in percent."""
        return Quantity.of(self.estimate(one, measure))

    def measure(self, name: str, group: Group) -> Measure:
        """Return a measure by name; a statistic stands for its gap, or its value in the only arm.

        Raises:
            OptionError: the name is unknown.
        """
        arms, contrast = list(group.first.outcomes), group.first.contrast
        if name in self.statistics:
            return Measure(name, contrast.arms if contrast is not None else tuple(arms[:1]))
        return measures_named([name], self.statistics, arms, contrast)[0]

    def headline(self, group: Group, statistic: str) -> ComparedHeadline:
        """Return the answer of methods on equal tasks."""
        own = {one.label: one.result for one in group.shown}
        return fsf_statistics.headline(own, self.statistic_of(statistic), level=self.level)

    def limits_of_gaps(self, statistic: str) -> tuple[str, ...]:
        """Return what gaps do not rank and which values are near guessing, as tables say it."""
        sets = [
            ([one for one in columns if one.measure.arms], group.panel)
            for group in self.groups
            if group.first.contrast is not None
            for columns in self.headline(group, statistic).columns
        ]
        return tuple(fsf_statistics.limits_of(*zip(*sets, strict=True))) if sets else ()

    def label(self, measure: Measure, group: Group | None = None) -> str:
        """Return what a measure is called."""
        group = group or self.groups[0]
        return group.label(measure, self.statistic_of(measure.statistic))

    def axis(self, measure: Measure, group: Group | None = None) -> str:
        """Return the title of an axis that shows a measure."""
        unit = " (points)" if measure.is_gap and not measure.relative else " (%)"
        shown = measure.relative or self._is_share(measure)
        return self.label(measure, group) + (unit if shown else "")

    def limits(self, *measures: Measure) -> tuple[float, float] | None:
        """Return what no value of the measures can lie beyond, as figures show them."""
        shares = all(self._is_share(measure) and not measure.is_gap for measure in measures)
        return (0.0, 100.0) if shares else None

    def _is_share(self, measure: Measure) -> bool:
        return tuple(self.statistic_of(measure.statistic).bounds) == (0.0, 1.0)


def _models_told_apart(results: Sequence[MethodResult]) -> list[MethodResult]:
    """Return results of which equal labels mean the same model on every set of tasks.

    Runs of one method with several backbones, or options that the user gave, are several models.
    """
    labels = labelled([one.label for one in results], [_model_facts(one) for one in results])
    named = zip(results, labels, strict=True)
    return [dataclasses.replace(one, label=label) for one, label in named]


def _model_facts(result: MethodResult) -> dict[str, str]:
    if not result.records:
        return {}
    record = result.records[0]
    usual = ("default", f"recipe {record.settings.get('recipe')}")
    given = {
        f"{role}.{name}"
        for role, component in record.components.items()
        if role in ("backbone", "method")
        for name, origin in component.origins.items()
        if origin not in usual
    }
    return {k: v for k, v in facts_of_run(record).items() if k in {"backbone", *given}}


def _told_apart(groups: Sequence[Group]) -> tuple[Group, ...]:
    """Return groups with what tells each from the others; those of a data set in order of that."""
    told = tasks_told_apart([group.facts for group in groups])
    data = list(dict.fromkeys(group.facts["data"] for group in groups))
    found = [
        Group(group.shown, {name: values[place] for name, values in told.items()})
        for place, group in enumerate(groups)
    ]
    return tuple(sorted(found, key=lambda g: (data.index(g.facts["data"]), natural(g.title))))


def some_of(names: Sequence[str]) -> str:
    """Return the first names, and how many there are more."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def title_of(told: Mapping[str, str]) -> str:
    """Return what is told of a thing as a title, also where it is that an option is off.

    >>> title_of({"placebo": "true"}), title_of({"placebo": "false"}), title_of({"drop_words": ""})
    ('placebo', 'no placebo', 'default')
    """
    off = [f"no {name.replace('_', ' ')}" for name, value in told.items() if value == "false"]
    return called(told) or ", ".join(off) or ("default" if told else "")


def natural(text: str) -> list[tuple[float, str]]:
    """Return a key that sorts the numbers in texts as numbers."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [(float(p), "") if n % 2 else (math.inf, p) for n, p in enumerate(parts)]


def _opener(result: MethodResult) -> Callable[[], fsf.Run]:
    def opened() -> fsf.Run:
        if result.source is None:
            raise DataError(f"{result.label}: this needs a run, and these are only its answers")
        return fsf.load_run(result.source)

    return opened


def reading(estimates: Iterable[Estimate], groups: Sequence[Group], per: str = "arm") -> str:
    """Return what a caption says of values: data, tasks, level and scope of the intervals.

    >>> one = Estimate("acc", 0.5, 0.4, 0.6, 0.95, "closed", False, "student-t", 600, 3000)
    >>> reading([one], [])
    '600 tasks; 95 % intervals over tasks drawn from these images.'
    """
    told = [one for one in estimates if one.arms] or list(estimates)
    parts = []
    where = f"on {data}: " if (data := data_of(groups)) else ""
    tasks = {e.n_tasks // (2 if len(e.arms) == 2 and not e.paired else 1) for e in told}
    if tasks:
        arms = f" per {per}" if any(e.arms for e in told) else ""
        parts.append(f"{_range(tasks)} tasks{arms}")
    if (seeds := {e.n_seeds for e in told}) - {0, 1}:
        parts.append(f"means over {_range(seeds - {0})} training seeds")
    levels = " and ".join(f"{100 * level:g} %" for level in sorted({e.level for e in told}))
    scopes = " or ".join(_SCOPES[scope] for scope in sorted({e.scope for e in told}))
    parts.append(f"{levels} intervals {scopes}" if told else "no intervals")
    text = where + "; ".join(parts) + "."
    return text[:1].upper() + text[1:]


_SCOPES: Mapping[str, str] = {
    "closed": "over tasks drawn from these images",
    "open": "over tasks and new images",
}


def _range(numbers: Iterable[int]) -> str:
    return " to ".join(f"{n:,}" for n in sorted({min(numbers), max(numbers)}))


def data_of(groups: Sequence[Group]) -> str:
    """Return data sets with the ways and shots of their tasks."""
    shapes: dict[str, dict[str, None]] = {}
    for group in groups:
        shapes.setdefault(group.facts["data"], {})[group.facts["tasks"]] = None
    found = [
        ", ".join(filter(None, (data, _and(list(filter(None, own))))))
        for data, own in shapes.items()
    ]
    found = found if len(found) <= 4 else [*found[:3], f"{len(found) - 3} more"]
    apart = dict.fromkeys(called(group.apart) for group in groups)
    if len(some := list(filter(None, apart))) == 1 and len(apart) == 2:
        found.append(f"with and without {some[0]}")
    elif groups and all(group.facts.get("placebo") == "true" for group in groups):
        found.append("placebo")
    return "; ".join(found)


def _and(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))
