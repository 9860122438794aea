"""Asymmetric distribution measures."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.local._descriptors import by_blocks, descriptors, sum_of_largest
from fsframework.interfaces import Backbone, FewShotMethod, OptionError

__all__ = ["ADM"]


class ADM(FewShotMethod):
    """Compare the distributions of local descriptors, and add the nearest neighbours' cosines.

    Source: Li, Wang, Huo, Shi, Gao and Luo 2020, "Asymmetric Distribution Measure for Few-shot
    Learning" (IJCAI), sections 3.2 to 3.4, and the authors' code. The descriptors of a query and
    those of all support images of a class are two normal distributions; the first measure is minus
    the Kullback-Leibler divergence of the query's from the class's (equation 3), the second the
    sum, over the query's descriptors, of the ``n_k`` largest cosines to the class's (equation 5).
    A BatchNorm with statistics and weights per measure and way brings both to one scale, and their
    sum with two learned weights is the score. The loss is the cross-entropy of the scores.

    In training the BatchNorm sees the queries of all tasks of a step at once; LibFewShot normalises
    those of each task separately, which is the same with one task per step. Both weights start at
    1, where the authors' are random and may start below 0. LibFewShot's code works for five ways
    only.

    Args:
        n_way: ways of the tasks, at least 2, that the BatchNorm has weights for; others are
            refused.
        n_k: nearest neighbours of a descriptor, at least 1; the paper uses 3.
        ridge: added to the variances, above 0; 0.01 in the authors' code.

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "maps"

    def __init__(self, *, n_way: int = 5, n_k: int = 3, ridge: float = 0.01) -> None:
        super().__init__()
        if n_way < 2:
            raise OptionError(f"n_way must be at least 2, got {n_way}")
        if n_k < 1:
            raise OptionError(f"n_k must be at least 1, got {n_k}")
        if not ridge > 0:
            raise OptionError(f"ridge must be above 0, got {ridge}")
        self.n_way: int = n_way
        self.n_k = n_k
        self.ridge = ridge
        self.norm = nn.BatchNorm1d(2 * n_way)
        self.weights = nn.Parameter(torch.ones(2))
        """Of the divergence and of the cosines."""

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Do nothing: no weight depends on the maps."""

    def embed(self, items: Tensor) -> Tensor:
        """Turn maps ``(n, C, h, w)`` into descriptors, ``(n, h * w, C)``."""
        return descriptors(items)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return weighted sums of the two measures, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, m, C)``, embedded.
            query: float ``(tasks, n, m, C)``, embedded.

        Raises:
            OptionError: ``way`` is not ``n_way``.
        """
        if support.shape[1] != self.n_way:
            raise OptionError(
                f"this ADM has weights for n_way = {self.n_way} ways, but the tasks have "
                f"{support.shape[1]}; set n_way to that number"
            )
        with torch.autocast(query.device.type, enabled=False):
            pools = support.flatten(2, 3)
            measures = torch.cat(
                [-self.divergences(pools, query), self.cosines(pools, query)], dim=2
            )
            normed = self.norm(measures.flatten(0, 1)).reshape(*query.shape[:2], 2, self.n_way)
            scores: Tensor = (normed * self.weights[:, None]).sum(dim=2)
            return scores

    def divergences(self, pools: Tensor, query: Tensor) -> Tensor:
        """Return the divergences of queries from classes, float ``(tasks, n, way)``.

        Args:
            pools: float ``(tasks, way, k, C)``, the descriptors of a class.
            query: float ``(tasks, n, m, C)``.
        """
        means, covariances = self._moments(pools)
        # A failed factorisation shows in the scores; checking for it would make a GPU wait.
        factors = torch.linalg.cholesky_ex(covariances).L
        of_classes = means, torch.cholesky_inverse(factors), _log_determinants(factors)
        return by_blocks(self._divergences, of_classes, query, 3 * query.shape[3] ** 2)

    def _divergences(
        self, means: Tensor, inverses: Tensor, log_determinants: Tensor, query: Tensor
    ) -> Tensor:
        query_means, query_covariances = self._moments(query)
        query_factors = torch.linalg.cholesky_ex(query_covariances).L
        traces = query_covariances.flatten(2) @ inverses.flatten(2).mT
        apart = query_means[:, :, None] - means[:, None]
        distances = torch.einsum("tnwc,twcd,tnwd->tnw", apart, inverses, apart)
        sizes = log_determinants[:, None] - _log_determinants(query_factors)[:, :, None]
        return (traces + distances + sizes - query.shape[3]) / 2

    def _moments(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return means ``(..., C)`` and covariances ``(..., C, C)`` of rows ``(..., k, C)``."""
        means = rows.mean(dim=2, keepdim=True)
        centred = rows - means
        covariances = centred.mT @ centred / max(1, rows.shape[2] - 1)
        added = self.ridge * torch.eye(rows.shape[3], dtype=rows.dtype, device=rows.device)
        return means[:, :, 0], covariances + added

    def cosines(self, pools: Tensor, query: Tensor) -> Tensor:
        """Return the sums of the ``n_k`` largest cosines, float ``(tasks, n, way)``."""
        units, of_query = (functional.normalize(x, dim=3) for x in (pools, query))
        each = query.shape[2] * pools.shape[1:3].numel()
        return by_blocks(self._cosines, [units], of_query, each)

    def _cosines(self, units: Tensor, query: Tensor) -> Tensor:
        k, rows = min(self.n_k, units.shape[2]), query.flatten(1, 2)[:, None]
        if torch.is_grad_enabled():
            sums = (rows @ units.mT).topk(k, dim=3, sorted=False).values.sum(dim=3)
        else:
            sums = sum_of_largest(units @ rows.mT, k)
        return sums.unflatten(2, query.shape[1:3]).sum(dim=3).mT


def _log_determinants(factors: Tensor) -> Tensor:
    """Return the logarithms of the determinants of matrices with these Cholesky factors."""
    return 2 * factors.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
