"""Initial weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["uniform_weights"]


def uniform_weights(n_in: int, n_out: int, generator: torch.Generator) -> Tensor:
    """Return weights ``(n_in, n_out)`` drawn as PyTorch draws those of a linear layer."""
    return (2 * torch.rand(n_in, n_out, generator=generator) - 1) / math.sqrt(n_in)
