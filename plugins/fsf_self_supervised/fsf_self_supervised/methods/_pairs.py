"""What all methods here share: two views of each image, no labels, and nearest class means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fsframework.interfaces import Backbone, Batch, FewShotMethod, OptionError, ViewMaker

__all__ = ["PairMethod", "cosines_to_means", "full_precision"]


class PairMethod(FewShotMethod):
    """Learns from two views of each image, and gives a query to the nearest class mean.

    Args:
        views: makes two views of an image.

    Raises:
        OptionError: it makes another number.
    """

    learns_from = "views"
    trains_on_images = True
    uses_labels = False
    usual_components: ClassVar[Mapping[str, str]] = {"views": "simclr"}

    def __init__(self, *, views: ViewMaker) -> None:
        super().__init__()
        if views.n_views != 2:
            raise OptionError(
                f"views must make two views of an image, but {type(views).__name__} makes "
                f"{views.n_views}"
            )
        self.views = views

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Store the backbone."""
        del item_shape, n_base_classes
        self.backbone = backbone

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return cosines to the means of normalised vectors, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        return cosines_to_means(support, query)

    def pair(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the first and the second views, ``(n, 3, H, W)`` each.

        Raises:
            OptionError: the step has no views, or further ones of another size.
        """
        name = type(self).__name__
        if batch.views is None:
            raise OptionError(f"{name} learns from views, but this step has none")
        if batch.small_views is not None:
            raise OptionError(f"{name} learns from two views; views must make no small ones")
        return batch.views[:, 0], batch.views[:, 1]


def cosines_to_means(support: Tensor, query: Tensor) -> Tensor:
    """Return cosines of queries and class means, float ``(tasks, n, way)``.

    Args:
        support: float ``(tasks, way, shot, D)``; each vector is normalised, then their mean.
        query: float ``(tasks, n, D)``.
    """
    with torch.autocast(query.device.type, enabled=False):
        means = functional.normalize(full_precision(support), dim=-1).mean(dim=2)
        units = functional.normalize(full_precision(query), dim=-1)
        return units @ functional.normalize(means, dim=-1).mT


def full_precision(vectors: Tensor) -> Tensor:
    """Return vectors in float32, or in float64 if they are."""
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))
