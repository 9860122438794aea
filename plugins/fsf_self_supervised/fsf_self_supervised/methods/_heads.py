"""Networks between the vectors of a backbone and a loss."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal, get_args

from torch import nn

__all__ = ["HEADS", "Head", "perceptron", "projection"]

Head = Literal["nonlinear", "linear", "none"]
HEADS: tuple[str, ...] = get_args(Head)


def projection(head: Head, size: int, width: int, *, norm: bool = False) -> nn.Module:
    """Return a projection of vectors of a size: with two layers, with one, or the identity.

    Args:
        norm: put BatchNorm between two layers.
    """
    if head == "none":
        return nn.Identity()
    return perceptron((size, width) if head == "linear" else (size, size, width), norm=norm)


def perceptron(
    widths: Sequence[int], *, norm: bool = True, bias: bool = True, last: bool | None = None
) -> nn.Sequential:
    """Return linear layers with BatchNorm and a rectifier after each but the last.

    Args:
        widths: of the input and of each layer's output.
        norm: whether BatchNorm comes before each rectifier.
        bias: whether the linear layers have biases.
        last: of a BatchNorm after the last layer, whether it has weights; without one if ``None``.
    """
    layers: list[nn.Module] = []
    for number, (before, after) in enumerate(itertools.pairwise(widths), start=2):
        layers.append(nn.Linear(before, after, bias=bias))
        if number < len(widths):
            layers += [nn.BatchNorm1d(after)] if norm else []
            layers.append(nn.ReLU())
    if last is not None:
        layers.append(nn.BatchNorm1d(widths[-1], affine=last))
    return nn.Sequential(*layers)
