"""Rank correlation of two rankings of methods, with an interval over the tasks.

All methods are evaluated on the same tasks, so their values are resampled together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fsf_statistics import rank_correlations, spearman
from fsframework.errors import DataError, OptionError
from fsframework.values import FloatArray

__all__ = ["RankCorrelation", "bootstrap_spearman"]

_DECIMALS = 12  # of means: the order of a sum changes its last digits, which would break ties


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rank correlation of two sets of means.

    Args:
        rho: the correlation, -1..1.
        low: lower bound of its percentile interval, NaN if there is none; ``high`` the upper.
        level: of the interval.
        n_methods: number of ranked methods.
        n_replicates: bootstrap replicates of the interval.
        n_undefined: replicates left out because all methods were tied in them.
    """

    rho: float
    low: float
    high: float
    level: float
    n_methods: int
    n_replicates: int
    n_undefined: int


def bootstrap_spearman(
    first: FloatArray,
    second: FloatArray,
    *,
    n_replicates: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> RankCorrelation:
    """Return Spearman's correlation of methods' means with a bootstrap interval over tasks.

    A replicate draws tasks with replacement, as many as there are: the same ones for every
    method, independently for the two sets of tasks. The interval goes from the (1 - level)/2
    to the (1 + level)/2 quantile of the replicates' correlations (percentile interval, Efron &
    Tibshirani 1993, section 13.3). Methods and their weights are treated as fixed: the interval
    covers only the drawing of tasks. Resampling adds noise that can only disturb a perfect order,
    so the interval is too low if many means are close.

    Args:
        first: ``(methods, tasks)``, one value per task; ``second`` likewise, with as many
            methods in the same order and any number of tasks.
        n_replicates: at least 1; memory is about ``24 * n_replicates * tasks`` bytes.
        level: of the interval, above 0 and below 1.
        seed: of the replicates.

    Raises:
        DataError: the shapes do not fit, or there are fewer than three methods.
        OptionError: ``n_replicates`` or ``level`` is out of range.

    >>> values = np.repeat([[0.1], [0.5], [0.9]], 20, axis=1)
    >>> bootstrap_spearman(values, values, n_replicates=10)
    RankCorrelation(rho=1.0, low=1.0, high=1.0, level=0.95, n_methods=3, n_replicates=10,
        n_undefined=0)
    """
    if n_replicates < 1:
        raise OptionError(f"n_replicates must be at least 1, not {n_replicates}")
    if not 0 < level < 1:
        raise OptionError(f"level must lie between 0 and 1, not {level}")
    both = [np.asarray(values, np.float64) for values in (first, second)]
    if any(values.ndim != 2 or values.shape[1] == 0 for values in both):
        raise DataError("values must have the shape (methods, tasks), with at least one task")
    rho = spearman(*(_rounded(values.mean(axis=1)) for values in both))
    means = []
    for place, values in enumerate(both):
        drawn = _drawn(values.shape[1], n_replicates, np.random.default_rng([seed, place]))
        means.append(_rounded(drawn @ values.T / values.shape[1]))
    correlations = rank_correlations(*means)
    defined = correlations[~np.isnan(correlations)]
    low = high = float("nan")
    if defined.size:
        low, high = map(float, np.quantile(defined, [(1 - level) / 2, (1 + level) / 2]))
    return RankCorrelation(
        rho, low, high, level, len(both[0]), n_replicates, n_replicates - int(defined.size)
    )


def _drawn(n_tasks: int, n_replicates: int, rng: np.random.Generator) -> FloatArray:
    """Return how often each replicate draws each task, float64 ``(n_replicates, n_tasks)``."""
    tasks = rng.integers(n_tasks, size=(n_replicates, n_tasks))
    tasks += n_tasks * np.arange(n_replicates)[:, None]
    counts = np.bincount(tasks.ravel(), minlength=n_replicates * n_tasks)
    return counts.reshape(n_replicates, n_tasks).astype(np.float64)


def _rounded(means: FloatArray) -> FloatArray:
    return np.asarray(np.round(means, _DECIMALS))
