"""What all backbones share: normalisation, memory layout, pooling."""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor

from fsframework.interfaces import Backbone, OptionError, Preprocessing

__all__ = ["Colour", "PooledBackbone", "Pooling", "channels_last", "prepared", "thinned"]

Colour = tuple[float, float, float]
"""A number a channel: red, green, blue."""

Pooling = Literal["mean", "flatten"]
"""How a map becomes a vector."""


class PooledBackbone(Backbone):
    """A backbone whose vectors are pooled maps, normalising images by options of its own.

    Args:
        pooling: the ``mean`` over locations, or ``flatten`` to ``C * h * w`` numbers, channel
            first.
        mean: of pixel values in 0..1, subtracted from the images.
        std: by which the difference is divided, above 0.
        size: of the images it is made for, in pixels.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self, pooling: Pooling, mean: Colour, std: Colour, size: int = Preprocessing.size
    ) -> None:
        super().__init__()
        if pooling not in ("mean", "flatten"):
            raise OptionError(f"pooling must be 'mean' or 'flatten', got {pooling!r}")
        self.pooling = pooling
        self.mean = mean
        self.std = std
        self.preprocessing = _normalisation(mean, std, size)

    def vectors(self, maps: Tensor) -> Tensor:
        """Pool maps ``(n, C, h, w)`` into vectors ``(n, C)`` or ``(n, C * h * w)``."""
        return maps.flatten(1) if self.pooling == "flatten" else super().vectors(maps)


def _normalisation(mean: Colour, std: Colour, size: int) -> Preprocessing:
    for name, values in (("mean", mean), ("std", std)):
        if len(values) != 3 or not all(map(math.isfinite, values)):
            raise OptionError(f"{name} must be three numbers, red, green and blue, got {values}")
    if not min(std) > 0:
        raise OptionError(f"std must be above 0 in every channel, got {std}")
    return Preprocessing(size=size, mean=mean, std=std)


def channels_last(images: Tensor) -> Tensor:
    """Return images ``(n, c, h, w)`` with the channels innermost in memory.

    Convolutions and all that follows them keep this layout, the fastest on CPUs and on GPUs with
    tensor cores. Weights stay contiguous, as files of weights demand it; a convolution rearranges
    them by itself. ``Tensor.contiguous(memory_format=...)`` would not work under
    ``torch.func.vmap``.

    >>> import torch
    >>> channels_last(torch.zeros(2, 3, 4, 4)).stride()
    (48, 1, 12, 3)
    """
    return images.movedim(1, -1).contiguous().movedim(-1, 1)


def prepared(images: Tensor, smallest_size: int, name: str) -> Tensor:
    """Return images ``(n, 3, H, W)`` laid out for a backbone whose maps they must leave.

    Raises:
        OptionError: they are smaller than ``smallest_size`` pixels.
    """
    height, width = images.shape[-2:]
    if min(height, width) < smallest_size:
        raise OptionError(
            f"{name} needs images of at least {smallest_size} x {smallest_size} pixels to leave a "
            f"map, got {height} x {width}"
        )
    return channels_last(images)


def thinned(maps: Tensor, stride: int) -> Tensor:
    """Return every ``stride``-th row and column of maps ``(n, C, h, w)``.

    A 1 x 1 convolution of what is left is one with that stride, whose gradient some builds of
    PyTorch write past the end of memory on a CPU: widths that are no multiple of 16, channels last.
    """
    return maps if stride == 1 else maps[..., ::stride, ::stride]
