"""Linear and cosine classifiers that are fitted to the support of each task."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from fsf_transfer_methods._fit import (
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

__all__ = ["margin_loss", "score_cosine", "score_linear"]

_INITIAL_LENGTH = 1 / math.sqrt(3)
"""Mean length of a row of PyTorch's linear layer: D numbers, uniform within 1 / sqrt(D) of 0."""


def score_linear(support: Tensor, query: Tensor, fit: Fit, start: Weights | None = None) -> Tensor:
    """Return the logits of linear classifiers fitted to each task, ``(tasks, n, way)``.

    Args:
        support: float ``(tasks, way, shot, D)``.
        query: float ``(tasks, n, D)``.
        start: ``weight (tasks, way, D)`` and ``bias (tasks, way)``; zeros by default.
    """
    with torch.no_grad(), torch.autocast(support.device.type, enabled=False):
        dtype, support, query = query.dtype, precise(support), precise(query)
        if start is None and fit.optimizer == "sgd" and fit.batch_size is None:
            weights = _linear_by_sgd(support, fit)
        else:
            tasks, way, _, dim = support.shape
            zeros = {
                "weight": support.new_zeros(tasks, way, dim),
                "bias": support.new_zeros(tasks, way),
            }
            weights = fitted(start or zeros, support, linear_logits, fit)
        return linear_logits(weights, query).to(dtype)


def score_cosine(
    support: Tensor,
    query: Tensor,
    fit: Fit,
    *,
    scale: float,
    margin: float = 0.0,
    learn_lengths: bool = False,
    start: Weights | None = None,
) -> Tensor:
    """Return the scaled cosines of classifiers fitted to each task, ``(tasks, n, way)``.

    Args:
        support: float ``(tasks, way, shot, D)``.
        query: float ``(tasks, n, D)``.
        scale: factor of the cosines.
        margin: subtracted from the cosine of an item's own class while fitting.
        learn_lengths: also multiply the cosines of a class by a learned number.
        start: ``directions (tasks, way, D)`` and, with ``learn_lengths``, ``lengths (tasks, way)``;
            by default the classes' means, with the mean length of a random start.
    """
    with torch.no_grad(), torch.autocast(support.device.type, enabled=False):
        dtype, support, query = query.dtype, precise(support), precise(query)
        if start is None and fit.optimizer == "sgd" and fit.batch_size is None:
            weights = _cosine_by_sgd(support, fit, scale, margin, learn_lengths)
        else:
            weights = fitted(
                start or _cosine_start(support, learn_lengths),
                support,
                partial(cosine_logits, scale=scale),
                fit,
                loss=partial(margin_loss, scaled_margin=scale * margin),
            )
        return cosine_logits(weights, query, scale).to(dtype)


def margin_loss(logits: Tensor, labels: Tensor, scaled_margin: float) -> Tensor:
    """Return the cross-entropy with a margin subtracted from the logit of the own class."""
    if scaled_margin:
        logits = logits - scaled_margin * functional.one_hot(labels, logits.shape[1])
    return functional.cross_entropy(logits, labels)


def _linear_by_sgd(support: Tensor, fit: Fit) -> Weights:
    """Fit by SGD on the whole support, from zeros."""
    # The weights remain a combination of the items, so only coefficients are learned.
    items, targets = support.flatten(1, 2), _targets(support)
    m = items.shape[1]
    products = torch.cat([items @ items.mT, items.new_ones(len(items), 1, m)], dim=1)
    # (tasks, way, m + 1), with the biases last.
    point = items.new_zeros(len(items), support.shape[1], m + 1)
    velocity: Tensor | None = None
    for _ in range(fit.steps):
        error = ((point @ products).softmax(dim=1) - targets) / m
        gradient = torch.cat([error, error.sum(dim=2, keepdim=True)], dim=2)
        gradient = gradient.add_(point, alpha=fit.weight_decay)
        velocity = _velocity(velocity, gradient)
        point.add_(velocity, alpha=-fit.lr)
    return {"weight": point[..., :-1] @ items, "bias": point[..., -1]}


def _cosine_by_sgd(
    support: Tensor, fit: Fit, scale: float, margin: float, learn_lengths: bool
) -> Weights:
    """Fit by SGD on the whole support, from the classes' means."""
    way, shot = support.shape[1:3]
    items, targets = unit(support).flatten(1, 2), _targets(support)
    m = items.shape[1]
    products = items @ items.mT
    # The directions remain combinations of the items: (tasks, way, m) coefficients.
    point = targets.expand(len(items), -1, -1) / shot
    point = _INITIAL_LENGTH * point * _inverse_length(point, point @ products)
    length = point.new_full((len(items), way, 1), _INITIAL_LENGTH if learn_lengths else 1.0)
    velocity: Tensor | None = None
    speed: Tensor | None = None
    for _ in range(fit.steps):
        inner = point @ products
        inverse = _inverse_length(point, inner)
        cosines = inner * inverse
        logits = scale * (length * cosines - margin * targets)
        error = logits.softmax(dim=1) - targets
        error *= scale / m
        # The gradient by a direction has no component along it.
        along = (error * cosines).sum(dim=2, keepdim=True)
        gradient = length * inverse * (error - along * inverse * point)
        gradient.add_(point, alpha=fit.weight_decay)
        velocity = _velocity(velocity, gradient)
        if learn_lengths:
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


def _inverse_length(point: Tensor, inner: Tensor) -> Tensor:
    """Return 1 over the length of the vectors with these coefficients; zeros count as tiny."""
    return (point * inner).sum(dim=2, keepdim=True).clamp(min=1e-12).rsqrt()


def _velocity(velocity: Tensor | None, gradient: Tensor) -> Tensor:
    """Return the velocity of SGD with momentum; PyTorch does not dampen the first gradient."""
    if velocity is None:
        return gradient
    return velocity.mul_(MOMENTUM).add_(gradient, alpha=1 - DAMPENING)
