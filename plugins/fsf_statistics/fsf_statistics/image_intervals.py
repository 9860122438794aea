"""Intervals of a mean over tasks that share images or classes.

``differences`` treats tasks as independent draws, which they are for given images. If tasks share
images, the intervals of this module still hold for the distribution of the images.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy

from fsframework.errors import DataError, argument
from fsframework.statistics.differences import ComparisonOptions, Difference
from fsframework.statistics.estimators import Level
from fsframework.statistics.task_values import TaskValues
from fsframework.values import FloatArray, IntArray, Outcomes, TaskSet

if TYPE_CHECKING:
    from scipy import sparse

__all__ = ["ImageLevel", "answers_of", "interval_over", "over_images"]

_TASKS_AT_ONCE = 1024
"""Rows of the tasks' products with each other held in memory at a time."""


@dataclass(frozen=True)
class ImageLevel:
    """An interval of a mean over tasks that share images, and its variances.

    Args:
        mean: mean over tasks; ``low`` and ``high`` bound its interval.
        units_variance: variance of the mean over draws of the images (or classes), at least 0.
        tasks_variance: variance of the mean over draws of the tasks from the given images.
        freedom: degrees of freedom of the interval.
    """

    mean: float
    low: float
    high: float
    units_variance: float
    tasks_variance: float
    freedom: float


def over_images(
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


def answers_of(
    per_task: Callable[[Outcomes], FloatArray],
    tasks: TaskSet,
    outcomes: Outcomes,
    class_sizes: IntArray,
) -> FloatArray:
    """Return the effect of each answer on its task's value, float64 ``(T, way, n_query)``.

    It is the value minus the one expected with another image of the class as the query, which
    would be answered correctly as often as the class's queries are.
    """
    values = np.asarray(per_task(outcomes), dtype=np.float64)
    truth = np.arange(tasks.n_way, dtype=np.int16)[:, None]
    right = outcomes.predictions == truth
    flipped = np.where(right, (truth + 1) % tasks.n_way, truth)
    expected = _class_means(right.mean(axis=2), tasks)
    found = np.empty(right.shape)
    predictions = np.array(outcomes.predictions)
    for way, query in np.ndindex(*right.shape[1:]):
        predictions[:, way, query] = flipped[:, way, query]
        changed = per_task(dataclasses.replace(outcomes, predictions=predictions))
        predictions[:, way, query] = outcomes.predictions[:, way, query]
        likely = np.where(right[:, way, query], 1 - expected[:, way], expected[:, way])
        found[:, way, query] = likely * (values - changed)
    return found


def interval_over(
    values: FloatArray,
    answers: FloatArray | None,
    tasks: TaskSet,
    class_sizes: IntArray,
    level: float = 0.95,
    over: Level = "image-level",
) -> ImageLevel:
    """Return the interval of a mean over uniformly drawn tasks, for new images or classes.

    The mean over tasks is an incomplete U-statistic of the images. Its variance is that of the
    complete one, which no number of tasks reduces, plus the part added by drawing only some of the
    tasks, the variance of the tasks' values divided by their number. The first is estimated by the
    infinitesimal jackknife: the sum over images of the squared influence of an image, which is the
    mean over tasks of its effect on a task's value. The square of an estimated influence is too
    large by the variance of the estimate; this Monte-Carlo part is left out by taking products of
    different tasks only, which are drawn independently.

    The effect of a query image follows from its own answers, times the effect of one answer on the
    statistic; that of a support image from the values of the tasks that contain it. ``class-level``
    treats the classes as draws too, each with its images: the influences are then those of
    classes, and few classes give long intervals.

    The estimated variance is itself noisy: 600 tasks with one query per class may give it to within
    a third only, because what a support image does drowns in the luck of the queries. The degrees
    of freedom of the interval (Satterthwaite 1946) include this noise, as the products of pairs of
    tasks show it. A negative estimate counts as 0; the degrees of freedom are those of a normal
    estimate of a variance that is not negative.

    The coverage that ``benchmarks/interval_coverage.py`` measures is in
    ``docs/concepts/intervals.md``.

    Source: Mentch and Hooker 2016, section 3 (incomplete U-statistics); Wager, Hastie and Efron
    2014, equations 5 and 7 (jackknife and Monte-Carlo correction); Wager and Athey 2018, equation
    8 (the factor for draws without replacement). Here per class, as tasks are drawn by class, and
    by role. Effects of pairs of images are counted twice, as by any jackknife: where a task takes
    most of a class's images, the interval is somewhat long.

    Both values and answers may be differences of two methods on the same tasks: an image's
    influence on a difference is the difference of its influences.

    Args:
        values: float64 ``(T,)``, one per task.
        answers: effect of each answer on them, see ``answers_of``; not used for ``class-level``.
        tasks: the tasks, classes and images drawn uniformly.
        class_sizes: int ``(n_classes,)``, images of each class in the data.
        level: confidence level, 0 < level < 1.
        over: what is treated as a draw, ``image-level`` or ``class-level``.

    Raises:
        DataError: there is one task, or for ``class-level`` all classes are in every task.
    """
    count = len(values)
    if count < 2:
        raise DataError(f"an {over} interval needs at least 2 tasks, not {count}")
    mean = float(values.mean())
    if over == "class-level" or answers is None:
        influences = _of_classes(values, tasks, class_sizes)
    else:
        influences = _of_images(values, answers, tasks, class_sizes)
    raw, error = influences.squared()
    of_units, of_tasks = max(0.0, raw), float(values.var(ddof=1)) / count
    half, freedom = 0.0, float("inf")
    if of_units + of_tasks > 0:
        # Satterthwaite's, for a sum of estimated variances.
        likely, spread = _not_negative(raw, error)
        squares = spread + 2 * likely**2 / influences.freedom + 2 * of_tasks**2 / (count - 1)
        freedom = 2 * (likely + of_tasks) ** 2 / squares
        quantile = float(scipy.special.stdtrit(freedom, (1 + level) / 2))
        half = quantile * float(np.sqrt(of_units + of_tasks))
    return ImageLevel(mean, mean - half, mean + half, of_units, of_tasks, freedom)


@dataclass(frozen=True, eq=False)
class _Influences:
    """What each unit, an image or a class, tells of its influence on the mean in each task.

    Args:
        of_units: float64 ``(T, units)``; the influence of a unit is the mean over tasks.
        of_groups: float64 ``(T, groups)``, sums over the units of a group, whose mean over tasks
            is 0: units are compared within their group.
        sizes: float64 ``(groups,)``, units of each group, also those in no task.
        freedom: number of units less that of groups.
    """

    of_units: sparse.csr_array
    of_groups: FloatArray
    sizes: FloatArray
    freedom: int

    def squared(self) -> tuple[float, float]:
        """Return an estimate of the sum of squared influences, and its standard error.

        It is the mean over pairs of different tasks of the products of what units tell in both,
        less the mean of the group, by which tasks agree without sharing a unit. The error is that
        of these products as they vary between pairs: it comes from the draw of the tasks.
        """
        total = squares = 0.0
        transposed, weighted = self.of_units.T.tocsc(), (self.of_groups / self.sizes).T
        n_tasks = self.of_units.shape[0]
        for start in range(0, n_tasks, _TASKS_AT_ONCE):
            chosen = slice(start, start + _TASKS_AT_ONCE)
            products = (self.of_units[chosen] @ transposed).toarray()
            products -= self.of_groups[chosen] @ weighted
            rows = np.arange(len(products))
            products[rows, start + rows] = 0.0
            total += float(products.sum())
            squares += float(np.square(products).sum())
        pairs = n_tasks * (n_tasks - 1)
        return total / pairs, float(np.sqrt(2 * squares)) / pairs


def _of_images(
    values: FloatArray, answers: FloatArray, tasks: TaskSet, class_sizes: IntArray
) -> _Influences:
    """Return the influences of images.

    Of n images of a class a task takes S for support and Q for queries. Let b be the effect of an
    image on a task's value in the support, and a its effect as a query, both of mean 0 over the
    class. An image in the support keeps others out, so that a task with it differs from the
    class's mean by ``(b (n - S) - a Q) / (n - 1)``. The influence sought is ``S b + Q a`` over n.
    """
    from scipy import sparse

    way, shot, n_query = tasks.n_way, tasks.n_shot, tasks.n_query
    sizes = class_sizes.astype(np.float64)
    whole = np.broadcast_to(values[:, None], tasks.classes.shape)
    of_query = answers * way * n_query
    support = whole - _class_means(whole, tasks)
    query = of_query - _class_means(of_query.mean(axis=2), tasks)[:, :, None]
    # Factors per class; n / (n - 1) is for a variance about an estimated mean.
    factors = np.stack([sizes - 1, sizes / (way * n_query)]) / (sizes - shot)
    factors = (factors * np.sqrt(sizes / (sizes - 1)))[:, tasks.classes, None]
    in_support = np.repeat(support[:, :, None] * factors[0], shot, axis=2)
    told = np.concatenate([in_support, query * factors[1]], axis=2)
    images = np.concatenate([tasks.support, tasks.query], axis=2)
    rows = np.repeat(np.arange(len(tasks)), images[0].size)
    of_units = sparse.csr_array((told.ravel(), (rows, images.ravel())))
    of_classes = np.zeros((len(tasks), len(sizes)))
    np.put_along_axis(of_classes, tasks.classes, told.sum(axis=2), axis=1)
    freedom = int((class_sizes[np.unique(tasks.classes)] - 1).sum())
    return _Influences(of_units, of_classes, sizes, freedom)


def _not_negative(variance: float, error: float) -> tuple[float, float]:
    """Return mean and variance of a variance that is not negative, given a normal estimate."""
    if not error > 0:
        return max(0.0, variance), 0.0
    ratio = variance / error
    # The density at 0 over the chance to be above; in logarithms, as both may be tiny.
    hazard = np.exp(-(ratio**2) / 2 - scipy.special.log_ndtr(ratio)) / np.sqrt(2 * np.pi)
    return float(variance + error * hazard), float(error**2 * (1 - hazard * (hazard + ratio)))


def _class_means(values: FloatArray, tasks: TaskSet) -> FloatArray:
    """Return for values ``(T, way)`` of classes in tasks the mean over all tasks of the class."""
    label = tasks.classes.ravel()
    sums, counts = np.bincount(label, values.ravel()), np.bincount(label)
    return np.asarray((sums / np.maximum(counts, 1))[tasks.classes])


def _of_classes(values: FloatArray, tasks: TaskSet, class_sizes: IntArray) -> _Influences:
    """Return the influences of classes, which form one group."""
    from scipy import sparse

    way, n_classes = tasks.n_way, len(class_sizes)
    if n_classes <= way:
        raise DataError(
            f"a class-level interval needs more classes than the {way} of a task: the spread "
            f"of classes cannot be estimated from {n_classes}"
        )
    factor = np.sqrt(n_classes / (n_classes - 1)) * (n_classes - 1) / (n_classes - way)
    told = np.repeat(values - values.mean(), way) * factor
    rows = np.repeat(np.arange(len(tasks)), way)
    of_units = sparse.csr_array(
        (told, (rows, tasks.classes.ravel())), shape=(len(tasks), n_classes)
    )
    whole = told.reshape(len(tasks), way).sum(axis=1, keepdims=True)
    return _Influences(of_units, whole, np.array([float(n_classes)]), n_classes - 1)
