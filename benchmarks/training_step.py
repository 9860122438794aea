"""Seconds per training step, compared with the same step as most libraries do it.

Run ``python benchmarks/training_step.py``; it takes a few minutes. A step is forward and backward
on one 5-way 5-shot task with 15 queries per way, of 84 x 84 pixels through Conv-64F; maps are 10 x
10 for DN4 and CAN and 5 x 5 for RENet. The literal form has the same weights, contiguous images and
the head as its formulas are written (CAN's loss is ours in both). The last columns are ours with
bfloat16, and with four tasks per update as time per task. All forms run in turn and the fastest
time of each counts. ``gradient_steps.py`` measures the methods that adapt by gradients.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import torch
from _options import one_of, positive
from metric_heads import literal_dn4, literal_protonet, literal_r2d2
from renet_head import literal_embed, literal_scores, quickest
from torch import Tensor
from torch.nn import functional

from fsf_backbones import Conv64F
from fsf_methods.metric import CAN, DN4, R2D2, ProtoNet, RENet
from fsframework.engine.learning.memory import keep_freed_memory
from fsframework.interfaces import Backbone, Batch, FewShotMethod

WAY, SHOT, N_QUERY, N_BASE = 5, 5, 75, 64
MANY = 4


class ContiguousConv64F(Conv64F):
    """Conv-64F in the default memory layout."""

    def forward(self, images: Tensor) -> Tensor:
        """Map images ``(n, 3, H, W)`` to maps ``(n, 64, h, w)``."""
        maps: Tensor = self.blocks(images)
        return maps


class LiteralRENet(RENet):
    """RENet on one task, with its head as the formulas are written."""

    def embed(self, items: Tensor) -> Tensor:
        """Embed with unfolded windows."""
        return literal_embed(self, items)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Score all pairs of one task at once."""
        return literal_scores(self, support[0], query[0])[None]


@dataclass(frozen=True)
class Case:
    """One row: a method, its literal scores, and the seconds of the reference."""

    method: FewShotMethod
    reference_s: float
    required: float
    literal: Callable[..., Tensor] | None = None
    pooled: bool = True


CASES = [
    Case(ProtoNet(), 1.02, 1.3, literal_protonet),
    Case(DN4(), 1.04, 1.0, literal_dn4, pooled=False),
    Case(R2D2(), 0.91, 1.0, literal_r2d2),
    Case(CAN(), 1.01, 1.0, None, pooled=False),
    Case(RENet(), 4.74, 2.0, None),
]


def batch_of(
    backbone: Backbone, method: FewShotMethod, images: Tensor, tasks: int, shot: int = SHOT
) -> Batch:
    """Run the backbone, unless the method does, and return its features as a batch."""
    items = images
    if method.consumes != "images":
        items = backbone(images)
        items = items if method.consumes == "maps" else backbone.vectors(items)
    items = items.reshape(tasks, -1, *items.shape[1:])
    labels = (torch.arange(items.shape[1] - WAY * shot) % WAY).expand(tasks, -1)
    return Batch(
        support=items[:, : WAY * shot].reshape(tasks, WAY, shot, *items.shape[2:]),
        query=items[:, WAY * shot :],
        query_labels=labels,
        support_classes=torch.arange(WAY)[None, :, None].expand(tasks, WAY, shot),
        query_classes=labels,
    )


def measure(case: Case, repeats: int) -> str:
    """Return the row of a case."""
    torch.manual_seed(0)
    images = torch.randn(MANY * (WAY * SHOT + N_QUERY), 3, 84, 84)
    one = images[: WAY * SHOT + N_QUERY].contiguous()
    ours, theirs = Conv64F(last_pool=case.pooled), ContiguousConv64F(last_pool=case.pooled)
    theirs.load_state_dict(ours.state_dict())
    method = case.method
    method.build((64, 5, 5) if case.pooled else (64, 10, 10), N_BASE, ours)
    other: FewShotMethod = method
    if isinstance(method, RENet):
        other = LiteralRENet()
        other.build((64, 5, 5), N_BASE, ours)
        other.load_state_dict(method.state_dict())

    def step(tasks: int = 1, half: bool = False) -> None:
        ours.zero_grad()
        method.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = method.loss(batch_of(ours, method, images if tasks > 1 else one, tasks))
        loss.backward()

    def literal_step() -> None:
        theirs.zero_grad()
        other.zero_grad()
        batch = batch_of(theirs, other, one, 1)
        if case.literal is None:
            loss = other.loss(batch)
        else:
            assert batch.support is not None
            assert batch.query is not None
            assert batch.query_labels is not None
            scores = case.literal(other, batch.support[0], batch.query[0])
            loss = functional.cross_entropy(scores, batch.query_labels[0])
        loss.backward()

    forms = (step, literal_step, lambda: step(half=True), lambda: step(MANY))
    fast, slow, half, many = quickest(*forms, repeats=repeats)
    name = type(method).__name__
    return (
        f"{name:<12}{fast:>8.2f}{slow:>10.2f}{slow / fast:>8.2f}{case.required:>10g}"
        f"{case.reference_s:>12g}{half:>10.2f}{many / MANY:>12.2f}"
    )


def main() -> None:
    cases = {type(case.method).__name__: case for case in CASES}
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=positive, default=2, metavar="N", help="default: 2")
    parser.add_argument(
        "--repeats", type=positive, default=4, metavar="N", help="steps of each form (default: 4)"
    )
    parser.add_argument(
        "methods", nargs="*", type=one_of(cases), metavar="METHOD", help=f"of {', '.join(cases)}"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()  # for both forms, as a run does
    print(f"seconds per training step of one task; {options.threads} thread(s)")
    print(
        f"{'step':<12}{'ours':>8}{'literal':>10}{'ratio':>8}{'required':>10}{'reference':>12}"
        f"{'bfloat16':>10}{'four tasks':>12}"
    )
    for name in options.methods or cases:
        print(measure(cases[name], options.repeats), flush=True)
    print("reference: a published implementation, on a quiet machine of two cores")


if __name__ == "__main__":
    main()
