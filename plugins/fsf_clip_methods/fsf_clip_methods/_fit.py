"""Gradient steps on parameters of many tasks at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["AdamW", "Parameters", "Sgd", "fitted", "support_loss"]

Parameters = Mapping[str, Tensor]
"""Parameters by name, each ``(tasks, *shape)``."""


@dataclass(frozen=True)
class Sgd:
    """SGD as PyTorch has it, without dampening."""

    momentum: float = 0.9
    weight_decay: float = 0.0

    def step(
        self, weight: Tensor, gradient: Tensor, state: tuple[Tensor, ...], lr: float, number: int
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return a parameter after a step, and the velocity."""
        del number
        gradient = gradient + self.weight_decay * weight
        velocity = self.momentum * state[0] + gradient if state else gradient
        return weight - lr * velocity, (velocity,)


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2)."""

    weight_decay: float = 0.01
    eps: float = 1e-8
    betas: tuple[float, float] = (0.9, 0.999)

    def step(
        self, weight: Tensor, gradient: Tensor, state: tuple[Tensor, ...], lr: float, number: int
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return a parameter after step ``number``, from 1, and the two moments."""
        first, second = state or (torch.zeros_like(gradient), torch.zeros_like(gradient))
        first = self.betas[0] * first + (1 - self.betas[0]) * gradient
        second = self.betas[1] * second + (1 - self.betas[1]) * gradient.square()
        size = (second / (1 - self.betas[1] ** number)).sqrt() + self.eps
        weight = weight * (1 - lr * self.weight_decay)
        return weight - lr / (1 - self.betas[0] ** number) * first / size, (first, second)


def fitted(
    start: Parameters,
    loss: Callable[[Parameters], Tensor],
    optimizer: Sgd | AdamW,
    *,
    steps: int,
    lr: float,
) -> dict[str, Tensor]:
    """Return parameters after steps whose rate falls to 0 along half a cosine.

    The rate of step s = 0, 1, ... is ``lr * (1 + cos(pi * s / steps)) / 2`` (Loshchilov and Hutter
    2017, Eq. 5). Tasks do not influence each other.

    Args:
        start: initial parameters, ``(tasks, *shape)``.
        loss: maps parameters to the losses of the tasks, ``(tasks,)``.
    """
    weights = {name: tensor.detach() for name, tensor in start.items()}
    states: dict[str, tuple[Tensor, ...]] = {}
    for step in range(steps):
        rate = lr * (1 + math.cos(math.pi * step / steps)) / 2
        with torch.enable_grad():
            leaves = {name: tensor.requires_grad_() for name, tensor in weights.items()}
            # Of the sum: the gradient for a task's parameters is then that of its own loss.
            found = torch.autograd.grad(loss(leaves).sum(), list(leaves.values()))
        for (name, weight), gradient in zip(leaves.items(), found, strict=True):
            new = optimizer.step(weight.detach(), gradient, states.get(name, ()), rate, step + 1)
            weights[name], states[name] = new
    return {name: tensor.detach() for name, tensor in weights.items()}


def support_loss(logits: Tensor, shot: int) -> Tensor:
    """Return the mean cross-entropies ``(tasks,)`` of logits ``(tasks, way * shot, way)``."""
    way = logits.shape[2]
    labels = torch.arange(way, device=logits.device)[:, None].expand(way, shot).flatten()
    labels = labels.expand(len(logits), -1)
    return functional.cross_entropy(logits.mT, labels, reduction="none").mean(dim=1)
