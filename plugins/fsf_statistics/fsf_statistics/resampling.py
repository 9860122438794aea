"""Intervals by a bootstrap of the tasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy

from fsframework.statistics.differences import ComparisonOptions
from fsframework.values import FloatArray

__all__ = ["bootstrap"]

_RESAMPLES_AT_ONCE = 1 << 20
"""Drawn tasks held in memory at a time."""


def bootstrap(
    parts: Sequence[FloatArray], contrasts: FloatArray, value: FloatArray, how: ComparisonOptions
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return low, high and p by a bootstrap of the tasks that all contrasts share.

    Source: Efron (1987), for ``bca`` sections 2 and 6; p by inversion of the interval.
    """
    n_resamples, level = how.n_resamples, how.choice.level
    drawn = np.zeros((n_resamples, len(contrasts)))
    for place, values in enumerate(parts):
        rng = np.random.default_rng([how.seed, place])
        drawn += _resampled_means(values, n_resamples, rng) @ contrasts.T
    below = (drawn < value).mean(axis=0) / 2 + (drawn <= value).mean(axis=0) / 2
    bias: FloatArray = np.zeros(len(contrasts))
    skew: FloatArray = bias
    if how.choice.method == "bca":
        bias, skew = (
            scipy.special.ndtri(below),
            _acceleration([values @ contrasts.T for values in parts]),
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = []
        for end in ((1 - level) / 2, (1 + level) / 2):
            shifted = bias + scipy.special.ndtri(end)
            ends.append(scipy.special.ndtr(bias + shifted / (1 - skew * shifted)))
        usable = np.nan_to_num(np.array(ends), nan=0.5)
        drawn.sort(axis=0)
        low, high = (_quantiles(drawn, shares) for shares in usable)
        # The share of means below 0, from which follows the level whose interval ends at 0.
        zero = ((drawn < 0).sum(axis=0) + (drawn <= 0).sum(axis=0) + 1) / 2 / (n_resamples + 1)
        zero = np.clip(zero, 1 / (n_resamples + 1), n_resamples / (n_resamples + 1))
        reached = scipy.special.ndtri(zero) - bias
        tail = scipy.special.ndtr(reached / (1 + skew * reached) - bias)
    p = np.clip(2 * np.minimum(tail, 1 - tail), 2 / (n_resamples + 1), 1.0)
    return np.minimum(low, value), np.maximum(high, value), p


def _resampled_means(values: FloatArray, n_resamples: int, rng: np.random.Generator) -> FloatArray:
    """Return means of resampled tasks, ``(n_resamples, methods)``, the same tasks for all."""
    n_tasks = len(values)
    block = max(1, _RESAMPLES_AT_ONCE // n_tasks)
    means = np.empty((n_resamples, values.shape[1]))
    for start in range(0, n_resamples, block):
        size = min(block, n_resamples - start)
        drawn = rng.integers(n_tasks, size=(size, n_tasks))
        drawn += n_tasks * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * n_tasks).reshape(size, n_tasks)
        means[start : start + size] = times.astype(np.float64) @ values / n_tasks
    return means


def _acceleration(tasks: Sequence[FloatArray]) -> FloatArray:
    """Return BCa's acceleration from the tasks' influence on the contrasts."""
    cubes, squares = np.zeros(tasks[0].shape[1]), np.zeros(tasks[0].shape[1])
    for values in tasks:
        influence = (values - values.mean(axis=0)) / len(values)
        cubes, squares = cubes + (influence**3).sum(axis=0), squares + (influence**2).sum(axis=0)
    found: FloatArray = np.divide(
        cubes, 6 * np.power(squares, 1.5), out=np.zeros_like(squares), where=squares > 0
    )
    return found


def _quantiles(ordered: FloatArray, shares: FloatArray) -> FloatArray:
    """Return a quantile of each column of sorted ``(n, columns)``, with one share per column."""
    place = shares * (len(ordered) - 1)
    low = np.floor(place).astype(int)
    high = np.minimum(low + 1, len(ordered) - 1)
    column = np.arange(ordered.shape[1])
    return np.asarray(
        ordered[low, column] + (place - low) * (ordered[high, column] - ordered[low, column])
    )
