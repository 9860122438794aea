"""Vectors without given directions."""

from __future__ import annotations

import torch
from torch import Tensor

from fsf_methods._shared import full_precision

__all__ = ["without"]


def without(items: Tensor, rows: Tensor, ridge: Tensor | float) -> Tensor:
    """Map vectors ``(..., D)`` to ``x - A' (A A' + r I)^-1 A x``.

    Args:
        rows: A, float ``(k, D)``.
        ridge: r, above 0: a direction in which A has the singular value s is multiplied by
            r / (r + s^2).

    >>> without(torch.tensor([2.0, 5.0]), torch.tensor([[3.0, 0.0]]), 1.0)
    tensor([0.2000, 5.0000])
    """
    with torch.autocast(items.device.type, enabled=False):
        x, a = full_precision(items), full_precision(rows)
        gram = a @ a.mT + ridge * torch.eye(len(a), dtype=a.dtype, device=a.device)
        # A failed factorisation shows in the scores; checking for it would make a GPU wait.
        factor = torch.linalg.cholesky_ex(gram).L
        solved = torch.cholesky_solve(a, factor)
        return (x - (x @ a.mT) @ solved).to(items.dtype)
