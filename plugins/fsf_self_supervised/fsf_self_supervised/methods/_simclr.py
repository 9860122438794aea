"""A simple framework for contrastive learning of visual representations."""

from __future__ import annotations

import torch
from torch import Tensor

from fsf_self_supervised.methods._heads import HEADS, Head, projection
from fsf_self_supervised.methods._losses import nt_xent
from fsf_self_supervised.methods._pairs import PairMethod, full_precision
from fsframework.interfaces import (
    Backbone,
    Batch,
    ViewMaker,
    check_above,
    check_at_least,
    check_one_of,
)

__all__ = ["SimCLR"]


class SimCLR(PairMethod):
    """Find the other view of an image among the views of all images of the step.

    Source: Chen, Kornblith, Norouzi and Hinton 2020, "A Simple Framework for Contrastive Learning
    of Visual Representations" (ICML), section 2. Vectors pass a projection of two layers, which is
    not used afterwards; the loss is the normalised temperature-scaled cross-entropy (equation 1).
    Section 4.2 also compares a linear projection and none.
    The authors train with 4,096 images per step for 100 epochs and more, at a temperature of 0.1
    on ImageNet and 0.5 on CIFAR-10, with the optimiser LARS.

    Args:
        views: makes two views of an image.
        temperature: divides the cosines, above 0.
        head: the projection: ``nonlinear`` with two layers, ``linear`` with one, or ``none``.
        width: length of the projected vectors, at least 1.
        norm: put BatchNorm into a projection of two layers, as the authors' code does; the paper
            has none.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self,
        *,
        views: ViewMaker,
        temperature: float = 0.1,
        head: Head = "nonlinear",
        width: int = 128,
        norm: bool = False,
    ) -> None:
        super().__init__(views=views)
        check_above(0, temperature=temperature)
        check_one_of(HEADS, head=head)
        check_at_least(1, width=width)
        self.temperature = temperature
        self.head = head
        self.width = width
        self.norm = norm

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Store the backbone and create the projection of vectors ``(D,)``."""
        super().build(item_shape, n_base_classes, backbone)
        (size,) = item_shape
        self.project = projection(self.head, size, self.width, norm=self.norm)
        self.weightless = self.head == "none"

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy of the views."""
        views = torch.cat(self.pair(batch))
        projected = full_precision(self.project(self.backbone.encode(views)))
        with torch.autocast(projected.device.type, enabled=False):
            first, second = projected.chunk(2)
            return nt_xent(first, second, self.temperature)
