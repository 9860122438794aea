"""Covariance metric networks."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.local._descriptors import by_blocks, descriptors
from fsframework.interfaces import Backbone, FewShotMethod, OptionError

__all__ = ["CovaMNet"]

_SLOPE = 0.2


class CovaMNet(FewShotMethod):
    """Score how well a query's local descriptors follow the covariance of a class's.

    Source: Li, Xu, Huo, Wang, Gao and Luo 2019, "Distribution Consistency Based Covariance Metric
    Networks for Few-Shot Learning" (AAAI), sections "Local covariance representation" and
    "Covariance metric layer", and the authors' code. Sigma is the covariance matrix of the local
    descriptors of all support images of a class. For each descriptor x of the query, minus their
    mean, x^T Sigma x is computed; a leaky ReLU of slope 0.2, dropout and one learned weight per
    location turn these numbers into the score. The loss is the cross-entropy of the scores.

    Args:
        divisor: what divides the sum of a class's outer products: the number of its
            ``descriptors`` minus 1, as in the paper, or that of the ``locations`` of one image
            minus 1, as in LibFewShot's code, where more shots make larger scores.
        dropout: share of the numbers dropped in training, in [0, 1); 0.5 in the authors' code.

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "maps"

    def __init__(
        self,
        *,
        divisor: Literal["descriptors", "locations"] = "descriptors",
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        if divisor not in ("descriptors", "locations"):
            raise OptionError(f"divisor must be 'descriptors' or 'locations', got {divisor!r}")
        if not 0 <= dropout < 1:
            raise OptionError(f"dropout must be in [0, 1), got {dropout}")
        self.divisor = divisor
        self.dropout = dropout

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the weights of the locations of maps ``(C, h, w)``."""
        self.weigh = nn.Linear(math.prod(item_shape[1:]), 1)

    def embed(self, items: Tensor) -> Tensor:
        """Turn maps ``(n, C, h, w)`` into descriptors, ``(n, h * w, C)``."""
        return descriptors(items)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the weighted sums over locations, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, m, C)``, embedded.
            query: float ``(tasks, n, m, C)``, embedded.
        """
        with torch.autocast(query.device.type, enabled=False):
            pools = support.flatten(2, 3)
            pools = pools - pools.mean(dim=2, keepdim=True)
            count = pools.shape[2] if self.divisor == "descriptors" else support.shape[3]
            covariances = pools.mT @ pools / max(1, count - 1)
            centred = query - query.mean(dim=2, keepdim=True)
            m, channels = query.shape[2:]
            if self.training and self.dropout:
                return self._by_location(covariances, centred)
            # A channel per location and class costs more than a matrix per query if there are many.
            return by_blocks(self._by_query, [covariances], centred, m * channels + channels**2)

    def _by_location(self, covariances: Tensor, centred: Tensor) -> Tensor:
        """Weigh the numbers of all locations, some of them dropped."""
        forms = centred[:, :, None] @ covariances[:, None]
        numbers = functional.leaky_relu((forms * centred[:, :, None]).sum(dim=4), _SLOPE)
        weighed: Tensor = self.weigh(functional.dropout(numbers, self.dropout, self.training))
        return weighed.squeeze(3)

    def _by_query(self, covariances: Tensor, centred: Tensor) -> Tensor:
        """Do the same without dropout.

        A covariance matrix has no negative x^T Sigma x, so the leaky ReLU changes nothing, and the
        weighted sum over locations is the inner product of Sigma with the weighted sum of the outer
        products x x^T, which is computed once per query for all classes.
        """
        weighted = (centred * self.weigh.weight[0, :, None]).mT @ centred
        sums = weighted.flatten(2) @ covariances.flatten(2).mT
        return sums + self.weigh.bias
