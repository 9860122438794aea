"""Losses of views of the same images; vectors need not be normalised unless said so."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["alignment", "balanced", "cross_views", "log_uniformity", "nt_xent", "queue_contrast"]


def nt_xent(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Return the normalised temperature-scaled cross-entropy of two views ``(n, D)`` of n images.

    Source: Chen, Kornblith, Norouzi and Hinton 2020, equation 1. Each of the 2n vectors must find
    its other view among all vectors but itself.

    >>> axes = torch.eye(2)
    >>> round(nt_xent(axes, axes, 1.0).item(), 4)  # log(e + 1 + 1) - 1
    0.5514
    """
    units = functional.normalize(torch.cat([first, second]), dim=1)
    cosines = units @ units.mT / temperature
    own = torch.eye(len(units), dtype=torch.bool, device=units.device)
    logits = cosines.masked_fill(own, torch.finfo(units.dtype).min)
    targets = torch.arange(len(units), device=units.device).roll(len(first))
    return functional.cross_entropy(logits, targets)


def queue_contrast(queries: Tensor, keys: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """Return the cross-entropy of finding each query's key among it and the queue.

    Source: He, Fan, Wu, Xie and Girshick 2020, equation 1.

    Args:
        queries: ``(n, D)``, of length 1, as all others are.
        keys: ``(n, D)``, of the same images.
        queue: ``(K, D)``, of other images.
        temperature: divides the inner products.
    """
    own = (queries * keys).sum(dim=1, keepdim=True)
    logits = torch.cat([own, queries @ queue.mT], dim=1) / temperature
    targets = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
    return functional.cross_entropy(logits, targets)


def alignment(predictions: Tensor, targets: Tensor) -> Tensor:
    """Return minus the mean cosine of rows ``(n, D)``; targets get no gradient."""
    return -functional.cosine_similarity(predictions, targets.detach(), dim=1).mean()


def cross_views(predicted: Tensor, targets: Tensor) -> Tensor:
    """Return the mean alignment of each view's prediction with the other view's target.

    Args:
        predicted: ``(2 n, D)``, the first views of n images, then the second ones.
        targets: ``(2 n, D)``, likewise; they get no gradient.
    """
    return alignment(predicted, targets.roll(len(targets) // 2, 0))


def log_uniformity(vectors: Tensor, temperature: float) -> Tensor:
    """Return the logarithm of the mean similarity of views of different images.

    Source: Lu, Wen, Liu, Liu and Tian 2022, section 3.2, and the authors' code: the similarity is
    exp(cosine / temperature), so the result is 0 for vectors at right angles.

    Args:
        vectors: ``(2 n, D)``, the first views of n images, at least 2, then the second ones.
        temperature: divides the cosines.
    """
    units = functional.normalize(vectors, dim=1)
    n = len(units) // 2
    same = torch.eye(n, dtype=units.dtype, device=units.device).repeat(2, 2)
    similar = (units @ units.mT / temperature).exp() * (1 - same)
    return (similar.sum() / (4 * n * (n - 1))).log()


def balanced(cosines: Tensor, epsilon: float, iterations: int, *, rows_last: bool = True) -> Tensor:
    """Assign rows to columns so that all columns get about the same share.

    Source: Cuturi 2013, as Caron et al. 2020 (SwAV) use it: exp(cosines / epsilon) is brought in
    turn to equal sums of columns and of rows, in the log domain.

    Args:
        cosines: ``(n, m)``.
        epsilon: weight of the entropy, above 0; small ones give assignments close to 0 and 1.
        iterations: how often columns and rows are scaled.
        rows_last: whether the sums of rows come last and are exact; otherwise those of columns.

    Returns:
        ``(n, m)``, whose rows have the sum 1, or whose columns do.
    """
    logits = cosines / epsilon
    first, last = (0, 1) if rows_last else (1, 0)
    for _ in range(iterations):
        logits = logits - logits.logsumexp(dim=first, keepdim=True)
        logits = logits - logits.logsumexp(dim=last, keepdim=True)
    return logits.exp()
