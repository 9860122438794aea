"""Methods on equal tasks: paired differences, their p over all pairs, and who is who's equal.

Three comparisons stand side by side. *Direct*: two methods differ if their own intervals do not
meet, which most tables leave to the reader's eye; on closed intervals it speaks of a data set, on
open ones of a distribution. *Paired*: the interval of the difference task by task leaves out 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from fsframework.errors import DataError, OptionError
from fsframework.interfaces.statistic import Statistic
from fsframework.statistics.estimation import task_values
from fsframework.statistics.intervals import (
    ESTIMATORS,
    FEWEST_RESAMPLED,
    LEVELS,
    Estimator,
    Interval,
    Level,
    answers_of,
    interval_over,
)
from fsframework.statistics.results import Contestant
from fsframework.values import (
    Estimate,
    FloatArray,
    IntArray,
    Outcomes,
    QueryBatch,
    Scope,
    TaskSet,
)

__all__ = [
    "FEWEST_DIFFERENT",
    "Comparison",
    "Counts",
    "Measure",
    "Pair",
    "benjamini_hochberg",
    "compare",
    "count",
    "differences",
    "direct_sign",
    "holm",
    "images_intervals",
    "letters",
    "measures_of",
    "statistic_of",
]

_RESAMPLES_AT_ONCE = 1 << 20
"""Drawn tasks held in one go."""

FEWEST_DIFFERENT = 6
"""Tasks in which two methods must differ, or the output says in how few they do."""

_NO_SPREAD = 1e-12
"""Shares whose sums differ in the last digits count as equal."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """What an interval over images is made of, beside the values.

    Args:
        per_task: the statistic.
        outcomes: of each contestant.
        tasks: file of the tasks.
        class_sizes: int ``(n_classes,)``, images of each class in the data.
    """

    per_task: Callable[[Outcomes], FloatArray]
    outcomes: tuple[Outcomes, ...]
    tasks: Path
    class_sizes: IntArray


@dataclass(frozen=True, eq=False)
class Measure:
    """One statistic of every contestant, task by task.

    Args:
        name: such as ``acc-R``, or ``wacc-gap`` for the difference of two kinds of tasks.
        task_set: what the tasks are called.
        parts: float64 ``(T, contestants)`` of each kind of tasks with its sign; a plain statistic
            has one part, a gap two: ``+`` of random tasks, ``-`` of biased ones.
        kind: of every interval; ``n_images`` distinct images in all parts, 0 where not known.
        share: whether values are shares of 1.
        same: pairs of contestants whose outcomes are equal throughout.
        drawn: for intervals over images; ``None`` where they cannot be had.
    """

    name: str
    task_set: str
    parts: tuple[tuple[int, FloatArray], ...]
    kind: Scope
    n_images: int
    share: bool
    query_batch: QueryBatch
    same: frozenset[tuple[int, int]] = frozenset()
    drawn: Drawn | None = None

    @property
    def n_tasks(self) -> int:
        """Tasks of all parts together."""
        return sum(len(values) for _, values in self.parts)


@dataclass(frozen=True)
class Pair:
    """Two contestants, ``first`` less ``second``.

    Args:
        difference: with its interval; bounds are NaN where none can be given.
        p: two-sided, of no difference; ``None`` where there is no spread to judge by.
        p_holm: adjusted for all pairs after Holm (1979); the chance that any pair is called
            different though none is stays below the level.
        p_bh: adjusted after Benjamini & Hochberg (1995): of the pairs called different, the
            expected share that is not.
        correlation: of the two over the tasks (Pearson), ``None`` where one is constant or the
            measure has two parts.
        direct: ``+``, ``-`` or ``0``, from the two methods' own intervals.
        paired: the same, from the interval of the difference.
        note: a sentence on what there is to know, or empty.
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
        """Whether the two comparisons conclude the opposite."""
        return {self.direct, self.paired} == {"+", "-"}

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {**vars(self), "difference": self.difference.to_json(), "inverted": self.inverted}


@dataclass(frozen=True)
class Comparison:
    """All contestants in one measure, on one set of tasks.

    Args:
        values: of each contestant, with its own interval.
        groups: letters of each; two that share one cannot be told apart, by Holm's p.
        notes: sentences on contestants, beside those on pairs.
        other_kind: the contestants' own intervals of the other kind on the same tasks, if there
            are any: open ones over images beside closed ones, or the other way about.
    """

    measure: str
    task_set: str
    values: Mapping[str, Estimate]
    pairs: tuple[Pair, ...]
    groups: Mapping[str, str]
    level: float
    notes: tuple[str, ...] = ()
    other_kind: Mapping[str, Estimate] = field(default_factory=dict)

    def pair(self, first: str, second: str) -> tuple[Pair, int]:
        """Return the pair of two labels, and -1 where it stands the other way about."""
        for pair in self.pairs:
            if (pair.first, pair.second) == (first, second):
                return pair, 1
            if (pair.first, pair.second) == (second, first):
                return pair, -1
        raise KeyError((first, second))

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "measure": self.measure,
            "task_set": self.task_set,
            "level": self.level,
            "values": {label: value.to_json() for label, value in self.values.items()},
            "groups": dict(self.groups),
            "pairs": [pair.to_json() for pair in self.pairs],
            "notes": list(self.notes),
            "other_kind": {label: e.to_json() for label, e in self.other_kind.items()},
        }


@dataclass(frozen=True)
class Counts:
    """How many pairs each way of comparing calls different."""

    pairs: int
    direct: int
    paired: int
    holm: int
    inverted: int
    only_direct: int
    only_paired: int


def count(comparisons: Sequence[Comparison]) -> Counts:
    """Count the conclusive pairs of comparisons."""
    pairs = [(p, 1 - c.level) for c in comparisons for p in c.pairs]
    direct = [p.direct != "0" for p, _ in pairs]
    paired = [p.paired != "0" for p, _ in pairs]
    both = list(zip(direct, paired, strict=True))
    return Counts(
        len(pairs),
        sum(direct),
        sum(paired),
        sum(p.p_holm is not None and p.p_holm <= alpha for p, alpha in pairs),
        sum(p.inverted for p, _ in pairs),
        sum(d and not p for d, p in both),
        sum(p and not d for d, p in both),
    )


def images_intervals(
    contestants: Sequence[Contestant], comparison: Comparison
) -> dict[str, Estimate]:
    """Return open intervals that the runs of all contestants hold for closed tasks, or nothing."""
    found = {}
    for one, (label, own) in zip(contestants, comparison.values.items(), strict=True):
        estimate = one.estimates.get(comparison.measure)
        if (
            estimate is None
            or (own.kind, estimate.kind) != ("closed", "open")
            or estimate.level != comparison.level
        ):
            return {}
        found[label] = estimate
    return found


def measures_of(
    contestants: Sequence[Contestant], statistics: Mapping[str, Statistic], wanted: Sequence[str]
) -> tuple[list[Measure], list[str]]:
    """Compute statistics of contestants on equal tasks, and say which could not be had.

    Args:
        statistics: by name.
        wanted: names to compute: ``acc`` on every kind of tasks, ``acc-R``, ``acc-A``, or
            ``acc-gap``, R less A; ``gap`` is ``wacc-gap``. Empty: those of FewSTAB that can be
            had (``acc-R``, ``wacc-R``, ``wacc-A`` and ``wacc-gap``).

    Raises:
        DataError: a statistic that was asked for cannot be computed.
    """
    kinds = list(contestants[0].outcomes)
    usual = not wanted
    names: list[str] = []
    for name in wanted or ("acc-R", "wacc-R", "wacc-A", "wacc-gap"):
        stem, _, suffix = _parts_of(name)
        parts = [suffix] if suffix else kinds
        names += [f"{stem}-{part}" for part in parts]
    found, left_out = [], []
    cache: dict[tuple[str, str], FloatArray] = {}
    for name in dict.fromkeys(names):
        stem, _, suffix = _parts_of(name)
        need = ["R", "A"] if suffix == "gap" else [suffix]
        if missing := [kind for kind in need if kind not in kinds]:
            if usual:
                continue
            raise DataError(
                f"{name}: needs tasks of the kind {' and '.join(missing)}, which not all of "
                f"{', '.join(c.label for c in contestants)} have (R random, A attribute-biased)"
            )
        try:
            for kind in need:
                if (stem, kind) not in cache:
                    cache[stem, kind] = np.column_stack(
                        [
                            task_values(
                                f"{stem}-{kind} of {c.label}", statistics[stem], c.outcomes[kind]
                            )
                            for c in contestants
                        ]
                    )
        except DataError as error:
            if not usual:
                raise DataError(f"{name} cannot be compared: {error}") from None
            left_out.append(f"without {name}: {error}")
            continue
        found.append(
            _measure(
                name, [cache[stem, kind] for kind in need], need, contestants, statistics[stem]
            )
        )
    if not found:
        raise DataError("nothing can be compared: " + "; ".join(left_out))
    return found, left_out


def statistic_of(name: str) -> str:
    """Return the statistic of a measure: ``wacc`` of ``wacc-R`` and of ``gap``."""
    return _parts_of(name)[0]


def _parts_of(name: str) -> tuple[str, str, str]:
    """Part ``wacc-R`` into the statistic and what follows; ``gap`` is the gap of wacc."""
    if name == "gap":
        return "wacc", "-", "gap"
    stem, dash, suffix = name.rpartition("-")
    return (stem, dash, suffix) if stem and suffix in ("R", "A", "gap") else (name, "", "")


def _measure(
    name: str,
    values: Sequence[FloatArray],
    kinds: Sequence[str],
    contestants: Sequence[Contestant],
    statistic: Statistic,
) -> Measure:
    outcomes = [contestants[0].outcomes[kind] for kind in kinds]
    kind: Scope = "closed" if any(o.reuses_images for o in outcomes) else "open"
    n_images = outcomes[0].n_images
    if len(kinds) > 1:
        folder = contestants[0].source
        images = [TaskSet.load(folder / f"tasks-{k}.safetensors").images.ravel() for k in kinds]
        together = np.concatenate(images)
        n_images = int(np.unique(together).size)
        kind = "closed" if n_images < together.size else "open"
    return Measure(
        name,
        contestants[0].task_set(kinds),
        tuple(zip((1, -1), values, strict=False)),
        kind,
        n_images,
        tuple(statistic.bounds) == (0.0, 1.0),
        outcomes[0].query_batch,
        _same(contestants, kinds),
        _drawn(contestants, kinds, statistic),
    )


def _drawn(
    contestants: Sequence[Contestant], kinds: Sequence[str], statistic: Statistic
) -> Drawn | None:
    (kind, *more), first = kinds, contestants[0]
    sizes = first.tasks.get(kind, {}).get("class_sizes")
    if more or sizes is None:
        return None
    outcomes = tuple(c.outcomes[kind] for c in contestants)
    path = first.source / f"tasks-{kind}.safetensors"
    return Drawn(statistic.per_task, outcomes, path, np.asarray(sizes))


def _same(contestants: Sequence[Contestant], kinds: Sequence[str]) -> frozenset[tuple[int, int]]:
    def content(contestant: Contestant) -> list[FloatArray | IntArray]:
        found: list[FloatArray | IntArray] = []
        for kind in kinds:
            outcomes = contestant.outcomes[kind]
            try:
                found.append(outcomes.predictions)
            except DataError:
                found.append(outcomes.task_accuracy)
        return found

    contents = [content(c) for c in contestants]
    return frozenset(
        (i, j)
        for i, j in itertools.combinations(range(len(contestants)), 2)
        if all(np.array_equal(a, b) for a, b in zip(contents[i], contents[j], strict=True))
    )


def compare(
    labels: Sequence[str],
    measure: Measure,
    *,
    task_set: str | None = None,
    level: float = 0.95,
    interval: Interval = "student-t",
    n_resamples: int = 10_000,
    seed: int = 0,
    baseline: str | None = None,
) -> Comparison:
    """Compare all contestants with each other, or all with one.

    Args:
        labels: of the contestants, in the order of the measure's columns.
        task_set: another name for the measure's tasks.
        interval: ``student-t`` (Welch's for a gap), or a bootstrap of the tasks, ``percentile``
            or ``bca``, in which all pairs share the resamples; p then comes from the bootstrap
            too: the level at which the interval would end at 0, so that both always agree.
            ``image-level`` and ``class-level`` make the intervals of closed random tasks open
            ones, those of differences too; where they cannot be had, Student's stands with a note.
        n_resamples: of the bootstrap; no p is below ``2 / (n_resamples + 1)``.
        baseline: compare with this one alone; p are adjusted for these pairs alone.

    Raises:
        DataError: there is one contestant.
        OptionError: an option is out of range.
    """
    n = len(labels)
    if n < 2:
        raise DataError(f"a comparison needs two methods at least, and there is {labels[0]} alone")
    if not 0 < level < 1:
        raise OptionError(f"level must lie between 0 and 1, not {level}")
    if baseline is not None and baseline not in labels:
        raise OptionError(f"baseline {baseline!r}: must be one of {', '.join(labels)}")
    chosen = [
        (i, j)
        for i, j in itertools.combinations(range(n), 2)
        if baseline is None or baseline in (labels[i], labels[j])
    ]
    if baseline is not None:
        own = labels.index(baseline)
        chosen = [(own, j if i == own else i) for i, j in chosen]
    pairs = np.array(chosen)
    columns = np.eye(n)
    of_pairs = columns[pairs[:, 0]] - columns[pairs[:, 1]]
    contrasts = np.vstack([columns, of_pairs])
    base: Estimator = "student-t"
    if interval != "image-level" and interval != "class-level":
        base = interval
    found = differences(
        measure.parts,
        contrasts,
        level=level,
        interval=base,
        n_resamples=n_resamples,
        seed=seed,
    )
    over, why_not = found, ""
    if interval in LEVELS:
        over, why_not = _over_images(measure, contrasts, found, level, interval)

    def estimate(row: int, *, paired: bool, of: _Differences | None = None) -> Estimate:
        of = of or over
        value, low, high = (float(a[row]) for a in (of.value, of.low, of.high))
        return Estimate(
            measure.name,
            value,
            low,
            high,
            level,
            "open" if of.estimator in LEVELS else measure.kind,
            paired,
            of.estimator,
            measure.n_tasks,
            measure.n_images,
            measure.share,
            measure.query_batch,
        )

    values = {label: estimate(i, paired=False) for i, label in enumerate(labels)}
    beside = {}
    if over is not found:
        beside = {label: estimate(i, paired=False, of=found) for i, label in enumerate(labels)}
    spread = found.spread
    p = [float(over.p[n + k]) if spread[n + k] else float("nan") for k in range(len(pairs))]
    # A pair without spread is one of those compared, and is not called different.
    known = np.nan_to_num(np.array(p), nan=1.0)
    by_holm, by_bh = holm(known), benjamini_hochberg(known)
    correlations = _correlations(measure)
    made = []
    for k, (i, j) in enumerate(chosen):
        difference = estimate(n + k, paired=True)
        can = not np.isnan(p[k])
        if can:
            note = _few(measure, labels[i], labels[j], (i, j))
        else:
            note = _why(measure, labels[i], labels[j], difference, (i, j))
        r = correlations[i, j]
        made.append(
            Pair(
                labels[i],
                labels[j],
                difference,
                p[k] if can else None,
                float(by_holm[k]) if can else None,
                float(by_bh[k]) if can else None,
                None if np.isnan(r) else float(r),
                direct_sign(values[labels[i]], values[labels[j]]),
                _paired(difference) if can else "0",
                note,
            )
        )
    return Comparison(
        measure.name,
        task_set or measure.task_set,
        values,
        tuple(made),
        letters(labels, values, made, 1 - level) if baseline is None else {},
        level,
        (*_notes(labels, measure, values, spread[:n], interval), *([why_not] if why_not else [])),
        beside,
    )


def _over_images(
    measure: Measure, contrasts: FloatArray, found: _Differences, level: float, over: Interval
) -> tuple[_Differences, str]:
    """Return open intervals of contrasts on closed tasks, or those there are and why."""
    missing = f"{measure.name}: no {over} interval, "
    if measure.kind == "open" or found.estimator == "none":
        return found, ""  # Student's is open already, or there is one task
    if len(measure.parts) > 1:
        return found, missing + "for attribute-biased tasks choose their images"
    if measure.drawn is None:
        return found, missing + (
            "for it needs tasks, answers and class sizes: imported accuracies have none, and runs "
            "made by earlier versions do not say their class sizes"
        )
    drawn = measure.drawn
    tasks = TaskSet.load(drawn.tasks)
    if tasks.attributes_fingerprint is not None:
        return found, missing + "for attribute-biased tasks choose their images"
    values = measure.parts[0][1] @ contrasts.T
    answers: FloatArray | None = None
    if over == "image-level":
        of_each = [answers_of(drawn.per_task, tasks, o, drawn.class_sizes) for o in drawn.outcomes]
        answers = np.tensordot(contrasts, np.stack(of_each), axes=1)
    low, high, p = found.low.copy(), found.high.copy(), found.p.copy()
    for row in np.flatnonzero(found.spread):
        own = None if answers is None else answers[row]
        level_over: Level = "image-level" if over == "image-level" else "class-level"
        one = interval_over(values[:, row], own, tasks, drawn.class_sizes, level, level_over)
        error = np.sqrt(one.units_variance + one.tasks_variance)
        low[row], high[row] = one.low, one.high
        p[row] = 2 * stats.t.sf(abs(one.mean) / error, one.freedom)
    return _Differences(found.value, low, high, p, found.spread, over), ""


@dataclass(frozen=True, eq=False)
class _Differences:
    value: FloatArray
    low: FloatArray
    high: FloatArray
    p: FloatArray
    spread: Any
    estimator: str


def differences(
    parts: Sequence[tuple[int, FloatArray]],
    contrasts: FloatArray,
    *,
    level: float = 0.95,
    interval: Estimator = "student-t",
    n_resamples: int = 10_000,
    seed: int = 0,
) -> _Differences:
    """Estimate many contrasts of the same contestants at once.

    Args:
        parts: float64 ``(T, contestants)`` with its sign; the parts are independent of each other.
        contrasts: ``(contrasts, contestants)``, weights of the contestants; a row with 1 and -1
            is the difference of two.
        interval: see ``compare``.

    Returns:
        Value, bounds and p of each contrast, and whether it has spread at all: where it has not,
        bounds are the value itself if that is 0 or there are several tasks of one contestant,
        else NaN, and p means nothing.

    Raises:
        OptionError: the estimator is unknown or ``n_resamples`` is below 1.
    """
    if interval not in ESTIMATORS:
        raise OptionError(f"interval must be one of {', '.join(ESTIMATORS)}, not {interval!r}")
    if n_resamples < 1:
        raise OptionError(f"n_resamples must be at least 1, not {n_resamples}")
    tasks = [values @ contrasts.T for _, values in parts]
    signs = [sign for sign, _ in parts]
    value = sum(
        (sign * values.mean(axis=0) for sign, values in zip(signs, tasks, strict=True)),
        start=np.zeros(len(contrasts)),
    )
    spread = np.any([np.ptp(values, axis=0) > _NO_SPREAD for values in tasks], axis=0)
    value = np.where(np.abs(value) < _NO_SPREAD, 0.0, value)
    if min(len(values) for values in tasks) < 2:
        nan = np.full(len(contrasts), np.nan)
        return _Differences(value, nan, nan, nan, np.zeros(len(contrasts), bool), "none")
    if interval == "student-t":
        low, high, p = _student(tasks, value, level)
        estimator = "student-t" if len(parts) == 1 else "welch-t"
    else:
        low, high, p = _bootstrap(
            parts, tasks, contrasts, value, level, interval, n_resamples, seed
        )
        estimator = interval
    # Without spread an interval of no width would claim what nobody knows, but for a method's own
    # value, which is what it is in every task, and for equal ones.
    single = np.count_nonzero(contrasts, axis=1) == 1
    bound = np.where(single | (value == 0), value, np.nan)
    low, high = (np.where(spread, found, bound) for found in (low, high))
    return _Differences(value, low, high, np.where(spread, p, np.nan), spread, estimator)


def _student(
    tasks: Sequence[FloatArray], value: FloatArray, level: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return low, high and p by Student's t, with Welch's freedom for two parts."""
    errors = [values.var(axis=0, ddof=1) / len(values) for values in tasks]
    variance = np.sum(errors, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = sum(e**2 / (len(v) - 1) for e, v in zip(errors, tasks, strict=True))
        freedom = variance**2 / squares
        scale = np.sqrt(variance)
        p = 2 * stats.t.sf(np.abs(value) / scale, freedom)
        half = stats.t.ppf((1 + level) / 2, freedom) * scale
    return value - half, value + half, p


def _bootstrap(
    parts: Sequence[tuple[int, FloatArray]],
    tasks: Sequence[FloatArray],
    contrasts: FloatArray,
    value: FloatArray,
    level: float,
    interval: Estimator,
    n_resamples: int,
    seed: int,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return low, high and p by a bootstrap of the tasks that all contrasts share.

    Source: Efron (1987), for ``bca`` sections 2 and 6; p by inversion of the interval.
    """
    drawn = np.zeros((n_resamples, len(contrasts)))
    for place, (sign, values) in enumerate(parts):
        rng = np.random.default_rng([seed, place])
        drawn += sign * (_resampled_means(values, n_resamples, rng) @ contrasts.T)
    below = (drawn < value).mean(axis=0) / 2 + (drawn <= value).mean(axis=0) / 2
    bias: FloatArray = np.zeros(len(contrasts))
    skew: FloatArray = bias
    if interval == "bca":
        bias, skew = stats.norm.ppf(below), _acceleration(parts, tasks)
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = []
        for end in ((1 - level) / 2, (1 + level) / 2):
            shifted = bias + stats.norm.ppf(end)
            ends.append(stats.norm.cdf(bias + shifted / (1 - skew * shifted)))
        usable = np.nan_to_num(np.array(ends), nan=0.5)
        drawn.sort(axis=0)
        low, high = (_quantiles(drawn, shares) for shares in usable)
        # The share of means below 0, of which the level would be such that the interval ends there.
        zero = ((drawn < 0).sum(axis=0) + (drawn <= 0).sum(axis=0) + 1) / 2 / (n_resamples + 1)
        zero = np.clip(zero, 1 / (n_resamples + 1), n_resamples / (n_resamples + 1))
        reached = stats.norm.ppf(zero) - bias
        tail = stats.norm.cdf(reached / (1 + skew * reached) - bias)
    p = np.clip(2 * np.minimum(tail, 1 - tail), 2 / (n_resamples + 1), 1.0)
    return np.minimum(low, value), np.maximum(high, value), p


def _resampled_means(values: FloatArray, n_resamples: int, rng: np.random.Generator) -> FloatArray:
    """Return means of resampled tasks, ``(n_resamples, contestants)``, the same tasks for all."""
    n_tasks = len(values)
    block = max(1, _RESAMPLES_AT_ONCE // n_tasks)
    means = np.empty((n_resamples, values.shape[1]))
    for start in range(0, n_resamples, block):
        size = min(block, n_resamples - start)
        drawn = rng.integers(n_tasks, size=(size, n_tasks))
        drawn += n_tasks * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * n_tasks).reshape(size, n_tasks)
        means[start : start + size] = times.astype(np.float64) @ values / n_tasks
    return means


def _acceleration(
    parts: Sequence[tuple[int, FloatArray]], tasks: Sequence[FloatArray]
) -> FloatArray:
    """Return BCa's acceleration from the tasks' influence on the contrasts."""
    cubes, squares = np.zeros(tasks[0].shape[1]), np.zeros(tasks[0].shape[1])
    for (sign, _), values in zip(parts, tasks, strict=True):
        influence = sign * (values - values.mean(axis=0)) / len(values)
        cubes, squares = cubes + (influence**3).sum(axis=0), squares + (influence**2).sum(axis=0)
    found: FloatArray = np.divide(
        cubes, 6 * np.power(squares, 1.5), out=np.zeros_like(squares), where=squares > 0
    )
    return found


def _quantiles(ordered: FloatArray, shares: FloatArray) -> FloatArray:
    """Return a quantile of each column of sorted ``(n, columns)``, each at a share of its own."""
    place = shares * (len(ordered) - 1)
    low = np.floor(place).astype(int)
    high = np.minimum(low + 1, len(ordered) - 1)
    column = np.arange(ordered.shape[1])
    return np.asarray(
        ordered[low, column] + (place - low) * (ordered[high, column] - ordered[low, column])
    )


def holm(p: FloatArray) -> FloatArray:
    """Return p adjusted by Holm's step-down procedure (1979), in the given order.

    >>> holm(np.array([0.01, 0.04, 0.03])).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def benjamini_hochberg(p: FloatArray) -> FloatArray:
    """Return p adjusted by the procedure of Benjamini & Hochberg (1995), in the given order."""
    return np.asarray(stats.false_discovery_control(p, method="bh"))


def letters(
    labels: Sequence[str], values: Mapping[str, Estimate], pairs: Sequence[Pair], alpha: float
) -> dict[str, str]:
    """Return letters of each contestant: two share one unless Holm's p calls them different.

    The groups are the largest sets without a difference; ``a`` holds the greatest value.

    Source: Piepho (2004), An algorithm for a letter-based representation of all-pairwise
    comparisons (insert and absorb).
    """
    order = sorted(labels, key=lambda label: -values[label].value)
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


def _correlations(measure: Measure) -> FloatArray:
    (_, values), *more = measure.parts
    n = values.shape[1]
    if more or len(values) < 2:
        return np.full((n, n), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.corrcoef(values, rowvar=False).reshape(n, n)
    # Rounding may leave a constant column a spread of its own.
    constant = np.ptp(values, axis=0) <= _NO_SPREAD
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


def _paired(difference: Estimate) -> str:
    if difference.low > 0:
        return "+"
    return "-" if difference.high < 0 else "0"


def _few(measure: Measure, first: str, second: str, pair: tuple[int, int]) -> str:
    """Warn of an interval that rests on a handful of tasks."""
    for _, values in measure.parts:
        differ = int((np.abs(values[:, pair[0]] - values[:, pair[1]]) > _NO_SPREAD).sum())
        if differ < FEWEST_DIFFERENT:
            return (
                f"{first} and {second} differ in {differ} of {len(values):,} tasks only; interval "
                "and p rest on these"
            )
    return ""


def _why(
    measure: Measure, first: str, second: str, difference: Estimate, pair: tuple[int, int]
) -> str:
    """Say why a pair has no p."""
    n = measure.n_tasks
    if n < 2 or min(len(values) for _, values in measure.parts) < 2:
        return f"{first} and {second}: one task tells nothing of others; no interval, no p"
    if pair in measure.same or pair[::-1] in measure.same:
        return (
            f"{first} and {second} hold equal outcomes in all {n:,} tasks: the same model, or the "
            "same file twice? there is nothing to test"
        )
    if difference.value == 0:
        return f"{first} and {second} have the same {measure.name} in all {n:,} tasks; no p"
    shown = f"{100 * difference.value:.3g} %" if measure.share else f"{difference.value:.3g}"
    return (
        f"{first} and {second} differ by the same {shown} in all {n:,} tasks: a difference without "
        "spread has no honest interval and no p; more tasks would show some"
    )


def _notes(
    labels: Sequence[str],
    measure: Measure,
    values: Mapping[str, Estimate],
    spread: Any,
    interval: str,
) -> list[str]:
    notes = []
    if min(len(part) for _, part in measure.parts) < 2:
        return ["one task: there is no interval and no p, for it tells nothing of others"]
    fewest = min(len(part) for _, part in measure.parts)
    if interval in ("percentile", "bca") and fewest < FEWEST_RESAMPLED:
        notes.append(
            f"a bootstrap of {fewest} tasks gives intervals that are too short, and p that are too "
            "small; student-t allows for few tasks"
        )
    for label, varies in zip(labels, spread, strict=True):
        if not varies:
            value = values[label].value
            shown = f"{100 * value:.1f} %" if measure.share else f"{value:.4g}"
            notes.append(
                f"{label}: {measure.name} is {shown} in every one of {measure.n_tasks:,} tasks; an "
                "interval of no width says nothing of other tasks, so no direct conclusion is drawn"
            )
    return notes
