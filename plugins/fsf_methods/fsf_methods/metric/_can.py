"""Cross attention networks."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods._shared import full_precision
from fsf_methods.metric._layers import slices
from fsframework.interfaces import (
    Backbone,
    Batch,
    FewShotMethod,
    OptionError,
    check_above,
    check_at_least,
)

__all__ = ["CAN"]

_WEIGHTS_AT_ONCE = {"cpu": 1 << 18, "cuda": 1 << 26}
"""Attention weights per block in evaluation: on a CPU they should stay in the caches."""


class CAN(FewShotMethod):
    """Attend, in a class and in a query, to the locations that correlate with the other.

    Source: Hou, Chang, Ma, Shan and Chen 2019, "Cross Attention Network for Few-shot
    Classification" (NeurIPS), and its authors' code. A class's map is the mean of its support maps.
    The cosines of each location of one map with all locations of the other are fused into one
    number by a kernel, which a small network computes from their mean over the map's own locations
    (section 3.2); the softmax of these, plus 1, weighs the map. The score is the cosine of the two
    weighted, pooled maps. The loss (section 3.3) adds, location by location of the query, the
    cross-entropy of a classifier of the base classes, on the map weighted for its own class, and
    ``weight_nearest`` times that of the cosines with the pooled classes.

    The small network has biases and a BatchNorm, as in the authors' code; the paper has neither. As
    there, scaled cosines replace the paper's cosine distances.

    With ``transductive`` (section 3.4), the queries with the highest best scores join their
    predicted class, whose map becomes the mean over them too. This is done ``n_iterations`` times;
    the i-th takes ``i * candidates`` of all queries.

    Args:
        scale: factor of the cosines before a softmax, above 0; 7 in the authors' code.
        temperature: divides the logits of the attention, above 0.
        reduction: locations per hidden unit of the small network, at least 1; the paper uses 6,
            LibFewShot the height of a map.
        fusion: how the kernel is applied: as a ``sum`` over locations, as in the paper, or as a
            ``mean``, as in the authors' code and LibFewShot. Both start from the same function.
        weight_nearest: weight of the nearest-class loss, at least 0; the paper's is 0.5.
        transductive: let queries join their classes.
        n_iterations: how often they do, at least 1; the paper uses 2. Only with ``transductive``.
        candidates: fraction of the queries that the first iteration takes, in (0, 1]; the paper
            takes 35 of 75. Only with ``transductive``.

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "maps"

    def __init__(  # noqa: PLR0913 - its parameters are the options
        self,
        *,
        scale: float = 7.0,
        temperature: float = 0.025,
        reduction: int = 6,
        fusion: Literal["sum", "mean"] = "sum",
        weight_nearest: float = 0.5,
        transductive: bool = False,
        n_iterations: int = 2,
        candidates: float = 35 / 75,
    ) -> None:
        super().__init__()
        check_above(0, scale=scale, temperature=temperature)
        check_at_least(1, reduction=reduction)
        if fusion not in ("sum", "mean"):
            raise OptionError(f"fusion must be 'sum' or 'mean', got {fusion!r}")
        check_at_least(0, weight_nearest=weight_nearest)
        check_at_least(1, n_iterations=n_iterations)
        if not 0 < candidates <= 1:
            raise OptionError(f"candidates must be above 0 and at most 1, got {candidates}")
        self.scale = scale
        self.temperature = temperature
        self.reduction = reduction
        self.fusion = fusion
        self.weight_nearest = weight_nearest
        self.transductive = transductive
        self.n_iterations = n_iterations
        self.candidates = candidates

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the layers for maps ``(C, h, w)``; the classifier only with base classes."""
        channels, locations = item_shape[0], math.prod(item_shape[1:])
        hidden = max(1, locations // self.reduction)
        self.reduce = nn.Linear(locations, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.expand = nn.Linear(hidden, locations)
        self.classify = nn.Linear(channels, n_base_classes) if n_base_classes else None
        nn.init.normal_(self.reduce.weight, std=math.sqrt(2 / hidden))
        nn.init.normal_(self.expand.weight, std=math.sqrt(2 / locations))
        if self.fusion == "sum":
            with torch.no_grad():
                self.expand.weight.div_(locations)
                self.expand.bias.div_(locations)

    def embed(self, items: Tensor) -> Tensor:
        """Turn maps ``(n, C, h, w)`` into one row per location, ``(n, m, C)``, in full precision.

        Half precision is not enough: the temperature makes rounding errors 40 times as large.
        """
        return full_precision(items).flatten(2).mT.contiguous()

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return cosines times ``scale``, float ``(tasks, n, way)``, in float32 or float64.

        Args:
            support: float ``(tasks, way, shot, m, C)``, embedded.
            query: float ``(tasks, n, m, C)``, embedded.
        """
        with torch.autocast(query.device.type, enabled=False):
            sums, shot = support.sum(dim=2), support.shape[2]
            if self.training:
                # In one call, since BatchNorm must see all of them.
                return self._scores(sums, query, shot)
            most = _WEIGHTS_AT_ONCE["cpu" if query.device.type == "cpu" else "cuda"]
            at_once = most // (query.shape[1] * query.shape[2] * sums.shape[1])
            blocks = slices(len(query), at_once)
            return torch.cat([self._scores(sums[t], query[t], shot) for t in blocks])

    def _scores(self, sums: Tensor, query: Tensor, shot: int) -> Tensor:
        """Do the work of ``scores`` with sums of support maps ``(tasks, way, m, C)``."""
        scores = self._cosines(sums / shot, query)
        if not self.transductive:
            return scores
        n = query.shape[1]
        for i in range(1, self.n_iterations + 1):
            best, own = scores.max(dim=2)
            count = min(n, max(1, round(i * self.candidates * n)))
            joining = torch.zeros_like(best).scatter_(1, best.topk(count, dim=1).indices, 1.0)
            members = functional.one_hot(own, scores.shape[2]) * joining[:, :, None]
            joined = sums + torch.einsum("tnk,tnmc->tkmc", members, query)
            maps = joined / (shot + members.sum(dim=1))[:, :, None, None]
            scores = self._cosines(maps, query)
        return scores

    def _cosines(self, classes: Tensor, query: Tensor) -> Tensor:
        """Score ``(tasks, n, m, C)`` for classes of maps ``(tasks, way, m, C)``."""
        pooled, weights = self._attend(classes, query)
        attended = torch.matmul(weights, query)
        return self.scale * functional.cosine_similarity(attended, pooled, dim=3, eps=1e-12)

    def _attend(self, classes: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """Weigh classes' and queries' locations for each other.

        Neither the correlations of all locations of all pairs nor the weighted maps are ever
        stored: their mean and fusion are products with one of the two maps reduced to a vector.

        Args:
            classes: ``(tasks, way, m, C)``.
            query: ``(tasks, n, m, C)``.

        Returns:
            The classes weighted for each query and summed over locations, ``(tasks, n, way, C)``,
            and the weights of the queries' locations for each class, ``(tasks, n, way, m)``.
        """
        class_directions = functional.normalize(classes, dim=3)
        # The queries' maps, the bulk, are not normalised: the other factor is divided by the
        # lengths of their rows.
        inverse = _inverse_lengths(query)
        # A class's locations, by a kernel over the query's, and then the other way round.
        means = torch.matmul(class_directions.mean(dim=2)[:, None], query.mT) * inverse
        fused = torch.matmul(self._kernels(means) * inverse, query).transpose(1, 2)
        on_classes = self._weights(torch.matmul(fused, class_directions.mT))
        pooled = torch.matmul(on_classes, classes).transpose(1, 2)

        query_mean = torch.matmul(inverse, query).transpose(1, 2) / query.shape[2]
        means = torch.matmul(query_mean, class_directions.mT)
        fused = torch.matmul(self._kernels(means), class_directions).transpose(1, 2)
        return pooled, self._weights(torch.matmul(fused, query.mT) * inverse)

    def _kernels(self, means: Tensor) -> Tensor:
        """Compute kernels from mean cosines ``(..., m)``."""
        hidden = self.norm(self.reduce(means.reshape(-1, means.shape[3])))
        kernels: Tensor = self.expand(functional.relu(hidden))
        return kernels.reshape(means.shape)

    def _weights(self, fused: Tensor) -> Tensor:
        """Turn fused cosines ``(..., m)`` into weights of the locations, at least 1."""
        divisor = self.temperature * (fused.shape[3] if self.fusion == "mean" else 1)
        return (fused / divisor).softmax(dim=3) + 1

    def loss(self, batch: Batch) -> Tensor:
        """Return the base classes' loss + weight_nearest * nearest-class loss."""
        assert self.classify is not None, "built without base classes, CAN has no loss"
        assert batch.query_classes is not None
        assert batch.query_labels is not None
        support, query = self.embed_episode(batch)
        with torch.autocast(query.device.type, enabled=False):
            pooled, weights = self._attend(support.mean(dim=2), query)
            labels = batch.query_labels[:, :, None, None].expand(-1, -1, 1, query.shape[2])
            own = weights.gather(2, labels).mT * query
            of_classes = _mean_cross_entropy(self.classify(own), batch.query_classes)
            # The cosine with a location does not depend on its weight, which is above 0.
            cosines = torch.matmul(query, functional.normalize(pooled, dim=3).mT)
            cosines = cosines * _inverse_lengths(query).mT
            nearest = _mean_cross_entropy(self.scale * cosines, batch.query_labels)
            return of_classes + self.weight_nearest * nearest


def _inverse_lengths(rows: Tensor) -> Tensor:
    """Return 1 over the lengths of ``(tasks, n, m, C)`` as ``(tasks, n, 1, m)``."""
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=3)
    return lengths.clamp_min(1e-12).reciprocal()[:, :, None]


def _mean_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Average over the locations of ``(tasks, n, m, classes)`` with labels ``(tasks, n)``."""
    everywhere = labels[:, :, None].expand(logits.shape[:3])
    return functional.cross_entropy(logits.flatten(0, 2), everywhere.flatten())
