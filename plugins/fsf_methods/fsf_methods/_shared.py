"""What methods of several families share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fsframework.interfaces import Backbone

__all__ = ["batch_statistics", "full_precision", "map_shape", "vector_size"]


@contextmanager
def batch_statistics(module: nn.Module) -> Iterator[None]:
    """Within the block, let BatchNorms use the statistics of their batch and keep none."""
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    before = [(norm.training, norm.track_running_stats) for norm in norms]
    for norm in norms:
        norm.training, norm.track_running_stats = True, False
    try:
        yield
    finally:
        for norm, flags in zip(norms, before, strict=True):
            norm.training, norm.track_running_stats = flags


def full_precision(x: Tensor) -> Tensor:
    """Return ``x`` in at least float32, as linear algebra requires."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def map_shape(backbone: Backbone, image_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a backbone's maps of images of a shape."""
    return tuple(_of_zeros(backbone, backbone, image_shape).shape[1:])


def vector_size(backbone: Backbone, image_shape: tuple[int, ...]) -> int:
    """Return the length of a backbone's vectors for images of a shape."""
    return _of_zeros(backbone.encode, backbone, image_shape).shape[1]


@torch.no_grad()
def _of_zeros(
    run: Callable[[Tensor], Tensor], backbone: Backbone, image_shape: tuple[int, ...]
) -> Tensor:
    """Return what a function of the backbone in evaluation makes of one image."""
    own = next(backbone.parameters(), torch.zeros(()))
    training = backbone.training
    backbone.eval()
    found = run(own.new_zeros(1, *image_shape))
    backbone.train(training)
    return found
