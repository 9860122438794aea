"""From outcomes to estimates with intervals whose kind is decided here, never declared."""

from __future__ import annotations

import dataclasses

import numpy as np

from fsframework.errors import DataError
from fsframework.interfaces.statistic import Statistic
from fsframework.statistics.intervals import (
    LEVELS,
    Estimator,
    Interval,
    difference_interval,
    image_interval,
    mean_interval,
)
from fsframework.values import Estimate, FloatArray, IntArray, IntervalKind, Outcomes, TaskSet

__all__ = [
    "FEWEST_ANSWERS",
    "estimate",
    "estimator_for",
    "gap",
    "paired_by_support",
    "paired_difference",
    "saturation",
    "task_values",
]

FEWEST_ANSWERS = 100
"""With fewer wrong (or right) answers, 95 % intervals were found to hold 90 to 92 % of truths."""


_UNIFORM = ("random", "placebo(random)")
"""Samplers that draw classes and images uniformly."""


def estimator_for(interval: Interval, tasks: TaskSet) -> Interval:
    """Return how an interval over these tasks can be made: as asked, or Student's.

    ``image-level`` and ``class-level`` presume that classes and images were drawn uniformly, as
    the sampler ``random`` does and those that look at attributes or contexts do not, and that
    tasks share images: else Student's is the same.
    """
    if interval not in LEVELS:
        return interval
    uniform = tasks.sampler in _UNIFORM
    return interval if uniform and tasks.reuses_images and len(tasks) > 1 else "student-t"


def saturation(outcomes: Outcomes) -> str | None:
    """Return what to be warned of where nearly all answers are right, or nearly all wrong.

    >>> saturation(Outcomes(np.zeros((2, 2, 5)), "digest", 40, False)) is None
    False
    """
    right = int((outcomes.predictions == np.arange(outcomes.n_way)[None, :, None]).sum())
    total = outcomes.predictions.size
    fewer, what = min((total - right, "wrong"), (right, "right"))
    if fewer >= FEWEST_ANSWERS:
        return None
    return (
        f"only {fewer:,} of {total:,} answers are {what}: so near to the end of the scale, "
        "intervals hold the truth less often than they say; more tasks would help"
    )


def estimate(
    name: str,
    statistic: Statistic,
    outcomes: Outcomes,
    level: float = 0.95,
    interval: Interval = "student-t",
    drawn: tuple[TaskSet, IntArray] | None = None,
) -> Estimate:
    """Estimate the mean of a statistic over tasks.

    The interval is *open* (it speaks of the distribution the data came from) only if no image
    stands in two tasks, or if it is an ``image-level`` or ``class-level`` one; else it is
    *closed*: it speaks of this data set and would narrow to nothing with more tasks.

    Args:
        interval: how it is made; see ``intervals``.
        drawn: the tasks and the number of images of each class, for the two levels.
    """
    values = task_values(name, statistic, outcomes)
    found = _of_values(name, values, statistic, outcomes, level, paired=False, interval=interval)
    if interval not in LEVELS:
        return found
    if drawn is None:
        raise DataError(f"{name}: an {interval} interval needs the tasks and the class sizes")
    over = image_interval(statistic.per_task, drawn[0], outcomes, drawn[1], level, interval)
    return dataclasses.replace(found, low=over.low, high=over.high, kind="open")


def gap(
    name: str,
    statistic: Statistic,
    random: tuple[TaskSet, Outcomes],
    biased: tuple[TaskSet, Outcomes],
    level: float = 0.95,
    interval: Interval = "student-t",
) -> Estimate:
    """Estimate how much a statistic falls from random to attribute-biased tasks (R - A).

    The two task sets are drawn independently, so the interval is Welch's (1947) for a difference
    of means, or a bootstrap of both where one is asked for. It is open only if no image stands in
    two tasks of both sets together.

    Source: FewSTAB, appendix B (gap = wAcc-R - wAcc-A); the paper prints no interval for it.
    """
    first, second = (task_values(name, statistic, outcomes) for _, outcomes in (random, biased))
    mean = float(first.mean() - second.mean())
    images = np.concatenate([tasks.images.ravel() for tasks, _ in (random, biased)])
    n_images = int(np.unique(images).size)
    kind: IntervalKind = "closed" if n_images < images.size else "open"
    estimator: str = "welch-t" if interval in ("student-t", *LEVELS) else interval
    low, high = difference_interval(first, second, level, interval)
    return Estimate(
        name,
        mean,
        low,
        high,
        level,
        kind,
        False,
        estimator,
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
    values = task_values(name, statistic, first) - task_values(name, statistic, second)
    return _of_values(name, values, statistic, first, level, paired=True)


def paired_by_support(
    name: str,
    statistic: Statistic,
    first: tuple[TaskSet, Outcomes],
    second: tuple[TaskSet, Outcomes],
    level: float = 0.95,
) -> Estimate:
    """Estimate how a method's statistic differs between queries of two kinds, by pairs of tasks.

    Task ``t`` of one set and task ``t`` of the other have the same classes and the same support,
    so that what a support does to both falls out of their difference. The interval is open only
    if no image stands in two of the pairs.

    Raises:
        DataError: the tasks are of different images, or classes or supports differ, so that no
            two belong together, or the queries were shown otherwise.
    """
    (one, its), (other, theirs) = first, second
    if one.key_digest != other.key_digest:
        raise DataError(
            f"{name}: the tasks cannot be paired, they are of different images: the digests of "
            f"their keys are {one.key_digest[:12]} and {other.key_digest[:12]}"
        )
    if not (
        np.array_equal(one.classes, other.classes) and np.array_equal(one.support, other.support)
    ):
        raise DataError(
            f"{name}: the tasks cannot be paired, they have not the same classes and support"
        )
    if its.query_batch != theirs.query_batch:
        raise DataError(
            f"{name}: a paired comparison needs equal scoring: the queries of one were shown by "
            f"{its.query_batch}, those of the other by {theirs.query_batch}"
        )
    values = task_values(name, statistic, its) - task_values(name, statistic, theirs)
    images = np.sort(np.concatenate([one.images, other.images], axis=1), axis=1)
    new = np.diff(images, axis=1, prepend=-1) != 0  # an image of both tasks of a pair counts once
    n_images = int(np.unique(images).size)
    kind: IntervalKind = "closed" if n_images < new.sum() else "open"
    found = _of_values(name, values, statistic, its, level, paired=True)
    return dataclasses.replace(found, kind=kind, n_images=n_images)


def _of_values(
    name: str,
    values: FloatArray,
    statistic: Statistic,
    outcomes: Outcomes,
    level: float,
    *,
    paired: bool,
    interval: Interval = "student-t",
) -> Estimate:
    own: Estimator = "student-t"
    if interval != "image-level" and interval != "class-level":
        own = interval
    mean, low, high = mean_interval(values, level, own)
    return Estimate(
        name,
        mean,
        low,
        high,
        level,
        outcomes.kind,
        paired,
        interval,
        len(values),
        outcomes.n_images,
        _is_share(statistic),
        outcomes.query_batch,
    )


def _is_share(statistic: Statistic) -> bool:
    return tuple(statistic.bounds) == (0.0, 1.0)


def task_values(name: str, statistic: Statistic, outcomes: Outcomes) -> FloatArray:
    """Return a statistic of each task, float64 ``(T,)``, checked against its contract.

    Raises:
        DataError: a value is no finite number within the statistic's bounds, or there are not as
            many as tasks.
    """
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
