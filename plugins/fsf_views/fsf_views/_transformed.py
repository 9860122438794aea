"""Views by a fixed list of transformations of the whole image."""

from __future__ import annotations

import torch
from torch import Tensor

from fsframework.interfaces import OptionError, ViewMaker, Views

__all__ = ["ColorPermutation", "Rotation"]

_TURN = 90
_CHANNELS = "rgb"


class Rotation(ViewMaker):
    """The image turned counter-clockwise by multiples of 90 degrees.

    Source: Gidaris, Singh and Komodakis 2018, "Unsupervised Representation Learning by Predicting
    Image Rotations" (ICLR), section 3.1. A view's number is the position of its angle.

    Args:
        angles: in degrees, in the order of the views.

    Raises:
        OptionError: an angle is not a multiple of 90, or two are equal.

    >>> image = torch.arange(12.0).reshape(1, 3, 2, 2) / 12
    >>> Rotation(angles=(0, 90)).make(image).images[0, 1, 0] * 12
    tensor([[1., 3.],
            [0., 2.]])
    """

    def __init__(self, *, angles: tuple[int, ...] = (0, 90, 180, 270)) -> None:
        wrong = [angle for angle in angles if angle % _TURN]
        if wrong or not angles:
            raise OptionError(f"angles must be multiples of 90, got {_listed(wrong)}")
        if len({angle % 360 for angle in angles}) < len(angles):
            raise OptionError(f"angles must differ, got {_listed(angles)}")
        self.angles = tuple(angles)
        self.n_views = self.n_kinds = len(angles)

    def make(self, images: Tensor) -> Views:
        """Return one view per angle; the images must be square."""
        if images.shape[-1] != images.shape[-2]:
            raise OptionError(f"images must be square to be turned, not {tuple(images.shape[-2:])}")
        turned = [torch.rot90(images, angle // _TURN, dims=(-2, -1)) for angle in self.angles]
        return _numbered(turned)


class ColorPermutation(ViewMaker):
    """The image with its colour channels in other orders.

    Source: Lee, Hwang and Shin 2020, "Self-supervised Label Augmentation via Input
    Transformations" (ICML), section 3.1. A view's number is the position of its order.

    Args:
        orders: the channels of each view, in the order of the views.

    Raises:
        OptionError: an order does not have each of r, g and b once, or two are equal.
    """

    def __init__(
        self, *, orders: tuple[str, ...] = ("rgb", "rbg", "grb", "gbr", "brg", "bgr")
    ) -> None:
        wrong = [order for order in orders if sorted(order) != sorted(_CHANNELS)]
        if wrong or not orders:
            raise OptionError(f"orders must have r, g and b once each, got {_listed(wrong)}")
        if len(set(orders)) < len(orders):
            raise OptionError(f"orders must differ, got {_listed(orders)}")
        self.orders = tuple(orders)
        self.n_views = self.n_kinds = len(orders)

    def make(self, images: Tensor) -> Views:
        """Return one view per order of the channels."""
        # Slices instead of an index tensor, which would have to be sent to the device.
        one = dict(zip(_CHANNELS, images.split(1, dim=1), strict=True))
        return _numbered([torch.cat([one[name] for name in order], dim=1) for order in self.orders])


def _numbered(views: list[Tensor]) -> Views:
    """Return views ``(n, 3, H, W)`` of the same images with their positions as numbers."""
    images = torch.stack(views, dim=1)
    numbers = torch.arange(len(views), device=images.device)
    return Views(images, numbers.expand(len(images), -1))


def _listed(values: object) -> str:
    return ", ".join(map(str, values)) or "none"  # type: ignore[call-overload]
