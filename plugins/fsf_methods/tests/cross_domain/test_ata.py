from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fsf_methods.cross_domain import ATA, FT, LRP
from fsf_methods.gradient import MAML
from fsf_methods.metric import ProtoNet, RelationNet, RENet
from fsf_methods.transductive import GNN, TPN
from fsf_methods.transfer import Baseline
from fsframework.interfaces import Backbone, Batch, OptionError
from fsframework.testing import parametrize_with_checks
from fsframework.testing.method import ToyBackbone, built


def wrapped(base: Any, **options: Any) -> ATA:
    return ATA(base=base(), **options)


@parametrize_with_checks([partial(wrapped, ProtoNet, steps=1, lr=5.0)])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


class Mean(Backbone):
    """The mean of each colour."""

    def forward(self, images: Tensor) -> Tensor:
        return images.mean(dim=(2, 3), keepdim=True)


class Linear(ProtoNet):
    """Scores are w times the only number of a query; the loss is minus their mean."""

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Any) -> None:
        self.weight = nn.Parameter(torch.tensor([3.0, 0.0, -1.0]))

    def loss(self, batch: Batch) -> Tensor:
        assert batch.query is not None
        return -(batch.query @ self.weight).mean()


def task(tasks: int = 1, side: int = 2) -> Batch:
    """Two ways, one shot, two queries."""
    generator = torch.Generator().manual_seed(0)
    return Batch(
        support=torch.randn(tasks, 2, 1, 3, side, side, generator=generator),
        query=torch.randn(tasks, 2, 3, side, side, generator=generator),
        query_labels=torch.tensor([[0, 1]]).expand(tasks, -1),
    )


@pytest.mark.parametrize("tasks", [1, 3])
def test_the_ascent_worked_by_hand(tasks: int) -> None:
    method = ATA(base=Linear(), steps=2, lr=8.0, probability=0.0)
    method.build((3,), 0, Mean())
    batch = task(tasks)
    # A task's loss is -(1/2) sum over two queries of w . colour, a colour the mean of 4 pixels: the
    # gradient of each pixel of a query is -w / 8, and two steps of 8 move it by -2 w.
    assert batch.support is not None
    assert batch.query is not None
    images = torch.cat([batch.support.flatten(1, 2), batch.query], dim=1)
    changed = method._ascended(batch, images)
    torch.testing.assert_close(changed[:, :2], images[:, :2])
    moved = torch.tensor([-6.0, 0.0, 2.0]).reshape(3, 1, 1).expand(3, 2, 2)
    torch.testing.assert_close(changed[:, 2:] - images[:, 2:], moved.expand(tasks, 2, 3, 2, 2))
    # w . (-2 w) = -20, so the loss is higher by 20, and the gradient of w is that of the images.
    method.zero_grad()
    loss = method.loss(batch)
    torch.testing.assert_close(loss, method.base.loss(encoded(method, batch)) + 20)
    loss.backward()
    expected = -(batch.query.mean(dim=(0, 1, 3, 4)) + moved[:, 0, 0])
    torch.testing.assert_close(method.base.weight.grad, expected)


def encoded(method: ATA, batch: Batch) -> Batch:
    assert batch.support is not None
    assert batch.query is not None
    return Batch(
        support=batch.support.mean(dim=(4, 5)),
        query=batch.query.mean(dim=(3, 4)),
        query_labels=batch.query_labels,
    )


def test_a_random_convolution_is_one_for_all_images_of_a_task() -> None:
    torch.manual_seed(0)
    method = ATA(base=ProtoNet(), probability=1.0, kernel_sizes=(1,))
    images = torch.randn(2, 5, 3, 4, 4)
    found = method._convolved(images)
    # With a kernel of one pixel it is a matrix of colours, the same everywhere.
    before, after = (i.movedim(2, -1).flatten(1, 3) for i in (images, found))
    matrices = torch.linalg.lstsq(before, after).solution
    torch.testing.assert_close(before @ matrices, after, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(matrices[0], matrices[1])


def test_random_kernels_have_the_drawn_size_and_the_deviation_of_xavier() -> None:
    torch.manual_seed(0)
    method = ATA(base=ProtoNet(), probability=1.0, kernel_sizes=(1, 5))
    dot = torch.zeros(400, 1, 3, 15, 15)
    dot[:, :, 0, 7, 7] = 1.0
    found = method._convolved(dot)[:, 0]  # the kernels themselves
    far = (torch.arange(15) - 7).abs()
    outside = torch.maximum(far[:, None], far) > 2
    assert not found[..., outside].any()
    small = found[..., torch.maximum(far[:, None], far) > 0].flatten(1).abs().sum(dim=1) == 0
    assert 150 < int(small.sum()) < 250
    deviation = found[~small][..., ~outside].std().item()
    assert deviation == pytest.approx((2 / (2 * 3 * 25)) ** 0.5, rel=0.05)
    never = ATA(base=ProtoNet(), probability=0.0)
    torch.testing.assert_close(never._convolved(dot), dot)


@pytest.mark.parametrize(
    ("base", "lr"),
    [
        (RelationNet, 1.0),
        (partial(GNN, nf=8), 1.0),
        (TPN, 1000.0),
        (RENet, 1.0),
        (partial(MAML, train_steps=1, test_steps=1), 1.0),
    ],
)
def test_it_nests_and_the_loss_rises(base: Any, lr: float) -> None:
    method = built(partial(wrapped, base, steps=2, lr=lr, probability=0.0)).train()
    plain = built(partial(wrapped, base, steps=0, probability=0.0)).train()
    if isinstance(method.base, TPN):
        nn.init.constant_(method.base.scale[-1].bias, 3.0)  # no edge of noise has weight 0
    plain.load_state_dict(method.state_dict())
    torch.manual_seed(1)
    n = 10
    batch = Batch(
        support=torch.randn(1, 5, 1, 3, 20, 20),
        query=torch.randn(1, n, 3, 20, 20),
        query_labels=(torch.arange(n) % 5)[None],
        support_classes=torch.arange(5).reshape(1, 5, 1),
        query_classes=(torch.arange(n) % 5)[None],
        items=torch.randn(6, 3, 20, 20),
        classes=torch.arange(6),
    )
    if method.learns_from == "episodes":
        batch = Batch(batch.support, batch.query, batch.query_labels)
    before, after = plain.loss(batch), method.loss(batch)
    assert after > before
    # Only the last task is seen by the running statistics: one batch each.
    counts = [b for name, b in method.named_buffers() if name.endswith("num_batches_tracked")]
    expected = [b for name, b in plain.named_buffers() if name.endswith("num_batches_tracked")]
    assert counts == expected
    if method.consumes != "images":
        assert isinstance(method.backbone, ToyBackbone)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FT(base=ATA(base=GNN(nf=8), steps=1, lr=1.0)),
        lambda: ATA(base=FT(base=LRP(base=GNN(nf=8))), steps=1, lr=1.0),
    ],
    ids=["ft of ata", "ata of ft of lrp"],
)
def test_wrappers_nest_in_one_another(make: Any) -> None:
    method = built(make).train()
    assert method.trains_on_images
    assert method.n_way == 5
    assert sum(isinstance(m, ToyBackbone) for m in method.modules()) == 1
    images = torch.randn(1, 10, 3, 20, 20)
    labels = (torch.arange(10) % 5)[None]
    loss = method.loss(Batch(images[:, :5].unsqueeze(2), images, labels))
    assert torch.isfinite(loss)


def test_what_does_not_fit_is_one_sentence() -> None:
    with pytest.raises(OptionError, match="learn from episodes, but Baseline learns from batches"):
        ATA(base=Baseline())
    with pytest.raises(
        OptionError, match="trained on what it consumes, but ATA is trained on images"
    ):
        ATA(base=ATA(base=ProtoNet()))
    for options, message in (
        ({"steps": -1}, "steps must be at least 0, got -1"),
        ({"lr": 0.0}, "lr must be above 0 and finite, got 0.0"),
        ({"probability": 1.5}, "probability must be from 0 to 1, got 1.5"),
        ({"kernel_sizes": (3, 4)}, r"kernel_sizes must be odd and above 0, got \(3, 4\)"),
    ):
        with pytest.raises(OptionError, match=message):
            ATA(base=ProtoNet(), **options)
