"""Local descriptors, and how much of them is worked on at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fsf_methods._shared import full_precision

__all__ = ["by_blocks", "descriptors", "sum_of_largest"]

_NUMBERS_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Intermediate numbers per block: on a CPU they should stay in the caches."""

_MOST_RANKS = 3


def descriptors(maps: Tensor) -> Tensor:
    """Turn maps ``(n, C, h, w)`` into rows, one per location, ``(n, h * w, C)``."""
    return full_precision(maps).flatten(2).mT.contiguous()


def by_blocks(
    work: Callable[..., Tensor], per_task: Sequence[Tensor], query: Tensor, each: int
) -> Tensor:
    """Score blocks of tasks and queries, so that intermediate numbers stay few.

    Args:
        work: maps tensors ``(t, ...)`` like those of ``per_task`` and queries ``(t, q, ...)`` to
            scores ``(t, q, way)``; a query's scores do not depend on the other queries.
        per_task: each ``(tasks, ...)``.
        query: ``(tasks, n, ...)``.
        each: intermediate numbers per query.

    Returns:
        ``(tasks, n, way)``.
    """
    if torch.is_grad_enabled():
        # Gradients need the numbers of all blocks anyway.
        return work(*per_task, query)
    n = query.shape[1]
    most = _NUMBERS_AT_ONCE["cpu" if query.device.type == "cpu" else "cuda"]
    tasks_at_once = max(1, most // (each * n))
    queries_at_once = max(1, most // each)
    blocks = [
        torch.cat([work(*own, some) for some in queries.split(queries_at_once, dim=1)], dim=1)
        for *own, queries in zip(*(t.split(tasks_at_once) for t in (*per_task, query)), strict=True)
    ]
    return torch.cat(blocks)


def sum_of_largest(x: Tensor, k: int) -> Tensor:
    """Return the sum of the ``k`` largest numbers along the last but one dimension.

    Up to three are found by comparing halves with each other, element by element, which is several
    times as fast as ``torch.topk`` on a CPU where the last dimension is long. This overwrites
    ``x`` and has no gradient.

    >>> sum_of_largest(torch.tensor([[1.0], [5.0], [2.0], [4.0], [3.0]]), 3)
    tensor([12.])
    """
    if k > _MOST_RANKS:
        return x.topk(k, dim=-2, sorted=False).values.sum(dim=-2)
    ranks = [x]
    while ranks[0].shape[-2] > 1:
        if ranks[0].shape[-2] % 2:
            ranks = [functional.pad(r, (0, 0, 0, 1), value=-torch.inf) for r in ranks]
        ranks = _merged([r.chunk(2, dim=-2) for r in ranks])
    return torch.cat(ranks[:k], dim=-2).sum(dim=-2)


def _merged(halves: list[tuple[Tensor, ...]]) -> list[Tensor]:
    """Return the largest, second and third of two sets, element by element.

    Args:
        halves: of both sets the largest and, if known, the second and the third numbers.
    """
    # Each result takes the place of numbers that are no longer needed.
    one, two = halves[0]
    first = torch.maximum(one, two)
    second = torch.minimum(one, two, out=one)
    if len(halves) == 1:
        return [first, second]
    one, two = halves[1]
    spare = torch.maximum(one, two, out=two)
    third = torch.minimum(second, spare, out=one)
    second = torch.maximum(second, spare, out=second)
    if len(halves) > 2:
        one, two = halves[2]
        third = torch.maximum(third, torch.maximum(one, two, out=two), out=third)
    return [first, second, third]
