"""Transductive propagation networks."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsframework.interfaces import Backbone, Batch, FewShotMethod, OptionError

__all__ = ["TPN"]

_EPS = torch.finfo(torch.float64).eps


class TPN(FewShotMethod):
    """Propagate the support's labels to all queries at once through a graph of neighbours.

    Source: Liu, Lee, Park, Kim, Yang, Hwang and Yang 2019, "Learning to Propagate Labels:
    Transductive Propagation Network for Few-Shot Learning" (ICLR), section 3.2. A small network
    gives each image a length scale sigma from its map: two blocks of a 3 x 3 convolution,
    BatchNorm, a rectifier and 2 x 2 max-pooling, and linear layers of 8 and 1. With f the flattened
    map over sigma, W_ij = exp(-d(f_i, f_j) / 2) (equation 1), of which each row keeps its k largest
    entries; S = D^(-1/2) W D^(-1/2), and the scores are F = (I - alpha S)^(-1) Y (equation 3), with
    Y the support's one-hot labels and zeros for the queries. The loss is the cross-entropy of the
    softmax of F over support and queries (equations 4 and 5).

    What the paper leaves open is as in the authors' code: the pooling pads by 1; sigma has no sign
    imposed; an edge stays if either of its ends keeps it; the diagonal of W counts among the k
    entries and stays; and d is the mean over the numbers of a map of the squared difference, since
    with the sum (``distance``) all weights of an untrained network are 0.

    Args:
        k: entries that each row of the graph keeps, at least 1; the paper uses 20.
        alpha: share of the propagated labels, above 0 and below 1; the paper uses 0.99.
        distance: ``mean`` or ``sum`` of the squared differences of two maps.

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "maps"
    transductive = True

    def __init__(
        self, *, k: int = 20, alpha: float = 0.99, distance: Literal["mean", "sum"] = "mean"
    ) -> None:
        super().__init__()
        if k < 1:
            raise OptionError(f"k must be at least 1, got {k}")
        if not 0 < alpha < 1:
            raise OptionError(f"alpha must be above 0 and below 1, got {alpha}")
        if distance not in ("mean", "sum"):
            raise OptionError(f"distance must be 'mean' or 'sum', got {distance!r}")
        self.k = k
        self.alpha = alpha
        self.distance = distance

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the network of the length scale for maps ``(C, h, w)``."""
        del n_base_classes, backbone
        channels, height, width = item_shape
        locations = _pooled(_pooled(height)) * _pooled(_pooled(width))
        self.scale = nn.Sequential(
            *_block(channels, channels),
            *_block(channels, 1),
            nn.Flatten(),
            nn.Linear(locations, 8),
            nn.ReLU(),
            nn.Linear(8, 1),
        )

    def embed(self, items: Tensor) -> Tensor:
        """Map maps ``(n, C, h, w)`` to vectors over their length scale, ``(n, C * h * w)``."""
        vectors: Tensor = items.flatten(1) / (self.scale(items) + _EPS)
        return vectors

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return F at the queries, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        return self._propagated(support, query)[:, support.shape[1:3].numel() :]

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy of F over support and queries."""
        assert batch.query_labels is not None
        support, query = self.embed_episode(batch)
        tasks, way, shot = support.shape[:3]
        own = torch.arange(way, device=query.device).repeat_interleave(shot)
        labels = torch.cat([own.expand(tasks, -1), batch.query_labels], dim=1)
        propagated = self._propagated(support, query)
        return functional.cross_entropy(propagated.flatten(0, 1), labels.flatten())

    def _propagated(self, support: Tensor, query: Tensor) -> Tensor:
        """Return F, float ``(tasks, way * shot + n, way)``, the support first."""
        with torch.autocast(query.device.type, enabled=False):
            way, shot = support.shape[1:3]
            nodes = torch.cat([support.flatten(1, 2), query], dim=1).float()
            weights = self._graph(nodes)
            degree = torch.rsqrt(weights.sum(dim=2) + _EPS)
            smooth = degree[:, :, None] * weights * degree[:, None]
            size = nodes.shape[1]
            system = torch.eye(size, device=nodes.device) - self.alpha * smooth + _EPS
            labels = torch.eye(way, device=nodes.device).repeat_interleave(shot, dim=0)
            labels = functional.pad(labels, (0, 0, 0, size - way * shot))
            # Positive definite, since no eigenvalue of S exceeds 1. A failed factorisation shows
            # in the scores; checking for it would make a GPU wait.
            factor = torch.linalg.cholesky_ex(system).L
            return torch.cholesky_solve(labels.expand(len(nodes), -1, -1), factor)

    def _graph(self, nodes: Tensor) -> Tensor:
        """Return the symmetric weights of the edges that stay, ``(tasks, nodes, nodes)``."""
        # The mean is subtracted for the sake of digits; distances do not depend on it.
        nodes = nodes - nodes.mean(dim=1, keepdim=True)
        squares = nodes.square().sum(dim=2)
        distances = squares[:, :, None] + squares[:, None] - 2 * nodes @ nodes.mT
        if self.distance == "mean":
            distances = distances / nodes.shape[2]
        size = nodes.shape[1]
        itself = torch.eye(size, dtype=torch.bool, device=nodes.device)
        weights = torch.exp(-0.5 * distances.clamp(min=0).masked_fill(itself, 0))
        largest = weights.detach().topk(min(self.k, size), dim=2).indices
        kept = torch.zeros_like(weights).scatter_(2, largest, 1)
        return weights * torch.maximum(kept, kept.mT)


def _block(before: int, after: int) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(before, after, 3, padding=1)
    return convolution, nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2, padding=1)


def _pooled(side: int) -> int:
    return side // 2 + 1
