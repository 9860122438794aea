"""Baseline and Baseline++."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fsf_methods.transfer._base_classes import BaseClassifier
from fsf_methods.transfer._classifiers import Cosines, score_cosine, score_linear
from fsf_methods.transfer._fit import Fit, Fitting, Optimizer, Weights, unit
from fsframework.interfaces import OptionError

__all__ = ["Baseline", "BaselinePlusPlus"]


class Baseline(Fitting, BaseClassifier):
    """Train on all base classes together, then fit a new linear classifier per task.

    Source: Chen, Liu, Kira, Wang and Huang 2019, "A Closer Look at Few-shot Classification" (ICLR),
    sections 3.2 and 4.1, and the authors' code. The classifier of a task is fitted to the support
    by SGD with momentum 0.9 and dampening 0.9 on the cross-entropy, with weight decay on weights
    and biases.

    Two deviations make scores deterministic and independent of the order of shots and ways: a step
    uses the whole support, where the authors draw 4 images without replacement, with as many steps
    as in their 100 epochs; and the classifier starts at 0, where theirs is random. ``scores_from``
    scores as the authors do, from given weights and on batches.

    Args:
        steps: steps, at least 1; ``None`` for those of 100 epochs of 4 images per step: 700 for 25
            support images.
        lr: learning rate, above 0.
        weight_decay: weight decay, at least 0.
        optimizer: ``sgd``, the authors', or ``adam``.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self,
        *,
        steps: int | None = None,
        lr: float = 0.01,
        weight_decay: float = 0.001,
        optimizer: Optimizer = "sgd",
    ) -> None:
        super().__init__()
        self.set_fit(steps, lr, weight_decay, optimizer)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return logits, float ``(tasks, n, way)``, without gradients.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        return score_linear(support, query, self.fit(support))

    def scores_from(
        self, start: Weights, support: Tensor, query: Tensor, batch_size: int | None = 4
    ) -> Tensor:
        """Return the logits of classifiers with given starts, float ``(tasks, n, way)``.

        Args:
            start: ``weight (tasks, way, D)`` and ``bias (tasks, way)``.
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
            batch_size: support images per step, in the given order; ``None`` for all.
        """
        return score_linear(support, query, self.fit(support, batch_size), start)


class BaselinePlusPlus(Fitting, BaseClassifier):
    """Train on all base classes together by cosines, then fit a new cosine classifier per task.

    Source: Chen, Liu, Kira, Wang and Huang 2019, "A Closer Look at Few-shot Classification" (ICLR),
    sections 3.3 and 4.1, and the authors' code. The logit of a class is the cosine between the item
    and the class's weight vector, times ``scale``; the classifier of a task is fitted to the
    support by SGD with momentum 0.9, dampening 0.9 and weight decay.

    Two deviations make scores deterministic and independent of the order of shots and ways: a step
    uses the whole support, where the authors draw 4 images without replacement, with as many steps
    as in their 100 epochs; and the weight vectors start as the classes' means, with the mean length
    of a random start, where the authors' start is random. ``scores_from`` scores as the authors do,
    from given weights and on batches.

    Args:
        scale: factor of the cosines, above 0; ``None`` for the authors' 2, or 10 from 201 classes.
        learn_lengths: also multiply the cosines of a class by a learned number, as the authors'
            code does through the weight normalisation of Salimans and Kingma 2016. The paper does
            not (False).
        steps: steps, at least 1; ``None`` for those of 100 epochs of 4 images per step: 700 for 25
            support images.
        lr: learning rate, above 0.
        weight_decay: weight decay, at least 0.
        optimizer: ``sgd``, the authors', or ``adam``.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self,
        *,
        scale: float | None = None,
        learn_lengths: bool = True,
        steps: int | None = None,
        lr: float = 0.01,
        weight_decay: float = 0.001,
        optimizer: Optimizer = "sgd",
    ) -> None:
        super().__init__()
        if scale is not None and not scale > 0:
            raise OptionError(f"scale must be above 0, got {scale}")
        self.scale = scale
        self.learn_lengths = learn_lengths
        self.set_fit(steps, lr, weight_decay, optimizer)

    def classifier(self, dim: int, n_classes: int) -> nn.Module:
        """Create a cosine classifier."""
        return _CosineClassifier(dim, n_classes, self._scale(n_classes), self.learn_lengths)

    def _scale(self, n_classes: int) -> float:
        if self.scale is not None:
            return self.scale
        return 2.0 if n_classes <= 200 else 10.0

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return scaled cosines, float ``(tasks, n, way)``, without gradients.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        return self._scores(support, query, self.fit(support), None)

    def scores_from(
        self, start: Weights, support: Tensor, query: Tensor, batch_size: int | None = 4
    ) -> Tensor:
        """Return the scores of classifiers with given starts, float ``(tasks, n, way)``.

        Args:
            start: ``directions (tasks, way, D)`` and, where lengths are learned, ``lengths
                (tasks, way)``.
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
            batch_size: support images per step, in the given order; ``None`` for all.
        """
        return self._scores(support, query, self.fit(support, batch_size), start)

    def _scores(self, support: Tensor, query: Tensor, fit: Fit, start: Weights | None) -> Tensor:
        kind = Cosines(self._scale(support.shape[1]), learn_lengths=self.learn_lengths)
        return score_cosine(support, query, fit, kind, start)


class _CosineClassifier(nn.Module):
    """Vectors ``(n, D)`` to ``scale`` times their cosine with each class, ``(n, n_classes)``."""

    def __init__(self, dim: int, n_classes: int, scale: float, learn_lengths: bool) -> None:
        super().__init__()
        self.scale = scale
        self.directions = nn.Parameter(nn.Linear(dim, n_classes, bias=False).weight.detach())
        self.lengths: nn.Parameter | None = None
        if learn_lengths:
            lengths = torch.linalg.vector_norm(self.directions.detach(), dim=1)
            self.lengths = nn.Parameter(lengths)

    def forward(self, items: Tensor) -> Tensor:
        cosines: Tensor = unit(items) @ nn.functional.normalize(self.directions, dim=1).mT
        return self.scale * (cosines if self.lengths is None else cosines * self.lengths)
