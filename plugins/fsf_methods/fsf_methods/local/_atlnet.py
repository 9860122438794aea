"""Networks that adapt local representations to the task."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.local._descriptors import by_blocks, descriptors
from fsframework.interfaces import Backbone, Batch, FewShotMethod, OptionError

__all__ = ["ATLNet"]

_SLOPE = 0.2
_REDUCTION = 16


class ATLNet(FewShotMethod):
    """Match a query's local descriptors with those of the task that are similar enough.

    Source: Dong, Li, Huo, Gu and Gao 2020, "Learning Task-aware Local Representations for Few-shot
    Learning" (IJCAI), sections 3.2 and 3.3, and the authors' code. A descriptor of the query
    attends to all support descriptors of the task: the weight of one is the sigmoid of
    ``attention_scale`` times the cosine of the two, in a learned space, minus a threshold that a
    small network computes from the query's descriptor; weights add up to 1. The score of a class is
    the mean, over the query's descriptors and the shots, of the weighted cosines of the original
    descriptors, times ``scale``. The loss is the cross-entropy of the scores.

    In training the BatchNorm of the learned space sees queries and support one after the other, as
    in the authors' code.

    Args:
        scale: factor of the scores, above 0.
        attention_scale: steepness of the attention at the threshold, above 0.
        least_threshold: smallest threshold, in [-1, 1].
        threshold_range: largest threshold minus the smallest, at least 0.

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "maps"

    def __init__(
        self,
        *,
        scale: float = 30.0,
        attention_scale: float = 50.0,
        least_threshold: float = 0.5,
        threshold_range: float = 0.3,
    ) -> None:
        super().__init__()
        if not scale > 0:
            raise OptionError(f"scale must be above 0, got {scale}")
        if not attention_scale > 0:
            raise OptionError(f"attention_scale must be above 0, got {attention_scale}")
        if not -1 <= least_threshold <= 1:
            raise OptionError(f"least_threshold must be in [-1, 1], got {least_threshold}")
        if not threshold_range >= 0:
            raise OptionError(f"threshold_range must be at least 0, got {threshold_range}")
        self.scale = scale
        self.attention_scale = attention_scale
        self.least_threshold = least_threshold
        self.threshold_range = threshold_range

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the learned space and the thresholds for maps ``(C, h, w)``."""
        channels = item_shape[0]
        hidden = max(1, channels // _REDUCTION)
        self.project = nn.Conv2d(channels, channels, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.hide = nn.Linear(channels, hidden)
        self.threshold = nn.Linear(hidden, 1)

    def embed(self, items: Tensor) -> Tensor:
        """Turn maps ``(n, C, h, w)`` into unit descriptors, here and there, ``(n, h * w, 2 C)``."""
        learned = functional.leaky_relu(self.norm(self.project(items)), _SLOPE)
        units = [functional.normalize(descriptors(maps), dim=2) for maps in (items, learned)]
        return torch.cat(units, dim=2)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return mean weighted cosines times ``scale``, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, m, 2 C)``, embedded.
            query: float ``(tasks, n, m, 2 C)``, embedded.
        """
        shot = support.shape[2]
        with torch.autocast(query.device.type, enabled=False):
            original, learned = support.flatten(2, 3).chunk(2, dim=3)
            each = query.shape[2] * original.shape[1:3].numel()
            found = by_blocks(self._matches, (original, learned), query, each)
            return found * (self.scale / shot)

    def _matches(self, original: Tensor, learned: Tensor, query: Tensor) -> Tensor:
        """Return the mean over a query's descriptors of the weighted cosines with a class's.

        Args:
            original: ``(tasks, way, k, C)``, the unit descriptors of the support.
            learned: the same in the learned space.
            query: ``(tasks, n, m, 2 C)``.
        """
        shape = query.shape[1:3]
        of_query, of_query_learned = query.flatten(1, 2).chunk(2, dim=2)
        hidden = functional.leaky_relu(self.hide(of_query_learned), _SLOPE)
        threshold = self.threshold(hidden).sigmoid() * self.threshold_range + self.least_threshold
        # scale * (cosine - threshold) as one product.
        attention = torch.baddbmm(
            _per_class(threshold, original), _per_class(of_query_learned, original),
            learned.flatten(0, 1).mT, beta=-self.attention_scale, alpha=self.attention_scale,
        ).sigmoid_()  # fmt: skip
        # The weighted sum of cosines is the cosine with the weighted sum.
        sums = (attention @ original.flatten(0, 1)).unflatten(0, original.shape[:2])
        totals = attention.sum(dim=2).unflatten(0, original.shape[:2]).sum(dim=1)
        matches = (sums * of_query[:, None]).sum(dim=3) / totals.clamp_min(1e-12)[:, None]
        return matches.unflatten(2, shape).mean(dim=3).mT

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy of the scores."""
        assert batch.query_labels is not None
        if batch.support is None or batch.query is None:
            raise OptionError("ATLNet learns from episodes, but this step has none")
        query = self.embed(batch.query.flatten(0, 1))
        support = self.embed(batch.support.flatten(0, 2))
        logits = self.scores(
            support.reshape(*batch.support.shape[:3], *support.shape[1:]),
            query.reshape(*batch.query.shape[:2], *query.shape[1:]),
        )
        return functional.cross_entropy(logits.flatten(0, 1), batch.query_labels.flatten())


def _per_class(items: Tensor, like: Tensor) -> Tensor:
    """Repeat ``(tasks, m, C)`` for each class of ``(tasks, way, ...)``, ``(tasks * way, m, C)``."""
    return items[:, None].expand(-1, like.shape[1], -1, -1).flatten(0, 1)
