"""The fit of a classifier to the support of each task by gradient steps, for many tasks at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from fsframework.interfaces import check_above, check_at_least, check_one_of

__all__ = [
    "OPTIMIZERS",
    "Fit",
    "Fitting",
    "Weights",
    "cosine_logits",
    "fitted",
    "linear_logits",
    "n_steps",
    "precise",
    "unit",
]

Weights = Mapping[str, Tensor]
"""A classifier's parameters by name, each ``(tasks, *shape)``."""

Optimizer = Literal["sgd", "adam"]
OPTIMIZERS = ("sgd", "adam")

EPOCHS, BATCH = 100, 4
MOMENTUM, DAMPENING = 0.9, 0.9
_BETAS, _ADAM_EPS = (0.9, 0.999), 1e-8
_EPS = 1e-5


@dataclass(frozen=True)
class Fit:
    """How a classifier is fitted.

    Args:
        steps: number of steps.
        lr: learning rate.
        weight_decay: L2 penalty, added to the gradient.
        optimizer: ``sgd`` with momentum 0.9 and dampening 0.9, or ``adam`` with PyTorch's defaults.
        batch_size: support images per step, taken in the given order, pass after pass; ``None`` for
            the whole support in every step.
    """

    steps: int
    lr: float
    weight_decay: float
    optimizer: Optimizer = "sgd"
    batch_size: int | None = None


def n_steps(n_support: int, epochs: int = EPOCHS, batch_size: int = BATCH) -> int:
    """Return the steps of some passes over the support in batches."""
    return epochs * math.ceil(n_support / batch_size)


class Fitting:
    """What methods share that fit a classifier to each task: four options, and the fit."""

    epochs = EPOCHS
    """The passes over the support, in batches of 4, that decide ``steps`` where it is ``None``."""

    steps: int | None
    lr: float
    weight_decay: float
    optimizer: Optimizer

    def set_fit(
        self, steps: int | None, lr: float, weight_decay: float, optimizer: Optimizer = "sgd"
    ) -> None:
        """Check the options and store them.

        Raises:
            OptionError: an option is outside its range.
        """
        if steps is not None:
            check_at_least(1, steps=steps)
        check_above(0, lr=lr)
        check_at_least(0, weight_decay=weight_decay)
        check_one_of(OPTIMIZERS, optimizer=optimizer)
        self.steps = steps
        self.lr = lr
        self.weight_decay = weight_decay
        self.optimizer = optimizer

    def fit(self, support: Tensor, batch_size: int | None = None) -> Fit:
        """Return the fit to a support ``(tasks, way, shot, D)``, on batches or on all of it."""
        steps = self.steps or n_steps(support.shape[1:3].numel(), self.epochs)
        return Fit(steps, self.lr, self.weight_decay, self.optimizer, batch_size)


def fitted(
    start: Weights,
    support: Tensor,
    logits: Callable[[Weights, Tensor], Tensor],
    fit: Fit,
    *,
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy,
) -> Weights:
    """Return the parameters of each task's classifier after the steps.

    Args:
        start: initial parameters, ``(tasks, *shape)``.
        support: float ``(tasks, way, shot, D)``.
        logits: maps parameters and items ``(tasks, n, D)`` to logits ``(tasks, n, way)``.
        loss: maps logits ``(tasks * n, way)`` and labels ``(tasks * n,)`` to their mean loss.
    """
    tasks, way, shot, _ = support.shape
    items = support.flatten(1, 2)
    labels = torch.arange(way, device=items.device).repeat_interleave(shot).repeat(tasks, 1)
    size = fit.batch_size or way * shot
    batches = list(
        zip(torch.split(items, size, dim=1), torch.split(labels, size, dim=1), strict=True)
    )

    def total(weights: Weights, batch: tuple[Tensor, Tensor]) -> Tensor:
        # Times the tasks: the gradient for a task's parameters is then that of its own mean.
        return tasks * loss(logits(weights, batch[0]).flatten(0, 1), batch[1].flatten())

    gradients = torch.func.grad(total)
    update = _Sgd(fit) if fit.optimizer == "sgd" else _Adam(fit)
    weights = dict(start)
    for step in range(fit.steps):
        found = gradients(weights, batches[step % len(batches)])
        for name, gradient in found.items():
            gradient = gradient + fit.weight_decay * weights[name]
            weights[name] = weights[name] - fit.lr * update(name, gradient)
    return weights


class _Sgd:
    """The direction of SGD with momentum; PyTorch does not dampen the first gradient."""

    def __init__(self, fit: Fit) -> None:
        del fit
        self._velocities: dict[str, Tensor] = {}

    def __call__(self, name: str, gradient: Tensor) -> Tensor:
        old = self._velocities.get(name)
        new = gradient if old is None else MOMENTUM * old + (1 - DAMPENING) * gradient
        self._velocities[name] = new
        return new


class _Adam:
    """The direction of Adam (Kingma and Ba 2015, algorithm 1)."""

    def __init__(self, fit: Fit) -> None:
        del fit
        self._moments: dict[str, tuple[int, Tensor, Tensor]] = {}

    def __call__(self, name: str, gradient: Tensor) -> Tensor:
        nothing = torch.zeros_like(gradient)
        step, first, second = self._moments.get(name, (0, nothing, nothing))
        step += 1
        first = _BETAS[0] * first + (1 - _BETAS[0]) * gradient
        second = _BETAS[1] * second + (1 - _BETAS[1]) * gradient.square()
        self._moments[name] = step, first, second
        size = (second / (1 - _BETAS[1] ** step)).sqrt() + _ADAM_EPS
        return first / (1 - _BETAS[0] ** step) / size


def linear_logits(weights: Weights, items: Tensor) -> Tensor:
    """Return the logits of ``weight (tasks, way, D)`` and ``bias (tasks, way)``."""
    return torch.baddbmm(weights["bias"][:, None], items, weights["weight"].mT)


def cosine_logits(weights: Weights, items: Tensor, scale: float) -> Tensor:
    """Return scaled cosines with ``directions (tasks, way, D)``, times ``lengths`` if given.

    Items are divided by their length plus 1e-5, as in the code of Chen et al. 2019.
    """
    logits = scale * unit(items) @ functional.normalize(weights["directions"], dim=-1).mT
    return logits * weights["lengths"][:, None] if "lengths" in weights else logits


def unit(items: Tensor) -> Tensor:
    """Divide vectors by their length plus a small number."""
    lengths: Tensor = torch.linalg.vector_norm(items, dim=-1, keepdim=True)
    return items / (lengths + _EPS)


def precise(items: Tensor) -> Tensor:
    """Return items in at least single precision."""
    return items if items.dtype == torch.float64 else items.float()
