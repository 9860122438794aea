"""Cosine classifiers with a negative margin."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.transfer._base_classes import BaseClassifier
from fsf_methods.transfer._classifiers import Cosines, penalised_loss, score_cosine
from fsf_methods.transfer._fit import Fitting, Optimizer, Weights
from fsframework.interfaces import Batch, OptionError, check_above

__all__ = ["NegCosine"]


class NegCosine(Fitting, BaseClassifier):
    """Train on all base classes by cosines with a negative margin, then fit a cosine classifier.

    Source: Liu, Cao, Lin, Li, Zhang, Long and Hu 2020, "Negative Margin Matters: Understanding
    Margin in Few-shot Classification" (ECCV), section 3.1: the loss is the cross-entropy of
    ``scale`` times the cosines, from which the margin is subtracted for an item's own class. A
    negative margin lets base classes overlap, and new classes are then easier to separate. The
    classifier of a task is a cosine classifier as well, fitted to the support by SGD with momentum
    0.9, dampening 0.9 and weight decay, and scores without margin.

    Two deviations make scores deterministic and independent of the order of shots and ways: a step
    uses the whole support, where the authors (and LibFewShot) draw 4 images without replacement,
    with as many steps as in their 100 epochs; and the classifier's vectors start as the classes'
    means, where theirs are random. ``scores_from`` scores as they do.

    Args:
        margin: subtracted from the cosine of the own base class, in [-1, 1]. The authors' commands
            for miniImageNet have -0.02 (1 shot) and -0.01 (5 shots) with ResNet-12, -0.05 and -0.02
            with ResNet-18.
        scale: factor of the cosines in training, above 0; 30 in the authors' code.
        inner_margin: the margin while a task's classifier is fitted, in [-1, 1].
        inner_scale: factor of the cosines of a task's classifier, above 0; 5 in the authors' code.
        steps: steps of the fit, at least 1; ``None`` for those of 100 epochs of 4 images per step:
            700 for 25 support images.
        lr: learning rate of the fit, above 0.
        weight_decay: weight decay of the fit, at least 0.
        optimizer: of the fit, ``sgd`` or ``adam``.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(  # noqa: PLR0913
        self,
        *,
        margin: float = -0.02,
        scale: float = 30.0,
        inner_margin: float = 0.0,
        inner_scale: float = 5.0,
        steps: int | None = None,
        lr: float = 0.01,
        weight_decay: float = 0.001,
        optimizer: Optimizer = "sgd",
    ) -> None:
        super().__init__()
        for name, value in (("margin", margin), ("inner_margin", inner_margin)):
            if not -1 <= value <= 1:
                raise OptionError(f"{name} must be in [-1, 1], got {value}")
        check_above(0, scale=scale, inner_scale=inner_scale)
        self.margin = margin
        self.scale = scale
        self.inner_margin = inner_margin
        self.inner_scale = inner_scale
        self.set_fit(steps, lr, weight_decay, optimizer)

    def classifier(self, dim: int, n_classes: int) -> nn.Module:
        """Create a cosine classifier."""
        return _Cosines(dim, n_classes, self.scale)

    def class_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy with the margin, and the logits without it."""
        assert batch.items is not None
        assert batch.classes is not None
        logits = self.class_logits(batch.items)
        return penalised_loss(logits, batch.classes, self.scale * self.margin), logits

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return scaled cosines, float ``(tasks, n, way)``, without gradients.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        return self._scores(support, query, None, None)

    def scores_from(
        self, start: Weights, support: Tensor, query: Tensor, batch_size: int | None = 4
    ) -> Tensor:
        """Return the scores of classifiers with given starts, float ``(tasks, n, way)``.

        Args:
            start: ``directions (tasks, way, D)``.
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
            batch_size: support images per step, in the given order; ``None`` for all.
        """
        return self._scores(support, query, start, batch_size)

    def _scores(
        self, support: Tensor, query: Tensor, start: Weights | None, batch_size: int | None
    ) -> Tensor:
        fit = self.fit(support, batch_size)
        kind = Cosines(self.inner_scale, self.inner_margin)
        return score_cosine(support, query, fit, kind, start)


class _Cosines(nn.Module):
    """Vectors ``(n, D)`` to ``scale`` times their cosine with each class, ``(n, n_classes)``."""

    def __init__(self, dim: int, n_classes: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.directions = nn.Parameter(torch.empty(n_classes, dim))
        nn.init.xavier_uniform_(self.directions)

    def forward(self, items: Tensor) -> Tensor:
        unit = functional.normalize(items, dim=1)
        return self.scale * unit @ functional.normalize(self.directions, dim=1).mT
