"""Prototypical networks."""

from __future__ import annotations

import torch
from torch import Tensor

from fsframework.interfaces import FewShotMethod

__all__ = ["ProtoNet"]


class ProtoNet(FewShotMethod):
    """Score a class by the squared distance from the query to the mean of its support.

    Source: Snell, Swersky and Zemel 2017, "Prototypical Networks for Few-shot Learning",
    equations 1 (prototypes) and 2 (softmax over negative distances, here the loss).

    >>> support = torch.tensor([[[[0.0, 0.0], [2.0, 0.0]], [[0.0, 4.0], [0.0, 4.0]]]])
    >>> query = torch.tensor([[[1.0, 1.0]]])
    >>> ProtoNet().scores(support, query)
    tensor([[[ -1., -10.]]])
    """

    weightless = True

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return negative squared Euclidean distances, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        prototypes = support.mean(dim=2)
        # |q - p|^2 = |q|^2 + |p|^2 - 2 q.p: one matrix product instead of a difference per pair.
        # The rounding error of |q|^2 is the same for every way.
        norms = _squared_norm(query)[:, :, None] + _squared_norm(prototypes)[:, None, :]
        return torch.baddbmm(norms, query, prototypes.mT, beta=-1, alpha=2)


def _squared_norm(vectors: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
    return norms.square()
