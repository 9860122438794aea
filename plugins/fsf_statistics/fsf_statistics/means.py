"""The mean of values, with its interval."""

from __future__ import annotations

import numpy as np

from fsframework.statistics.differences import ComparisonOptions, differences
from fsframework.values import FloatArray

__all__ = ["mean_interval"]


def mean_interval(
    *parts: FloatArray, how: ComparisonOptions | None = None
) -> tuple[float, float, float]:
    """Return the mean of independent values, or the sum of several means, and its interval.

    ``student-t`` is mean ± t(T-1) sd(ddof 1) / sqrt(T), for several parts Welch's (1947).
    ``percentile`` and ``bca`` (bias-corrected and accelerated, Efron 1987) resample the values of
    each part with replacement: they allow for a skewed distribution of the mean, and need some
    twenty values to do better than Student's.

    Caveat: all three treat the values as independent draws. Tasks that share images are not; for
    the scope of such an interval see ``Estimate.scope``.

    Args:
        parts: float ``(T,)`` each; a single value, or equal ones, give NaN bounds.
        how: the interval.

    Returns:
        The mean, and the lower and the upper bound of its interval.

    >>> mean_interval(np.array([0.0, 1.0]))[0]
    0.5
    """
    [found] = differences([np.asarray(part)[:, None] for part in parts], np.eye(1), how)
    return found.value, found.low, found.high
