"""Linear heads that adapt to their task."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from fsf_gradient_methods._adapt import movable
from fsframework.interfaces import OptionError

__all__ = ["Head", "HeadKind", "check_head", "check_ways", "fitted", "linear"]

HeadKind = Literal["learned", "shared"]


class Head(nn.Module):
    """Where the heads of all tasks start: a weight vector and a bias a way, or one for all ways.

    Args:
        size: length of the items.
        n_way: number of ways; ``None`` for one vector that all ways share, as many as there are.
    """

    def __init__(self, size: int, n_way: int | None) -> None:
        super().__init__()
        start = nn.Linear(size, n_way or 1)
        self.weight, self.bias = start.weight, start.bias

    def start(self, tasks: int, way: int) -> tuple[Tensor, Tensor]:
        """Return weights ``(tasks, way, D)`` and biases ``(tasks, way)``, views of the learned."""
        weight, bias = movable(self.weight), movable(self.bias)
        return weight.expand(tasks, way, weight.shape[1]), bias.expand(tasks, way)


def linear(items: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the logits ``(tasks, n, way)`` of items ``(tasks, n, D)`` under each task's head."""
    return torch.baddbmm(bias[:, None], items, weight.mT)


def fitted(
    items: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    rate: float | Tensor,
    steps: int,
    second_order: bool,
) -> tuple[Tensor, Tensor | None]:
    """Fit heads to items by gradient descent on the mean cross-entropy.

    The gradient of the weights is residuals times items, so that the weights stay the first ones
    plus a combination of the items: a step needs but the products of the items with each other,
    not their ``D`` numbers.

    Args:
        items: float ``(tasks, way, shot, D)``.
        weight: ``(tasks, way, D)``, where the heads start.
        bias: ``(tasks, way)``, or ``None`` for heads without.
        rate: learning rate; that of the weights may be a tensor ``(D,)`` if there is no bias.
        steps: number of steps.
        second_order: whether the steps are differentiated; else they count as constants.

    Returns:
        weight and bias after the last step, of the shapes given.
    """
    tasks, way, shot = items.shape[:3]
    flat = items.flatten(1, 2)
    with torch.set_grad_enabled(second_order and torch.is_grad_enabled()):
        scaled = flat * (rate / (way * shot))
        products = torch.bmm(flat, scaled.mT)
        logits = torch.matmul(flat, weight.mT)
        if bias is not None:
            products = products + rate / (way * shot)
            logits = logits + bias[:, None]
        right = torch.eye(way, dtype=flat.dtype, device=flat.device).repeat_interleave(shot, dim=0)
        residuals = torch.zeros_like(logits)
        for _ in range(steps):
            now = torch.baddbmm(logits, products, residuals, alpha=-1)
            residuals = residuals + (now.softmax(dim=2) - right)
        moved = torch.bmm(residuals.mT, scaled)
        moved_bias = residuals.sum(dim=1) * (rate / (way * shot))
    return weight - moved, None if bias is None else bias - moved_bias


def check_head(head: str, n_way: int | None) -> None:
    """Refuse an unknown kind of head, and a learned one without a number of ways.

    Raises:
        OptionError: it is one.
    """
    if head not in ("learned", "shared"):
        raise OptionError(f"head must be 'learned' or 'shared', got {head!r}")
    if head == "learned" and not (n_way is not None and n_way >= 2):
        raise OptionError(f"n_way must be at least 2 for a learned head, got {n_way}")


def check_ways(n_way: int | None, support: Tensor) -> None:
    """Refuse support ``(tasks, way, ...)`` of other ways than the weights are made for.

    Raises:
        OptionError: it is.
    """
    way = support.shape[1]
    if n_way not in (None, way):
        raise OptionError(
            f"n_way is {n_way}, the ways that the head has weights for: tasks of {way} ways need "
            "a head trained for them, or the option head=shared"
        )
