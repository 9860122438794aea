"""Rank correlation of two rankings of methods."""

from __future__ import annotations

import numpy as np

from fsframework.errors import DataError
from fsframework.values import FloatArray

__all__ = ["FEWEST_RANKED", "rank_correlations", "spearman"]

FEWEST_RANKED = 3
"""For two methods the rank correlation is always 1 or -1."""


def spearman(first: FloatArray, second: FloatArray) -> float:
    """Return Spearman's rank correlation of two vectors, tied values sharing their mean rank.

    Args:
        first: ``(methods,)``, one value per method; ``second`` likewise.

    Returns:
        The correlation in -1..1; NaN if all values of one vector are equal.

    Raises:
        DataError: the vectors differ in length or have fewer than three values.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0]))
    0.5
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        raise DataError(f"cannot rank values of shape {first.shape} against {second.shape}")
    if len(first) < FEWEST_RANKED:
        raise DataError(
            f"a rank correlation needs at least {FEWEST_RANKED} methods, not {len(first)}"
        )
    return float(rank_correlations(first[None], second[None])[0])


def rank_correlations(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return Spearman's correlation of each row of ``first`` with that row of ``second``."""
    from scipy import stats

    x, y = (stats.rankdata(values, axis=1) for values in (first, second))
    x, y = (ranks - ranks.mean(axis=1, keepdims=True) for ranks in (x, y))
    spread = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    product = (x * y).sum(axis=1)
    undefined = np.full_like(product, np.nan)
    correlations = np.divide(product, spread, out=undefined, where=spread > 0)
    return np.asarray(np.clip(correlations, -1.0, 1.0))
