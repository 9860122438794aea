"""Local descriptors, and how much of them is worked on at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["by_blocks", "descriptors", "full_precision"]

_NUMBERS_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Intermediate numbers per block: on a CPU they should stay in the caches."""


def full_precision(x: Tensor) -> Tensor:
    """Return ``x`` in at least float32, as linear algebra requires."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def descriptors(maps: Tensor) -> Tensor:
    """Turn maps ``(n, C, h, w)`` into rows, one per location, ``(n, h * w, C)``."""
    return full_precision(maps).flatten(2).mT.contiguous()


def by_blocks(
    work: Callable[[Tensor, Tensor], Tensor], per_task: Tensor, query: Tensor, each: int
) -> Tensor:
    """Score blocks of tasks and queries, so that intermediate numbers stay few.

    Args:
        work: maps ``(t, ...)`` and ``(t, q, ...)`` to scores ``(t, q, way)``; a query's scores do
            not depend on the other queries.
        per_task: ``(tasks, ...)``.
        query: ``(tasks, n, ...)``.
        each: intermediate numbers per query.

    Returns:
        ``(tasks, n, way)``.
    """
    if torch.is_grad_enabled():
        # Gradients need the numbers of all blocks anyway.
        return work(per_task, query)
    n = query.shape[1]
    most = _NUMBERS_AT_ONCE["cpu" if query.device.type == "cpu" else "cuda"]
    tasks_at_once = max(1, most // (each * n))
    queries_at_once = max(1, most // each)
    blocks = [
        torch.cat([work(of_tasks, block) for block in queries.split(queries_at_once, dim=1)], dim=1)
        for of_tasks, queries in zip(
            per_task.split(tasks_at_once), query.split(tasks_at_once), strict=True
        )
    ]
    return torch.cat(blocks)
