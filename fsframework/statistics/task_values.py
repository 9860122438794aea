"""A measure of methods on equal tasks: its values task by task, estimates and intervals."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fsframework._calls import checked, malformed, seeded
from fsframework.errors import DataError
from fsframework.interfaces.statistic import Statistic
from fsframework.statistics.differences import (
    ComparisonOptions,
    Difference,
    differences,
    means_over_seeds,
)
from fsframework.statistics.estimators import LEVELS
from fsframework.statistics.further import further
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
)

__all__ = [
    "TaskValues",
    "estimate_from",
    "estimates_from",
    "estimates_of_methods",
    "intervals_of",
    "values_of",
]


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


def values_of(
    results: Sequence[MethodResult], measure: Measure, statistic: Statistic
) -> TaskValues:
    """Compute a measure of results on equal tasks.

    Args:
        results: with the arms that they share.

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
    _, over, _ = intervals_of(values, np.eye(len(labels)), how)
    return estimates_from(labels, values, over, how)


def estimates_from(
    labels: Sequence[str], values: TaskValues, found: Sequence[Difference], how: ComparisonOptions
) -> dict[str, Estimate]:
    """Return the methods' own values, whose contrasts come first."""
    estimates = [estimate_from(values, one, how.choice.level) for one in found[: len(labels)]]
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


def estimate_from(
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


def intervals_of(
    values: TaskValues, contrasts: FloatArray, how: ComparisonOptions
) -> tuple[list[Difference], list[Difference], str]:
    """Return contrasts over tasks and as they are asked for, and why there is no other interval."""
    found = differences(values.parts, contrasts, how, values.n_seeds)
    if how.choice.method not in LEVELS:
        return found, found, ""
    return found, *further("over_images")(values, contrasts, found, how)
