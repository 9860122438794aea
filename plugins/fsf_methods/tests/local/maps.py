"""Random maps for the tests of this package."""

from __future__ import annotations

import torch
from torch import Tensor

from fsframework.interfaces import Batch, FewShotMethod


def episode(
    *, shot: int = 2, channels: int = 6, side: int = 3, tasks: int = 3, way: int = 4, n: int = 7
) -> Batch:
    """Return tasks of maps as after a rectifier."""
    generator = torch.Generator().manual_seed(0)
    return Batch(
        torch.randn(tasks, way, shot, channels, side, side, generator=generator).relu(),
        torch.randn(tasks, n, channels, side, side, generator=generator).relu(),
        torch.arange(n).expand(tasks, n) % way,
    )


def scored(method: FewShotMethod, batch: Batch) -> Tensor:
    """Embed and score, without gradients."""
    with torch.no_grad():
        return method.scores(*method.embed_episode(batch))


def rows(maps: Tensor) -> Tensor:
    """Return the descriptors of maps ``(images, C, h, w)`` as rows ``(images * h * w, C)``."""
    return maps.movedim(1, 3).flatten(0, 2)
