"""Alignment and uniformity of a Siamese network."""

from __future__ import annotations

import torch
from torch import Tensor

from fsf_self_supervised_methods._heads import perceptron
from fsf_self_supervised_methods._losses import cross_views, log_uniformity
from fsf_self_supervised_methods._pairs import PairMethod, full_precision
from fsframework.interfaces import Backbone, Batch, ViewMaker, check_above, check_at_least

__all__ = ["UniSiam"]


class UniSiam(PairMethod):
    """Predict the projection of the other view, and keep different images apart.

    Source: Lu, Wen, Liu, Liu and Tian 2022, "Self-Supervision Can Be a Good Few-Shot Learner"
    (ECCV), section 3.2, and the authors' code. Vectors pass a projection of three layers with
    BatchNorm, and the projections a predictor of two with a quarter of the width between. The loss
    is minus the cosine of each prediction and the other view's projection, which gets no gradient,
    plus ``weight`` times the logarithm of the mean exp(cosine / ``temperature``) of projections of
    different images.

    The distillation from a larger network that has been trained in the same way (section 3.3) is
    not here: a method has one backbone.

    Args:
        views: makes two views of an image.
        weight: of the uniformity, at least 0.
        temperature: divides the cosines of different images, above 0.
        width: of the projection, at least 4; ``None`` for the length of the backbone's vectors.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self,
        *,
        views: ViewMaker,
        weight: float = 0.1,
        temperature: float = 2.0,
        width: int | None = None,
    ) -> None:
        super().__init__(views=views)
        check_at_least(0, weight=weight)
        check_above(0, temperature=temperature)
        if width is not None:
            check_at_least(4, width=width)
        self.weight = weight
        self.temperature = temperature
        self.width = width

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Store the backbone; create projection and predictor of vectors ``(D,)``."""
        super().build(item_shape, n_base_classes, backbone)
        (size,) = item_shape
        width = self.width or size
        self.project = perceptron((size, width, width, width), last=True)
        self.predict = perceptron((width, width // 4, width))

    def loss(self, batch: Batch) -> Tensor:
        """Return alignment and weighted uniformity."""
        vectors = self.backbone.encode(torch.cat(self.pair(batch)))
        aligned, uniform = self.terms(vectors)
        return aligned + self.weight * uniform

    def terms(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return alignment and uniformity.

        Args:
            vectors: ``(2 n, D)``, of the first views of n images, then of the second ones.
        """
        projected = self.project(vectors)
        predicted = full_precision(self.predict(projected))
        with torch.autocast(vectors.device.type, enabled=False):
            projected = full_precision(projected)
            return (
                cross_views(predicted, projected),
                log_uniformity(projected, self.temperature),
            )
