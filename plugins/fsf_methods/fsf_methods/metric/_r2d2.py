"""Ridge regression as the last layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fsf_methods._shared import full_precision
from fsframework.interfaces import FewShotMethod, OptionError

__all__ = ["R2D2"]

_LEAST_LAMBDA = 1e-6
_SHORT = 1024
"""Vectors of at most this length are solved in float64: with few dimensions and many images the
system is so ill-conditioned that float32 would lose four digits of the scores, and float64 is
cheap there. Longer vectors leave it well-conditioned."""


class R2D2(FewShotMethod):
    """Fit a ridge regression from the support's vectors to their classes and apply it to queries.

    Source: Bertinetto, Henriques, Torr and Vedaldi 2019, "Meta-learning with Differentiable
    Closed-form Solvers" (ICLR), section 3.2: with support vectors X as rows and their classes Y as
    rows of 0 and one 1, W = X^T (X X^T + lambda I)^-1 Y, the Woodbury form, whose system has one
    row per support image, however long the vectors are; scores are alpha * Q W + beta. Lambda,
    alpha and beta are learned with the backbone, as plain numbers. The loss is the cross-entropy of
    the scores, which does not depend on beta, since it is the same for every class.

    The paper states no initial values; these are LibFewShot's, and its lambda is also MetaOptNet's.
    One deviation: the absolute value of lambda is added to the diagonal, and at least a millionth
    of the support's mean squared length, so that neither an optimiser step nor a duplicate support
    image makes the system singular in float32.

    Args:
        initial_lambda: strength of the regularisation before training, above 0.
        initial_alpha: factor of the scores before training, not 0.
        initial_beta: offset of the scores before training.
        learn_lambda: train lambda; else it keeps its initial value.

    Raises:
        OptionError: an option is outside its range.

    >>> support = torch.tensor([[[[1.0, 0.0]], [[0.0, 1.0]]]])
    >>> R2D2(initial_lambda=1.0).scores(support, torch.tensor([[[2.0, 4.0]]])).detach()
    tensor([[[1., 2.]]])
    """

    def __init__(
        self,
        *,
        initial_lambda: float = 50.0,
        initial_alpha: float = 1.0,
        initial_beta: float = 0.0,
        learn_lambda: bool = True,
    ) -> None:
        super().__init__()
        if not 0 < initial_lambda < float("inf"):
            raise OptionError(f"initial_lambda must be above 0 and finite, got {initial_lambda}")
        if not 0 < abs(initial_alpha) < float("inf"):
            raise OptionError(f"initial_alpha must be finite and not 0, got {initial_alpha}")
        if not abs(initial_beta) < float("inf"):
            raise OptionError(f"initial_beta must be finite, got {initial_beta}")
        self.initial_lambda = initial_lambda
        self.initial_alpha = initial_alpha
        self.initial_beta = initial_beta
        self.learn_lambda = learn_lambda
        self.regularisation = nn.Parameter(
            torch.tensor([float(initial_lambda)]), requires_grad=learn_lambda
        )
        self.scale = nn.Parameter(torch.tensor([float(initial_alpha)]))
        self.bias = nn.Parameter(torch.tensor([float(initial_beta)]))

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return alpha * Q W + beta, float ``(tasks, n, way)``, in float32 or float64.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        with torch.autocast(query.device.type, enabled=False):
            support, query = full_precision(support), full_precision(query)
            if query.shape[2] > _SHORT or query.device.type == "mps":
                return self._solved(support, query)
            return self._solved(support.double(), query.double()).to(query.dtype)

    def _solved(self, support: Tensor, query: Tensor) -> Tensor:
        way, shot = support.shape[1:3]
        vectors = support.flatten(1, 2)
        system = self._regularised(torch.bmm(vectors, vectors.mT))
        classes = torch.eye(way, dtype=query.dtype, device=query.device)
        targets = classes.repeat_interleave(shot, dim=0).expand(len(vectors), -1, -1)
        # A failed factorisation shows in the scores; checking for it would make a GPU wait.
        factor = torch.linalg.cholesky_ex(system).L
        dual = torch.cholesky_solve(targets, factor)
        # Products with rows as long as the vectors are several times as fast as with rows as short
        # as the ways.
        weights = torch.bmm(dual.mT.contiguous(), vectors)
        return self.scale * torch.bmm(weights, query.mT).mT + self.bias

    def _regularised(self, gram: Tensor) -> Tensor:
        """Add lambda to the diagonals of ``(tasks, n, n)``."""
        diagonal = gram.diagonal(dim1=1, dim2=2)
        least = _LEAST_LAMBDA * diagonal.detach().mean(dim=1, keepdim=True)
        added = torch.maximum(self.regularisation.to(gram.dtype).abs(), least)
        return gram + torch.diag_embed(added.expand_as(diagonal))
