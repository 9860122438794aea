"""The variance of task accuracies and its parts, estimated from a pilot run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy import special

from fsframework.errors import DataError, RecordError
from fsframework.records import RunRecord
from fsframework.values import AccuracyOutcomes, FloatArray, IntArray, Outcomes, TaskSet

__all__ = ["PilotAnswers", "QueryVariance", "load_pilot", "pilot_of"]

_MISSED = 0.5
"""Failed tasks that a pilot is assumed to have missed: Jeffreys' prior of their share."""


@dataclass(frozen=True, eq=False)
class PilotAnswers:
    """The answers to the queries of a pilot run, each with its image.

    Args:
        values: float64 ``(T, way, n_query)``: 1 for a right answer, 0 for a wrong one; of two
            methods on equal tasks, the differences of these.
        classes: int ``(T, way)``; ``support`` int ``(T, way, shot)`` and ``query`` int
            ``(T, way, n_query)``: images.
        paired: whether the values are differences.

    Raises:
        DataError: too few tasks, or one query per class: spread and noise cannot be separated.
    """

    values: FloatArray
    classes: IntArray
    support: IntArray
    query: IntArray
    paired: bool = False

    def __post_init__(self) -> None:
        n_tasks, _, n_query = self.values.shape
        if n_tasks < 3:
            raise DataError(
                f"a pilot needs at least 3 tasks, and this has {n_tasks}: the spread of tasks "
                "cannot be estimated from so few"
            )
        if n_query < 2:
            raise DataError(
                "a pilot needs at least 2 queries per class, and this has 1: the spread of task "
                "accuracies cannot be separated from the noise of single queries"
            )

    @cached_property
    def accuracies(self) -> FloatArray:
        """Mean value of each task, float64 ``(T,)``."""
        return np.asarray(self.values.mean(axis=(1, 2)))


def pilot_of(tasks: TaskSet, outcomes: Outcomes) -> PilotAnswers:
    """Return the answers of a pilot from its tasks and outcomes.

    Raises:
        DataError: the outcomes are of other tasks, hold no answers of single queries, or are too
            few.
    """
    if tasks.digest != outcomes.task_digest:
        raise DataError("the outcomes of the pilot belong to other tasks")
    ways = np.arange(outcomes.n_way)[None, :, None]
    right = (outcomes.predictions == ways).astype(np.float64)
    return PilotAnswers(right, tasks.classes, tasks.support, tasks.query)


def load_pilot(folder: Path, arm: str = "") -> tuple[PilotAnswers, TaskSet, RunRecord]:
    """Read a finished run as a pilot.

    Args:
        folder: of the run.
        arm: name of the arm; by default the first, which is the control if there is one.

    Raises:
        DataError: it has no single answers, or too few.
        RecordError: it is not a run, or not finished.
    """
    record = RunRecord.load(folder)
    there = [name for name in record.arms if record.outcomes_file(folder, name).exists()]
    if arm and there and arm not in there:
        raise RecordError(f"{folder}: has no arm {arm!r}, only {', '.join(there)}")
    if not there:
        raise RecordError(f"{folder}: is not finished; run the command that made it again")
    name = arm or there[0]
    outcomes = Outcomes.load(record.outcomes_file(folder, name))
    if isinstance(outcomes, AccuracyOutcomes):
        raise DataError(
            f"{folder}: holds accuracies of whole tasks measured elsewhere, and a plan needs the "
            "counts of correct answers per class, to separate the spread of tasks from the noise "
            "of their queries; without a run, give the standard deviation between tasks and the "
            "correlation between methods"
        )
    tasks = TaskSet.load(record.tasks_file(folder, name))
    try:
        return pilot_of(tasks, outcomes), tasks, record
    except DataError as error:
        raise DataError(f"{folder}: {error}") from None


@dataclass(frozen=True)
class QueryVariance:
    """The variance of task accuracies: Var(A_t) = alpha + within / Q for Q queries per class.

    With mu_c the accuracy on class c at fixed support, m1 = E[mu], m2 = E[mu^2] and
    m3 = (1/K^2) sum_{c != c'} E[mu_c mu_c']: alpha = m2/K + m3 - m1^2 is the variance between tasks
    as Q grows without bound, and within = (m1 - m2)/K the noise of a single query per class. Then
    beta = shot * within, Q* = sqrt(beta/alpha) and, in a data set of C classes of N images,
    Var(mean) = K/(NC) (alpha Q + beta/Q + beta/shot + shot alpha).

    Source: Lafargue et al. 2024, Eq. 7 and appendix A, which calls these moments hard to
    estimate; the counts of correct queries give them without bias.

    Args:
        n_way: classes per task; ``n_shot``: support images per class; ``n_tasks``: of the pilot.
        mean: m1; ``alpha`` and ``within`` as above, estimated without bias, so ``alpha`` may be
            negative.
        alpha_low: lower bound of ``alpha``, at least 0; ``alpha_high`` upper bound.
        level: of the two bounds together.
        unseen: what failed tasks that the pilot may have missed would add to ``alpha``, 0 for
            differences.
        of_differences: whether it speaks of the differences of two methods.
    """

    n_way: int
    n_shot: int
    n_tasks: int
    mean: float
    alpha: float
    within: float
    alpha_low: float
    alpha_high: float
    level: float
    unseen: float
    of_differences: bool = False

    @property
    def m2(self) -> float:
        """E[mu^2]; of differences, m1 - K within."""
        return self.mean - self.n_way * self.within

    @property
    def m3(self) -> float:
        """(1/K^2) sum_{c != c'} E[mu_c mu_c'], for m1^2 the square of the mean."""
        return self.alpha + self.mean**2 - self.m2 / self.n_way

    @property
    def beta(self) -> float:
        """Shot times ``within``: how much each further query reduces the variance of the mean."""
        return self.n_shot * self.within

    @property
    def best(self) -> float:
        """Q* = sqrt(beta/alpha), infinite where alpha is not positive."""
        return _ratio(self.beta, self.alpha)

    @property
    def best_low(self) -> float:
        """Lower bound of Q*."""
        return _ratio(self.beta, self.alpha_high)

    @property
    def best_high(self) -> float:
        """Upper bound of Q*, infinite where alpha may be 0."""
        return _ratio(self.beta, self.alpha_low)

    @property
    def cautious(self) -> float:
        """Q* with ``unseen`` added to alpha: the number that is best on average.

        Failed tasks are rare but weigh much. With two one-dimensional Gaussians at 5 shots, the
        classes change places in one task of 1,200, and such tasks make up three fifths of alpha. A
        pilot without any does not rule them out. A failed task is taken to be one that
        confuses two classes, which costs it (m1 - 1/K) / (K - 1), and the pilot to have missed half
        of one: the mean of their share under Jeffreys' prior.
        """
        return _ratio(self.beta, max(self.alpha, 0.0) + self.unseen)

    def variance(self, n_query: float | FloatArray) -> FloatArray:
        """Return the variance of a task's accuracy with so many queries, with ``unseen``."""
        return np.asarray(
            max(self.alpha, 0.0) + self.unseen + self.within / np.asarray(n_query, np.float64)
        )

    @classmethod
    def of(cls, pilot: PilotAnswers, level: float = 0.95) -> QueryVariance:
        """Estimate the spread of the accuracies of a pilot's tasks.

        alpha is the mean over tasks of an unbiased estimate of E[A_t]^2 at fixed support, minus
        the mean over pairs of tasks of the products of their accuracies. Where two tasks
        query the same image, its product with itself is left out. Tasks may therefore share their
        queries: a pilot may query all images that are not in its support.

        The bounds: the error of alpha/beta is that of a jackknife over tasks, plus the part of
        images that appear in several tasks as query or support (a sandwich clustered in several
        ways: Cameron, Gelbach & Miller 2011). It is applied to the variance of the measured
        accuracies on a log scale, and their noise is then subtracted. The upper bound also allows
        for tasks that the pilot has missed in which two classes change places, by the upper
        quantile of their share under Jeffreys' prior: they are few but weigh much (see
        ``cautious``), and without them the interval of a short pilot misses the truth.

        Caveats: images are taken to be drawn from the distribution, classes to be fixed. Tasks
        that share support images are more alike than tasks of other data, which reduces alpha by
        a share of about 2 shot / N in classes of N images.

        Raises:
            DataError: every answer is the same.
        """
        found = _Sums(pilot)
        n_tasks, n_way = pilot.classes.shape
        alpha, within = found.alpha, found.within
        mean = float(pilot.accuracies.mean())
        if within <= 0:
            raise DataError(
                "every query of every task of the pilot was answered alike: a plan needs a spread "
                "of accuracies"
            )
        error = math.sqrt(found.variance_of_ratio())
        ratio = alpha / within
        measured = max(float(pilot.accuracies.var(ddof=1)) / within, ratio, 1e-12)
        noise = measured - ratio
        wide = float(special.stdtrit(n_tasks - 1, (1 + level) / 2)) * error / measured
        low = measured * math.exp(-wide) - noise
        high = measured * math.exp(min(wide, 50.0)) - noise
        # Of a task that confuses two classes; twice that where they change places.
        fall = 0.0 if pilot.paired else max(0.0, mean - 1 / n_way) / (n_way - 1)
        missed = float(special.betaincinv(_MISSED, n_tasks + _MISSED, (1 + level) / 2))
        return cls(
            n_way,
            pilot.support.shape[2],
            n_tasks,
            mean,
            alpha,
            within,
            max(0.0, low * within),
            max(0.0, high * within) + missed * (2 * fall) ** 2,
            level,
            _MISSED / (n_tasks + 1) * fall**2,
            pilot.paired,
        )


def _ratio(beta: float, alpha: float) -> float:
    return math.sqrt(beta / alpha) if alpha > 0 else math.inf


class _Sums:
    """Sums over the tasks of a pilot, and the share of each task and query in them.

    Products of the accuracies of different tasks are sums of products of single answers.
    Those of an image with itself are removed class by class: the mean is taken over pairs of
    different images.
    """

    def __init__(self, pilot: PilotAnswers) -> None:
        self._pilot, y = pilot, pilot.values
        n_tasks, n_way, n = y.shape
        self._total = y.sum(axis=2)
        squares = (y * y).sum(axis=2)
        self._pairs = (self._total**2 - squares) / (n * (n - 1))
        self._mean_square = squares / n
        self._noise = self._mean_square - self._pairs
        self._mean = self._total.mean(axis=1) / n
        self._square = self._mean**2 - self._noise.sum(axis=1) / (n * n_way**2)
        ids, labels = pilot.query.ravel(), pilot.classes.ravel()
        sums, counts = np.bincount(ids, y.ravel()), np.bincount(ids)
        # Of each answer: the sum of the other answers to its image, and their number.
        self._others, self._n_others = sums[pilot.query] - y, counts[pilot.query] - 1.0
        self._class_total, times = np.bincount(labels, self._total.ravel()), np.bincount(labels)
        self._rest = self._class_total[pilot.classes] - self._total
        self._n_rest = n * (times[pilot.classes] - 1.0)
        # Of each class of each task, sums over its pairs of answers with other tasks: of products
        # and their number, then the same of pairs of an image with itself.
        self._rows: FloatArray = np.stack(
            [
                self._total * self._rest,
                n * self._n_rest,
                (y * self._others).sum(axis=2),
                self._n_others.sum(axis=2),
            ]
        )
        self._classes: FloatArray = np.stack(
            [np.bincount(labels, row.ravel()) for row in self._rows]
        ).astype(np.float64)
        excess = float(_excess(self._classes).sum()) / (n * n_way) ** 2
        sum_of_means = float(self._mean.sum())
        self._products = self._mean * (sum_of_means - self._mean)
        cross = (float(self._products.sum()) - excess) / (n_tasks * (n_tasks - 1))
        self.alpha = float(self._square.mean()) - cross
        self.within = float(self._noise.mean()) / n_way
        self._excess = excess

    def variance_of_ratio(self) -> float:
        """Return the variance of the estimate of alpha / within."""
        pilot = self._pilot
        n_tasks = len(pilot.values)
        parts = self._without_each_task()
        parts = (n_tasks - 1) / n_tasks * (parts.mean() - parts)
        by_task = float((parts**2).sum()) * n_tasks / (n_tasks - 1)
        # An image queried in one task only is in that task's part already.
        ids = pilot.query.ravel()
        images = np.bincount(ids, self._part_of_each_answer().ravel())
        shared = 1 - 1 / np.maximum(np.bincount(ids), 1)
        by_query = float((shared * images**2).sum())
        taken = pilot.support[0].size
        supports = np.bincount(pilot.support.ravel(), np.repeat(parts, taken))
        by_support = float((supports**2).sum() - taken * (parts**2).sum())
        return by_task + by_query + max(0.0, by_support)  # products of pairs: may be below 0

    def _without_each_task(self) -> FloatArray:
        """Return alpha / within of all tasks but one, float64 ``(T,)``."""
        n_tasks, n_way, n = self._pilot.values.shape
        of_class = self._classes[:, self._pilot.classes]
        change = (_excess(of_class - 2 * self._rows) - _excess(of_class)).sum(axis=1)
        excess = self._excess + change / (n * n_way) ** 2
        cross = self._products.sum() - 2 * self._products - excess
        square = (self._square.sum() - self._square) / (n_tasks - 1)
        noise = self._noise.mean(axis=1)
        within = (noise.sum() - noise) / (n_tasks - 1) / n_way
        alpha = square - cross / ((n_tasks - 1) * (n_tasks - 2))
        return np.asarray(alpha / np.maximum(within, 1e-12))

    def _part_of_each_answer(self) -> FloatArray:
        """Return what alpha / within changes by with the weight of an answer, as the values."""
        y = self._pilot.values
        n_tasks, n_way, n = y.shape
        total, pairs = self._total[..., None], self._pairs[..., None]
        away = (y - total / n) / n
        d_pairs = 2 * y * (total - y) / (n * (n - 1)) - 2 * pairs / n
        d_noise = (y * y - self._mean_square[..., None]) / n - d_pairs
        means = self._mean[:, None, None]
        d_square = 2 * means * away / n_way - (2 * total / n * away - d_pairs) / n_way**2
        products, n_products, same, n_same = self._classes[:, self._pilot.classes][..., None]
        different = np.maximum(n_products - n_same, 1.0)
        d_mean = (2 * self._rest[..., None] * y - 2 * y * self._others) / different
        d_number = 2 * self._n_rest[..., None] - 2 * self._n_others
        d_mean -= (products - same) / different**2 * d_number
        d_excess = 2 * self._rest[..., None] / n * away - n_products / n**2 * d_mean
        d_cross = 2 * (means.sum() - means) * away / n_way - d_excess / n_way**2
        d_alpha = d_square / n_tasks - d_cross / (n_tasks * (n_tasks - 1))
        d_within = d_noise / (n_tasks * n_way**2)
        return np.asarray((d_alpha - self.alpha / self.within * d_within) / self.within)


def _excess(sums: FloatArray) -> FloatArray:
    """Return by how much sums of products differ from those over pairs of different images."""
    products, n_products, same, n_same = sums
    different = n_products - n_same
    with np.errstate(divide="ignore", invalid="ignore"):
        clean = (products - same) / different * n_products
    return np.asarray(np.where(different > 0, products - clean, 0.0))
