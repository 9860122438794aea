"""Augmentation of training images, for a whole batch on its device.

Written here, since Kornia's operations for the same changes take 1.1 to 1.8 times as long
(``benchmarks/view_making.py``), and torchvision's draw one change for a whole batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["augmented"]

_AREA = (0.08, 1.0)
_LOG_RATIO = (-0.2877, 0.2877)
_STRENGTH = 0.4
_GREY = (0.299, 0.587, 0.114)


def augmented(images: Tensor, kinds: Sequence[str]) -> Tensor:
    """Augment images, each with its own random draws.

    ``resized-crop``: a part of 8 to 100 % of the area with an aspect ratio of 3:4 to 4:3, resized
    to the full size by bilinear interpolation. ``color-jitter``: brightness, contrast and
    saturation, in this order, each times a factor of 0.6 to 1.4. ``flip``: half of the images are
    mirrored left to right. Few-shot papers train with these ranges since Chen et al. 2019, "A
    Closer Look at Few-shot Classification", section 4.1; a crop that would cross the edge is moved,
    not drawn again.

    Args:
        images: float ``(n, 3, H, W)`` of values in 0..255.
        kinds: any of ``resized-crop``, ``color-jitter`` and ``flip``; their order does not matter.

    Returns:
        The same shape; values may leave 0..255 by no more than rounding.
    """
    n = len(images)
    # Always drawn, and on the CPU, so that a seed has the same effect on every device.
    draws = torch.rand(8, n).to(images.device, images.dtype, non_blocking=True)
    if "resized-crop" in kinds or "flip" in kinds:
        images = _cropped(images, draws[:5], "resized-crop" in kinds, "flip" in kinds)
    if "color-jitter" in kinds:
        images = _jittered(images, 1 + _STRENGTH * (2 * draws[5:] - 1))
    return images


def _cropped(images: Tensor, draws: Tensor, crop: bool, flip: bool) -> Tensor:
    """Crop, resize and flip by one affine map per image."""
    area, log_ratio, x, y, side = draws
    mirror = torch.where(side < 0.5, -1.0, 1.0) if flip else torch.ones_like(side)
    if not crop:
        chosen = (mirror < 0)[:, None, None, None]
        return torch.where(chosen, images.flip(-1), images)
    size = (_AREA[0] + (_AREA[1] - _AREA[0]) * area).sqrt()
    stretch = (_LOG_RATIO[0] + (_LOG_RATIO[1] - _LOG_RATIO[0]) * log_ratio).exp().sqrt()
    width, height = (size * stretch).clamp(max=1), (size / stretch).clamp(max=1)
    zero = torch.zeros_like(width)
    # In affine_grid's coordinates the image spans -1..1, so a part of width w may be 1 - w off.
    across = torch.stack([width * mirror, zero, (1 - width) * (2 * x - 1)], dim=1)
    down = torch.stack([zero, height, (1 - height) * (2 * y - 1)], dim=1)
    shape = list(images.shape)
    grid = functional.affine_grid(torch.stack([across, down], dim=1), shape, align_corners=False)
    sampled: Tensor = functional.grid_sample(
        images, grid, padding_mode="border", align_corners=False
    )
    return sampled


def _jittered(images: Tensor, factors: Tensor) -> Tensor:
    """Multiply brightness, contrast and saturation by ``factors (3, n)``."""
    brightness, contrast, saturation = factors[:, :, None, None, None]
    weights = torch.stack([images.new_full((1, 1), share) for share in _GREY])
    images = (images * brightness).clamp(0, 255)
    mean = (images * weights).sum(dim=1, keepdim=True).mean(dim=(2, 3), keepdim=True)
    images = (mean + contrast * (images - mean)).clamp(0, 255)
    grey = (images * weights).sum(dim=1, keepdim=True)
    jittered: Tensor = (grey + saturation * (images - grey)).clamp(0, 255)
    return jittered
