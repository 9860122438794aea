"""Normalisation, memory layout and pooling, shared by all backbones."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsframework.interfaces import Backbone, OptionError, Preprocessing

__all__ = [
    "Colour",
    "PooledBackbone",
    "Pooling",
    "channels_last",
    "normed",
    "prepared",
    "thinned",
]

Colour = tuple[float, float, float]
"""One number per channel: red, green, blue."""

Pooling = Literal["mean", "flatten"]
"""How a map becomes a vector."""

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


class PooledBackbone(Backbone):
    """A backbone whose vectors are pooled maps and whose options set the normalisation.

    Args:
        pooling: the ``mean`` over locations, or ``flatten`` to ``C * h * w`` numbers, channel
            first.
        mean: red, green and blue, in 0..1; subtracted from the pixel values.
        std: red, green and blue, above 0; divides the difference.
        size: side of the images that the backbone is designed for, in pixels.

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

    Convolutions and the layers after them preserve this layout, the fastest on CPUs and on GPUs
    with tensor cores. Weights stay contiguous, as weight files require; each convolution
    rearranges them internally. ``Tensor.contiguous(memory_format=...)`` does not work under
    ``torch.func.vmap``.

    >>> import torch
    >>> channels_last(torch.zeros(2, 3, 4, 4)).stride()
    (48, 1, 12, 3)
    """
    return images.movedim(1, -1).contiguous().movedim(-1, 1)


def prepared(images: Tensor, smallest_size: int, name: str) -> Tensor:
    """Return images ``(n, 3, H, W)`` in the channels-last layout after checking their size.

    Args:
        images: normalised images.
        smallest_size: side in pixels below which the backbone has no map.
        name: of the backbone, for the message.

    Raises:
        OptionError: a side of the images is below ``smallest_size``.
    """
    height, width = images.shape[-2:]
    if min(height, width) < smallest_size:
        raise OptionError(
            f"{name} needs images of at least {smallest_size} x {smallest_size} pixels to leave a "
            f"map, got {height} x {width}"
        )
    return channels_last(images)


def normed(conv: nn.Module, norm: nn.Module, x: Tensor) -> Tensor:
    """Return ``norm(conv(x))``, in evaluation by one convolution, equal but for rounding.

    Layers that have hooks, or that are not the usual ones because they were replaced, are called.
    """
    hooked = any(getattr(layer, hooks) for layer in (conv, norm) for hooks in _HOOKS)
    if type(conv) is nn.Conv2d and type(norm) is nn.BatchNorm2d and not (hooked or norm.training):
        mean, variance = norm.running_mean, norm.running_var
        if mean is not None and variance is not None:
            scale = norm.weight * torch.rsqrt(variance + norm.eps)
            bias = norm.bias + (-mean if conv.bias is None else conv.bias - mean) * scale
            weight, dtype = conv.weight * scale[:, None, None, None], conv.weight.dtype
            return functional.conv2d(x, weight.to(dtype), bias.to(dtype), conv.stride, conv.padding)
    maps: Tensor = norm(conv(x))
    return maps


def thinned(maps: Tensor, stride: int) -> Tensor:
    """Return every ``stride``-th row and column of maps ``(n, C, h, w)``.

    A 1 x 1 convolution of the result equals a 1 x 1 convolution with that stride. The gradient of
    the latter writes past the end of memory in some CPU builds of PyTorch, for channels-last maps
    whose number of channels is not a multiple of 16.
    """
    return maps if stride == 1 else maps[..., ::stride, ::stride]
