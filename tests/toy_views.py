"""A maker of random views, and a method with a momentum copy and a queue."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from fsframework.interfaces import Backbone, Batch, FewShotMethod, ViewMaker, Views


class Dimmed(ViewMaker):
    """Two views of random brightness; ``applied`` is the image's position in the step."""

    n_views, n_kinds, random = 2, 1000, True

    def __init__(self, *, least: float = 0.5) -> None:
        self.least = least

    def make(self, images: Tensor) -> Views:
        n = len(images)
        factors = self.least + (1 - self.least) * torch.rand(n, 2, 1, 1, 1, dtype=images.dtype)
        return Views(images[:, None] * factors, torch.arange(n)[:, None].expand(-1, 2))


class Queued(FewShotMethod):
    """Two views of an image are alike, compared with a queue of the momentum copy's vectors."""

    learns_from = "views"
    uses_labels = False
    trains_on_images = True
    weightless = True

    def __init__(self, *, views: ViewMaker, length: int = 12, momentum: float = 0.9) -> None:
        super().__init__()
        self.views, self.length, self.momentum = views, length, momentum

    queue: Tensor

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        self.backbone = backbone
        self.copy = copy.deepcopy(backbone).requires_grad_(False)
        self.register_buffer("queue", torch.ones(self.length, item_shape[0]))

    def loss(self, batch: Batch) -> Tensor:
        assert batch.views is not None
        first = functional.normalize(self.backbone.encode(batch.views[:, 0]), dim=1)
        with torch.no_grad():
            second = functional.normalize(self.copy.encode(batch.views[:, 1]), dim=1)
        self.carried = {"keys": second}
        logits = torch.cat([(first * second).sum(1, keepdim=True), first @ self.queue.mT], dim=1)
        target = torch.zeros(len(first), dtype=torch.int64, device=first.device)
        return functional.cross_entropy(logits / 0.2, target)

    def after_step(self, carried: Mapping[str, Tensor]) -> None:
        self.queue.copy_(torch.cat([carried["keys"], self.queue])[: self.length])
        for own, followed in zip(self.copy.parameters(), self.backbone.parameters(), strict=True):
            own.lerp_(followed.to(own.dtype), 1 - self.momentum)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        return -torch.cdist(query, support.mean(dim=2))
