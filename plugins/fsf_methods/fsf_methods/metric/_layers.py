"""Helpers that several methods share."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

__all__ = ["fold", "slices"]


def fold(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Return weight and bias of the convolution that includes the BatchNorm after it.

    They use the running statistics and the current parameters; nothing is cached that could become
    stale.
    """
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    bias = -norm.running_mean if conv.bias is None else conv.bias - norm.running_mean
    return conv.weight * scale[:, None, None, None], norm.bias + bias * scale


def slices(n: int, size: int) -> Iterator[slice]:
    """Return slices of at most ``size``, at least 1, that cover ``range(n)``."""
    size = max(1, size)
    return (slice(start, start + size) for start in range(0, n, size))
