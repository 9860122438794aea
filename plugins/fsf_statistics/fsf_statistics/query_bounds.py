"""How certain the best number of queries is that a pilot finds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from fsf_statistics.query_variance import (
    MISSED,
    PilotAnswers,
    PilotSums,
    QueryVariance,
    excess_of,
)
from fsframework.values import FloatArray

__all__ = ["QueryBounds", "answer_parts", "bounds_of", "ratios_without_each_task"]


@dataclass(frozen=True)
class QueryBounds:
    """An interval of Q*.

    Args:
        found: what the pilot found.
        alpha_low: lower bound of its ``alpha``, at least 0; ``alpha_high`` upper bound.
        level: of the two bounds together.
    """

    found: QueryVariance
    alpha_low: float
    alpha_high: float
    level: float

    @property
    def low(self) -> float:
        """Lower bound of Q*."""
        return self.found.best_at(self.alpha_high)

    @property
    def high(self) -> float:
        """Upper bound of Q*, infinite where alpha may be 0."""
        return self.found.best_at(self.alpha_low)


def bounds_of(pilot: PilotAnswers, found: QueryVariance, level: float = 0.95) -> QueryBounds:
    """Return the interval of the Q* that a pilot finds.

    The error of alpha/within is that of a jackknife over tasks, plus the part of images that appear
    in several tasks as query or support (a sandwich clustered in several ways: Cameron, Gelbach &
    Miller 2011). It is applied to the variance of the measured accuracies on a log scale, and their
    noise is then subtracted. The upper bound also allows for tasks that the pilot has missed in
    which two classes change places, by the upper quantile of their share under Jeffreys' prior:
    they are few but weigh much (see ``QueryVariance.cautious``), and without them the interval of a
    short pilot misses the truth.

    Args:
        pilot: the answers.
        found: their variance, ``QueryVariance.of(pilot)``.
        level: of the interval.
    """
    n_tasks, within = found.n_tasks, found.within
    error = math.sqrt(_variance_of_ratio(PilotSums(pilot)))
    ratio = found.alpha / within
    measured = max(float(pilot.accuracies.var(ddof=1)) / within, ratio, 1e-12)
    noise = measured - ratio
    wide = float(special.stdtrit(n_tasks - 1, (1 + level) / 2)) * error / measured
    low = measured * math.exp(-wide) - noise
    high = measured * math.exp(min(wide, 50.0)) - noise
    missed = float(special.betaincinv(MISSED, n_tasks + MISSED, (1 + level) / 2))
    # A task where two classes change places loses twice what one that confuses them does.
    beyond = missed * (2 * found.fall) ** 2
    return QueryBounds(found, max(0.0, low * within), max(0.0, high * within) + beyond, level)


def _variance_of_ratio(sums: PilotSums) -> float:
    """Return the variance of the estimate of alpha / within."""
    pilot = sums.pilot
    n_tasks = len(pilot.values)
    parts = ratios_without_each_task(sums)
    parts = (n_tasks - 1) / n_tasks * (parts.mean() - parts)
    by_task = float((parts**2).sum()) * n_tasks / (n_tasks - 1)
    # An image queried in one task only is in that task's part already.
    ids = pilot.query.ravel()
    images = np.bincount(ids, answer_parts(sums).ravel())
    shared = 1 - 1 / np.maximum(np.bincount(ids), 1)
    by_query = float((shared * images**2).sum())
    taken = pilot.support[0].size
    supports = np.bincount(pilot.support.ravel(), np.repeat(parts, taken))
    by_support = float((supports**2).sum() - taken * (parts**2).sum())
    return by_task + by_query + max(0.0, by_support)  # products of pairs: may be below 0


def ratios_without_each_task(sums: PilotSums) -> FloatArray:
    """Return alpha / within of all tasks but one, float64 ``(T,)``."""
    n_tasks, n_way, n = sums.pilot.values.shape
    of_class = sums.classes[:, sums.pilot.classes]
    change = (excess_of(of_class - 2 * sums.rows) - excess_of(of_class)).sum(axis=1)
    excess = sums.excess + change / (n * n_way) ** 2
    cross = sums.products.sum() - 2 * sums.products - excess
    square = (sums.square.sum() - sums.square) / (n_tasks - 1)
    noise = sums.noise.mean(axis=1)
    within = (noise.sum() - noise) / (n_tasks - 1) / n_way
    alpha = square - cross / ((n_tasks - 1) * (n_tasks - 2))
    return np.asarray(alpha / np.maximum(within, 1e-12))


def answer_parts(sums: PilotSums) -> FloatArray:
    """Return what alpha / within changes by with the weight of an answer, as the values."""
    y = sums.pilot.values
    n_tasks, n_way, n = y.shape
    total, pairs = sums.total[..., None], sums.pairs[..., None]
    away = (y - total / n) / n
    d_pairs = 2 * y * (total - y) / (n * (n - 1)) - 2 * pairs / n
    d_noise = (y * y - sums.mean_square[..., None]) / n - d_pairs
    means = sums.mean[:, None, None]
    d_square = 2 * means * away / n_way - (2 * total / n * away - d_pairs) / n_way**2
    products, n_products, same, n_same = sums.classes[:, sums.pilot.classes][..., None]
    different = np.maximum(n_products - n_same, 1.0)
    d_mean = (2 * sums.rest[..., None] * y - 2 * y * sums.others) / different
    d_number = 2 * sums.n_rest[..., None] - 2 * sums.n_others
    d_mean -= (products - same) / different**2 * d_number
    d_excess = 2 * sums.rest[..., None] / n * away - n_products / n**2 * d_mean
    d_cross = 2 * (means.sum() - means) * away / n_way - d_excess / n_way**2
    d_alpha = d_square / n_tasks - d_cross / (n_tasks * (n_tasks - 1))
    d_within = d_noise / (n_tasks * n_way**2)
    return np.asarray((d_alpha - sums.alpha / sums.within * d_within) / sums.within)
