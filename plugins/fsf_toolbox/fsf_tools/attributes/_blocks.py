"""Blocks of a table that are small enough to be processed together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from fsframework.values import IntArray

__all__ = ["even_blocks"]

_PAIRS_PER_BLOCK = 1 << 20
"""Pairs (image, word) processed together; each takes about 50 bytes of memory."""


def even_blocks(counts: IntArray) -> Iterator[slice]:
    """Cut a sequence into parts whose counts add up to about ``_PAIRS_PER_BLOCK``.

    >>> list(even_blocks(np.array([3, 1, 2])))
    [slice(0, 3, None)]
    """
    part = np.cumsum(counts) // _PAIRS_PER_BLOCK
    bounds = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(counts)]
    return (slice(*pair) for pair in itertools.pairwise(bounds))
