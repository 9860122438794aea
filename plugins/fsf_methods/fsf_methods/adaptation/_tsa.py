"""Task-specific adapters."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import grad
from torch.nn import functional

from fsf_methods.adaptation._adapters import (
    AdaptedMethod,
    Adapters,
    Weights,
    class_cosines,
    vectors_of,
)

__all__ = ["TSA"]


class TSA(AdaptedMethod):
    """Fit small layers beside the convolutions of a fixed backbone to the support of each task.

    Source: Li, Liu and Bilen 2022, "Cross-domain Few-shot Learning with Task-specific Adapters"
    (CVPR), section 3, and the authors' code. Each 3 x 3 convolution within the blocks of a residual
    network gets an adapter, and the vector a square matrix (pre-classifier alignment). Adadelta
    fits them to the cross-entropy of the support under 10 times the cosine to the class means,
    each image counting in its own mean. Here any backbone with 3 x 3 convolutions is adapted, in
    all of them but the first, which is the stem of a residual network. BatchNorms use their running
    statistics.

    Args:
        adapter: ``residual``, in parallel to the convolution, or ``serial``, after it.
        form: a ``matrix`` mixes channels, a ``vector`` scales them; where a residual adapter
            changes the shape it is always a matrix.
        alignment: whether to use the matrix on the vector.
        steps: steps of Adadelta, at least 0.
        lr: learning rate of the adapters, at least 0.
        alignment_lr: learning rate of the matrix, at least 0.
        tasks_at_once: tasks adapted in parallel, at least 1, which bounds the memory. ``None`` for
            8, or 1 on CPUs.

    Raises:
        OptionError: an option is outside its range.
    """

    def scores_of_task(self, adapters: Adapters, support: Tensor, query: Tensor) -> Tensor:
        """Score queries ``(n, 3, H, W)`` of one task, support ``(way, shot, 3, H, W)``."""
        weights = self.start(adapters, support.flatten(0, 1))
        return self.fitted_scores(adapters, weights, support, query)[0]

    def fitted_scores(
        self, adapters: Adapters, weights: Weights, support: Tensor, query: Tensor
    ) -> tuple[Tensor, Weights]:
        """Fit given weights to a task, and return its scores and the weights."""
        way, shot = support.shape[:2]
        images, vectors = support.flatten(0, 1), vectors_of(adapters)
        labels = torch.arange(way, device=images.device).repeat_interleave(shot)

        def loss(weights: Weights) -> Tensor:
            found = vectors(weights, images)
            prototypes = found.unflatten(0, (way, shot)).mean(dim=1)
            return functional.cross_entropy(class_cosines(found, prototypes), labels)

        optimiser = self.optimiser(weights)
        for _ in range(self.steps):
            weights = optimiser.step(weights, grad(loss)(weights))
        prototypes = vectors(weights, images).unflatten(0, (way, shot)).mean(dim=1)
        return class_cosines(vectors(weights, query), prototypes), weights
