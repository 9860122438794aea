"""Linear and cosine classifiers that are fitted to the support of each task."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from fsf_methods.transfer._fit import (
    DAMPENING,
    MOMENTUM,
    Fit,
    Weights,
    cosine_logits,
    fitted,
    linear_logits,
    precise,
    unit,
)

__all__ = ["Cosines", "penalised_loss", "score_cosine", "score_linear"]

_INITIAL_LENGTH = 1 / math.sqrt(3)
"""Mean length of a row of PyTorch's linear layer: D numbers, uniform within 1 / sqrt(D) of 0."""


def score_linear(
    support: Tensor, query: Tensor, fit: Fit, start: Weights | None = None, firth: float = 0.0
) -> Tensor:
    """Return the logits of linear classifiers fitted to each task, ``(tasks, n, way)``.

    Args:
        support: float ``(tasks, way, shot, D)``.
        query: float ``(tasks, n, D)``.
        start: ``weight (tasks, way, D)`` and ``bias (tasks, way)``; zeros by default.
        firth: weight of the penalty of ``penalised_loss``.
    """
    with torch.no_grad(), torch.autocast(support.device.type, enabled=False):
        dtype, support, query = query.dtype, precise(support), precise(query)
        if start is None and fit.optimizer == "sgd" and fit.batch_size is None:
            weights = _linear_by_sgd(support, fit, firth)
        else:
            tasks, way, _, dim = support.shape
            zeros = {
                "weight": support.new_zeros(tasks, way, dim),
                "bias": support.new_zeros(tasks, way),
            }
            loss = partial(penalised_loss, firth=firth)
            weights = fitted(start or zeros, support, linear_logits, fit, loss=loss)
        return linear_logits(weights, query).to(dtype)


@dataclass(frozen=True)
class Cosines:
    """What a cosine classifier is and is fitted for.

    Args:
        scale: factor of the cosines.
        margin: subtracted from the cosine of an item's own class while fitting.
        firth: weight of the penalty of ``penalised_loss``.
        learn_lengths: whether the cosines of a class are also multiplied by a learned number.
    """

    scale: float
    margin: float = 0.0
    firth: float = 0.0
    learn_lengths: bool = False


def score_cosine(
    support: Tensor, query: Tensor, fit: Fit, kind: Cosines, start: Weights | None = None
) -> Tensor:
    """Return the scaled cosines of classifiers fitted to each task, ``(tasks, n, way)``.

    Args:
        support: float ``(tasks, way, shot, D)``.
        query: float ``(tasks, n, D)``.
        start: ``directions (tasks, way, D)`` and, with learned lengths, ``lengths (tasks, way)``;
            by default the classes' means, with the mean length of a random start.
    """
    with torch.no_grad(), torch.autocast(support.device.type, enabled=False):
        dtype, support, query = query.dtype, precise(support), precise(query)
        if start is None and fit.optimizer == "sgd" and fit.batch_size is None:
            weights = _cosine_by_sgd(support, fit, kind)
        else:
            weights = fitted(
                start or _cosine_start(support, kind.learn_lengths),
                support,
                partial(cosine_logits, scale=kind.scale),
                fit,
                loss=partial(penalised_loss, margin=kind.scale * kind.margin, firth=kind.firth),
            )
        return cosine_logits(weights, query, kind.scale).to(dtype)


def penalised_loss(
    logits: Tensor, labels: Tensor, margin: float = 0.0, firth: float = 0.0
) -> Tensor:
    """Return the cross-entropy with a margin and Firth's penalty.

    Args:
        logits: ``(n, classes)``.
        labels: int64 ``(n,)``.
        margin: subtracted from the logit of the own class.
        firth: weight of the penalty, minus the mean over items and classes of the logarithm of the
            probability.
    """
    if margin:
        logits = logits - margin * functional.one_hot(labels, logits.shape[1])
    loss = functional.cross_entropy(logits, labels)
    return loss - firth * logits.log_softmax(dim=1).mean() if firth else loss


def _linear_by_sgd(support: Tensor, fit: Fit, firth: float) -> Weights:
    """Fit by SGD on the whole support, from zeros."""
    # The weights remain a combination of the items, so only coefficients are learned.
    items, targets = support.flatten(1, 2), _targets(support)
    m = items.shape[1]
    products = torch.cat([items @ items.mT, items.new_ones(len(items), 1, m)], dim=1)
    # (tasks, way, m + 1), with the biases last.
    point = items.new_zeros(len(items), support.shape[1], m + 1)
    velocity: Tensor | None = None
    for _ in range(fit.steps):
        error = _residuals(point @ products, targets, firth) / m
        gradient = torch.cat([error, error.sum(dim=2, keepdim=True)], dim=2)
        gradient = gradient.add_(point, alpha=fit.weight_decay)
        velocity = _velocity(velocity, gradient)
        point.add_(velocity, alpha=-fit.lr)
    return {"weight": point[..., :-1] @ items, "bias": point[..., -1]}


def _cosine_by_sgd(support: Tensor, fit: Fit, kind: Cosines) -> Weights:
    """Fit by SGD on the whole support, from the classes' means."""
    way, shot = support.shape[1:3]
    items, targets = unit(support).flatten(1, 2), _targets(support)
    m = items.shape[1]
    products = items @ items.mT
    # The directions remain combinations of the items: (tasks, way, m) coefficients.
    point = targets.expand(len(items), -1, -1) / shot
    point = _INITIAL_LENGTH * point * _inverse_length(point, point @ products)
    length = point.new_full((len(items), way, 1), _INITIAL_LENGTH if kind.learn_lengths else 1.0)
    velocity: Tensor | None = None
    speed: Tensor | None = None
    for _ in range(fit.steps):
        inner = point @ products
        inverse = _inverse_length(point, inner)
        cosines = inner * inverse
        logits = kind.scale * (length * cosines - kind.margin * targets)
        error = _residuals(logits, targets, kind.firth) * (kind.scale / m)
        # The gradient by a direction has no component along it.
        along = (error * cosines).sum(dim=2, keepdim=True)
        gradient = length * inverse * (error - along * inverse * point)
        gradient.add_(point, alpha=fit.weight_decay)
        velocity = _velocity(velocity, gradient)
        if kind.learn_lengths:
            speed = _velocity(speed, along + fit.weight_decay * length)
            length = length - fit.lr * speed
        point = point.add(velocity, alpha=-fit.lr)
    return {"directions": point @ items, "lengths": length[..., 0]}


def _cosine_start(support: Tensor, learn_lengths: bool) -> Weights:
    """Return the classes' means of unit items, with the mean length of a random start."""
    directions = _INITIAL_LENGTH * functional.normalize(unit(support).mean(dim=2), dim=-1)
    start = {"directions": directions}
    if learn_lengths:
        start["lengths"] = torch.full_like(directions[..., 0], _INITIAL_LENGTH)
    return start


def _targets(support: Tensor) -> Tensor:
    """Return 1 where a support image belongs to a way, else 0: ``(way, way * shot)``."""
    way, shot = support.shape[1:3]
    ways = torch.arange(way, device=support.device)[:, None]
    return (ways == ways.repeat_interleave(shot)).to(support.dtype)


def _residuals(logits: Tensor, targets: Tensor, firth: float) -> Tensor:
    """Return the gradient by the logits ``(tasks, way, m)``, times ``m``, of ``penalised_loss``."""
    if not firth:
        return logits.softmax(dim=1) - targets
    return (1 + firth) * logits.softmax(dim=1) - (targets + firth / len(targets))


def _inverse_length(point: Tensor, inner: Tensor) -> Tensor:
    """Return 1 over the length of the vectors with these coefficients; zeros count as tiny."""
    return (point * inner).sum(dim=2, keepdim=True).clamp(min=1e-12).rsqrt()


def _velocity(velocity: Tensor | None, gradient: Tensor) -> Tensor:
    """Return the velocity of SGD with momentum; PyTorch does not dampen the first gradient."""
    if velocity is None:
        return gradient
    return velocity.mul_(MOMENTUM).add_(gradient, alpha=1 - DAMPENING)
