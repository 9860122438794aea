"""Linear heads that adapt to their task."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from fsframework.interfaces import OptionError

__all__ = [
    "Head",
    "HeadKind",
    "adapted_scores",
    "check_head",
    "check_ways",
    "fitted",
    "linear",
    "movable",
    "one_hot_ways",
]

HeadKind = Literal["learned", "shared"]


class Head(nn.Module):
    """The initial heads of all tasks: a weight vector and a bias per way, or one for all ways.

    Args:
        size: length of the items.
        n_way: number of ways; ``None`` for one vector that any number of ways share.
    """

    def __init__(self, size: int, n_way: int | None) -> None:
        super().__init__()
        start = nn.Linear(size, n_way or 1)
        self.weight, self.bias = start.weight, start.bias

    def start(self, tasks: int, way: int) -> tuple[Tensor, Tensor]:
        """Return weights ``(tasks, way, D)`` and biases ``(tasks, way)`` as views."""
        weight, bias = movable(self.weight), movable(self.bias)
        return weight.expand(tasks, way, weight.shape[1]), bias.expand(tasks, way)


def movable(parameter: Tensor) -> Tensor:
    """Return a parameter that has gradients, since a frozen one is adapted to tasks too."""
    return parameter if parameter.requires_grad else parameter.detach().requires_grad_()


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

    The gradient of the weights is residuals times items, so the weights remain the initial ones
    plus a combination of the items: a step needs only the inner products of the items, not their
    ``D`` numbers.

    Args:
        items: float ``(tasks, way, shot, D)``.
        weight: ``(tasks, way, D)``, where the heads start.
        bias: ``(tasks, way)``, or ``None`` for heads without one.
        rate: learning rate; for heads without bias it may be a tensor ``(D,)``.
        steps: number of steps.
        second_order: whether the steps are differentiated; else they are treated as constants.

    Returns:
        Weight and bias after the last step, in the given shapes.
    """
    shot = items.shape[2]
    flat = items.flatten(1, 2)
    # Rounding errors of the first logits grow with every step if the learning rate is high for the
    # length of the vectors; double precision costs little here.
    exact = torch.float32 if items.device.type == "mps" else torch.float64
    rate = rate / flat.shape[1]
    with torch.set_grad_enabled(second_order and torch.is_grad_enabled()):
        products = torch.bmm(flat * rate, flat.mT).to(exact)
        logits = torch.bmm(weight.to(exact), flat.mT.to(exact))
        if bias is not None:
            products = products + rate
            logits = logits + bias[:, :, None]
        residuals = _descended(logits, products, steps, shot).to(flat.dtype)
        gradients = torch.bmm(residuals, flat)
    # A learned rate has a gradient even where those of the steps are treated as constants.
    weight = weight - rate * gradients
    return weight, None if bias is None else bias - rate * residuals.sum(dim=2)


def _descended(logits: Tensor, products: Tensor, steps: int, shot: int) -> Tensor:
    """Return the residuals ``(tasks, way, m)``, probabilities minus targets, summed over steps.

    Args:
        logits: ``(tasks, way, m)`` of the ``m = way * shot`` items before the first step. A
            softmax over ways is several times as fast with the items innermost.
        products: ``(tasks, m, m)`` of the items with each other, times the learning rate.
        steps: number of steps.
        shot: items per way.
    """
    truth = one_hot_ways(logits, shot)
    residuals = torch.zeros_like(logits)
    for _ in range(steps):
        now = torch.baddbmm(logits, residuals, products, alpha=-1)
        residuals = residuals + (now.softmax(dim=1) - truth)
    return residuals


def one_hot_ways(logits: Tensor, shot: int) -> Tensor:
    """Return 1 where logits ``(tasks, way, way * shot)`` are of an item's own way, else 0."""
    ways = torch.eye(logits.shape[1], dtype=logits.dtype, device=logits.device)
    return ways.repeat_interleave(shot, dim=1)


def adapted_scores(
    head: Head, support: Tensor, query: Tensor, *, rate: float, steps: int, second_order: bool
) -> Tensor:
    """Return the logits of heads fitted to each task, float ``(tasks, n, way)``.

    Args:
        head: that the steps start from.
        support: float ``(tasks, way, shot, D)``.
        query: float ``(tasks, n, D)``.
        rate: of the inner steps; ``steps`` their number.
        second_order: whether gradients flow through the steps.
    """
    # Steps on long vectors amplify rounding: half precision would spoil them.
    with torch.autocast(query.device.type, enabled=False):
        dtype = head.weight.dtype
        weight, bias = fitted(
            support.to(dtype),
            *head.start(*support.shape[:2]),
            rate=rate,
            steps=steps,
            second_order=second_order,
        )
        assert bias is not None
        return linear(query.to(dtype), weight, bias)


def check_head(head: str, n_way: int | None) -> None:
    """Refuse an unknown kind of head, and a learned one without a number of ways.

    Raises:
        OptionError: the head is refused.
    """
    if head not in ("learned", "shared"):
        raise OptionError(f"head must be 'learned' or 'shared', got {head!r}")
    if head == "learned" and not (n_way is not None and n_way >= 2):
        raise OptionError(f"n_way must be at least 2 for a learned head, got {n_way}")


def check_ways(n_way: int | None, support: Tensor) -> None:
    """Refuse support ``(tasks, way, ...)`` with another number of ways than the weights.

    Raises:
        OptionError: the numbers differ.
    """
    way = support.shape[1]
    if n_way not in (None, way):
        raise OptionError(
            f"the head has weights for n_way = {n_way} ways, but the tasks have {way}; set n_way "
            "to that number, or use a shared head where the method has one"
        )
