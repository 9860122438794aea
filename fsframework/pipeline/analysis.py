"""From outcomes to estimates with intervals whose kind is decided here, never declared."""

from __future__ import annotations

import numpy as np
from scipy import stats

from fsframework.errors import DataError
from fsframework.interfaces.statistic import Statistic
from fsframework.values import Estimate, FloatArray, IntervalKind, Outcomes, TaskSet

__all__ = ["estimate", "gap", "mean_interval", "paired_difference"]


def mean_interval(values: FloatArray, level: float = 0.95) -> tuple[float, float, float]:
    """Return mean, low and high of the Student-t interval: mean ± t(T-1) sd(ddof 1) / sqrt(T).

    A single task gives NaN bounds.

    >>> mean_interval(np.array([0.0, 1.0]))[0]
    0.5
    """
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return mean, float("nan"), float("nan")
    half = float(stats.t.ppf((1 + level) / 2, count - 1) * np.std(values, ddof=1) / np.sqrt(count))
    return mean, mean - half, mean + half


def estimate(name: str, statistic: Statistic, outcomes: Outcomes, level: float = 0.95) -> Estimate:
    """Estimate the mean of a statistic over tasks.

    The interval is *open* (it speaks of the distribution the data came from) only if no image
    stands in two tasks; else it is *closed*: it speaks of this data set and would narrow to
    nothing with more tasks.
    """
    values = _values(name, statistic, outcomes)
    return _of_values(name, values, statistic, outcomes, level, paired=False)


def gap(
    name: str,
    statistic: Statistic,
    random: tuple[TaskSet, Outcomes],
    biased: tuple[TaskSet, Outcomes],
    level: float = 0.95,
) -> Estimate:
    """Estimate how much a statistic falls from random to attribute-biased tasks (R - A).

    The two task sets are drawn independently, so the interval is Welch's (1947) for a difference
    of means. It is open only if no image stands in two tasks of both sets together.

    Source: FewSTAB, appendix B (gap = wAcc-R - wAcc-A); the paper prints no interval for it.
    """
    first, second = (_values(name, statistic, outcomes) for _, outcomes in (random, biased))
    mean = float(first.mean() - second.mean())
    images = np.concatenate([tasks.images.ravel() for tasks, _ in (random, biased)])
    n_images = int(np.unique(images).size)
    kind: IntervalKind = "closed" if n_images < images.size else "open"
    low = high = float("nan")
    if min(len(first), len(second)) > 1:
        parts = [v.var(ddof=1) / len(v) for v in (first, second)]
        error = float(np.sqrt(sum(parts)))
        half = 0.0
        if error > 0:
            squares = sum(p**2 / (len(v) - 1) for p, v in zip(parts, (first, second), strict=True))
            freedom = error**4 / squares
            half = float(stats.t.ppf((1 + level) / 2, freedom)) * error
        low, high = mean - half, mean + half
    return Estimate(
        name,
        mean,
        low,
        high,
        level,
        kind,
        False,
        "welch-t",
        len(first) + len(second),
        n_images,
        _is_share(statistic),
        random[1].query_batch,
    )


def paired_difference(
    name: str, statistic: Statistic, first: Outcomes, second: Outcomes, level: float = 0.95
) -> Estimate:
    """Estimate the difference of a statistic between two methods on the same tasks.

    Raises:
        DataError: the task digests differ, so that no pair of values belongs together.
    """
    if first.task_digest != second.task_digest:
        raise DataError(
            "a paired comparison needs equal tasks: the task digests are "
            f"{first.task_digest[:12]} and {second.task_digest[:12]}"
        )
    if first.query_batch != second.query_batch:
        raise DataError(
            "a paired comparison needs equal scoring: the queries of one were shown by "
            f"{first.query_batch}, those of the other by {second.query_batch}"
        )
    values = _values(name, statistic, first) - _values(name, statistic, second)
    return _of_values(name, values, statistic, first, level, paired=True)


def _of_values(
    name: str,
    values: FloatArray,
    statistic: Statistic,
    outcomes: Outcomes,
    level: float,
    *,
    paired: bool,
) -> Estimate:
    mean, low, high = mean_interval(values, level)
    return Estimate(
        name,
        mean,
        low,
        high,
        level,
        outcomes.kind,
        paired,
        "student-t",
        len(values),
        outcomes.n_images,
        _is_share(statistic),
        outcomes.query_batch,
    )


def _is_share(statistic: Statistic) -> bool:
    return tuple(statistic.bounds) == (0.0, 1.0)


def _values(name: str, statistic: Statistic, outcomes: Outcomes) -> FloatArray:
    values = np.asarray(statistic.per_task(outcomes), dtype=np.float64)
    if values.shape != (len(outcomes),):
        raise DataError(f"{name}: {values.shape} values for {len(outcomes)} tasks")
    if not np.isfinite(values).all():
        task = int(np.flatnonzero(~np.isfinite(values))[0])
        raise DataError(f"{name}: the value of task {task} is {values[task]}")
    low, high = statistic.bounds
    if values.size and (values.min() < low or values.max() > high):
        raise DataError(f"{name}: values must lie in {low}..{high}")
    return values
