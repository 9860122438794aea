"""Intervals of a mean over tasks that share images or classes.

``mean_interval`` treats tasks as independent draws, which they are for given images. If tasks share
images, the intervals of this module still hold for the distribution of the images.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from fsframework.errors import DataError
from fsframework.statistics.estimators import Level
from fsframework.values import FloatArray, IntArray, Outcomes, TaskSet

if TYPE_CHECKING:
    from scipy import sparse

__all__ = ["ImageLevel", "answers_of", "image_interval", "interval_over"]

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


def image_interval(
    per_task: Callable[[Outcomes], FloatArray],
    tasks: TaskSet,
    outcomes: Outcomes,
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
    large by the variance of the estimate; this Monte-Carlo part is subtracted exactly, as the tasks
    are drawn independently: ``((sum x)**2 - sum x**2) / (T (T - 1))``, x the influence in each
    task.

    The effect of a query image follows from its own answers, times the effect of one answer on the
    statistic; that of a support image from the values of the tasks that contain it. ``class-level``
    treats the classes as draws too, each with its images: the influences are then those of
    classes, and few classes give long intervals.

    Source: Mentch and Hooker 2016, section 3 (incomplete U-statistics); Wager, Hastie and Efron
    2014, equations 5 and 7 (jackknife and Monte-Carlo correction); Wager and Athey 2018, equation
    8 (the factor for draws without replacement). Here per class, as tasks are drawn by class, and
    by role. Effects of pairs of images are neglected: if a task takes most of a class's images,
    or a method's accuracy depends on single images, the interval is somewhat short.

    Args:
        per_task: a statistic, from outcomes to float ``(T,)``; it is called once more for every
            query of a task.
        tasks: the tasks, classes and images drawn uniformly.
        outcomes: of these tasks.
        class_sizes: int ``(n_classes,)``, images of each class in the data.
        level: confidence level, 0 < level < 1.
        over: what is treated as a draw, ``image-level`` or ``class-level``.

    Raises:
        DataError: there is one task, or for ``class-level`` all classes are in every task.
    """
    values = np.asarray(per_task(outcomes), dtype=np.float64)
    answers = answers_of(per_task, tasks, outcomes, class_sizes) if over == "image-level" else None
    return interval_over(values, answers, tasks, class_sizes, level, over)


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
    share, _ = _class_moments(right.mean(axis=2)[None], tasks, len(class_sizes))
    expected = share[0][tasks.classes]
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
    """Return the interval of ``image_interval`` from values and the effects of answers.

    Both values and answers may be differences of two methods on the same tasks: an image's
    influence on a difference is the difference of its influences.

    Args:
        values: float64 ``(T,)``, one per task.
        answers: effect of each answer on them, see ``answers_of``; not used for ``class-level``.

    Raises:
        DataError: there is one task, or for ``class-level`` all classes are in every task.
    """
    count = len(values)
    if count < 2:
        raise DataError(f"an {over} interval needs at least 2 tasks, not {count}")
    mean = float(values.mean())
    if over == "class-level" or answers is None:
        influences, lost, units = _of_classes(values, tasks, class_sizes)
    else:
        influences, lost, units = _of_images(values, answers, tasks, class_sizes)
    pairs = count * (count - 1)
    of_units, error = _off_diagonal(influences)
    of_units = _positive((of_units + lost) / pairs, float(np.sqrt(2 * error)) / pairs)
    of_tasks = float(values.var(ddof=1)) / count
    total = of_units + of_tasks
    half, freedom = 0.0, float("inf")
    if total > 0:
        # Satterthwaite's, for a sum of two estimated variances.
        freedom = total**2 / (of_units**2 / units + of_tasks**2 / (count - 1))
        half = float(special.stdtrit(freedom, (1 + level) / 2)) * float(np.sqrt(total))
    return ImageLevel(mean, mean - half, mean + half, of_units, of_tasks, freedom)


def _of_images(
    values: FloatArray, answers: FloatArray, tasks: TaskSet, class_sizes: IntArray
) -> tuple[sparse.csr_array, float, int]:
    """Return influences ``(T, images)``, the loss of their products by centring, and the freedom.

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
    by_role = np.stack([whole, of_query.mean(axis=2)])
    # Factors per class; n / (n - 1) is for a variance about an estimated mean.
    factors = np.stack([sizes - 1, sizes / (way * n_query)]) / (sizes - shot)
    factors = factors * np.sqrt(sizes / (sizes - 1))
    means, products = _class_moments(by_role, tasks, len(sizes))

    places = (tasks.support, tasks.query)
    numbers = (np.broadcast_to(whole[:, :, None], tasks.support.shape), of_query)
    units, unit = np.unique(np.concatenate([p.ravel() for p in places]), return_inverse=True)
    of_unit = np.zeros(len(units), dtype=np.int64)
    influences, counts, start = [], np.zeros((2, len(units))), 0
    for role, (images, number) in enumerate(zip(places, numbers, strict=True)):
        label = np.broadcast_to(tasks.classes[:, :, None], images.shape).ravel()
        influences.append((number.ravel() - means[role, label]) * factors[role, label])
        these = unit[start : start + images.size]
        start += images.size
        of_unit[these] = label
        counts[role] = np.bincount(these, minlength=len(units))
    # Two numbers less their common mean are correlated, by minus a share of their variance.
    f, c = factors[:, of_unit], products[:, :, of_unit]
    pairs = [n * (n - 1) for n in counts]
    lost = (
        pairs[0] * f[0] ** 2 * c[0, 0]
        + pairs[1] * f[1] ** 2 * c[1, 1]
        + 2 * counts[0] * counts[1] * f[0] * f[1] * c[0, 1]
    )
    rows = np.concatenate([np.repeat(np.arange(len(tasks)), p[0].size) for p in places])
    matrix = sparse.csr_array(
        (np.concatenate(influences), (rows, unit)), shape=(len(tasks), len(units))
    )
    return matrix, float(lost.sum()), int((class_sizes[np.unique(tasks.classes)] - 1).sum())


def _positive(variance: float, error: float) -> float:
    """Return the expected value of a variance, which is not negative, given an estimate.

    It is the mean of the positive part of a normal variable about the estimate: close to the
    estimate if that is well above its standard error, and not 0 if the estimate is negative.
    """
    if not error > 0:
        return max(0.0, variance)
    ratio = variance / error
    density = np.exp(-(ratio**2) / 2) / np.sqrt(2 * np.pi)
    return float(error * (ratio * special.ndtr(ratio) + density))


def _off_diagonal(influences: sparse.csr_array) -> tuple[float, float]:
    """Return the sums over pairs of different tasks of products of influences, and of squares.

    The squares are those of the sums over units within a pair: without any influences, their sum
    is half the variance of the first.
    """
    total = squares = 0.0
    transposed = influences.T.tocsc()
    for start in range(0, influences.shape[0], _TASKS_AT_ONCE):
        part = influences[start : start + _TASKS_AT_ONCE]
        products = (part @ transposed).toarray()
        rows = np.arange(len(products))
        products[rows, start + rows] = 0.0
        total += float(products.sum())
        squares += float(np.square(products).sum())
    return total, squares


def _class_moments(
    by_role: FloatArray, tasks: TaskSet, n_classes: int
) -> tuple[FloatArray, FloatArray]:
    """Return means ``(roles, n_classes)`` over a class's tasks and the covariances of the means.

    The latter, ``(roles, roles, n_classes)``, are 0 where a class has only one task.
    """
    label = tasks.classes.ravel()
    counts = np.bincount(label, minlength=n_classes)

    def mean(x: FloatArray, divisor: IntArray) -> FloatArray:
        sums: FloatArray = np.bincount(label, x.ravel(), n_classes) / np.maximum(divisor, 1)
        return sums

    means = np.stack([mean(x, counts) for x in by_role])
    centred = by_role - means[:, tasks.classes]
    covariances = [[mean(x * y, counts * (counts - 1)) for y in centred] for x in centred]
    return means, np.array(covariances)


def _of_classes(
    values: FloatArray, tasks: TaskSet, class_sizes: IntArray
) -> tuple[sparse.csr_array, float, int]:
    """Return influences ``(T, classes)``, the loss by centring, and the freedom."""
    from scipy import sparse

    way, n_classes = tasks.n_way, len(class_sizes)
    if n_classes <= way:
        raise DataError(
            f"a class-level interval needs more classes than the {way} of a task: the spread "
            f"of classes cannot be estimated from {n_classes}"
        )
    factor = np.sqrt(n_classes / (n_classes - 1)) * (n_classes - 1) / (n_classes - way)
    centred = np.repeat(values - values.mean(), way) * factor
    counts = np.bincount(tasks.classes.ravel(), minlength=n_classes)
    lost = (counts * (counts - 1)).sum() * factor**2 * values.var(ddof=1) / len(values)
    rows = np.repeat(np.arange(len(tasks)), way)
    matrix = sparse.csr_array(
        (centred, (rows, tasks.classes.ravel())), shape=(len(tasks), n_classes)
    )
    return matrix, float(lost), n_classes - 1
