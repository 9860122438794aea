"""Adjusting p for many comparisons."""

from __future__ import annotations

import numpy as np

from fsframework.values import FloatArray

__all__ = ["benjamini_hochberg", "holm"]


def holm(p: FloatArray) -> FloatArray:
    """Return p adjusted by Holm's step-down procedure (1979), in the given order.

    >>> holm(np.array([0.01, 0.04, 0.03])).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def benjamini_hochberg(p: FloatArray) -> FloatArray:
    """Return p adjusted by the procedure of Benjamini & Hochberg (1995), in the given order.

    >>> benjamini_hochberg(np.array([0.01, 0.04, 0.03])).round(2).tolist()
    [0.03, 0.04, 0.04]
    """
    order = np.argsort(p, kind="stable")[::-1]
    steps = np.minimum.accumulate(p[order] * (len(p) / np.arange(len(p), 0, -1)))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted
