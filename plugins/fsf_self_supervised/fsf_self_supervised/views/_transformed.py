"""Views by a fixed list of transformations of the whole image."""

from __future__ import annotations

import torch
from torch import Tensor

from fsframework.interfaces import OptionError, ViewMaker, Views

__all__ = ["ColorPermutation", "Rotation"]

_TURN = 90
_CHANNELS = "rgb"
_NUMBERS_A_BLOCK = 1 << 18
"""A million bytes: the pixels are still in a CPU's cache when they are turned again."""


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
        views = images.new_empty(len(images), self.n_views, *images.shape[1:])
        size = _images_a_block(images)
        for part, into in zip(images.split(size), views.split(size), strict=True):
            self._turn(part, into)
        return _numbered(views)

    def _turn(self, images: Tensor, views: Tensor) -> None:
        """Write the views of some images."""
        made: dict[int, Tensor] = {}
        for place, angle in enumerate(self.angles):
            turns = angle // _TURN % 4
            opposite = made.get((turns + 2) % 4)
            if turns == 0:
                turned = images
            elif opposite is not None:
                # Half a turn reverses the numbers, which is cheaper than a quarter.
                turned = opposite.flip(-2, -1)
            else:
                turned = torch.rot90(made.get(0, images), turns, dims=(-2, -1))
            made[turns] = views[:, place].copy_(turned)


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
        n, _, *size = images.shape
        views = images.new_empty((n, self.n_views, 3, *size))
        # Channel by channel instead of an index tensor, which would have to be sent to the device.
        for place, order in enumerate(self.orders):
            for channel, name in enumerate(order):
                views[:, place, channel] = images[:, _CHANNELS.index(name)]
        return _numbered(views)


def _images_a_block(images: Tensor) -> int:
    """Return of how many images to make views at once: on a CPU, as many as stay in its cache."""
    if images.device.type != "cpu":
        return max(1, len(images))
    return max(1, _NUMBERS_A_BLOCK // max(1, images[:1].numel()))


def _numbered(views: Tensor) -> Views:
    """Return views ``(n, v, 3, H, W)`` with their positions as numbers."""
    numbers = torch.arange(views.shape[1], device=views.device)
    return Views(views, numbers.expand(len(views), -1))


def _listed(values: object) -> str:
    return ", ".join(map(str, values)) or "none"  # type: ignore[call-overload]
