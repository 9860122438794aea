"""What a method remembers between steps: a slow copy of networks, and earlier vectors."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsframework.interfaces import Backbone

__all__ = ["MomentumCopy", "Queue"]


class MomentumCopy(nn.Module):
    """A copy of a backbone and a head whose weights follow theirs slowly.

    Source: He et al. 2020, equation 2. BatchNorm normalises what the copy is shown by the
    statistics of the batch. The first time it follows, it takes over the weights as they are:
    they may have been loaded from elsewhere after the copy was made.

    Args:
        backbone: to be copied, as is ``head``.
        momentum: share of its own weights that the copy keeps, in [0, 1).
    """

    followed: Tensor

    def __init__(self, backbone: Backbone, head: nn.Module, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.slow_backbone = copy.deepcopy(backbone).requires_grad_(False)
        self.slow_head = copy.deepcopy(head).requires_grad_(False)
        self.register_buffer("followed", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Map images ``(n, 3, H, W)`` to vectors ``(n, D)`` without gradients."""
        vectors: Tensor = self.slow_head(self.slow_backbone.encode(images))
        return vectors

    @torch.no_grad()
    def follow(self, backbone: Backbone, head: nn.Module) -> None:
        """Move the weights towards those of the backbone and the head."""
        share = torch.where(self.followed > 0, 1 - self.momentum, 1.0)
        pairs = ((self.slow_backbone, backbone), (self.slow_head, head))
        for slow, fast in pairs:
            for own, other in zip(slow.parameters(), fast.parameters(), strict=True):
                own.lerp_(other, share.to(own.dtype))
        self.followed += 1


class Queue(nn.Module):
    """The last vectors that were written, each over the oldest; at first random ones of length 1.

    Args:
        length: number of vectors.
        width: of a vector.
    """

    entries: Tensor
    place: Tensor

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.register_buffer("entries", functional.normalize(torch.randn(length, width), dim=1))
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def write(self, vectors: Tensor) -> Tensor:
        """Write vectors ``(n, width)``, of which the last ``length`` count; return their places."""
        length = len(self.entries)
        vectors = vectors[-length:]
        places = (self.place + torch.arange(len(vectors), device=vectors.device)) % length
        self.entries[places] = vectors.to(self.entries.dtype)
        self.place.copy_((self.place + len(vectors)) % length)
        return places
