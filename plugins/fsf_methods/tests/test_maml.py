"""MAML and BOIL, which adapt their backbone, compared with a loop over tasks and steps."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fsf_backbones import ResNet12
from fsf_methods.gradient import BOIL, MAML, _adapt
from fsf_methods.gradient._operations import TaskOperations
from fsframework.interfaces import Backbone, Batch
from fsframework.testing.method import ToyBackbone
from plugins.fsf_methods.tests.toys import episode as floats
from plugins.fsf_methods.tests.toys import scored, vary_norms

Method = MAML | BOIL


class OneWeight(Backbone):
    """Multiplies the red channel by its only weight."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, images: Tensor) -> Tensor:
        return self.factor * images[:, :1]


def red(*values: float) -> Tensor:
    """Return images ``(n, 3, 1, 1)`` of these red values."""
    return torch.tensor(values)[:, None, None, None].expand(-1, 3, 1, 1)


@pytest.mark.parametrize(
    ("method", "moves_backbone", "moves_head"),
    [
        (MAML(n_way=2, inner_lr=1.0, test_steps=1), 1, 1),
        (BOIL(n_way=2, extractor_lr=1.0), 1, 0),
        (BOIL(n_way=2, extractor_lr=1.0, classifier_lr=1.0), 1, 1),
        (BOIL(n_way=2, extractor_lr=1.0, testing="nil"), 0, 0),
    ],
)
def test_a_step_worked_by_hand(method: Method, moves_backbone: int, moves_head: int) -> None:
    backbone = OneWeight()
    method.build((3, 1, 1), 0, backbone)
    c = math.log(3) / 2
    with torch.no_grad():
        method.classify.weight.copy_(torch.tensor([[c], [-c]]))
        method.classify.bias.zero_()
    # An image of each class, 1 and -1: both are given a probability of 3/4. The gradients for the
    # head are -1/4 and 1/4, without one for the biases, and that for the factor is -c / 2.
    support = torch.stack([red(1.0), red(-1.0)])[None]
    scores = method.eval().scores(support, red(2.0)[None])
    if isinstance(method, BOIL) and method.testing == "nil":
        expected = torch.tensor([1.0, -1.0])
    else:
        value = 2 * (1 + moves_backbone * c / 2) * (c + moves_head / 4)
        expected = torch.tensor([value, -value])
    torch.testing.assert_close(scores[0, 0], expected)


def built(method: Method, backbone: Backbone | None = None, side: int = 20) -> Method:
    torch.manual_seed(0)
    backbone = backbone or ToyBackbone()
    method.build((3, side, side), 0, backbone)
    vary_norms(backbone)
    return method.double()


def episode(tasks: int, side: int = 20, **counts: int) -> Batch:
    return floats(3, side, side, tasks=tasks, dtype=torch.float64, **{"n": 4, **counts})


def literal_tasks(
    method: Method, batch: Batch, *, rates: tuple[float, float], steps: int, second_order: bool
) -> Iterator[tuple[Backbone, Tensor]]:
    """Yield for each task an adapted backbone and the queries' logits."""
    for support, query in zip(batch.support, batch.query, strict=True):
        way, shot = support.shape[:2]
        labels = torch.arange(way).repeat_interleave(shot)
        # Parameters of the method itself, so that it gets the gradients; statistics of a copy.
        seen = copy.deepcopy(method.backbone)
        weights = dict(method.backbone.named_parameters())
        head = [method.classify.weight, method.classify.bias]

        def logits(
            images: Tensor,
            weights: dict[str, Tensor],
            head: list[Tensor],
            seen: Backbone = seen,
        ) -> Tensor:
            vectors = seen.vectors(functional_call(seen, weights, (images,)))
            return functional.linear(vectors, *head)

        for _ in range(steps):
            loss = functional.cross_entropy(logits(support.flatten(0, 1), weights, head), labels)
            found = torch.autograd.grad(loss, [*weights.values(), *head], create_graph=second_order)
            moved = list(zip(weights, found, strict=False))
            weights = {name: weights[name] - rates[0] * g for name, g in moved}
            head = [w - rates[1] * g for w, g in zip(head, found[-2:], strict=True)]
        yield seen, logits(query, weights, head)


class Odd(Backbone):
    """What the blocks of the usual backbones lack, of channels 3, 4, 8 and 8."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, (3, 1), stride=(1, 2), padding=1)
        self.norm = nn.BatchNorm2d(4, affine=False, momentum=0.3)
        self.grouped = nn.Conv2d(4, 8, 3, dilation=(2, 1), groups=2)
        self.same = nn.Conv2d(8, 8, 3, padding="same")
        self.last_norm = nn.BatchNorm2d(8)
        self.offset = nn.Parameter(torch.randn(4))
        # Neither weights nor images: the same for all tasks.
        self.fixed, self.places = torch.randn(4, 1, 2, 2), torch.randn(1, 4, 10, 5)

    def forward(self, images: Tensor) -> Tensor:
        maps = functional.max_pool2d(self.norm(self.first(images)), 2, padding=1)
        fixed, places = self.fixed.to(maps), self.places.to(maps)
        shifted = functional.conv2d(places, fixed, self.offset, padding=1, groups=4)
        maps = functional.conv2d(maps, fixed, groups=4) + shifted[..., 1:, 1:]
        maps = self.grouped(maps) + self.grouped(places)
        maps = self.last_norm(self.same(maps))
        tokens = maps.flatten(2).mT[:, None]
        attended = functional.scaled_dot_product_attention(tokens, tokens, tokens.sin())
        return functional.adaptive_avg_pool2d(attended[:, 0].mT.reshape(maps.shape), 1)


LEARNED: list[tuple[Any, ...]] = [
    (MAML(n_way=3, inner_lr=0.1, train_steps=3), (0.1, 0.1), 3),
    (MAML(n_way=3, inner_lr=0.1, train_steps=2, first_order=True), (0.1, 0.1), 2),
    (BOIL(n_way=3, extractor_lr=0.2, train_steps=2), (0.2, 0.0), 2),
    (BOIL(n_way=3, extractor_lr=0.2, classifier_lr=0.1, testing="nil"), (0.2, 0.1), 1),
]


@pytest.mark.parametrize(("tasks", "at_once"), [(1, 1), (3, 3), (3, 2)])
@pytest.mark.parametrize(
    ("method", "rates", "steps", "backbone"),
    [*((*learned, ToyBackbone) for learned in LEARNED), (*LEARNED[0], Odd)],
)
def test_loss_gradients_and_statistics_are_those_of_a_loop(
    method: Method,
    rates: tuple[float, float],
    steps: int,
    backbone: Any,
    tasks: int,
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    method = built(copy.deepcopy(method), backbone()).train()
    batch = episode(tasks)
    most = at_once * (batch.support[0].numel() + batch.query[0].numel())
    monkeypatch.setattr(_adapt, "_NUMBERS_AT_ONCE", {"cpu": most})
    second_order = not method.first_order
    literal = literal_tasks(method, batch, rates=rates, steps=steps, second_order=second_order)
    seen, logits = zip(*literal, strict=True)
    expected = functional.cross_entropy(torch.cat(logits), batch.query_labels.flatten())
    wanted = torch.autograd.grad(expected, list(method.parameters()))

    loss = method.loss(batch)
    torch.testing.assert_close(loss, expected)
    found = torch.autograd.grad(loss, list(method.parameters()))
    torch.testing.assert_close(found, wanted)
    buffers = [dict(backbone.named_buffers()) for backbone in seen]
    for name, own in method.backbone.named_buffers():
        mean = torch.stack([b[name] for b in buffers]).double().mean(dim=0)
        torch.testing.assert_close(own.double(), mean)
    counted = {int(b) for name, b in method.backbone.named_buffers() if name.endswith("tracked")}
    assert counted == {steps + 1}


@pytest.mark.parametrize("batch_norm", ["batch", "running"])
def test_scores_are_those_of_a_loop(batch_norm: Any) -> None:
    method = built(MAML(n_way=3, inner_lr=0.1, test_steps=3, batch_norm=batch_norm)).eval()
    batch = episode(3)
    scores = scored(method, batch)
    method.backbone.train(batch_norm == "batch")
    literal = literal_tasks(method, batch, rates=(0.1, 0.1), steps=3, second_order=False)
    torch.testing.assert_close(scores, torch.stack([logits.detach() for _, logits in literal]))


def test_backbones_with_dropout_train_and_count_their_steps_once() -> None:
    backbone = ResNet12(widths=(4, 6, 8, 10), drop_rate=0.3, drop_ramp_steps=0)
    method = built(MAML(n_way=3, inner_lr=0.1, train_steps=2), backbone, side=21).train()
    loss = method.loss(episode(2, side=21))
    loss.backward()
    assert loss.isfinite()
    counters = {int(b) for name, b in backbone.named_buffers() if name.endswith("n_steps")}
    assert counters == {3}


def test_running_statistics_may_be_cumulative() -> None:
    method, batch = built(MAML(n_way=3, inner_lr=0.1, train_steps=2)).train(), episode(2)
    for module in method.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
    statistics = []
    for tasks in ([0, 1], [0], [1]):
        fresh = copy.deepcopy(method)
        fresh.scores(batch.support[tasks], batch.query[tasks])
        statistics.append(fresh.backbone.get_buffer("blocks.0.1.running_mean"))
    torch.testing.assert_close(statistics[0], (statistics[1] + statistics[2]) / 2)


def test_a_frozen_weight_is_adapted_but_not_learned() -> None:
    method = built(MAML(n_way=3, inner_lr=0.1, train_steps=1, test_steps=1)).eval()
    batch = episode(2)
    expected = scored(method, batch)
    method.requires_grad_(False)
    torch.testing.assert_close(scored(method, batch), expected)
    method.classify.requires_grad_(True)
    method.train().loss(batch).backward()
    assert all(p.grad is None for p in method.backbone.parameters())
    assert all(p.grad is not None for p in method.classify.parameters())


def test_what_is_not_covered_goes_to_pytorch() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3)
    mean, var = torch.randn(3), torch.rand(3)

    def all_of_them() -> list[Tensor]:
        return [
            functional.conv2d(x, weight, padding="same"),
            functional.conv2d(x[0], weight),
            functional.batch_norm(x, mean, var),
            functional.batch_norm(x[:, :, 0, 0], None, None, training=True),
            *functional.max_pool2d(x, 2, return_indices=True),
            functional.max_pool2d(x[0], 2),
            functional.adaptive_avg_pool2d(x, 2),
        ]

    expected = all_of_them()
    with TaskOperations(vmapped=True):
        found = all_of_them()
    torch.testing.assert_close(found, expected)


def test_half_precision_as_autocast_has_it() -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3), torch.randn(4)
    with torch.autocast("cpu", torch.bfloat16):
        expected = functional.conv2d(x, weight, bias)
        with TaskOperations(vmapped=False):
            found = functional.conv2d(x, weight, bias)
            normed = functional.batch_norm(found, None, None, training=True)
    assert found.dtype == normed.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


def test_statistics_of_many_locations_are_exact() -> None:
    torch.manual_seed(0)
    x = (torch.randn(20, 4, 64, 64) + 2).contiguous(memory_format=torch.channels_last)
    mean, variance = torch.zeros(4), torch.zeros(4)
    with TaskOperations(vmapped=False):
        functional.batch_norm(x, mean, variance, training=True, momentum=1.0)
    wanted_variance, wanted_mean = torch.var_mean(x.double(), dim=(0, 2, 3))
    torch.testing.assert_close(mean.double(), wanted_mean, rtol=1e-6, atol=0)
    torch.testing.assert_close(variance.double(), wanted_variance, rtol=1e-6, atol=0)
