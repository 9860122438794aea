"""What all backbones do to images: normalisation and memory layout."""

from __future__ import annotations

import math

from torch import Tensor

from fsframework.interfaces import OptionError, Preprocessing

__all__ = ["Colour", "channels_last", "normalisation", "prepared", "thinned"]

Colour = tuple[float, float, float]
"""A number a channel: red, green, blue."""


def normalisation(mean: Colour, std: Colour, size: int = Preprocessing.size) -> Preprocessing:
    """Return the preprocessing that subtracts ``mean`` and divides by ``std``.

    Args:
        size: of the images a backbone is made for, in pixels.

    Raises:
        OptionError: there are not three finite numbers of each, or a ``std`` is not above 0.
    """
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
