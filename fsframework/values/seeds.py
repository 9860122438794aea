"""Random numbers of one task, which depend only on a seed, its number and a stream."""

from __future__ import annotations

import functools
import hashlib

import numpy as np

__all__ = ["task_rng", "task_seed"]


@functools.lru_cache(maxsize=64)
def _stream_key(stream: str) -> int:
    return int.from_bytes(hashlib.sha256(stream.encode()).digest()[:4], "little")


def task_seed(seed: int, task: int, stream: str = "") -> int:
    """Return a 64-bit seed for samplers with their own generator; see ``task_rng``."""
    sequence = np.random.SeedSequence([seed, task, _stream_key(stream)])
    return int(sequence.generate_state(1, np.uint64)[0])


def task_rng(seed: int, task: int, stream: str = "") -> np.random.Generator:
    """Return the generator of one task, which depends only on the three arguments.

    Samplers pass their own name as ``stream``, so that two samplers with equal seeds draw
    independent tasks, as the interval of a difference between them assumes.

    >>> bool(task_rng(0, 3).random() == task_rng(0, 3).random())
    True
    """
    return np.random.default_rng([seed, task, _stream_key(stream)])
