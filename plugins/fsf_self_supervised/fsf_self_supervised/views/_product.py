"""The views of one maker, each shown to another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from fsframework.interfaces import OptionError, ViewMaker, Views

__all__ = ["Product"]


class Product(ViewMaker):
    """Every transformation of one maker followed by every transformation of another.

    Source: Lee, Hwang and Shin 2020, "Self-supervised Label Augmentation via Input
    Transformations" (ICML), composed transformations, in the order of the authors' code. Rotation
    by four angles and then the six orders of the channels, which are used if nothing else is
    named, are the 24 views that the code calls ``rot_color_perm24``. ``then.orders=rgb,gbr,brg``
    leaves the 12 of ``rot_color_perm12``; with ``first.angles=0,180`` as well, there are the 6 of
    ``rot_color_perm6``. Either maker may be a product itself.

    The views that ``then`` makes of the first view by ``first`` come first, then those of its
    second view, and so on. A view's number is its number by ``first`` times the number of
    transformations of ``then``, plus its number by ``then``.

    Args:
        first: makes views of the image.
        then: makes views of each of these views.

    Raises:
        OptionError: a maker makes all views of an image by one transformation, as jigsaw does, or
            makes small views too, as multi-crop does.

    >>> import torch
    >>> from fsf_self_supervised.views import ColorPermutation, Rotation
    >>> turned, colours = Rotation(angles=(0, 180)), ColorPermutation(orders=("rgb", "gbr"))
    >>> pixels = torch.tensor([1.0, 2.0, 3.0]).reshape(1, 3, 1, 1) / 3
    >>> made = Product(first=turned, then=colours).make(pixels)
    >>> made.images.flatten(2)[0] * 3, made.applied
    (tensor([[1., 2., 3.],
            [2., 3., 1.],
            [1., 2., 3.],
            [2., 3., 1.]]), tensor([[0, 1, 2, 3]]))
    """

    usual_components: ClassVar[Mapping[str, str]] = {
        "first": "rotation",
        "then": "color-permutation",
    }

    def __init__(self, *, first: ViewMaker, then: ViewMaker) -> None:
        for name, maker in {"first": first, "then": then}.items():
            if maker.together:
                raise OptionError(
                    f"{name} must make each view by a transformation of its own, as rotation does, "
                    f"but {type(maker).__name__} makes all views of an image together"
                )
        self.first, self.then = first, then
        self.n_views = first.n_views * then.n_views
        self.n_kinds = first.n_kinds * then.n_kinds
        self.random = first.random or then.random

    def make(self, images: Tensor) -> Views:
        """Return one view per pair of a view by ``first`` and one by ``then``."""
        outer = self.first.make(images)
        inner = self.then.make(outer.images.flatten(0, 1))
        for name, made in {"first": outer, "then": inner}.items():
            if made.small is not None:
                raise OptionError(f"{name} must not make small views (Views.small)")
        numbers = inner.applied.unflatten(0, outer.applied.shape)
        numbers = numbers + outer.applied[..., None] * self.then.n_kinds
        views = inner.images.unflatten(0, outer.applied.shape)
        return Views(views.flatten(1, 2), numbers.flatten(1, 2))
