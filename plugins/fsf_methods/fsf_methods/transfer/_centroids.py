"""The nearest class centroid."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from fsframework.interfaces import FewShotMethod, OptionError

__all__ = ["NCC"]


class NCC(FewShotMethod):
    """Give a query to the class with the nearest mean; nothing is trained.

    Source: the adapter "NCC" of Lafargue et al. 2024, "Oops, I Sampled it Again", as in their
    code: support vectors of length 1 are averaged, and the score is the cosine between query and
    mean. The three forms of Wang et al. 2019, "SimpleShot" (section 3), are ``metric="euclidean"``
    with ``normalize=False`` (UN) and with ``normalize=True`` (L2N), and with ``centre=True`` as
    well (CL2N), except for the subtracted mean: there it is that of the base classes, which a
    method without training never sees.

    Args:
        metric: ``cosine``, or ``euclidean`` for the negative squared distance.
        normalize: divide vectors by their length before averaging.
        centre: first subtract the mean of the task's support from support and queries.

    Raises:
        OptionError: an option is outside its range.

    >>> support = torch.tensor([[[[3.0, 0.0], [0.0, 1.0]], [[0.0, 2.0], [0.0, 4.0]]]])
    >>> query = torch.tensor([[[2.0, 2.0]]])
    >>> NCC().scores(support, query)
    tensor([[[1.0000, 0.7071]]])
    """

    consumes = "vectors"
    learns_from = "nothing"
    weightless = True

    def __init__(
        self,
        *,
        metric: Literal["cosine", "euclidean"] = "cosine",
        normalize: bool = True,
        centre: bool = False,
    ) -> None:
        super().__init__()
        if metric not in ("cosine", "euclidean"):
            raise OptionError(f"metric must be 'cosine' or 'euclidean', got {metric!r}")
        self.metric = metric
        self.normalize = normalize
        self.centre = centre

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return cosines or negative squared distances, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        if self.centre:
            centre = support.mean(dim=(1, 2), keepdim=True)
            support, query = support - centre, query - centre[:, 0]
        if self.normalize:
            support = functional.normalize(support, dim=-1)
        centroids = support.mean(dim=2)
        if self.metric == "cosine":
            return functional.normalize(query, dim=-1) @ functional.normalize(centroids, dim=-1).mT
        if self.normalize:
            query = functional.normalize(query, dim=-1)
        # |q - c|^2 = |q|^2 + |c|^2 - 2 q.c; the rounding error of |q|^2 is the same for all ways.
        norms = query.square().sum(dim=-1)[:, :, None] + centroids.square().sum(dim=-1)[:, None]
        return torch.baddbmm(norms, query, centroids.mT, beta=-1, alpha=2)
