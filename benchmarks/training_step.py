"""Time of a training step, beside the same step in the default memory layout.

Run ``python benchmarks/training_step.py``; it takes a few minutes. A step is forward and backward
of one 5-way 5-shot task with 15 queries a way, 84 x 84 pixels through Conv-64F. The other
implementation runs the same weights with contiguous images, and RENet's head as its formulas
stand; both run in turns on two threads and the quickest of each counts. The published
implementation takes 1.02 s (ProtoNet) and 4.74 s (RENet) on a quiet machine of two cores.
"""

from __future__ import annotations

import torch
from renet_head import literal_embed, literal_scores, quickest
from torch import Tensor

from fsf_backbones import Conv64F
from fsf_metric_methods import ProtoNet, RENet
from fsframework.interfaces import Batch, FewShotMethod

WAY, SHOT, N_QUERY, N_BASE = 5, 5, 75, 64
PUBLISHED_S = {"ProtoNet": 1.02, "RENet": 4.74}


class ContiguousConv64F(Conv64F):
    """Conv-64F in the default memory layout."""

    def forward(self, images: Tensor) -> Tensor:
        """Map images ``(n, 3, H, W)`` to maps ``(n, 64, h, w)``."""
        maps: Tensor = self.blocks(images)
        return maps


class LiteralRENet(RENet):
    """RENet of one task, its head as the formulas stand."""

    def embed(self, items: Tensor) -> Tensor:
        """Embed with unfolded windows."""
        return literal_embed(self, items)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Score all pairs of one task at once."""
        return literal_scores(self, support[0], query[0])[None]


def step(backbone: Conv64F, method: FewShotMethod, images: Tensor) -> None:
    """Do forward and backward of one task."""
    maps = backbone(images)
    items = maps if method.consumes == "maps" else backbone.vectors(maps)
    items = items.reshape(1, -1, *items.shape[1:])
    labels = torch.arange(N_QUERY)[None] % WAY
    batch = Batch(
        support=items[:, : WAY * SHOT].reshape(1, WAY, SHOT, *items.shape[2:]),
        query=items[:, WAY * SHOT :],
        query_labels=labels,
        support_classes=torch.arange(WAY)[None, :, None].expand(1, WAY, SHOT),
        query_classes=labels,
    )
    backbone.zero_grad()
    method.zero_grad()
    method.loss(batch).backward()


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(2)
    images = torch.randn(WAY * SHOT + N_QUERY, 3, 84, 84)
    ours, theirs = Conv64F(), ContiguousConv64F()
    print(f"{'step':<12}{'channels last':>16}{'contiguous':>14}{'ratio':>8}{'published':>12}")
    for mine, literal in ((ProtoNet(), ProtoNet()), (RENet(), LiteralRENet())):
        for method in (mine, literal):
            method.build((64, 5, 5), N_BASE, ours)
        literal.load_state_dict(mine.state_dict())
        fast, slow = quickest(
            lambda method=mine: step(ours, method, images),
            lambda method=literal: step(theirs, method, images),
            repeats=4,
        )
        name = type(mine).__name__
        print(
            f"{name:<12}{fast:>14.2f} s{slow:>12.2f} s{slow / fast:>8.2f}{PUBLISHED_S[name]:>10} s"
        )


if __name__ == "__main__":
    main()
