"""Random changes of colour, one linear map of the three channels per image.

Written here and not taken from Kornia, whose changes of hue go through other coordinates pixel by
pixel: ``benchmarks/view_making.py`` states how much faster this is.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["jittered"]

_TO_YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))
"""From red, green and blue to luminance and two of colour (NTSC 1953)."""


def jittered(images: Tensor, most: tuple[float, float, float, float], p: float) -> Tensor:
    """Change brightness, contrast, saturation and hue of some images, in this order.

    Factors of the first three are drawn from 1 - m to 1 + m, where m is the largest change, but
    not below 0. Contrast is relative to the mean luminance of the image, saturation to the
    luminance of the pixel; hue is an angle about the axis of greys in YIQ coordinates, which
    leaves the luminance as it is. Together they are one linear map of a pixel's channels, after
    which values are limited to 0..1.

    Args:
        images: float ``(n, 3, H, W)``, values in 0..1.
        most: largest change of each; of hue in turns.
        p: share of the images that are changed.
    """
    n = len(images)
    # Drawn on the CPU, so that a seed has the same effect on every device.
    draws = torch.rand(5, n)
    chosen = (draws[4] < p).to(images.dtype)
    change = (2 * draws[:4] - 1).to(images.dtype) * torch.tensor(most, dtype=images.dtype)[:, None]
    change = change * chosen
    factors, turns = (1 + change[:3]).clamp(min=0), change[3]
    matrix, share = _maps(*factors, turns)
    matrix, share = (part.to(images.device, non_blocking=True) for part in (matrix, share))
    # What contrast adds is grey, which the later changes leave as it is.
    grey = torch.stack([images.new_full((), weight) for weight in _TO_YIQ[0]])
    mean = images.mean(dim=(2, 3)) @ grey
    mixed = matrix @ images.flatten(2) + (share * mean)[:, None, None]
    return mixed.clamp(0, 1).reshape(images.shape)


def _maps(
    brightness: Tensor, contrast: Tensor, saturation: Tensor, turns: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the linear maps ``(n, 3, 3)``, and the share ``(n,)`` of mean luminance to add."""
    to_yiq = torch.tensor(_TO_YIQ, dtype=turns.dtype)
    angle = 2 * math.pi * turns
    cosine, sine = saturation * angle.cos(), saturation * angle.sin()
    one, zero = torch.ones_like(turns), torch.zeros_like(turns)
    rows = [one, zero, zero, zero, cosine, -sine, zero, sine, cosine]
    turned = torch.stack(rows, dim=1).reshape(-1, 3, 3)
    matrix = torch.linalg.inv(to_yiq) @ turned @ to_yiq
    return (brightness * contrast)[:, None, None] * matrix, brightness * (1 - contrast)
