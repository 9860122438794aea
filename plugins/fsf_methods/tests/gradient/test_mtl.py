from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_backbones import Conv64F, ResNet12
from fsf_methods.gradient import ANIL, MTL
from fsf_methods.gradient._mtl import _accuracies, _hardest
from fsframework.interfaces import Backbone, Batch, OptionError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks(
    [
        MTL,
        partial(MTL, head="shared", first_order=False, inner_lr=0.3, train_steps=5, test_steps=10),
    ]
)
def test_conformance(make: Any, check: Any) -> None:
    check(make)


class Tiny(Backbone):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.second = nn.Conv2d(4, 5, 3, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.second(functional.relu(self.first(images)))
        return maps


def made(backbone: Backbone, size: int = 8, **options: Any) -> MTL:
    torch.manual_seed(0)
    method = MTL(n_way=3, train_steps=3, test_steps=4, **options)
    method.build((3, size, size), 11, backbone)
    return method


def test_kernels_are_scaled_and_biases_shifted() -> None:
    backbone = Tiny()
    method = made(backbone)
    assert [tuple(p.shape) for p in method.scales] == [(4, 3, 1, 1), (5, 4, 1, 1)]
    assert [tuple(p.shape) for p in method.shifts] == [(4,)], "one has no bias"
    images = torch.randn(6, 3, 8, 8)
    torch.testing.assert_close(method.embed(images), backbone.encode(images))
    with torch.no_grad():
        for part in (*method.scales, *method.shifts):
            part.uniform_(0.5, 2)
    weight = backbone.first.weight * method.scales[0]
    assert backbone.first.bias is not None
    maps = functional.conv2d(images, weight, backbone.first.bias + method.shifts[0])
    maps = functional.conv2d(maps.relu(), backbone.second.weight * method.scales[1])
    torch.testing.assert_close(method.embed(images), maps.mean(dim=(2, 3)))


@pytest.mark.parametrize(
    ("backbone", "n_scales", "n_shifts"),
    [(Conv64F, 4, 4), (partial(ResNet12, widths=(4, 6, 8, 10)), 16, 0)],
)
def test_every_convolution_of_a_backbone_is_reached(
    backbone: Any, n_scales: int, n_shifts: int
) -> None:
    method = made(backbone(), size=32)
    method.backbone.requires_grad_(False)
    assert (len(method.scales), len(method.shifts)) == (n_scales, n_shifts)
    batch = Batch(
        support=torch.randn(1, 3, 2, 3, 32, 32),
        query=torch.randn(1, 6, 3, 32, 32),
        query_labels=torch.arange(6)[None] % 3,
    )
    method.train().loss(batch).backward()
    parts = [*method.scales, *method.shifts, *method.classify.parameters()]
    assert all(p.grad is not None and p.grad.any() for p in method.scales)
    assert all(p.grad is not None for p in parts)
    assert all(p.grad is None for p in method.backbone.parameters())


def test_a_head_moves_as_that_of_anil() -> None:
    backbone = Tiny()
    method = made(backbone, inner_lr=0.3).eval()
    other = ANIL(n_way=3, inner_lr=0.3, test_steps=4)
    other.build((5,), 0, backbone)
    other.classify.load_state_dict(method.classify.state_dict())
    support, query = torch.randn(2, 3, 2, 5), torch.randn(2, 6, 5)
    assert torch.equal(method.scores(support, query), other.eval().scores(support, query))


def test_the_hardest_classes_worked_by_hand() -> None:
    accuracy = torch.tensor([[0.5, 0.0, 1.0], [0.2, 0.1, 0.9], [0.3, 0.8, 0.4], [0.0, 0.0, 0.0]])
    classes = torch.tensor([[4, 7, 1], [2, 7, 5], [2, 7, 6], [0, 1, 2]])
    # 7 is the hardest of the first task, so the second gives 2, then the third 6. The fourth task
    # alone makes no hard task.
    assert _hardest(accuracy, classes).tolist() == [[1, 0, 2]]
    logits = torch.tensor([[[2.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 3.0, 0.0]]])
    found = _accuracies(logits, torch.tensor([[0, 0, 1, 1]]))
    assert found.tolist() == [[0.5, 1.0, float("inf")]]


def test_the_loss_of_hard_tasks_is_that_of_tasks_made_by_hand() -> None:
    method = made(Tiny(), inner_lr=0.3, hard_tasks=True).train()
    plain = made(Tiny(), inner_lr=0.3).train()
    plain.load_state_dict(method.state_dict())
    labels = torch.tensor([[0, 1, 2, 0, 1, 2], [2, 1, 0, 2, 1, 0], [0, 0, 1, 1, 2, 2]])
    batch = Batch(
        support=torch.randn(3, 3, 2, 3, 8, 8),
        query=torch.randn(3, 6, 3, 8, 8),
        query_labels=labels,
        support_classes=torch.arange(9).reshape(3, 3, 1).expand(3, 3, 2),
    )
    assert batch.support is not None
    assert batch.query is not None
    support, query = plain.embed_episode(batch)
    right = plain.scores(support, query).argmax(dim=2) == labels
    ways = [
        min(range(3), key=lambda way, t=t: float(right[t][labels[t] == way].float().mean()))
        for t in range(3)
    ]
    hard = Batch(
        support=torch.stack([batch.support[t, way] for t, way in enumerate(ways)])[None],
        query=torch.cat([batch.query[t][labels[t] == way] for t, way in enumerate(ways)])[None],
        query_labels=torch.arange(3).repeat_interleave(2)[None],
    )
    loss = method.loss(batch)
    torch.testing.assert_close(loss, plain.loss(batch) + plain.loss(hard))
    loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in method.scales)
    few = Batch(batch.support[:2], batch.query[:2], labels[:2], batch.support_classes)
    with pytest.raises(OptionError, match=r"as many tasks per step as a task has ways, 3, got 2"):
        method.loss(few)


def test_a_backbone_without_convolutions_is_refused() -> None:
    class Flat(Backbone):
        def forward(self, images: Tensor) -> Tensor:
            return images

    with pytest.raises(OptionError, match="convolutions, but Flat has none"):
        made(Flat())


@pytest.mark.parametrize(
    ("name", "value"), [("n_way", 1), ("inner_lr", 0.0), ("train_steps", 0), ("test_steps", 0)]
)
def test_options_are_checked(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"{name} must be .* got {value}"):
        MTL(**{name: value})
