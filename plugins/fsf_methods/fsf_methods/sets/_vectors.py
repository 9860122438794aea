"""Arithmetic that several methods share."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["smoothed_cross_entropy", "squared_distances"]


def squared_distances(query: Tensor, points: Tensor) -> Tensor:
    """Return squared distances ``(tasks, n, m)`` of ``(tasks, n, D)`` and ``(tasks, m, D)``."""
    # Rows as long as the queries are faster than rows as short as the points.
    norms = _squared_lengths(query)[:, None] + _squared_lengths(points)[:, :, None]
    return torch.baddbmm(norms, points, query.mT, alpha=-2).mT


def _squared_lengths(x: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(x, dim=-1)
    return lengths.square()


def smoothed_cross_entropy(scores: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Return the cross-entropy with labels of which a share is spread over the other ways.

    Args:
        scores: float ``(tasks, n, way)``.
        labels: int64 ``(tasks, n)``.
        smoothing: the share, in [0, 1).
    """
    logits = scores.flatten(0, 1).log_softmax(dim=1)
    own = logits.gather(1, labels.flatten()[:, None])[:, 0]
    others = (logits.sum(dim=1) - own) / (logits.shape[1] - 1)
    return -((1 - smoothing) * own + smoothing * others).mean()
