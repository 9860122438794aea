"""Synthetic information bottleneck: prototypes that move by predicted gradients."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.transductive._norm import RowNorm
from fsframework.interfaces import Backbone, FewShotMethod, OptionError

__all__ = ["SIB"]

_LEAST = 1e-12


class SIB(FewShotMethod):
    """Move the prototypes by gradients that a network predicts from the scores of the queries.

    Source: Hu, Moreno, Xiao, Shen, Obozinski, Lawrence and Damianou 2020, "Empirical Bayes
    Transductive Meta-Learning with Synthetic Gradients" (ICLR), sections 3 and 4. A class's
    prototype w starts as the mean of its l2-normalised support vectors, times a learned weight per
    dimension. Scores are scale * (cos(query, w) + bias), both learned. Each step takes the scores
    of all queries, predicts the gradient of the unknown loss with respect to them by a network (two
    times linear of 8 * way, rectifier and BatchNorm, then linear), pulls it back to the prototypes
    through the derivative of the scores, and moves these against it at a learning rate. No label
    of a query is used. The loss is the cross-entropy of the scores after the last step.

    As in the authors' code, BatchNorm uses the statistics of the task's queries in evaluation too,
    and the Kullback-Leibler term of the paper's bound is left out of the loss. In the paper the
    backbone is pretrained and frozen.

    Args:
        n_way: ways of the tasks, at least 2; the network has weights per way.
        steps: moves of the prototypes, at least 0; the paper uses 3.
        lr: learning rate of the moves, above 0; the paper uses 0.001.
        initial_scale: factor of the scores before training, above 0.
        initial_bias: added to the cosine before training; the softmax does not depend on it, the
            predicted gradient does.

    Raises:
        OptionError: an option is outside its range.
    """

    transductive = True

    def __init__(
        self,
        *,
        n_way: int = 5,
        steps: int = 3,
        lr: float = 0.001,
        initial_scale: float = 10.0,
        initial_bias: float = 0.0,
    ) -> None:
        super().__init__()
        if n_way < 2:
            raise OptionError(f"n_way must be at least 2, got {n_way}")
        if steps < 0:
            raise OptionError(f"steps must be at least 0, got {steps}")
        for name, value in (("lr", lr), ("initial_scale", initial_scale)):
            if not 0 < value < float("inf"):
                raise OptionError(f"{name} must be above 0 and finite, got {value}")
        if not abs(initial_bias) < float("inf"):
            raise OptionError(f"initial_bias must be finite, got {initial_bias}")
        self.n_way = n_way
        self.steps = steps
        self.lr = lr
        self.initial_scale = initial_scale
        self.initial_bias = initial_bias
        self.scale = nn.Parameter(torch.tensor([float(initial_scale)]))
        self.bias = nn.Parameter(torch.tensor([float(initial_bias)]))
        hidden = 8 * n_way
        self.gradient = nn.Sequential(
            *(nn.Linear(n_way, hidden), nn.ReLU(), RowNorm(hidden, running=False)),
            *(nn.Linear(hidden, hidden), nn.ReLU(), RowNorm(hidden, running=False)),
            nn.Linear(hidden, n_way),
        )

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the weights of vectors ``(D,)``."""
        del n_base_classes, backbone
        self.weight = nn.Parameter(torch.ones(item_shape[0]))

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the scores after the last step, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.

        Raises:
            OptionError: the network is for another number of ways.
        """
        if support.shape[1] != self.n_way:
            raise OptionError(
                f"n_way is {self.n_way}, so tasks must have as many ways, not {support.shape[1]}"
            )
        # Vectors are divided by their lengths within the products: copies would take longer.
        share = _inverse_length(support) / support.shape[2]
        prototypes = (share.mT @ support)[:, :, 0] * self.weight
        inverse = _inverse_length(query)
        for _ in range(self.steps):
            scores = self._scored(query, inverse, prototypes)
            pull = self._pulled_back(inverse * self.gradient(scores), query, prototypes)
            prototypes = prototypes - self.lr * pull
        return self._scored(query, inverse, prototypes)

    def _scored(self, query: Tensor, inverse: Tensor, prototypes: Tensor) -> Tensor:
        # Rows as long as the vectors are faster than rows as short as the ways.
        cosine = inverse * (functional.normalize(prototypes, dim=2) @ query.mT).mT
        return self.scale * (cosine + self.bias)

    def _pulled_back(self, gradient: Tensor, query: Tensor, prototypes: Tensor) -> Tensor:
        """Return the vector-Jacobian product of the scores, ``(tasks, way, D)``.

        With u = w / |w|, the derivative of cos(q, w) with respect to w is (q - (q . u) u) / |w|.

        Args:
            gradient: with respect to the scores, over the lengths of the queries,
                ``(tasks, n, way)``.
            query: ``(tasks, n, D)``.
            prototypes: ``(tasks, way, D)``.
        """
        length = prototypes.norm(dim=2, keepdim=True).clamp(min=_LEAST)
        unit = prototypes / length
        pull = gradient.mT @ query
        along = (pull * unit).sum(dim=2, keepdim=True)
        pulled: Tensor = self.scale * (pull - along * unit) / length
        return pulled


def _inverse_length(x: Tensor) -> Tensor:
    """Return one over the length of vectors, ``(..., 1)``."""
    inverse: Tensor = 1 / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=_LEAST)
    return inverse
