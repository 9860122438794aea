"""Fine-tuning of the backbone on a task's support."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_backbones import ResNet12
from fsf_methods.transfer import LPFTFB, FineTune
from fsframework.interfaces import Backbone
from fsframework.testing.method import ToyBackbone
from plugins.fsf_methods.tests.toys import built as made
from plugins.fsf_methods.tests.toys import vary_norms


def episode(*, tasks: int = 3, way: int = 3, shot: int = 2, n: int = 4, size: int = 20) -> Any:
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(tasks, way, 1, 3, size, size, generator=generator)
    support = centres + 0.5 * torch.randn(tasks, way, shot, 3, size, size, generator=generator)
    query = centres[:, torch.arange(n) % way, 0]
    return support, query + 0.5 * torch.randn(query.shape, generator=generator)


def built(backbone: Backbone | None = None, **options: Any) -> FineTune:
    """Return a method whose BatchNorms have seen something."""
    torch.manual_seed(0)
    backbone = ToyBackbone() if backbone is None else backbone
    vary_norms(backbone)
    return made(FineTune, 3, 20, 20, backbone=backbone, **options)


class Cosine(nn.Module):
    """A learned factor, initially 10, times the cosines to learned vectors."""

    def __init__(self, means: Tensor) -> None:
        super().__init__()
        self.directions, self.scale = nn.Parameter(means), nn.Parameter(torch.tensor(10.0))

    def forward(self, vectors: Tensor) -> Tensor:
        return self.scale * functional.cosine_similarity(vectors[:, None], self.directions, dim=2)


def require_alike(scores: Tensor, expected: Tensor, tolerance: float) -> None:
    """Require equal scores up to an offset for all ways, within a fraction of their spread."""
    scores, expected = (part - part.mean(dim=-1, keepdim=True) for part in (scores, expected))
    spread = expected.max() - expected.min()
    assert (scores - expected).abs().max() < tolerance * spread


def literal(method: FineTune, support: Tensor, query: Tensor) -> Tensor:
    """Score one task with copies of modules, and PyTorch's own SGD and schedule."""
    way, shot = support.shape[:2]
    backbone = copy.deepcopy(method.backbone)
    labels = torch.arange(way).repeat_interleave(shot)
    norms = [m for m in backbone.modules() if isinstance(m, nn.BatchNorm2d)]
    if method.batch_norm == "support":
        for norm in norms:
            norm.train()
            norm.momentum = 1.0

    def unit(images: Tensor) -> Tensor:
        return functional.normalize(backbone.vectors(backbone(images)), dim=1)

    with torch.no_grad():
        means = unit(support.flatten(0, 1)).unflatten(0, (way, shot)).mean(dim=1)
    head: nn.Module
    if method.head == "linear":
        head = nn.Linear(means.shape[1], way).double()
        # The authors' start.
        nn.init.ones_(head.weight)
        nn.init.zeros_(head.bias)
    else:
        head = Cosine(means).double()
    groups = [
        {"params": list(backbone.parameters()), "lr": method.lr},
        {"params": list(head.parameters()), "lr": method.head_lr},
    ]
    optimiser = torch.optim.SGD(groups, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: 0.5 * (1 + math.cos(math.pi * step / method.steps))
    )
    for _ in range(method.steps):
        optimiser.zero_grad()
        vectors = unit(support.flatten(0, 1))
        if method.head == "centroids":
            centroids = vectors.unflatten(0, (way, shot)).mean(dim=1)
            logits = 10 * functional.cosine_similarity(vectors[:, None], centroids, dim=2)
        else:
            logits = head(vectors)
        functional.cross_entropy(logits, labels).backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        vectors = unit(support.flatten(0, 1))
        for norm in norms:
            # With momentum 1 the running statistics are the support's; the variance is that of a
            # sample, though, where the batch is normalised by that of a population.
            if method.batch_norm == "support":
                norm.eval()
        if method.head == "centroids":
            centroids = vectors.unflatten(0, (way, shot)).mean(dim=1)
            return 10 * functional.cosine_similarity(unit(query)[:, None], centroids, dim=2)
        scores: Tensor = head(unit(query))
        return scores


@pytest.mark.parametrize("head", ["linear", "cosine", "centroids"])
@pytest.mark.parametrize("batch_norm", ["running", "support"])
def test_does_what_a_literal_loop_does(head: Any, batch_norm: Any) -> None:
    # The authors' constant start adds the same to all ways, which single precision would blur.
    support, query = (part.double() for part in episode())
    method = built(
        ToyBackbone().double(), head=head, batch_norm=batch_norm, steps=4, lr=0.05, tasks_at_once=2
    )
    scores = method.scores(support, query)
    for task in range(3):
        # The literal statistics have a sample's variance, larger than a population's by one in 149
        # or less.
        tolerance = 1e-9 if batch_norm == "running" else 0.02
        require_alike(scores[task], literal(method, support[task], query[task]), tolerance)


def test_batch_norms_of_queries_have_the_supports_statistics() -> None:
    support, _ = episode()
    method = built(ToyBackbone(), head="centroids", batch_norm="support", steps=0)
    # As queries, the support's images must give the same as in the support.
    scores = method.scores(support, support.flatten(1, 2))
    method.backbone.train()
    for task in range(3):
        vectors = method.backbone.vectors(method.backbone(support[task].flatten(0, 1)))
        vectors = functional.normalize(vectors, dim=1)
        centroids = functional.normalize(vectors.unflatten(0, (3, 2)).mean(dim=1), dim=1)
        torch.testing.assert_close(scores[task], 10 * vectors @ centroids.mT, rtol=1e-3, atol=1e-3)


def test_a_backbone_with_shortcuts_adapts_and_keeps_its_own_weights() -> None:
    support, query = (part.double() for part in episode(tasks=2, size=32))
    made = ResNet12(widths=(4, 6, 8, 10)).double()
    method = built(made, steps=2, lr=0.5)
    before = {name: value.clone() for name, value in made.state_dict().items()}
    with torch.no_grad():
        scores = method.scores(support, query)
    for task in range(2):
        require_alike(scores[task], literal(method, support[task], query[task]), 1e-9)
    assert all(torch.equal(before[name], value) for name, value in made.state_dict().items())
    frozen = built(made, steps=2, lr=0.0).scores(support, query)
    assert (frozen - scores).abs().max() > 1e-6 * (scores.max() - scores.min())


@pytest.mark.parametrize("firth_c", [0.0, 0.7])
def test_the_head_is_probed_before_the_backbone_moves(firth_c: float) -> None:
    support, query = episode()
    backbone = ToyBackbone()
    method = built(backbone, steps=0, probe_steps=5, head_lr=0.3, firth_c=firth_c)
    with torch.no_grad():
        vectors = [functional.normalize(backbone.eval().encode(x), dim=1) for x in
                   (support.flatten(0, 2), query.flatten(0, 1))]  # fmt: skip
    items, queries = vectors[0].unflatten(0, support.shape[:3]), vectors[1].unflatten(0, (3, -1))
    probed = LPFTFB(firth_c=firth_c, steps=5, lr=0.3, weight_decay=0.0)
    torch.testing.assert_close(
        method.scores(support, query), probed.scores(items, queries), rtol=1e-3, atol=1e-4
    )
    moved = built(backbone, steps=2, probe_steps=5, head_lr=0.3, lr=0.1, firth_c=firth_c)
    assert not torch.allclose(moved.scores(support, query), method.scores(support, query))


def test_runs_under_autocast() -> None:
    support, query = episode()
    with torch.autocast("cpu", torch.bfloat16):
        assert built(ToyBackbone(), steps=2).scores(support, query).isfinite().all()
