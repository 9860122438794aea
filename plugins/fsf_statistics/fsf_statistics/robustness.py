"""Effective robustness: the accuracy on biased tasks beyond what that on control tasks predicts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from fsf_statistics.adjusting import benjamini_hochberg, holm
from fsf_statistics.comparing import (
    MeasureComparison,
    Pair,
    direct_sign,
    letters,
    letters_shown,
)
from fsf_statistics.crossed import OVER_SEEDS
from fsf_statistics.equal_tasks import comparable
from fsf_statistics.estimating import statistics_of
from fsf_statistics.given import Comparable, collect_results
from fsframework.api.session import open_session
from fsframework.errors import DataError, OptionError, argument
from fsframework.statistics.differences import NO_SPREAD, ComparisonOptions, Difference
from fsframework.statistics.estimators import IntervalChoice
from fsframework.statistics.measures import Measure
from fsframework.statistics.results import MethodResult
from fsframework.statistics.task_values import TaskValues, estimates_of_methods, values_of
from fsframework.values import Estimate, FloatArray, footnotes, html_table, text_table

__all__ = [
    "EDGE",
    "FEWEST_ON_LINE",
    "EffectiveRobustness",
    "effective_robustness",
]

FEWEST_ON_LINE = 3
"""Two models always lie on a line."""

EDGE = 0.02
"""A value this close to 0 or 1 is at its floor or ceiling."""

_EQUAL = 1e-9
"""Control accuracies that differ by less are equal."""

_LEAST_P = 1e-12
"""No p is reported below it."""

_UNLIKELY = 0.05

_FEW = 6
"""With fewer models, each has much influence on the line."""


@dataclass(frozen=True, repr=False)
class EffectiveRobustness:
    """The effective robustness of each model of a table; printed, the table.

    Args:
        compared: the values with their intervals, every pair with Holm's p, and letters: models
            that share one cannot be told apart. It is a part as those of ``fsf.compare``.
        control: the statistic of each model in the control arm, ``tested`` that in the other.
        predicted: what the line predicts in the tested arm.
        spans: lowest and highest value of each model if any one model is left out of the line.
        slope: of the line over logits; ``intercept`` likewise.
        left_out: models that are not on the line and have no value, with the reason.
        notes: what a reader must know.
    """

    compared: MeasureComparison
    control: Mapping[str, Estimate]
    tested: Mapping[str, Estimate]
    predicted: Mapping[str, float]
    spans: Mapping[str, tuple[float, float]]
    slope: float
    intercept: float
    left_out: Mapping[str, str]
    notes: tuple[str, ...] = ()

    @property
    def values(self) -> Mapping[str, Estimate]:
        """The effective robustness of each model, the greatest first."""
        return self.compared.values

    @property
    def letters(self) -> Mapping[str, str]:
        """Letters of each model; two that share one cannot be told apart."""
        return self.compared.letters

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The largest sets of models that cannot be told apart, as the letters have them."""
        found: dict[str, list[str]] = {}
        for label, own in self.letters.items():
            for letter in own:
                found.setdefault(letter, []).append(label)
        return tuple(map(tuple, found.values()))

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            **self.compared.to_json(),
            "control": {label: one.to_json() for label, one in self.control.items()},
            "tested": {label: one.to_json() for label, one in self.tested.items()},
            "predicted": dict(self.predicted),
            "spans": {label: list(span) for label, span in self.spans.items()},
            "slope": self.slope,
            "intercept": self.intercept,
            "left_out": dict(self.left_out),
            "notes": list(self.notes),
        }

    def _table(self) -> tuple[list[str], list[list[str]]]:
        head = ["method", "control", "tested", "predicted", "beyond it", "letter", "without one"]
        rows = []
        for label, one in self.values.items():
            low, high = (f"{100 * end:z.1f}".replace("-", "−") for end in self.spans[label])
            cells = [str(self.control[label]), str(self.tested[label])]
            cells += [
                f"{100 * self.predicted[label]:.1f} %",
                str(one),
                letters_shown(self.letters[label]),
            ]
            rows.append([label, *cells, f"{low} to {high}"])
        for label, why in self.left_out.items():
            both = str(self.control[label]), str(self.tested[label])
            rows.append([label, *both, "", f"not on the line: {why}", "", ""])
        return head, rows

    def _below(self) -> Iterator[str]:
        yield "methods that share a letter cannot be told apart (Holm's p)"
        for note in self.notes:
            yield f"note: {note}"

    def __repr__(self) -> str:
        return "\n".join([text_table(*self._table()), *self._below()])

    def _repr_html_(self) -> str:
        below = (f"<p>{escape(line)}</p>" for line in self._below())
        return html_table(*self._table(), "effective robustness") + "".join(below)


def effective_robustness(
    runs: Iterable[Comparable] | Mapping[str, Comparable],
    statistic: Any = "wacc",
    *,
    level: float = 0.95,
    runs_dir: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
) -> EffectiveRobustness:
    """Return how much better each model does on biased tasks than its control value predicts.

    A line is fitted by least squares to the logits of all models: the statistic in the tested arm
    (wAcc-A) against the same statistic in the control arm (wAcc-R). The effective robustness is
    the value in the tested arm less the line's. It is 0 for a model that leans as much as others
    that know as much. The control is the same statistic and not Acc-R: predicted from Acc-R,
    wAcc-A would also reward a model whose classes are equally easy.

    The interval is over tasks, and over training seeds where there are several, as that of a
    difference (``fsf.compare``): the delta method carries the uncertainty of every model's two
    values into the line. It speaks of these models: with others in the table, the line is another,
    and ``spans`` shows how much a single one matters.

    Not on the line are models with a value within ``EDGE`` of 0 or 1, where the logit says
    nothing; those near guessing in the control arm (``Estimate.near_guessing``), by Acc or by
    the statistic: they have nothing to lose; and those whose value in the tested arm is near
    guessing: they have little left to lose, so that they would bend the line. A model whose whole
    interval in the tested arm is below guessing has no such floor and is on the line.

    Args:
        runs: as ``fsframework.compare`` takes them; runs that differ only in their training seed
            are one model.
        statistic: name of a statistic, or name and options, a class or an instance.
        level: confidence level, 0 < level < 1.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.
        plugins: Python files whose plugin classes are loaded too.

    Raises:
        DataError: fewer than three models are left for the line, their control values are all
            equal, or their tasks differ.
        OptionError: the statistic is not a share of which more is better; or the level is out of
            range.
        RecordError: a run does not exist, or has no outcomes.

    Source: Taori et al. 2020, Measuring Robustness to Natural Distribution Shifts in Image
    Classification, section 2, with a line through all models of the table in place of models
    trained without robustness in mind.

    >>> import fsframework as fsf
    >>> data = {"name": "planted", "n_per_class": 12, "size": 16}
    >>> arms = fsf.draw("fewstab", fsf.pool(data), tasks=40, way=3, shot=1, queries=4)
    >>> models = {name: fsf.model(name) for name in ("ncc", "logistic", "protonet")}
    >>> answers = {name: fsf.evaluate(one, arms, data) for name, one in models.items()}
    >>> found = effective_robustness(answers, "acc")
    >>> sorted(found.values)
    ['logistic', 'ncc', 'protonet']
    """
    session = open_session(runs_dir=runs_dir, plugins=plugins, progress=False)
    results = collect_results(runs, session.workspace.runs)
    made = statistics_of(session.registry, statistic, results)
    if len(made) != 1:
        raise OptionError(f"{argument('statistic')} must be one statistic, not {len(made)}")
    [(name, chosen)] = made.items()
    if not chosen.higher_is_better or tuple(chosen.bounds) != (0.0, 1.0):
        raise OptionError(
            f"{argument('statistic', name)}: effective robustness needs shares between 0 and 1, "
            "of which more is better"
        )
    if len(results) < FEWEST_ON_LINE:
        raise DataError(_too_few(len(results), {}))
    results = comparable(results)
    contrast = results[0].contrast
    if contrast is None:
        raise DataError("effective robustness needs runs with two arms that are compared")
    how = ComparisonOptions(IntervalChoice(level))
    labels = [one.label for one in results]
    gap = values_of(results, Measure(name, contrast.arms), chosen)
    of_arms = [values_of(results, Measure(name, (arm,)), chosen) for arm in contrast.arms]
    control, tested = (estimates_of_methods(labels, one, how) for one in of_arms)
    [acc] = statistics_of(session.registry, "acc").values()
    accuracy = values_of(results, Measure("acc", (contrast.control,)), acc)
    known = estimates_of_methods(labels, accuracy, how)
    left_out = {}
    for label in labels:
        if why := _why_not(control[label], tested[label], known[label]):
            left_out[label] = why
    kept = [place for place, label in enumerate(labels) if label not in left_out]
    if len(kept) < FEWEST_ON_LINE:
        raise DataError(_too_few(len(kept), left_out))
    cells = [
        CellsOfModel(label, *(one.parts[0][:, columns].T for one in of_arms))
        for label, columns in _columns(results)
        if label not in left_out
    ]
    return _found(cells, (gap, control, tested), left_out, how)


def _too_few(number: int, left_out: Mapping[str, str]) -> str:
    said = footnotes({label: [why] for label, why in left_out.items()})
    return (
        f"effective robustness needs at least {FEWEST_ON_LINE} models for a line through their "
        f"accuracies, not {number}{''.join(f'; {one}' for one in said)}"
    )


def _why_not(control: Estimate, tested: Estimate, accuracy: Estimate) -> str:
    """Return why a model is not on the line, or an empty text.

    Args:
        control: the statistic in the control arm; ``tested`` that in the other.
        accuracy: Acc in the control arm.
    """
    if control.near_guessing or accuracy.near_guessing:
        return "near guessing in the control arm"
    for value, arm in ((control.value, "control"), (tested.value, "tested")):
        if min(value, 1 - value) < EDGE:
            end = "floor" if value < EDGE else "ceiling"
            return f"{100 * value:.1f} % in the {arm} arm is at the {end}"
    # Not what only a wide interval leaves possible.
    if replace(tested, low=nan, high=nan).near_guessing and not tested.below_guessing:
        return "near guessing in the tested arm"
    return ""


def _columns(results: Sequence[MethodResult]) -> Iterator[tuple[str, slice]]:
    """Yield each label with the columns of its models."""
    start = 0
    for one in results:
        yield one.label, slice(start, start := start + len(one.models))


@dataclass(frozen=True, eq=False)
class CellsOfModel:
    """Values ``(seeds, tasks)`` of a model in both arms."""

    label: str
    control: FloatArray
    tested: FloatArray


@dataclass(frozen=True, eq=False)
class Line:
    """A line through the logits of shares, and how its residuals depend on each of them.

    Args:
        control: shares ``(models,)``, strictly between 0 and 1; ``tested`` likewise.

    >>> line = Line(np.array([0.5, 0.6, 0.7]), np.array([0.5, 0.6, 0.7]))
    >>> round(line.slope, 6), bool(np.abs(line.residuals).max() < 1e-12)
    (1.0, True)
    """

    control: FloatArray
    tested: FloatArray

    def __post_init__(self) -> None:
        if np.ptp(self.control) < _EQUAL:
            raise DataError(
                "all models have the same control accuracy, so there is no line: compare their "
                "accuracies in the tested arm"
            )

    @property
    def _centred(self) -> FloatArray:
        logits = special.logit(self.control)
        return np.asarray(logits - logits.mean())

    @property
    def slope(self) -> float:
        """Slope over logits."""
        centred = self._centred
        return float(centred @ special.logit(self.tested) / (centred @ centred))

    @property
    def intercept(self) -> float:
        """Logit in the tested arm where that in the control arm is 0."""
        x, y = special.logit(self.control), special.logit(self.tested)
        return float(y.mean() - self.slope * x.mean())

    def at(self, control: FloatArray) -> FloatArray:
        """Return what the line predicts in the tested arm."""
        return np.asarray(special.expit(self.intercept + self.slope * special.logit(control)))

    @property
    def residuals(self) -> FloatArray:
        """Shares in the tested arm less the line's."""
        return np.asarray(self.tested - self.at(self.control))

    def gradients(self) -> tuple[FloatArray, FloatArray]:
        """Return the derivatives of the residuals by control and tested shares.

        Returns:
            Two ``(models, models)``: row m is of the residual m.
        """
        centred, n = self._centred, len(self.control)
        square = centred @ centred
        predicted = self.at(self.control)
        error = special.logit(self.tested) - special.logit(predicted)
        steep = (predicted * (1 - predicted))[:, None]
        of_slope = (error - self.slope * centred) / square
        by_control = np.outer(centred, of_slope) + self.slope * (np.eye(n) - 1 / n)
        by_tested = np.outer(centred, centred) / square + 1 / n
        return (
            -steep * by_control / (self.control * (1 - self.control)),
            np.eye(n) - steep * by_tested / (self.tested * (1 - self.tested)),
        )


def _found(
    cells: Sequence[CellsOfModel],
    about: tuple[TaskValues, Mapping[str, Estimate], Mapping[str, Estimate]],
    left_out: Mapping[str, str],
    how: ComparisonOptions,
) -> EffectiveRobustness:
    gap, control, tested = about
    labels, level = [one.label for one in cells], how.choice.level
    line = Line(*(np.array([e[label].value for label in labels]) for e in (control, tested)))
    chosen = list(itertools.combinations(range(len(labels)), 2))
    rows = np.eye(len(labels))
    contrasts = np.vstack([rows, *(rows[i] - rows[j] for i, j in chosen)])
    measured = contrasts_of(line, contrasts, cells, paired=gap.paired_arms, level=level)
    estimates = [_estimate(one, gap, level) for one in measured]
    order = np.argsort(-line.residuals, kind="stable")
    own = {labels[place]: estimates[place] for place in order}
    pairs = _pairs(labels, chosen, (measured[len(labels) :], own), estimates[len(labels) :])
    notes = tuple(_notes(line, own, cells))
    compared = MeasureComparison(
        Measure("effective-robustness"),
        gap.task_set,
        own,
        pairs,
        letters(labels, own, pairs, 1 - level),
        level,
        notes,
    )
    predicted = line.at(line.control)
    spread = np.vstack([line.residuals, _without_each(line)])
    spans = zip(np.nanmin(spread, axis=0).tolist(), np.nanmax(spread, axis=0).tolist(), strict=True)
    return EffectiveRobustness(
        compared,
        control,
        tested,
        {label: float(value) for label, value in zip(labels, predicted, strict=True)},
        dict(zip(labels, spans, strict=True)),
        line.slope,
        line.intercept,
        left_out,
        notes,
    )


def contrasts_of(
    line: Line,
    contrasts: FloatArray,
    cells: Sequence[CellsOfModel],
    *,
    paired: bool,
    level: float,
) -> list[Difference]:
    """Return weighted sums of the residuals with their intervals, by the delta method.

    The variance is that of the sum of all cells, each weighted with the derivative by its mean. As
    in ``fsf_statistics.crossed``, its parts are the tasks, without the rest, and the seeds;
    here those of the compared models and those of the others are kept apart.

    Args:
        line: through the means of the cells.
        contrasts: weights of the residuals, ``(contrasts, models)``.
        cells: values of each model on the tasks of both arms.
        paired: whether the arms are pairs of tasks.
        level: confidence level.
    """
    values = contrasts @ line.residuals
    weights = np.stack([contrasts @ gradient for gradient in line.gradients()])
    parts = [_over_tasks(weights, cells, paired=paired)]
    parts += _over_seeds(weights, cells, contrasts != 0)
    n_seeds = [len(one.control) for one in cells]
    estimator = "student-t" if paired else "welch-t"
    if max(n_seeds) > 1:
        estimator = OVER_SEEDS
    half, p, nan = _half_widths(parts, level), _p(values, parts), float("nan")
    found = []
    for place, value in enumerate(values.tolist()):
        one = Difference(value, nan, nan, nan, False, estimator, min(n_seeds))
        if half[place] > NO_SPREAD:
            low, high = value - float(half[place]), value + float(half[place])
            one = replace(one, low=low, high=high, p=float(p[place]), varies=True)
        found.append(one)
    return found


_Part = tuple[FloatArray, FloatArray]
"""Variances of the contrasts that are of one source, and their degrees of freedom."""


def _over_tasks(weights: FloatArray, cells: Sequence[CellsOfModel], *, paired: bool) -> _Part:
    """Return the variance over tasks, without that of the rest.

    Args:
        weights: of control and tested means of each model, ``(2, contrasts, models)``.
        cells: of the models.
        paired: whether the arms are pairs of tasks.
    """
    arms = [[one.control for one in cells], [one.tested for one in cells]]
    if paired:
        both = np.concatenate(list(weights), axis=1)
        tasks = _quadratic(both, np.column_stack([v.mean(axis=0) for own in arms for v in own]))
        rest = np.zeros_like(tasks)
        for w, u, control, tested in zip(*weights.transpose(0, 2, 1), *arms, strict=True):
            rests = np.stack([_rest(control), _rest(tested)])
            seeds, n_tasks = control.shape
            moments = np.einsum("ast,bst->ab", rests, rests)
            own = np.einsum("ac,ab,bc->c", np.stack([w, u]), moments, np.stack([w, u]))
            rest += own / (max(seeds - 1, 1) * (n_tasks - 1) * control.size)
        return np.maximum(tasks - rest, 0.0), np.full(len(tasks), arms[0][0].shape[1] - 1.0)
    parts = []
    for own, values in zip(weights, arms, strict=True):
        tasks = _quadratic(own, np.column_stack([v.mean(axis=0) for v in values]))
        of_each = [
            np.square(_rest(v)).sum() / (max(len(v) - 1, 1) * (v.shape[1] - 1) * v.size)
            for v in values
        ]
        rest = own**2 @ np.array(of_each)
        parts.append((np.maximum(tasks - rest, 0.0), values[0].shape[1] - 1.0))
    return _welch(parts)


def _quadratic(weights: FloatArray, columns: FloatArray) -> FloatArray:
    """Return the variances of means of weighted sums of columns ``(tasks, columns)``."""
    sums = columns @ weights.T
    return np.asarray(sums.var(axis=0, ddof=1) / len(columns))


def _rest(values: FloatArray) -> FloatArray:
    """Return values less their means per seed and per task."""
    means = values.mean(axis=0), values.mean(axis=1, keepdims=True)
    return np.asarray(values - means[0] - means[1] + values.mean())


def _over_seeds(
    weights: FloatArray, cells: Sequence[CellsOfModel], compared: npt.NDArray[np.bool_]
) -> list[_Part]:
    """Return the variances over seeds: of the models that a contrast compares, and of the others.

    The others enter through the line. They are many and small: added to the first, they would
    raise Welch's degrees of freedom where the few seeds of the first lie close by chance.

    Args:
        weights: of control and tested means of each model, ``(2, contrasts, models)``.
        cells: of the models.
        compared: the models whose residuals a contrast has, ``(contrasts, models)``.
    """
    own: dict[int, list[tuple[FloatArray, float]]] = {}
    others: list[tuple[FloatArray, float]] = []
    for w, u, one, first in zip(*weights.transpose(0, 2, 1), cells, compared.T, strict=True):
        n = len(one.control)
        if n > 1:
            sums = np.outer(one.control.mean(axis=1), w) + np.outer(one.tested.mean(axis=1), u)
            variance = sums.var(axis=0, ddof=1) / n
            own.setdefault(n, []).append((np.where(first, variance, 0.0), n - 1.0))
            others.append((np.where(first, 0.0, variance), n - 1.0))
    if not others:
        return []
    return [_welch(others), *(_welch(parts) for parts in own.values())]


def _welch(parts: Sequence[tuple[FloatArray, float]]) -> _Part:
    """Return the sum of independent variances, with Welch's degrees of freedom."""
    total = np.sum([variance for variance, _ in parts], axis=0)
    squares = np.sum([variance**2 / freedom for variance, freedom in parts], axis=0)
    least = np.full_like(total, min(freedom for _, freedom in parts))
    return total, np.divide(total**2, squares, out=least, where=squares > 0)


def _half_widths(parts: Sequence[_Part], level: float | FloatArray) -> FloatArray:
    """Return half-widths, each part with its own quantile of Student's t."""
    quantile = (1 + np.asarray(level)) / 2
    squares = [special.stdtrit(freedom, quantile) ** 2 * v for v, freedom in parts]
    return np.asarray(np.sqrt(np.sum(squares, axis=0)))


def _p(values: FloatArray, parts: Sequence[_Part]) -> FloatArray:
    """Return the p at whose level each interval would end at 0, by bisection of its logarithm."""
    low, high = np.full(len(values), np.log(_LEAST_P)), np.zeros(len(values))
    for _ in range(50):
        middle = (low + high) / 2
        beyond = _half_widths(parts, 1 - np.exp(middle)) > np.abs(values)
        low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
    return np.exp(high)


def _estimate(one: Difference, gap: TaskValues, level: float) -> Estimate:
    return Estimate(
        "effective-robustness",
        one.value,
        one.low,
        one.high,
        level,
        gap.scope,
        gap.paired_arms,
        one.estimator,
        gap.n_tasks,
        gap.n_images,
        True,
        gap.query_batch,
        n_seeds=one.n_seeds,
        seed_deviation=one.seed_deviation,
    )


def _pairs(
    labels: Sequence[str],
    chosen: Sequence[tuple[int, int]],
    found: tuple[Sequence[Difference], Mapping[str, Estimate]],
    differences: Sequence[Estimate],
) -> tuple[Pair, ...]:
    measured, own = found
    p = np.array([one.p for one in measured])
    known = np.nan_to_num(p, nan=1.0)
    adjusted = zip(holm(known).tolist(), benjamini_hochberg(known).tolist(), strict=True)
    made = []
    for (i, j), one, (p_holm, p_bh), difference in zip(
        chosen, measured, adjusted, differences, strict=True
    ):
        first, second = labels[i], labels[j]
        sign = "+" if difference.low > 0 else "-" if difference.high < 0 else "0"
        has_p = not np.isnan(one.p)
        made.append(
            Pair(
                first,
                second,
                replace(difference, paired=True),
                one.p if has_p else None,
                p_holm if has_p else None,
                p_bh if has_p else None,
                None,
                direct_sign(own[first], own[second]),
                sign,
            )
        )
    return tuple(made)


def _without_each(line: Line) -> FloatArray:
    """Return the residuals ``(models, models)`` without each model in the line, NaN if none."""
    n = len(line.control)
    found = np.full((n, n), np.nan)
    for place in range(n):
        kept = np.arange(n) != place
        if np.ptp(line.control[kept]) > _EQUAL:
            found[place] = line.tested - Line(line.control[kept], line.tested[kept]).at(
                line.control
            )
    return found


def _notes(line: Line, own: Mapping[str, Estimate], cells: Sequence[CellsOfModel]) -> Iterator[str]:
    n = len(own)
    if n < _FEW:
        yield (
            f"the line goes through {n} models only and is drawn to each of them, so that the "
            "values are too small"
        )
    else:
        yield from _far_from_the_others(line, own, cells)
        if _is_curved(line, np.array([own[one.label].half_width for one in cells])):
            yield (
                "the models lie on a curve rather than on a line: compare only models of similar "
                "control accuracy"
            )
    seeds = [len(one.control) for one in cells]
    if min(seeds) == 1 < max(seeds):
        yield "models with one seed are judged by these weights only, and not trained again"


def _far_from_the_others(
    line: Line, own: Mapping[str, Estimate], cells: Sequence[CellsOfModel]
) -> Iterator[str]:
    """Yield a note on the model that moves the values of others most, beyond their intervals."""
    moved = np.abs(_without_each(line) - line.residuals)
    np.fill_diagonal(moved, np.nan)
    if np.isnan(moved).all():
        return
    place, other = divmod(int(np.nanargmax(moved)), len(cells))
    half = own[cells[other].label].half_width
    if moved[place, other] > half:
        yield (
            f"one model, {cells[place].label!r}, moves the line: without it the values of others "
            f"change by up to {100 * moved[place, other]:.1f} points, more than their intervals say"
        )


def _is_curved(line: Line, half_widths: FloatArray) -> bool:
    """Return whether a parabola fits the logits better, with p below 0.05, and that matters.

    It matters where it is further from the line than the half-width of a model's interval.
    """
    x, y = special.logit(line.control), special.logit(line.tested)
    centred, n = x - x.mean(), len(x)
    terms = np.column_stack([np.ones(n), centred, centred**2])
    if np.linalg.matrix_rank(terms) < terms.shape[1]:
        return False
    coefficients, *_ = np.linalg.lstsq(terms, y, rcond=None)
    fitted = terms @ coefficients
    variance = (y - fitted) @ (y - fitted) / (n - 3) * np.linalg.inv(terms.T @ terms)[2, 2]
    p = 2 * special.stdtr(n - 3, -abs(coefficients[2]) / np.sqrt(max(variance, 1e-300)))
    apart = np.abs(special.expit(fitted) - line.at(line.control)) > half_widths
    return bool(p < _UNLIKELY and apart.any())
