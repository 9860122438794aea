"""What methods of several families share."""

from __future__ import annotations

import torch
from torch import Tensor

from fsframework.interfaces import Backbone

__all__ = ["full_precision", "vector_size"]


def full_precision(x: Tensor) -> Tensor:
    """Return ``x`` in at least float32, as linear algebra requires."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def vector_size(backbone: Backbone, image_shape: tuple[int, ...]) -> int:
    """Return the length of a backbone's vectors for images of a shape."""
    own = next(backbone.parameters(), torch.zeros(()))
    training = backbone.training
    backbone.eval()
    with torch.no_grad():
        vectors = backbone.encode(own.new_zeros(1, *image_shape))
    backbone.train(training)
    return vectors.shape[1]
