"""The variance of task accuracies and its parts, estimated from a pilot run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fsframework.errors import DataError
from fsframework.values import FloatArray, IntArray, Outcomes, TaskSet

__all__ = ["MISSED", "PilotAnswers", "PilotSums", "QueryVariance", "excess_of", "pilot_of"]

MISSED = 0.5
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
        of_differences: whether it speaks of the differences of two methods.
    """

    n_way: int
    n_shot: int
    n_tasks: int
    mean: float
    alpha: float
    within: float
    of_differences: bool = False

    @property
    def beta(self) -> float:
        """Shot times ``within``: how much each further query reduces the variance of the mean."""
        return self.n_shot * self.within

    @property
    def best(self) -> float:
        """Q* = sqrt(beta/alpha), infinite where alpha is not positive."""
        return self.best_at(self.alpha)

    @property
    def fall(self) -> float:
        """What a task that confuses two classes loses of its accuracy, 0 for differences."""
        if self.of_differences:
            return 0.0
        return max(0.0, self.mean - 1 / self.n_way) / (self.n_way - 1)

    @property
    def unseen(self) -> float:
        """What failed tasks that the pilot may have missed would add to ``alpha``."""
        return MISSED / (self.n_tasks + 1) * self.fall**2

    @property
    def cautious(self) -> float:
        """Q* with ``unseen`` added to alpha: the number that is best on average.

        Failed tasks are rare but weigh much. With two one-dimensional Gaussians at 5 shots, the
        classes change places in one task of 1,200, and such tasks make up three fifths of alpha. A
        pilot without any does not rule them out. A failed task is taken to be one that
        confuses two classes, which costs it (m1 - 1/K) / (K - 1), and the pilot to have missed half
        of one: the mean of their share under Jeffreys' prior.
        """
        return self.best_at(max(self.alpha, 0.0) + self.unseen)

    def best_at(self, alpha: float) -> float:
        """Return Q* for another alpha."""
        return math.sqrt(self.beta / alpha) if alpha > 0 else math.inf

    def variance(self, n_query: float | FloatArray) -> FloatArray:
        """Return the variance of a task's accuracy with so many queries, with ``unseen``."""
        return np.asarray(
            max(self.alpha, 0.0) + self.unseen + self.within / np.asarray(n_query, np.float64)
        )

    @classmethod
    def of(cls, pilot: PilotAnswers) -> QueryVariance:
        """Estimate the spread of the accuracies of a pilot's tasks.

        alpha is the mean over tasks of an unbiased estimate of E[A_t]^2 at fixed support, minus
        the mean over pairs of tasks of the products of their accuracies. Where two tasks
        query the same image, its product with itself is left out. Tasks may therefore share their
        queries: a pilot may query all images that are not in its support.

        Caveats: images are taken to be drawn from the distribution, classes to be fixed. Tasks
        that share support images are more alike than tasks of other data, which reduces alpha by
        a share of about 2 shot / N in classes of N images.

        Raises:
            DataError: every answer is the same.
        """
        found = PilotSums(pilot)
        n_tasks, n_way = pilot.classes.shape
        mean = float(pilot.accuracies.mean())
        if found.within <= 0:
            raise DataError(
                "every query of every task of the pilot was answered alike: a plan needs a spread "
                "of accuracies"
            )
        shot = pilot.support.shape[2]
        return cls(n_way, shot, n_tasks, mean, found.alpha, found.within, pilot.paired)


class PilotSums:
    """Sums over the tasks of a pilot, from which ``alpha`` and ``within`` follow.

    Products of the accuracies of different tasks are sums of products of single answers.
    Those of an image with itself are removed class by class: the mean is taken over pairs of
    different images.

    Args:
        pilot: the answers ``y``, ``(T, way, n)``.

    Attributes:
        alpha: variance between tasks; ``within`` the noise of a single query per class.
        total: sum of a class's answers, ``(T, way)``; ``pairs`` mean of their products in pairs,
            ``mean_square`` of their squares, ``noise`` the difference of the two.
        mean: accuracy of a task, ``(T,)``; ``square`` an estimate of its expected square.
        others: of each answer, sum of the other answers to its image, ``(T, way, n)``;
            ``n_others`` their number.
        rest: sum of the answers of a class in other tasks, ``(T, way)``; ``n_rest`` their number.
        rows: of each class of each task ``(4, T, way)``, sums over its pairs of answers with other
            tasks: of products and their number, then the same of pairs of an image with itself.
        classes: the same of each class, ``(4, classes)``.
        products: of a task's accuracy with those of all other tasks, ``(T,)``; ``excess`` what
            images that meet themselves add to their sum.
    """

    def __init__(self, pilot: PilotAnswers) -> None:
        self.pilot, y = pilot, pilot.values
        n_tasks, n_way, n = y.shape
        self.total = y.sum(axis=2)
        squares = (y * y).sum(axis=2)
        self.pairs = (self.total**2 - squares) / (n * (n - 1))
        self.mean_square = squares / n
        self.noise = self.mean_square - self.pairs
        self.mean = self.total.mean(axis=1) / n
        self.square = self.mean**2 - self.noise.sum(axis=1) / (n * n_way**2)
        ids, labels = pilot.query.ravel(), pilot.classes.ravel()
        sums, counts = np.bincount(ids, y.ravel()), np.bincount(ids)
        self.others, self.n_others = sums[pilot.query] - y, counts[pilot.query] - 1.0
        self.class_total, times = np.bincount(labels, self.total.ravel()), np.bincount(labels)
        self.rest = self.class_total[pilot.classes] - self.total
        self.n_rest = n * (times[pilot.classes] - 1.0)
        self.rows: FloatArray = np.stack(
            [
                self.total * self.rest,
                n * self.n_rest,
                (y * self.others).sum(axis=2),
                self.n_others.sum(axis=2),
            ]
        )
        self.classes: FloatArray = np.stack(
            [np.bincount(labels, row.ravel()) for row in self.rows]
        ).astype(np.float64)
        excess = float(excess_of(self.classes).sum()) / (n * n_way) ** 2
        sum_of_means = float(self.mean.sum())
        self.products = self.mean * (sum_of_means - self.mean)
        cross = (float(self.products.sum()) - excess) / (n_tasks * (n_tasks - 1))
        self.alpha = float(self.square.mean()) - cross
        self.within = float(self.noise.mean()) / n_way
        self.excess = excess


def excess_of(sums: FloatArray) -> FloatArray:
    """Return by how much sums of products differ from those over pairs of different images."""
    products, n_products, same, n_same = sums
    different = n_products - n_same
    with np.errstate(divide="ignore", invalid="ignore"):
        clean = (products - same) / different * n_products
    return np.asarray(np.where(different > 0, products - clean, 0.0))
