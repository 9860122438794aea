"""Relation networks."""

from __future__ import annotations

import itertools
import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods._shared import batch_statistics, map_shape
from fsf_methods.metric._layers import fold, slices
from fsframework.interfaces import (
    Backbone,
    Batch,
    FewShotMethod,
    OptionError,
    check_at_least,
    check_one_of,
)

__all__ = ["RelationNet"]

_WIDTH = 64
_SMALLEST = 8
"""Height and width of the maps from which two blocks without padding leave one location."""
_NUMBERS_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Activations of pairs per block in evaluation: on a CPU they should stay in the caches."""


class RelationNet(FewShotMethod):
    """Score by a small network how well a query's map matches a class's map.

    Source: Sung, Yang, Zhang, Xiang, Torr and Hospedales 2018, "Learning to Compare: Relation
    Network for Few-Shot Learning" (CVPR), section 3 and figure 2. A class's map is the sum of its
    support maps; the relation module passes it and the query's map, concatenated along the
    channels, through two blocks of 64 3 x 3 convolutions, BatchNorm, a rectifier and 2 x 2
    max-pooling, and two fully connected layers. The sigmoid of the output is the relation score;
    its mean squared difference from 1 for the query's own class and from 0 for the others is the
    loss (equation 2).

    ``scores`` returns the relation scores before the sigmoid: the order is the same, and none are
    rounded to 1. Maps are padded with zeros so that any size works (the authors pad only those of
    Omniglot; see ``padding``), and a direction in which a map has one location left is not pooled.

    Args:
        objective: ``mse``, the paper's, or ``cross-entropy`` over the ways of the scores before
            the sigmoid, as Chen et al. 2019 and LibFewShot train it.
        padding: whether the convolutions pad maps with zeros; LibFewShot's do not, and need maps of
            at least 8 x 8.
        hidden: width of the first fully connected layer, at least 1; the paper uses 8.
        batch_norm: ``batch`` normalises with the statistics of a task in training and evaluation,
            in the backbone too, as the authors' code does: those of the support, of the queries,
            and of all pairs. It is transductive, sees the images of every task anew, and keeps no
            running statistics. ``running`` uses these in evaluation, and those of all tasks of a
            step in training.

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "maps"

    def __init__(
        self,
        *,
        objective: Literal["mse", "cross-entropy"] = "mse",
        padding: bool = True,
        hidden: int = 8,
        batch_norm: Literal["running", "batch"] = "running",
    ) -> None:
        super().__init__()
        check_one_of(("mse", "cross-entropy"), objective=objective)
        check_at_least(1, hidden=hidden)
        check_one_of(("running", "batch"), batch_norm=batch_norm)
        self.objective = objective
        self.padding = padding
        self.hidden = hidden
        self.batch_norm = batch_norm
        self.transductive = batch_norm == "batch"
        self.consumes = "images" if self.transductive else "maps"

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the relation module for maps ``(C, h, w)``, or of images ``(3, H, W)``.

        Raises:
            OptionError: without padding, the maps are too small.
        """
        if self.consumes == "images":
            self.backbone = backbone
            item_shape = map_shape(backbone, item_shape)
        channels, height, width = item_shape
        if not self.padding and min(height, width) < _SMALLEST:
            raise OptionError(
                f"padding must be true for maps of {height} x {width}: without it they need at "
                f"least {_SMALLEST} x {_SMALLEST}"
            )
        self.first = _Block(2 * channels, self.padding)
        self.second = _Block(_WIDTH, self.padding)
        locations = math.prod(self.second.pooled(self.first.pooled((height, width))))
        self.combine = nn.Linear(_WIDTH * locations, self.hidden)
        self.relate = nn.Linear(self.hidden, 1)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return relation scores before the sigmoid, float ``(tasks, n, way)``.

        Args:
            support: maps ``(tasks, way, shot, C, h, w)``, or images of as many dimensions.
            query: maps ``(tasks, n, C, h, w)``, or images likewise.
        """
        if self.consumes == "maps":
            return self._of_maps(support, query)
        with batch_statistics(self):
            if query.device.type == "cpu":
                # A task keeps a core busy; tasks in parallel take twice the time and overflow the
                # caches.
                tasks = zip(support, query, strict=True)
                return torch.stack([self._of_task(*task) for task in tasks])
            return torch.vmap(self._of_task, randomness="different")(support, query)

    def _of_task(self, support: Tensor, query: Tensor) -> Tensor:
        """Score the images of one task, ``(way, shot, 3, H, W)`` and ``(n, 3, H, W)``."""
        shown = self.backbone(support.flatten(0, 1)).unflatten(0, support.shape[:2])
        return self._of_maps(shown[None], self.backbone(query)[None])[0]

    def _of_maps(self, support: Tensor, query: Tensor) -> Tensor:
        # The first convolution of two concatenated maps is the sum of two convolutions, one per
        # class and one per query, which cost next to nothing compared with one per pair.
        weight, bias = self.first.filters()
        channels = query.shape[2]
        classes = self._convolved(support.sum(dim=2), weight[:, :channels], None)
        queries = self._convolved(query, weight[:, channels:], bias)
        if self.first.norm.training:
            # In one call, since BatchNorm must see all of them.
            return self._relations(classes, queries)
        tasks, way, n = len(query), classes.shape[1], queries.shape[1]
        scores = queries.new_empty(tasks, n, way)
        most = _NUMBERS_AT_ONCE["cpu" if query.device.type == "cpu" else "cuda"]
        at_once = most // (way * queries[0, 0].numel())
        for t, q in itertools.product(slices(tasks, at_once // n), slices(n, at_once)):
            scores[t, q] = self._relations(classes[t], queries[t, q])
        return scores

    def _relations(self, classes: Tensor, queries: Tensor) -> Tensor:
        """Relate ``(tasks, way, 64, h, w)`` and ``(tasks, n, 64, h, w)``: ``(tasks, n, way)``."""
        pairs = classes[:, None] + queries[:, :, None]
        x = self.first.finish(pairs.flatten(0, 2))
        convolved = functional.conv2d(x, *self.second.filters(), padding=int(self.padding))
        x = self.second.finish(convolved)
        x = functional.relu(self.combine(x.flatten(1)))
        related: Tensor = self.relate(x)
        return related.reshape(pairs.shape[:3])

    def _convolved(self, maps: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Convolve ``(tasks, n, C, h, w)``, with channels innermost in memory."""
        # ``contiguous(memory_format=...)`` does not work under ``torch.vmap``.
        flat = maps.flatten(0, 1).movedim(1, -1).contiguous().movedim(-1, 1)
        convolved = functional.conv2d(flat, weight, bias, padding=int(self.padding))
        return convolved.reshape(*maps.shape[:2], *convolved.shape[1:])

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean squared error of the relation scores, or their cross-entropy."""
        if self.objective == "cross-entropy":
            return super().loss(batch)
        assert batch.query_labels is not None
        relations = self.scores(*self.embed_episode(batch)).float().sigmoid()
        truth = functional.one_hot(batch.query_labels, relations.shape[2])
        return functional.mse_loss(relations, truth.to(relations.dtype))


class _Block(nn.Module):
    """A 3 x 3 convolution to 64 channels, BatchNorm, a rectifier and max-pooling.

    In evaluation the BatchNorm is folded into the convolution.
    """

    def __init__(self, in_channels: int, padding: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, _WIDTH, 3, padding=int(padding))
        self.norm = nn.BatchNorm2d(_WIDTH)

    def pooled(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return height and width of the output for maps of a size."""
        lost = 0 if self.conv.padding == (1, 1) else 2
        return max(1, (size[0] - lost) // 2), max(1, (size[1] - lost) // 2)

    def filters(self) -> tuple[Tensor, Tensor | None]:
        """Return weight and bias to convolve with before ``finish``."""
        if self.norm.training:
            return self.conv.weight, self.conv.bias
        return fold(self.conv, self.norm)

    def finish(self, x: Tensor) -> Tensor:
        """Apply what follows the convolution; ``x`` is ``(m, 64, h, w)``."""
        if self.norm.training:
            x = self.norm(x)
        # Pooling before the rectifier gives the same numbers with a quarter of the work.
        window = tuple(min(2, side) for side in x.shape[-2:])
        if window != (1, 1):
            x = functional.max_pool2d(x, window)
        return functional.relu(x)
