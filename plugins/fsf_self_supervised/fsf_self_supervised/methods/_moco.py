"""Momentum contrast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fsf_self_supervised.methods._heads import HEADS, Head, projection
from fsf_self_supervised.methods._losses import queue_contrast
from fsf_self_supervised.methods._memory import MomentumCopy, Queue
from fsf_self_supervised.methods._pairs import PairMethod, full_precision
from fsframework.interfaces import (
    Backbone,
    Batch,
    ViewMaker,
    check_above,
    check_at_least,
    check_below_one,
    check_one_of,
)

__all__ = ["MoCo"]


class MoCo(PairMethod):
    """Find the other view of an image, as a slow copy of the backbone sees it, in a queue.

    Source: He, Fan, Wu, Xie and Girshick 2020, "Momentum Contrast for Unsupervised Visual
    Representation Learning" (CVPR), section 3, and Chen, Fan, Girshick and He 2020, "Improved
    Baselines with Momentum Contrastive Learning" (MoCo v2), whose head of two layers, temperature
    and views are the defaults here. The backbone and the head see the first view, their slow copy
    the second one; its vectors are the keys, and the queue holds those of the last steps. After a
    step the copy follows and the keys are written over the oldest ones.

    BatchNorm may give away which key belongs to the step. The paper therefore shuffles images
    between its eight GPUs, each of which normalises its own. Here ``parts`` does the same within a
    step, or within each of its groups: both networks see the images in so many parts, the copy in
    another, random order.

    Args:
        views: makes two views of an image.
        temperature: divides the cosines, above 0.
        head: the projection, which is not used afterwards: ``nonlinear`` with two layers, as in
            MoCo v2, ``linear`` as in the first paper, or ``none``.
        width: length of the projected vectors, at least 1.
        queue: number of keys that are remembered, at least 1.
        momentum: share of its own weights that the copy keeps per step, in [0, 1).
        parts: that BatchNorm sees separately, at least 1; no part has less than two images.

    Raises:
        OptionError: an option is outside its range.
    """

    usual_components: ClassVar[Mapping[str, str]] = {"views": "moco-v2"}

    def __init__(
        self,
        *,
        views: ViewMaker,
        temperature: float = 0.2,
        head: Head = "nonlinear",
        width: int = 128,
        queue: int = 65536,
        momentum: float = 0.999,
        parts: int = 8,
    ) -> None:
        super().__init__(views=views)
        check_above(0, temperature=temperature)
        check_one_of(HEADS, head=head)
        check_at_least(1, width=width, queue=queue, parts=parts)
        check_below_one(momentum=momentum)
        self.temperature = temperature
        self.head = head
        self.width = width
        self.queue = queue
        self.momentum = momentum
        self.parts = parts

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Store the backbone; create the head of vectors ``(D,)``, the copy and the queue."""
        super().build(item_shape, n_base_classes, backbone)
        (size,) = item_shape
        self.project = projection(self.head, size, self.width)
        self.slow = MomentumCopy(backbone, self.project, self.momentum)
        self.keys = Queue(self.queue, size if self.head == "none" else self.width)

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy of finding the keys; the keys are carried to ``after_step``."""
        first, second = self.pair(batch)
        parts = max(1, min(self.parts, len(first) // 2))
        queries = torch.cat(
            [self.project(self.backbone.encode(part)) for part in first.tensor_split(parts)]
        )
        order = torch.randperm(len(second), device=second.device)
        mixed = torch.cat([self.slow(part) for part in second[order].tensor_split(parts)])
        keys = torch.empty_like(mixed).index_copy(0, order, mixed)
        with torch.autocast(first.device.type, enabled=False):
            queries = functional.normalize(full_precision(queries), dim=1)
            keys = functional.normalize(full_precision(keys), dim=1)
            self.carried = {"keys": keys}
            return queue_contrast(queries, keys, self.keys.entries, self.temperature)

    def after_step(self, carried: Mapping[str, Tensor]) -> None:
        """Let the copy follow, and put the keys into the queue."""
        self.slow.follow(self.backbone, self.project)
        self.keys.write(carried["keys"])
