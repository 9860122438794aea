"""Random numbers of one task, which depend only on a seed, its number and a stream."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

__all__ = ["task_entropy", "task_rng", "watched_tasks"]

_WATCH: ContextVar[Callable[[], object] | None] = ContextVar("watch", default=None)


@contextmanager
def watched_tasks(watch: Callable[[], object]) -> Iterator[None]:
    """Call ``watch`` within a block whenever the random numbers of a task are requested.

    Every sampler requests them once for each task, so that progress needs nothing of samplers.
    """
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def task_entropy(seed: int, task: int, stream: str = "") -> list[int]:
    """Return what ``task_rng`` is seeded with, for samplers with their own generator."""
    if (watch := _WATCH.get()) is not None:
        watch()
    return [seed, task, _stream_key(stream)]


@functools.lru_cache(maxsize=64)
def _stream_key(stream: str) -> int:
    return int.from_bytes(hashlib.sha256(stream.encode()).digest()[:4], "little")


def task_rng(seed: int, task: int, stream: str = "") -> np.random.Generator:
    """Return the generator of one task, which depends only on the three arguments.

    Samplers pass their own name as ``stream``, so that two samplers with equal seeds draw
    independent tasks, as the interval of a difference between them assumes.

    >>> bool(task_rng(0, 3).random() == task_rng(0, 3).random())
    True
    """
    return np.random.default_rng(task_entropy(seed, task, stream))
