"""Alignment and uniformity of a Siamese network."""

from __future__ import annotations

import torch
from torch import Tensor

from fsf_self_supervised.methods._heads import perceptron
from fsf_self_supervised.methods._losses import alignment, cross_views, log_uniformity
from fsf_self_supervised.methods._pairs import PairMethod, full_precision
from fsframework.interfaces import (
    Backbone,
    Batch,
    OptionError,
    ViewMaker,
    check_above,
    check_at_least,
)

__all__ = ["UniSiam"]


class UniSiam(PairMethod):
    """Predict the projection of the other view, and keep different images apart.

    Source: Lu, Wen, Liu, Liu and Tian 2022, "Self-Supervision Can Be a Good Few-Shot Learner"
    (ECCV), section 3.2, and the authors' code. Vectors pass a projection of three layers with
    BatchNorm, and the projections a predictor of two with a quarter of the width between. The loss
    is minus the cosine of each prediction and the other view's projection, which gets no gradient,
    plus ``weight`` times the logarithm of the mean exp(cosine / ``temperature``) of projections of
    different images.

    In a stage of training with a teacher, another UniSiam that has been trained before, a further
    head of five layers predicts the teacher's projection of each view from the student's vector of
    the same view (section 3.3). The loss is then half of the one above plus half of minus the mean
    cosine of these; the teacher is not changed. The authors' teacher is a ResNet-50, and its widths
    are those of the head: ``teacher_width``, and a quarter of it before the last layer.

    Args:
        views: makes two views of an image.
        weight: of the uniformity, at least 0.
        temperature: divides the cosines of different images, above 0.
        width: of the projection, at least 4; ``None`` for the length of the backbone's vectors.
        teacher_width: of a teacher's projection, at least 4; ``None`` if there is no teacher.

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
        teacher_width: int | None = None,
    ) -> None:
        super().__init__(views=views)
        check_at_least(0, weight=weight)
        check_above(0, temperature=temperature)
        for name, value in (("width", width), ("teacher_width", teacher_width)):
            if value is not None:
                check_at_least(4, **{name: value})
        self.weight = weight
        self.temperature = temperature
        self.width = width
        self.teacher_width = teacher_width

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Store the backbone; create projection and predictor of vectors ``(D,)``."""
        super().build(item_shape, n_base_classes, backbone)
        (size,) = item_shape
        width = self.width or size
        self.project = perceptron((size, width, width, width), last=True)
        self.predict = perceptron((width, width // 4, width))
        if (taught := self.teacher_width) is not None:
            self.follow = perceptron((size, taught, taught, taught, taught // 4, taught))

    def view_vectors(self, views: Tensor) -> Tensor:
        """Map views ``(n, 3, h, w)`` to their projections ``(n, width)``, as a teacher."""
        projected: Tensor = self.project(self.backbone.encode(views))
        return projected

    def loss(self, batch: Batch) -> Tensor:
        """Return alignment and weighted uniformity; with a teacher, the mean of it and alignment.

        Raises:
            OptionError: the teacher's vectors have another length than ``teacher_width``.
        """
        vectors = self.backbone.encode(torch.cat(self.pair(batch)))
        aligned, uniform = self.terms(vectors)
        own = aligned + self.weight * uniform
        if batch.teacher_vectors is None:
            return own
        taught = batch.teacher_vectors.transpose(0, 1).flatten(0, 1)
        if taught.shape[1] != self.teacher_width:
            raise OptionError(
                f"teacher_width must be {taught.shape[1]}, the length of the teacher's vectors, "
                f"not {self.teacher_width}"
            )
        return (own + self.alike(vectors, taught)) / 2

    def alike(self, vectors: Tensor, taught: Tensor) -> Tensor:
        """Return minus the mean cosine of what vectors predict of a teacher's and these.

        Args:
            vectors: ``(m, D)``, of views.
            taught: ``(m, teacher_width)``, the teacher's of the same views.
        """
        predicted = full_precision(self.follow(vectors))
        with torch.autocast(vectors.device.type, enabled=False):
            return alignment(predicted, full_precision(taught))

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
