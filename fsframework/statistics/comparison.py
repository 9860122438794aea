"""Methods on equal tasks: paired differences, their p over all pairs, and groups of equal methods.

Each pair is compared in two ways. *Direct*: two methods differ if their own intervals do not
overlap, which most tables leave to the reader; with closed intervals this holds for a data set,
with open ones for a distribution. *Paired*: the interval of the difference, task by task, excludes
0.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
import scipy

from fsframework._calls import checked, malformed, seeded
from fsframework._text import printable
from fsframework.errors import DataError, OptionError, argument
from fsframework.interfaces.statistic import Statistic
from fsframework.statistics.crossed import NO_SPREAD, Difference
from fsframework.statistics.differences import (
    ComparisonOptions,
    benjamini_hochberg,
    bootstrap_of_few,
    differences,
    holm,
    means_over_seeds,
)
from fsframework.statistics.estimators import LEVELS, Level
from fsframework.statistics.intervals import answers_of, interval_over
from fsframework.statistics.measures import Measure
from fsframework.statistics.results import MethodResult
from fsframework.values import (
    AccuracyOutcomes,
    Arms,
    Contrast,
    Estimate,
    FloatArray,
    Outcomes,
    QueryBatch,
    Scope,
    data_frame,
    first_rows,
    footnotes,
    html_table,
    table_of,
    text_table,
)

__all__ = [
    "TWO_SEEDS",
    "Comparison",
    "MeasureComparison",
    "Pair",
    "TaskValues",
    "compare_methods",
    "direct_sign",
    "estimates_of_methods",
    "letters",
    "values_of",
]

FEWEST_DIFFERENT = 6
"""If two methods differ in fewer tasks, a note says so."""

_ONE_TASK = "one task says nothing about others: there is no interval and no p"

_ONE_SEED = (
    "one seed, so intervals and differences hold for these weights only, not for the method "
    "trained again"
)

TWO_SEEDS = (
    "two seeds say little about the variance between seeds: the interval is wide, and may contain "
    "the true value less often than its level says"
)


@dataclass(frozen=True, eq=False)
class TaskValues:
    """One measure of every method, task by task.

    Args:
        measure: a statistic on an arm, or on a contrast.
        task_set: name of the tasks.
        parts: float64 ``(T, models)``: one part for an arm, or for the gap of arms that are paired
            task by task; two for the gap of arms drawn independently, whose means add up to it.
        scope: of every interval over tasks; ``n_images`` distinct images in all parts, 0 if not
            known.
        share: whether values are shares of 1.
        query_batch: which queries a method received together.
        paired_arms: whether it is the gap of arms that are paired task by task.
        seeds: models of each method, which are side by side; empty for one each.
        statistic: that is compared, and ``results`` whose it is, for intervals over images.
        guessing: what guessing gives in the arm, ``None`` if it is not known.
    """

    measure: Measure
    task_set: str
    parts: tuple[FloatArray, ...]
    scope: Scope
    n_images: int = 0
    share: bool = True
    query_batch: QueryBatch = "task"
    paired_arms: bool = False
    seeds: tuple[int, ...] = ()
    statistic: Statistic | None = None
    results: tuple[MethodResult, ...] = ()
    guessing: float | None = None

    @property
    def n_seeds(self) -> tuple[int, ...]:
        """Models of each method."""
        return self.seeds or (1,) * self.parts[0].shape[1]

    @property
    def means(self) -> tuple[FloatArray, ...]:
        """The parts with the mean of each method's models, ``(T, methods)`` each."""
        return tuple(means_over_seeds(values, self.n_seeds) for values in self.parts)

    @property
    def n_tasks(self) -> int:
        """Tasks of all parts together."""
        return sum(len(values) for values in self.parts)

    @property
    def fewest_tasks(self) -> int:
        """Tasks of the part that has the fewest."""
        return min(len(values) for values in self.parts)

    def shown(self, value: float, digits: str) -> str:
        """Return a value as text, shares in percent."""
        return f"{100 * value:{digits}} %" if self.share else f"{value:.4g}"


@dataclass(frozen=True)
class Pair:
    """Two methods, ``first`` less ``second``.

    Args:
        difference: with its interval; bounds are NaN if it has none.
        p: two-sided, of no difference; ``None`` if all tasks have the same difference.
        p_holm: adjusted for all pairs after Holm (1979); the chance that any pair is called
            different although none is stays below 1 - level.
        p_bh: adjusted after Benjamini & Hochberg (1995): of the pairs called different, the
            expected share that is not.
        correlation: of the two over the tasks (Pearson), ``None`` where one is constant or the
            measure has two parts.
        direct: ``+``, ``-`` or ``0``, from the two methods' own intervals.
        paired: the same, from the interval of the difference.
        note: a sentence on what a reader must know, or empty.
    """

    first: str
    second: str
    difference: Estimate
    p: float | None
    p_holm: float | None
    p_bh: float | None
    correlation: float | None
    direct: str
    paired: str
    note: str = ""

    @property
    def inverted(self) -> bool:
        """Whether the two comparisons reach opposite conclusions."""
        return {self.direct, self.paired} == {"+", "-"}

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {**vars(self), "difference": self.difference.to_json(), "inverted": self.inverted}


@dataclass(frozen=True, repr=False)
class MeasureComparison:
    """All methods in one measure, on one set of tasks.

    Args:
        measure: a statistic on an arm, or on a contrast.
        task_set: what the tasks are called.
        values: of each method, with its own interval.
        pairs: every pair of methods, or each with the baseline.
        groups: letters of each method, in the order of their values; two that share one cannot be
            told apart, by Holm's p. Empty where there is a baseline.
        level: confidence level.
        notes: sentences on methods, next to those on pairs.
        other_scope: the methods' own intervals of the other scope on the same tasks, if there are
            any: open ones over images next to closed ones, or the other way round.
        limits: what gaps do not say, since methods are near guessing or differ in the control arm.
    """

    measure: Measure
    task_set: str
    values: Mapping[str, Estimate]
    pairs: tuple[Pair, ...]
    groups: Mapping[str, str]
    level: float
    notes: tuple[str, ...] = ()
    other_scope: Mapping[str, Estimate] = field(default_factory=dict)
    limits: tuple[str, ...] = ()

    @property
    def scope(self) -> Scope:
        """What the methods' own intervals speak of."""
        return next(iter(self.values.values())).scope

    def pair(self, first: str, second: str) -> tuple[Pair, int]:
        """Return the pair of two labels, and -1 where it is the other way round.

        Raises:
            KeyError: they were not compared.
        """
        if (first, second) in self._by_labels:
            return self._by_labels[first, second], 1
        if (second, first) in self._by_labels:
            return self._by_labels[second, first], -1
        raise KeyError((first, second))

    @property
    def sentences(self) -> list[str]:
        """The limits, and the notes on methods and pairs."""
        return [*self.limits, *self.notes, *(pair.note for pair in self.pairs if pair.note)]

    def cell(self, label: str) -> str:
        """Return a method's value with its letters as text, empty if it has none."""
        if label not in self.values:
            return ""
        group = self.groups.get(label, "")
        return f"{self.values[label]}{f' ({group})' if group else ''}"

    @cached_property
    def _by_labels(self) -> Mapping[tuple[str, str], Pair]:
        return {(pair.first, pair.second): pair for pair in self.pairs}

    def __repr__(self) -> str:
        tables = [
            f"{title}\n{text_table(head, first_rows(r))}" for title, head, r in self._tables()
        ]
        return printable("\n\n".join([*tables, "\n".join(self.sentences)]).rstrip())

    def _repr_html_(self) -> str:
        tables = [html_table(head, rows, title) for title, head, rows in self._tables()]
        return "".join([*tables, *(f"<p>{escape(note)}</p>" for note in self.sentences)])

    def _tables(self) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
        """Yield title, columns and rows of two tables: of values and of pairs."""
        title = f"{self.measure.name} on {self.task_set}"
        yield title, *table_of(self.values, "method", group=self.groups)
        pairs = {f"{pair.first} − {pair.second}": pair for pair in self.pairs}
        p = {label: _number(pair.p_holm) for label, pair in pairs.items()}
        found = {label: pair.difference for label, pair in pairs.items()}
        yield f"{title}, paired differences", *table_of(found, "pair", **{"Holm's p": p})

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "measure": self.measure.name,
            "statistic": self.measure.statistic,
            "arms": list(self.measure.arms),
            "task_set": self.task_set,
            "level": self.level,
            "values": {label: value.to_json() for label, value in self.values.items()},
            "groups": dict(self.groups),
            "pairs": [pair.to_json() for pair in self.pairs],
            "notes": [*self.limits, *self.notes],
            "other_scope": {label: e.to_json() for label, e in self.other_scope.items()},
        }

    def to_pandas(self) -> Any:
        """Return a pandas ``DataFrame``: a row per pair of methods."""
        return Comparison((self,)).to_pandas()


@dataclass(frozen=True, repr=False)
class Comparison:
    """Methods in every measure, on every set of equal tasks; printed, a table of their values.

    Args:
        parts: one for each measure and set of tasks.
        notes: what was left out, and why.
        cautions: by label of a method, what every table that shows it must carry as a note.
    """

    parts: tuple[MeasureComparison, ...]
    notes: tuple[str, ...] = ()
    cautions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __getitem__(self, index: int | str) -> MeasureComparison:
        """Return a part by its place, or by the name of its measure, such as ``wacc-gap``.

        Raises:
            KeyError: no part has this measure, or several have, for different sets of tasks.
        """
        if not isinstance(index, str):
            return self.parts[index]
        found = [part for part in self.parts if part.measure.name == index]
        if len(found) == 1:
            return found[0]
        if found:
            sets = ", ".join(part.task_set for part in found)
            raise KeyError(f"{index!r} was compared on several sets of tasks: {sets}")
        known = ", ".join(dict.fromkeys(part.measure.name for part in self.parts))
        raise KeyError(f"{index!r} was not compared; the measures are {known}")

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[MeasureComparison]:
        return iter(self.parts)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of all parts."""
        return tuple(pair for part in self.parts for pair in part.pairs)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "comparisons": [part.to_json() for part in self.parts],
            "notes": list(self.notes),
            "cautions": {label: list(said) for label, said in self.cautions.items()},
        }

    def to_pandas(self) -> Any:
        """Return a pandas ``DataFrame``: a row per pair of methods, measure and set of tasks."""
        return data_frame([
            {
                "measure": part.measure.name, "tasks": part.task_set, "first": pair.first,
                "second": pair.second, "difference": pair.difference.value,
                "low": pair.difference.low, "high": pair.difference.high, "p": pair.p,
                "p_holm": pair.p_holm, "p_bh": pair.p_bh,
            }
            for part in self.parts for pair in part.pairs
        ])  # fmt: skip

    def __repr__(self) -> str:
        tables = [
            f"{title}\n{text_table(head, first_rows(r))}" for title, head, r in self._tables()
        ]
        return printable("\n\n".join([*tables, "\n".join(self._below())]))

    def _repr_html_(self) -> str:
        tables = [html_table(head, rows, title) for title, head, rows in self._tables()]
        return "".join([*tables, *(f"<p>{escape(line)}</p>" for line in self._below())])

    def _tables(self) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
        """Yield title, columns and rows of a table per set of tasks: a column per measure."""
        for task_set in dict.fromkeys(part.task_set for part in self.parts):
            parts = [part for part in self.parts if part.task_set == task_set]
            labels = dict.fromkeys(label for part in parts for label in part.values)
            rows = [[label, *(part.cell(label) for part in parts)] for label in labels]
            yield task_set, ["method", *(part.measure.name for part in parts)], rows

    def _below(self) -> list[str]:
        """Return the lines below the tables, each once."""
        lines = []
        for part in self.parts:
            said = part.sentences
            lines += [f"note: {part.measure.name}: {note}" for note in said[:1]]
            lines += [f"and {len(said) - 1} more on {part.measure.name}"] * (len(said) > 1)
        if any(part.groups for part in self.parts):
            lines.append("methods that share a letter cannot be told apart (Holm's p)")
        if any(part.scope == "closed" for part in self.parts):
            lines.append("closed: tasks share images, so the interval holds for this data set only")
        lines += [*(f"note: {note}" for note in self.notes), *footnotes(self.cautions)]
        one = self.parts[-1].measure.name
        lines.append(f'["{one}"] has intervals and pairs of one measure, .to_pandas() all pairs')
        return list(dict.fromkeys(lines))


def _number(p: float | None) -> str:
    return "none" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def values_of(
    results: Sequence[MethodResult], measure: Measure, statistic: Statistic
) -> TaskValues:
    """Compute a measure of results on equal tasks.

    Args:
        results: as ``comparable`` returns them.

    Raises:
        DataError: it cannot be computed from what the results hold.
    """
    first, seeds = results[0], tuple(len(one.models) for one in results)
    of_arms = [_columns(results, measure.statistic, arm, statistic) for arm in measure.arms]
    parts: tuple[FloatArray, ...] = (of_arms[0],)
    scope = first.outcomes[measure.arms[0]].scope
    n_images, paired = first.outcomes[measure.arms[0]].n_images, False
    if measure.is_gap:
        if first.arms is None or first.contrast is None:
            raise DataError(f"{measure.name}: these results share no two arms that are compared")
        batches = [first.outcomes[arm].query_batch for arm in measure.arms]
        if batches[0] != batches[1]:
            raise DataError(
                f"the arms {' and '.join(measure.arms)} were scored differently: the queries of "
                f"one were passed by {batches[0]}, those of the other by {batches[1]}"
            )
        # A gap is positive where the tested arm is worse.
        sign = 1.0 if statistic.higher_is_better else -1.0
        n_images, scope = contrast_images(first.arms, first.contrast)
        paired = first.contrast.paired
        control, tested = (sign * values for values in of_arms)
        if measure.relative:
            guessed = sign * _above_guessing(results, measure, statistic)
            control, tested = _relative(control - guessed, tested - guessed, seeds)
        parts = (control - tested,) if paired else (control, -tested)
    return TaskValues(
        measure,
        first.tasks_called(measure.arms),
        parts,
        scope,
        n_images,
        measure.relative or tuple(statistic.bounds) == (0.0, 1.0),
        first.outcomes[measure.arms[-1]].query_batch,
        paired,
        seeds,
        statistic,
        tuple(results),
        None if measure.is_gap else _guessing(statistic, first.outcomes[measure.arms[0]]),
    )


def _guessing(statistic: Statistic, outcomes: Outcomes) -> float | None:
    """Return what guessing gives; ``None`` if it is not known, as of accuracies of tasks."""
    if isinstance(outcomes, AccuracyOutcomes):
        return None
    return statistic.guessing(*outcomes.predictions.shape[1:])


def _above_guessing(
    results: Sequence[MethodResult], measure: Measure, statistic: Statistic
) -> float:
    """Return what guessing gives in the control arm.

    Raises:
        DataError: it is not known, or a method is near it, so that a share of the rest says
            nothing.
    """
    values = values_of(results, Measure(measure.statistic, measure.arms[:1]), statistic)
    own = estimates_of_methods([one.label for one in results], values)
    near = [label for label, one in own.items() if one.near_guessing]
    if values.guessing is None or near:
        why = f" of {near[0]} is {own[near[0]]}, near" if near else ": it is not known"
        raise DataError(f"{measure.name}: {values.measure.name}{why} what guessing gives")
    return values.guessing


def _relative(
    control: FloatArray, tested: FloatArray, seeds: Sequence[int]
) -> tuple[FloatArray, FloatArray]:
    """Return values whose means differ by the relative drop of each method, linear in both arms.

    The drop ``1 - tested / control`` is a ratio of means; its first-order expansion has the same
    value, and the variance of the delta method over tasks and seeds.
    """
    known, left = (means_over_seeds(v, seeds).mean(axis=0).repeat(seeds) for v in (control, tested))
    return 1 + left / known * (control / known - 1), tested / known


def _columns(
    results: Sequence[MethodResult], name: str, arm: str, statistic: Statistic
) -> FloatArray:
    """Return a statistic of each task, a column per model."""
    values = []
    for one in results:
        about = f"{Measure(name, (arm,)).name} of {one.label}"
        values += [task_values(about, statistic, outcomes[arm]) for outcomes in one.models]
    return np.column_stack(values)


def contrast_images(arms: Arms, contrast: Contrast) -> tuple[int, Scope]:
    """Return how many distinct images two arms have, and the scope of an interval of their gap.

    It is open only if no image appears in two tasks, or in two pairs of tasks where arms are
    paired.

    Raises:
        DataError: the arms are declared to be paired, but their tasks are not.
    """
    pair = arms[contrast.control], arms[contrast.tested]
    if not contrast.paired:
        images = np.concatenate([tasks.images.ravel() for tasks in pair])
        n_images = int(np.unique(images).size)
        return n_images, "closed" if n_images < images.size else "open"
    if pair[0].key_digest != pair[1].key_digest or len(pair[0]) != len(pair[1]):
        raise DataError(
            f"the arms {' and '.join(contrast.arms)} cannot be paired task by task; they have "
            f"{len(pair[0])} and {len(pair[1])} tasks of the images {pair[0].key_digest[:12]} and "
            f"{pair[1].key_digest[:12]}"
        )
    images = np.sort(np.concatenate([tasks.images for tasks in pair], axis=1), axis=1)
    new = np.diff(images, axis=1, prepend=-1) != 0  # an image of both tasks of a pair counts once
    n_images = int(np.unique(images).size)
    return n_images, "closed" if n_images < new.sum() else "open"


def task_values(name: str, statistic: Statistic, outcomes: Outcomes) -> FloatArray:
    """Return a statistic of each task, float64 ``(T,)``, checked against its contract.

    Raises:
        DataError: a value is not a finite number within the statistic's bounds, or there are not
            as many as tasks.
        PluginError: the values are not real numbers, or the statistic raises.
    """
    with seeded(0):
        found = checked(statistic, "per_task", statistic.per_task(outcomes), np.ndarray)
    if found.dtype.kind not in "biuf":
        raise malformed(statistic, "per_task", f"{found.dtype} values", "float64 values")
    values = np.asarray(found, dtype=np.float64)
    if values.shape != (len(outcomes),):
        raise DataError(f"{name}: {values.shape} values for {len(outcomes)} tasks")
    if not np.isfinite(values).all():
        task = int(np.flatnonzero(~np.isfinite(values))[0])
        raise DataError(f"{name}: the value of task {task} is {values[task]}")
    low, high = statistic.bounds
    if values.size and (values.min() < low or values.max() > high):
        raise DataError(f"{name}: values must lie in {low}..{high}")
    return values


def estimates_of_methods(
    labels: Sequence[str], values: TaskValues, how: ComparisonOptions | None = None
) -> dict[str, Estimate]:
    """Return the value of each method by its label, over the seeds of its models.

    Raises:
        OptionError: a method has several models, and the interval is not Student's.
    """
    how = how or ComparisonOptions()
    _, over, _ = _intervals(values, np.eye(len(labels)), how)
    return _estimates(labels, values, over, how)


def compare_methods(
    labels: Sequence[str], values: TaskValues, how: ComparisonOptions | None = None
) -> MeasureComparison:
    """Compare all methods with each other in one measure, or all with one.

    Args:
        labels: of the methods, in the order of the columns of the values.
        how: intervals, resamples and baseline.

    Raises:
        DataError: there is one method.
        OptionError: no method has the name of the baseline; or methods have several seeds, and the
            interval is not Student's.
    """
    how, n = how or ComparisonOptions(), len(labels)
    if n < 2:
        raise DataError(
            f"a comparison needs at least two methods on equal tasks, and there is only {labels[0]}"
        )
    if how.baseline is not None and how.baseline not in labels:
        raise OptionError(
            f"{argument('baseline', how.baseline)}: must be one of {', '.join(labels)}"
        )
    chosen = _chosen(labels, how.baseline)
    columns = np.eye(n)
    contrasts = np.vstack([columns, *(columns[i] - columns[j] for i, j in chosen)])
    found, over, why_not = _intervals(values, contrasts, how)
    level = how.choice.level
    own = _estimates(labels, values, over, how)
    other = {} if over is found else _estimates(labels, values, found, how)
    pairs = _pairs(labels, values, chosen, (over[n:], own), level)
    notes = _notes(labels, values, found, how)
    return MeasureComparison(
        values.measure,
        values.task_set,
        own,
        pairs,
        letters(labels, own, pairs, 1 - level) if how.baseline is None else {},
        level,
        (*notes, *([why_not] if why_not else [])),
        other,
    )


def _chosen(labels: Sequence[str], baseline: str | None) -> list[tuple[int, int]]:
    """Return the places of the methods of each pair; a baseline comes first."""
    if baseline is None:
        return list(itertools.combinations(range(len(labels)), 2))
    own = labels.index(baseline)
    return [(own, other) for other in range(len(labels)) if other != own]


def _estimates(
    labels: Sequence[str], values: TaskValues, found: Sequence[Difference], how: ComparisonOptions
) -> dict[str, Estimate]:
    """Return the methods' own values, whose contrasts come first."""
    estimates = [_estimate(values, one, how.choice.level) for one in found[: len(labels)]]
    if not values.measure.is_gap and values.statistic is not None:
        own = zip(estimates, values.results, strict=True)
        estimates = [_with_own_interval(one, values.statistic, result) for one, result in own]
    return dict(zip(labels, estimates, strict=True))


def _with_own_interval(one: Estimate, statistic: Statistic, result: MethodResult) -> Estimate:
    """Return the value of a model in an arm with the interval that the statistic brings, if any.

    Raises:
        PluginError: the mean or the statistic's bounds contradict it.
    """
    outcomes = result.outcomes[one.arms[0]]
    found = None if result.other_seeds else statistic.interval(outcomes, one.level)
    if found is None:
        return one
    least, most = statistic.bounds
    low, high = map(float, checked(statistic, "interval", found, tuple))
    if not least <= low <= one.value <= high <= most:
        expected = f"bounds around the mean {one.value} within {least}..{most}"
        raise malformed(statistic, "interval", f"{low}..{high}", expected)
    return dataclasses.replace(one, low=low, high=high, scope=outcomes.scope, estimator="own")


def _estimate(
    values: TaskValues, one: Difference, level: float, *, paired: bool = False
) -> Estimate:
    """Return a contrast of the methods as an estimate."""
    return Estimate(
        values.measure.statistic,
        float(one.value),  # JSON has no numbers of NumPy's
        float(one.low),
        float(one.high),
        level,
        "open" if one.estimator in LEVELS else values.scope,
        paired or values.paired_arms,
        one.estimator,
        values.n_tasks,
        values.n_images,
        values.share,
        values.query_batch,
        values.measure.arms,
        values.statistic is None or values.statistic.higher_is_better,
        n_seeds=one.n_seeds,
        seed_deviation=None if one.seed_deviation is None else float(one.seed_deviation),
        relative=values.measure.relative,
        guessing=None if paired else values.guessing,
    )


def _pairs(
    labels: Sequence[str],
    values: TaskValues,
    chosen: Sequence[tuple[int, int]],
    found: tuple[Sequence[Difference], Mapping[str, Estimate]],
    level: float,
) -> tuple[Pair, ...]:
    """Return the pairs from their contrasts and the methods' own values."""
    contrasts, own = found
    p = np.array([one.p for one in contrasts])
    # A pair without spread is one of those compared, and is not called different.
    known = np.nan_to_num(p, nan=1.0)
    p_holm, p_bh = holm(known), benjamini_hochberg(known)
    correlations = _correlations(values)
    made = []
    for k, (i, j) in enumerate(chosen):
        first, second = labels[i], labels[j]
        difference = _estimate(values, contrasts[k], level, paired=True)
        has_p, r = not np.isnan(p[k]), correlations[i, j]
        rho = None if np.isnan(r) else float(r)
        own_p, by_holm, by_bh = (float(one[k]) if has_p else None for one in (p, p_holm, p_bh))
        signs = direct_sign(own[first], own[second]), _sign(difference)
        note = (_few if has_p else _why)(values, f"{first} and {second}", (i, j))
        made.append(Pair(first, second, difference, own_p, by_holm, by_bh, rho, *signs, note))
    return tuple(made)


def _intervals(
    values: TaskValues, contrasts: FloatArray, how: ComparisonOptions
) -> tuple[list[Difference], list[Difference], str]:
    """Return contrasts over tasks and as they are asked for, and why there is no other interval."""
    found = differences(values.parts, contrasts, how, values.n_seeds)
    if how.choice.method not in LEVELS:
        return found, found, ""
    return found, *_over_images(values, contrasts, found, how)


def _over_images(
    values: TaskValues, contrasts: FloatArray, found: list[Difference], how: ComparisonOptions
) -> tuple[list[Difference], str]:
    """Return open intervals of contrasts on closed tasks, or those there are and why."""
    over: Level = "class-level" if how.choice.method == "class-level" else "image-level"
    missing = f"{values.measure.name}: no {over} interval, "
    if values.scope == "open" or found[0].estimator == "none":
        return found, ""  # Student's is open already, or there is one task
    if values.measure.is_gap:
        return found, missing + "since a gap is over the tasks of two arms"
    first = values.results[0] if values.results else None
    if first is None or first.arms is None:
        return found, missing + "which needs tasks and answers; accuracies alone have none"
    arm, sizes = values.measure.arms[0], np.asarray(first.class_sizes)
    tasks = first.arms[arm]
    if not tasks.uniform:
        return found, missing + (
            f"since the sampler of the tasks, {tasks.sampler}, does not draw classes and images "
            "uniformly"
        )
    if not sizes.size:
        raise DataError(
            f"an {over} interval needs the sizes of the classes: give {argument('pool')}"
        )
    combined = values.means[0] @ contrasts.T
    answers: FloatArray | None = None
    if over == "image-level" and values.statistic is not None:
        of_task = values.statistic.per_task
        of_each = [answers_of(of_task, tasks, one.outcomes[arm], sizes) for one in values.results]
        answers = np.tensordot(contrasts, np.stack(of_each), axes=1)
    made = []
    for row, one in enumerate(found):
        if one.varies:
            own = None if answers is None else answers[row]
            new = interval_over(combined[:, row], own, tasks, sizes, how.choice.level, over)
            error = np.sqrt(new.units_variance + new.tasks_variance)
            p = float(2 * scipy.special.stdtr(new.freedom, -abs(new.mean) / error))
            one = dataclasses.replace(one, low=new.low, high=new.high, p=p)
        made.append(dataclasses.replace(one, estimator=over))
    return made, ""


def letters(
    labels: Sequence[str], values: Mapping[str, Estimate], pairs: Sequence[Pair], alpha: float
) -> dict[str, str]:
    """Return letters of each method: two share one unless Holm's p calls them different.

    The groups are the largest sets without a difference; ``a`` holds the best value, of gaps the
    smallest.

    Source: Piepho (2004), An algorithm for a letter-based representation of all-pairwise
    comparisons (insert and absorb).
    """
    first = values[labels[0]]
    sign = -1 if first.higher_is_better and len(first.arms) < 2 else 1
    order = sorted(labels, key=lambda label: sign * values[label].value)
    groups = [frozenset(order)]
    for pair in pairs:
        if pair.p_holm is None or pair.p_holm > alpha:
            continue
        both = {pair.first, pair.second}
        split: list[frozenset[str]] = []
        for group in groups:
            split += [group - {one} for one in both] if both <= group else [group]
        unique = list(dict.fromkeys(split))
        groups = [g for g in unique if not any(g < other for other in unique)]
    groups.sort(key=lambda group: sorted(order.index(label) for label in group))
    return {
        label: "".join(_letter(i) for i, group in enumerate(groups) if label in group)
        for label in order
    }


def _letter(index: int) -> str:
    """Return a, ..., z, (27), (28), ...: beyond the alphabet a number."""
    return chr(ord("a") + index) if index < 26 else f"({index + 1})"


def _correlations(values: TaskValues) -> FloatArray:
    """Return Pearson's correlation of each two methods over the tasks, NaN where there is none."""
    columns, *more = values.means
    n = columns.shape[1]
    if more or len(columns) < 2:
        return np.full((n, n), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.corrcoef(columns, rowvar=False).reshape(n, n)
    # Rounding may leave a constant column a spread of its own.
    constant = np.ptp(columns, axis=0) <= NO_SPREAD
    found[constant] = found[:, constant] = np.nan
    return np.asarray(found)


def direct_sign(first: Estimate, second: Estimate) -> str:
    """Return ``+``, ``-`` or ``0``: two intervals that do not meet conclude, if they have a width.

    Source: Lafargue et al. 2024, section 2.3.
    """
    if not all(one.high - one.low > 0 for one in (first, second)):
        return "0"
    if first.low > second.high:
        return "+"
    return "-" if first.high < second.low else "0"


def _sign(difference: Estimate) -> str:
    if difference.low > 0:
        return "+"
    return "-" if difference.high < 0 else "0"


def _few(values: TaskValues, both: str, places: tuple[int, int]) -> str:
    """Return a warning if an interval rests on few tasks, else an empty text."""
    for arm, columns in zip(values.measure.arms or ("",), values.means, strict=False):
        differ = int((np.abs(columns[:, places[0]] - columns[:, places[1]]) > NO_SPREAD).sum())
        if 0 < differ < FEWEST_DIFFERENT:  # in another arm, where it is 0
            of = f" {arm}" if len(values.means) > 1 else ""
            return (
                f"{both} differ in only {differ} of {len(columns):,}{of} tasks; interval and p "
                "rest on these"
            )
    return ""


def _why(values: TaskValues, both: str, places: tuple[int, int]) -> str:
    """Return why a pair has no p."""
    if values.fewest_tasks < 2:
        return f"{both}: {_ONE_TASK}"
    means = [columns[:, places[0]] - columns[:, places[1]] for columns in values.means]
    difference = float(sum(one.mean() for one in means))
    told = f"{both} differ by the same {values.shown(difference, '.3g')} in all "
    if abs(difference) < NO_SPREAD:
        told = f"{both} have the same {values.measure.name} in all "
    return f"{told}{values.n_tasks:,} tasks: without spread there is nothing to test, and no p"


def _notes(
    labels: Sequence[str], values: TaskValues, found: Sequence[Difference], how: ComparisonOptions
) -> list[str]:
    """Return what a reader of the methods' own values must know."""
    if values.fewest_tasks < 2:
        return [_ONE_TASK]
    notes = []
    if max(values.n_seeds) > 1:
        ends = np.cumsum(values.n_seeds)
        for label, n, end in zip(labels, values.n_seeds, ends, strict=True):
            own = [np.ptp(part[:, end - n : end], axis=1).max() for part in values.parts]
            if n > 1 and max(own) == 0:
                notes.append(
                    f"{label}: the values of all {n} seeds are equal in every task, so the seeds "
                    "say nothing"
                )
        for few, caution in ((1, _ONE_SEED), (2, TWO_SEEDS)):
            of = zip(labels, values.n_seeds, strict=True)
            notes += footnotes({label: [caution] for label, n in of if n == few})
    if (warning := bootstrap_of_few(how.choice.method, values.fewest_tasks)) is not None:
        notes.append(warning)
    for label, one in zip(labels, found, strict=False):
        if not one.varies:
            notes.append(
                f"{label}: {values.measure.name} is {values.shown(one.value, '.1f')} in every one "
                f"of {values.n_tasks:,} tasks: without spread there is no interval, and no direct "
                "conclusion is drawn"
            )
    return notes
