"""A method that trains another one beside a pretext task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from fsframework.interfaces import (
    Backbone,
    Batch,
    FewShotMethod,
    MethodWrapper,
    OptionError,
    ViewMaker,
    Views,
)

__all__ = ["OnViews", "Wrapper", "images_of"]


class Wrapper(MethodWrapper):
    """Trains another method on images and their views, and scores as it does.

    Args:
        base: the method within it, which must learn from episodes or batches.

    Raises:
        OptionError: the base learns from neither.
    """

    views: ViewMaker
    weightless = False

    mean: Tensor
    std: Tensor

    def __init__(self, *, base: FewShotMethod) -> None:
        super().__init__(base=base)
        if base.learns_from in ("nothing", "views"):
            raise OptionError(
                f"base must learn from episodes or batches, but {self.name_of(base)} learns from "
                f"{base.learns_from}"
            )
        self.trains_on_images = base.consumes != "images"

    @staticmethod
    def name_of(method: FewShotMethod) -> str:
        """Return what messages call a method."""
        return type(method).__name__

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Build the base; store the backbone unless the base stores it."""
        preprocessing = backbone.preprocessing
        for name, value in (("mean", preprocessing.mean), ("std", preprocessing.std)):
            self.register_buffer(name, torch.tensor(value).view(3, 1, 1), persistent=False)
        # In a tuple, so that PyTorch does not count it twice where the base holds it.
        self._extractor = (backbone,)
        if not self.base_sees_images:
            self.backbone = backbone
        self.build_base(item_shape, n_base_classes, backbone)

    @property
    def channels(self) -> int:
        """The channels of the backbone's maps."""
        size = self.extractor.preprocessing.size
        return item_of("maps", self.extractor, (3, size, size))[0]

    def pooled(self, images: Tensor) -> Tensor:
        """Map normalised images ``(n, 3, h, w)`` of any size to means of maps ``(n, channels)``."""
        maps: Tensor = self.extractor(images)
        return maps.mean(dim=(2, 3))

    def build_base(
        self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone
    ) -> None:
        """Build the base for what it consumes."""
        self.base.build(item_shape, n_base_classes, backbone)

    @property
    def extractor(self) -> Backbone:
        """The backbone, whether this module or the base holds it."""
        return self._extractor[0]

    @property
    def base_sees_images(self) -> bool:
        """Whether the base is trained on images, and holds the backbone."""
        return self.base.consumes == "images" or self.base.trains_on_images

    def base_loss(self, batch: Batch) -> Tensor:
        """Return the base's loss of a batch of images.

        The images are encoded together; a base that has a maker of views is shown these.
        """
        batch = dataclasses.replace(batch, views=None, applied=None, small_views=None)
        if self.base.views is not None:
            made = self.made(self.base.views, images_of(batch))
            batch = dataclasses.replace(
                batch, views=made.images, applied=made.applied, small_views=made.small
            )
        if not self.base_sees_images:
            batch = with_items(batch, self.encoded(images_of(batch)))
        return self.base.loss(batch)

    def encoded(self, images: Tensor) -> Tensor:
        """Map normalised images ``(n, 3, H, W)`` to the items that the base embeds."""
        return encoded(self.base.consumes, self.extractor, images)

    def made(self, maker: ViewMaker, images: Tensor) -> Views:
        """Return normalised views of normalised images ``(n, 3, H, W)``."""
        with torch.no_grad():
            made = maker.make(images * self.std + self.mean)
        small = None if made.small is None else (made.small - self.mean) / self.std
        return Views((made.images - self.mean) / self.std, made.applied, small)


class OnViews(Wrapper):
    """Embeds an image as what the base makes of all of its views, once per image.

    Args:
        base: the method within it.
        views: makes the same views of an image each time.

    Raises:
        OptionError: the base learns from neither episodes nor batches, or views are random.
    """

    usual_components: ClassVar[Mapping[str, str]] = {"views": "rotation"}

    def __init__(self, *, base: FewShotMethod, views: ViewMaker) -> None:
        super().__init__(base=base)
        check_fixed(views=views)
        self.views = views
        self.consumes = "images"
        self.trains_on_images = False

    @property
    def embeds(self) -> bool:
        """Whether views have features, which those of a base that adapts to pixels do not."""
        return self.base.consumes != "images" or self.base.embeds

    def views_in(self, batch: Batch) -> Tensor:
        """Return the views of a batch's images, float ``(n, v, 3, H, W)``; made if it has none."""
        return self.viewed(images_of(batch)) if batch.views is None else batch.views

    def viewed(self, images: Tensor) -> Tensor:
        """Return the views of normalised images ``(n, 3, H, W)``, float ``(n, v, 3, H, W)``."""
        return self.made(self.views, images).images

    def build_base(
        self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone
    ) -> None:
        """Build the base for what it consumes of images of a shape."""
        shape = item_of(self.base.consumes, backbone, item_shape)
        self.base.build(shape, n_base_classes, backbone)


def check_kinds(views: ViewMaker) -> None:
    """Refuse views whose transformations cannot be told apart.

    Raises:
        OptionError: there are fewer than two kinds.
    """
    if views.n_kinds < 2:
        raise OptionError(
            "views must be made by transformations to recognise, as those of rotation, but "
            f"{type(views).__name__} has only one"
        )


def check_fixed(**makers: ViewMaker) -> None:
    """Refuse makers that draw random numbers, or make views that have no number of their own.

    Raises:
        OptionError: a maker is refused.
    """
    for name, maker in makers.items():
        if maker.random or maker.n_kinds != maker.n_views:
            raise OptionError(
                f"{name} must make the same views of an image each time, one by each "
                f"transformation, as rotation does, but {type(maker).__name__} does not"
            )


def images_of(batch: Batch) -> Tensor:
    """Return all items of a batch ``(n, *item)``: supports, queries, then ``items``."""
    parts = []
    if batch.support is not None:
        parts.append(batch.support.flatten(0, 2))
    if batch.query is not None:
        parts.append(batch.query.flatten(0, 1))
    if batch.items is not None:
        parts.append(batch.items)
    return torch.cat(parts)


def with_items(batch: Batch, items: Tensor) -> Batch:
    """Return a batch with other items ``(n, *item)``, in the order of ``images_of``."""
    support, query, start = batch.support, batch.query, 0
    if support is not None:
        n = support.shape[:3].numel()
        support, start = items[:n].unflatten(0, support.shape[:3]), n
    if query is not None:
        n = query.shape[:2].numel()
        query, start = items[start : start + n].unflatten(0, query.shape[:2]), start + n
    flat = None if batch.items is None else items[start:]
    return dataclasses.replace(batch, support=support, query=query, items=flat)


def views_of(batch: Batch, method: FewShotMethod) -> tuple[Tensor, Tensor]:
    """Return the views ``(n, v, 3, h, w)`` of a batch and their transformations ``(n, v)``.

    Raises:
        OptionError: it has none.
    """
    if batch.views is None or batch.applied is None:
        raise OptionError(f"{type(method).__name__} learns from views, but this step has none")
    return batch.views, batch.applied


def encoded(consumes: str, backbone: Backbone, images: Tensor) -> Tensor:
    """Map normalised images ``(n, 3, H, W)`` to what a method consumes."""
    if consumes == "images":
        return images
    if consumes == "vectors":
        return backbone.encode(images)
    maps: Tensor = backbone(images)
    return maps


def item_of(consumes: str, backbone: Backbone, image: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of what a method consumes of an image of a shape."""
    training = backbone.training
    tensors = (*backbone.parameters(), *backbone.buffers())
    device = tensors[0].device if tensors else None
    backbone.eval()
    with torch.no_grad():
        shape = encoded(consumes, backbone, torch.zeros(1, *image, device=device)).shape
    backbone.train(training)
    return tuple(shape[1:])
