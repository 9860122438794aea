"""Baseline and Baseline++."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from fsf_transfer_methods._base_classes import BaseClassifier
from fsframework.interfaces import OptionError

__all__ = ["Baseline", "BaselinePlusPlus"]

_EPOCHS, _BATCH = 100, 4
_MOMENTUM, _DAMPENING = 0.9, 0.9
_EPS = 1e-5
_INITIAL_LENGTH = 1 / math.sqrt(3)
"""Mean length of a row of PyTorch's linear layer: D numbers, uniform within 1 / sqrt(D) of 0."""


class Baseline(BaseClassifier):
    """Train on all base classes together, then fit a new linear classifier per task.

    Source: Chen, Liu, Kira, Wang and Huang 2019, "A Closer Look at Few-shot Classification" (ICLR),
    sections 3.2 and 4.1, and the authors' code. The classifier of a task is fitted to the support
    by SGD with momentum 0.9 and dampening 0.9 on the cross-entropy, with weight decay on weights
    and biases.

    Two deviations make scores deterministic and independent of the order of shots and ways: a step
    uses the whole support, where the authors draw 4 images without replacement, with as many steps
    as in their 100 epochs; and the classifier starts at 0, where theirs is random.

    Args:
        steps: steps of SGD, at least 1; ``None`` for those of 100 epochs of 4 images per step: 700
            for 25 support images.
        lr: learning rate, above 0.
        weight_decay: weight decay, at least 0.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self, *, steps: int | None = None, lr: float = 0.01, weight_decay: float = 0.001
    ) -> None:
        super().__init__()
        _check(steps, lr, weight_decay)
        self.steps = steps
        self.lr = lr
        self.weight_decay = weight_decay

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return logits, float ``(tasks, n, way)``, without gradients.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        with torch.no_grad(), torch.autocast(support.device.type, enabled=False):
            dtype = query.dtype
            support, query = _precise(support), _precise(query)
            # The weights remain a combination of the items, so only coefficients are learned.
            items, targets = support.flatten(1, 2), _targets(support)
            m = items.shape[1]
            products = torch.cat([items @ items.mT, items.new_ones(len(items), 1, m)], dim=1)
            # (tasks, way, m + 1), with the biases last.
            point = items.new_zeros(len(items), support.shape[1], m + 1)
            velocity: Tensor | None = None
            for _ in range(self.steps or _n_steps(m)):
                error = ((point @ products).softmax(dim=1) - targets) / m
                gradient = torch.cat([error, error.sum(dim=2, keepdim=True)], dim=2)
                gradient = gradient.add_(point, alpha=self.weight_decay)
                velocity = _velocity(velocity, gradient)
                point.add_(velocity, alpha=-self.lr)
            weights = point[..., :-1] @ items
            return torch.baddbmm(point[:, None, :, -1], query, weights.mT).to(dtype)


class BaselinePlusPlus(BaseClassifier):
    """Train on all base classes together by cosines, then fit a new cosine classifier per task.

    Source: Chen, Liu, Kira, Wang and Huang 2019, "A Closer Look at Few-shot Classification" (ICLR),
    sections 3.3 and 4.1, and the authors' code. The logit of a class is the cosine between the item
    and the class's weight vector, times ``scale``; the classifier of a task is fitted to the
    support by SGD with momentum 0.9, dampening 0.9 and weight decay.

    Two deviations make scores deterministic and independent of the order of shots and ways: a step
    uses the whole support, where the authors draw 4 images without replacement, with as many steps
    as in their 100 epochs; and the weight vectors start as the classes' means, with the mean length
    of a random start, where the authors' start is random.

    Args:
        scale: factor of the cosines, above 0; ``None`` for the authors' 2, or 10 from 201 classes.
        learn_lengths: also multiply the cosines of a class by a learned number, as the authors'
            code does through the weight normalisation of Salimans and Kingma 2016. The paper does
            not (False).
        steps: steps of SGD, at least 1; ``None`` for those of 100 epochs of 4 images per step: 700
            for 25 support images.
        lr: learning rate, above 0.
        weight_decay: weight decay, at least 0.

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
    ) -> None:
        super().__init__()
        if scale is not None and not scale > 0:
            raise OptionError(f"scale must be above 0, got {scale}")
        _check(steps, lr, weight_decay)
        self.scale = scale
        self.learn_lengths = learn_lengths
        self.steps = steps
        self.lr = lr
        self.weight_decay = weight_decay

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
        with torch.no_grad(), torch.autocast(support.device.type, enabled=False):
            dtype, way, shot = query.dtype, *support.shape[1:3]
            support, query = _precise(support), _precise(query)
            items, targets, scale = (
                _unit(support).flatten(1, 2),
                _targets(support),
                self._scale(way),
            )
            m = items.shape[1]
            products = items @ items.mT
            # The directions remain combinations of the items: (tasks, way, m) coefficients.
            point = targets.expand(len(items), -1, -1) / shot
            point = _INITIAL_LENGTH * point * _inverse_length(point, point @ products)
            length = point.new_full((len(items), way, 1), _INITIAL_LENGTH)
            if not self.learn_lengths:
                length = torch.ones_like(length)
            velocity: Tensor | None = None
            speed: Tensor | None = None
            for _ in range(self.steps or _n_steps(m)):
                inner = point @ products
                inverse = _inverse_length(point, inner)
                cosines = inner * inverse
                error = (scale * length * cosines).softmax(dim=1) - targets
                error *= scale / m
                # The gradient by a direction has no component along it.
                along = (error * cosines).sum(dim=2, keepdim=True)
                gradient = length * inverse * (error - along * inverse * point)
                gradient.add_(point, alpha=self.weight_decay)
                velocity = _velocity(velocity, gradient)
                if self.learn_lengths:
                    speed = _velocity(speed, along + self.weight_decay * length)
                    length = length - self.lr * speed
                point = point.add(velocity, alpha=-self.lr)
            weights = scale * length * _inverse_length(point, point @ products) * point @ items
            return (_unit(query) @ weights.mT).to(dtype)


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
        cosines: Tensor = _unit(items) @ nn.functional.normalize(self.directions, dim=1).mT
        return self.scale * (cosines if self.lengths is None else cosines * self.lengths)


def _check(steps: int | None, lr: float, weight_decay: float) -> None:
    if steps is not None and steps < 1:
        raise OptionError(f"steps must be at least 1, got {steps}")
    if not lr > 0:
        raise OptionError(f"lr must be above 0, got {lr}")
    if not weight_decay >= 0:
        raise OptionError(f"weight_decay must be at least 0, got {weight_decay}")


def _n_steps(n_support: int) -> int:
    return _EPOCHS * math.ceil(n_support / _BATCH)


def _precise(items: Tensor) -> Tensor:
    return items if items.dtype == torch.float64 else items.float()


def _targets(support: Tensor) -> Tensor:
    """Return 1 where a support image belongs to a way, else 0: ``(way, way * shot)``."""
    way, shot = support.shape[1:3]
    ways = torch.arange(way, device=support.device)[:, None]
    return (ways == ways.repeat_interleave(shot)).to(support.dtype)


def _unit(items: Tensor) -> Tensor:
    """Divide vectors by their length plus a small number, as the authors' code does."""
    lengths: Tensor = torch.linalg.vector_norm(items, dim=-1, keepdim=True)
    return items / (lengths + _EPS)


def _inverse_length(point: Tensor, inner: Tensor) -> Tensor:
    """Return 1 over the length of the vectors with these coefficients; zeros count as tiny."""
    return (point * inner).sum(dim=2, keepdim=True).clamp(min=1e-12).rsqrt()


def _velocity(velocity: Tensor | None, gradient: Tensor) -> Tensor:
    """Return the velocity of SGD with momentum; PyTorch does not dampen the first gradient."""
    if velocity is None:
        return gradient
    return velocity.mul_(_MOMENTUM).add_(gradient, alpha=1 - _DAMPENING)
