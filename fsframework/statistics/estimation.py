"""From outcomes to estimates with intervals whose scope is decided here, never declared."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from fsframework._calls import checked, malformed
from fsframework.errors import DataError
from fsframework.interfaces.statistic import Statistic
from fsframework.statistics.differences import ComparisonOptions, mean_interval
from fsframework.statistics.estimators import LEVELS, IntervalChoice
from fsframework.statistics.intervals import image_interval
from fsframework.values import (
    ArmOutcomes,
    Arms,
    Contrast,
    Estimate,
    FloatArray,
    IntArray,
    Outcomes,
    Scope,
    TaskSet,
    measure_name,
)

__all__ = [
    "FEWEST_ANSWERS",
    "OWN",
    "contrast_estimate",
    "contrast_images",
    "estimate",
    "estimates_of",
    "interval_for",
    "saturation",
    "task_values",
]

FEWEST_ANSWERS = 100
"""With fewer wrong (or right) answers, 95 % intervals held the truth in 90 to 92 % of cases."""

OWN = "own"
"""The estimator of an interval that the statistic brings itself."""


_USUAL = IntervalChoice()


def interval_for(tasks: TaskSet, choice: IntervalChoice) -> IntervalChoice:
    """Return the interval to make over these tasks: the chosen one, or Student's.

    ``image-level`` and ``class-level`` assume that classes and images were drawn uniformly, which
    a sampler declares, and that tasks share images: otherwise Student's interval is the same.
    """
    holds = tasks.uniform and tasks.reuses_images and len(tasks) > 1
    if choice.method not in LEVELS or holds:
        return choice
    return dataclasses.replace(choice, method="student-t")


def saturation(outcomes: Outcomes) -> str | None:
    """Return a warning where nearly all answers are right, or nearly all wrong.

    >>> saturation(Outcomes(np.zeros((2, 2, 5)), "digest", 40, False)) is None
    False
    """
    right = int((outcomes.predictions == np.arange(outcomes.n_way)[None, :, None]).sum())
    total = outcomes.predictions.size
    fewer, what = min((total - right, "wrong"), (right, "right"))
    if fewer >= FEWEST_ANSWERS:
        return None
    return (
        f"only {fewer:,} of {total:,} answers are {what}: this close to the end of the scale, "
        "intervals hold the truth less often than their level; more tasks would help"
    )


def estimates_of(
    statistics: Mapping[str, Statistic],
    outcomes: ArmOutcomes,
    choice: IntervalChoice = _USUAL,
    class_sizes: IntArray | None = None,
) -> dict[str, Estimate]:
    """Estimate every statistic in every arm, and the contrast of the arms where there is one.

    Args:
        statistics: by name.
        choice: the chosen interval; see ``interval_for``.
        class_sizes: int ``(n_classes,)``, images of each class of the data, for ``image-level``
            and ``class-level``.

    Returns:
        Estimates by name of the measure: ``wacc-random``, ``wacc-biased``, ``wacc-gap``.
    """
    found: dict[str, Estimate] = {}
    for name, statistic in statistics.items():
        for arm, answered in outcomes.items():
            tasks = outcomes.arms[arm]
            drawn = None if class_sizes is None else (tasks, class_sizes)
            own = interval_for(tasks, choice)
            one = estimate(name, statistic, answered, own, drawn)
            one = dataclasses.replace(one, arms=(arm,))
            found[one.name] = one
        contrast = outcomes.arms.contrast
        if contrast is not None and all(arm in outcomes for arm in contrast.arms):
            one = contrast_estimate(name, statistic, outcomes, contrast, choice)
            found[one.name] = one
    return found


def estimate(
    name: str,
    statistic: Statistic,
    outcomes: Outcomes,
    choice: IntervalChoice = _USUAL,
    drawn: tuple[TaskSet, IntArray] | None = None,
) -> Estimate:
    """Estimate the mean of a statistic over tasks.

    The interval is *open* (it speaks of the distribution the data came from) only if no image
    appears in two tasks, or if it is an ``image-level`` or ``class-level`` one; else it is
    *closed*: it speaks of this data set and would shrink to nothing with more tasks.

    Args:
        name: name of the statistic.
        choice: the chosen interval.
        drawn: the tasks and the number of images of each class, for the two levels.
    """
    values = task_values(name, statistic, outcomes)
    value, low, high = mean_interval(values, how=ComparisonOptions(choice))
    scope, method = outcomes.scope, choice.method
    if method == "image-level" or method == "class-level":
        if drawn is None:
            raise DataError(f"{name}: an {method} interval needs the tasks and the class sizes")
        tasks, sizes = drawn
        over = image_interval(statistic.per_task, tasks, outcomes, sizes, choice.level, method)
        low, high, scope = over.low, over.high, "open"
    estimator: str = method
    if (own := _own_interval(statistic, outcomes, choice.level, value)) is not None:
        (low, high), scope, estimator = own, outcomes.scope, OWN
    return Estimate(
        name,
        value,
        low,
        high,
        choice.level,
        scope,
        False,
        estimator,
        len(values),
        outcomes.n_images,
        _is_share(statistic),
        outcomes.query_batch,
        (),
        statistic.higher_is_better,
    )


def _own_interval(
    statistic: Statistic, outcomes: Outcomes, level: float, value: float
) -> tuple[float, float] | None:
    """Return the interval that a statistic brings itself, checked against its contract.

    Raises:
        PluginError: the mean or the statistic's bounds contradict it.
    """
    found = statistic.interval(outcomes, level)
    if found is None:
        return None
    least, most = statistic.bounds
    low, high = map(float, checked(statistic, "interval", found, tuple))
    if not least <= low <= value <= high <= most:
        expected = f"bounds around the mean {value} within {least}..{most}"
        raise malformed(statistic, "interval", f"{low}..{high}", expected)
    return low, high


def contrast_estimate(
    name: str,
    statistic: Statistic,
    outcomes: ArmOutcomes,
    contrast: Contrast,
    choice: IntervalChoice = _USUAL,
) -> Estimate:
    """Estimate how much worse a statistic is in the tested arm than in the control arm.

    Where the arms are paired, the interval is that of the differences task by task. Otherwise the
    two task sets were drawn independently, and it is Welch's (1947) for a difference of means, or
    a bootstrap of both where one is asked for. It is open only if no image appears in two tasks
    (in two pairs, where arms are paired).

    Source: FewSTAB, appendix B (gap = wAcc-R - wAcc-A); the paper prints no interval for it.

    Raises:
        DataError: the arms cannot be compared; the message says why.
    """
    control, tested = (outcomes[arm] for arm in contrast.arms)
    if control.query_batch != tested.query_batch:
        raise DataError(
            f"the arms {' and '.join(contrast.arms)} were scored differently: the queries of one "
            f"were passed by {control.query_batch}, those of the other by {tested.query_batch}"
        )
    sign = 1.0 if statistic.higher_is_better else -1.0
    first, second = (
        sign * task_values(measure_name(name, [arm]), statistic, outcomes[arm])
        for arm in contrast.arms
    )
    n_images, scope = contrast_images(outcomes.arms, contrast)
    parts = (first - second,) if contrast.paired else (first, -second)
    value, low, high = mean_interval(*parts, how=ComparisonOptions(choice))
    estimator = "student-t" if choice.method in LEVELS else choice.method
    return Estimate(
        name,
        value,
        low,
        high,
        choice.level,
        scope,
        contrast.paired,
        "welch-t" if estimator == "student-t" and len(parts) == 2 else estimator,
        sum(map(len, parts)),
        n_images,
        _is_share(statistic),
        tested.query_batch,
        contrast.arms,
        statistic.higher_is_better,
    )


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


def _is_share(statistic: Statistic) -> bool:
    return tuple(statistic.bounds) == (0.0, 1.0)


def task_values(name: str, statistic: Statistic, outcomes: Outcomes) -> FloatArray:
    """Return a statistic of each task, float64 ``(T,)``, checked against its contract.

    Raises:
        DataError: a value is not a finite number within the statistic's bounds, or there are not
            as many as tasks.
        PluginError: the values are not real numbers, or the statistic raises.
    """
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
