"""The memory layout that all backbones compute in."""

from __future__ import annotations

from torch import Tensor

from fsframework.interfaces import OptionError

__all__ = ["channels_last", "prepared"]


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
