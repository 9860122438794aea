"""The methods that train another one for other domains: ATA, FT and LRP."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.cross_domain import ATA, FT, LRP
from fsf_methods.cross_domain._lrp import relevance
from fsf_methods.gradient import MAML
from fsf_methods.metric import ProtoNet, RelationNet, RENet
from fsf_methods.transductive import GNN, TPN
from fsframework.interfaces import Backbone, Batch, FewShotMethod, OptionError
from fsframework.testing.method import ITEM_SHAPES, ToyBackbone, built


def wrapped(wrapper: Any, base: Any, **options: Any) -> Any:
    """Build a wrapper of a new base for toy items."""
    return built(lambda: wrapper(base=base(), **options)).train()


def steps_seen(method: FewShotMethod) -> list[int]:
    """How many batches each BatchNorm has seen."""
    return [int(b) for n, b in method.named_buffers() if n.endswith("num_batches_tracked")]


def batch_for(method: FewShotMethod) -> Batch:
    """Return a task of five ways, one shot and ten queries, with items of a batch."""
    shape = ITEM_SHAPES["images" if method.trains_on_images else method.consumes]
    torch.manual_seed(1)
    labels = torch.arange(10)[None] % 5
    return Batch(
        support=torch.rand(1, 5, 1, *shape),
        query=torch.rand(1, 10, *shape),
        query_labels=labels,
        support_classes=torch.arange(5).reshape(1, 5, 1),
        query_classes=labels,
        items=torch.rand(6, *shape),
        classes=torch.arange(6),
    )


class Mean(Backbone):
    """The mean of each colour."""

    def forward(self, images: Tensor) -> Tensor:
        return images.mean(dim=(2, 3), keepdim=True)


class Linear(ProtoNet):
    """Scores are w times the only number of a query; the loss is minus their mean."""

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Any) -> None:
        self.weight = nn.Parameter(torch.tensor([3.0, 0.0, -1.0]))

    def loss(self, batch: Batch) -> Tensor:
        return -(batch.query @ self.weight).mean()


def task(tasks: int = 1) -> Batch:
    """Two ways, one shot, two queries."""
    generator = torch.Generator().manual_seed(0)
    return Batch(
        support=torch.randn(tasks, 2, 1, 3, 2, 2, generator=generator),
        query=torch.randn(tasks, 2, 3, 2, 2, generator=generator),
        query_labels=torch.tensor([[0, 1]]).expand(tasks, -1),
    )


@pytest.mark.parametrize("tasks", [1, 3])
def test_the_ascent_of_ata_worked_by_hand(tasks: int) -> None:
    method = ATA(base=Linear(), steps=2, lr=8.0, probability=0.0)
    method.build((3,), 0, Mean())
    batch = task(tasks)
    # A task's loss is -(1/2) sum over two queries of w . colour, a colour the mean of 4 pixels: the
    # gradient of each pixel of a query is -w / 8, and two steps of 8 move it by -2 w.
    images = torch.cat([batch.support.flatten(1, 2), batch.query], dim=1)
    changed = method._ascended(batch, images)
    torch.testing.assert_close(changed[:, :2], images[:, :2])
    moved = torch.tensor([-6.0, 0.0, 2.0]).reshape(3, 1, 1).expand(3, 2, 2)
    torch.testing.assert_close(changed[:, 2:] - images[:, 2:], moved.expand(tasks, 2, 3, 2, 2))
    # w . (-2 w) = -20, so the loss is higher by 20, and the gradient of w is that of the images.
    method.zero_grad()
    loss = method.loss(batch)
    encoded = Batch(batch.support.mean(dim=(4, 5)), batch.query.mean(dim=(3, 4)))
    torch.testing.assert_close(loss, method.base.loss(encoded) + 20)
    loss.backward()
    expected = -(batch.query.mean(dim=(0, 1, 3, 4)) + moved[:, 0, 0])
    torch.testing.assert_close(method.base.weight.grad, expected)


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
    "base",
    [RelationNet, partial(GNN, nf=8), RENet, partial(MAML, train_steps=1, test_steps=1)],
)
def test_ata_raises_the_loss_and_leaves_the_statistics_alone(base: Any) -> None:
    method, plain = (wrapped(ATA, base, steps=n, lr=1.0, probability=0.0) for n in (2, 0))
    plain.load_state_dict(method.state_dict())
    batch = batch_for(method)
    assert method.loss(batch) > plain.loss(batch)
    # Only the last task is seen by the running statistics: one batch each.
    assert steps_seen(method) == steps_seen(plain)


def test_wrappers_nest_in_one_another() -> None:
    method = wrapped(ATA, lambda: FT(base=LRP(base=GNN(nf=8))), steps=1)
    assert method.trains_on_images
    assert method.n_way == 5
    assert sum(isinstance(m, ToyBackbone) for m in method.modules()) == 1
    assert torch.isfinite(method.loss(batch_for(method)))


def episode(items: Tensor) -> Batch:
    """One task of two ways, one shot and two queries."""
    support, query = items[:2].unflatten(0, (1, 2, 1)), items[None, 2:4]
    return Batch(support, query, query_labels=torch.tensor([[0, 1]]))


@pytest.mark.parametrize("base", [RelationNet, partial(GNN, n_way=2, nf=8), TPN])
def test_ft_draws_at_each_step_and_evaluation_is_that_of_the_base(
    base: Any,
) -> None:
    torch.manual_seed(0)
    backbone, images = ToyBackbone(), torch.randn(4, 3, 20, 20)
    method = FT(base=base())
    maps = method.consumes == "maps"
    method.build((32, 5, 5) if maps else (32,), 0, backbone)

    def items() -> Tensor:
        return backbone(images) if maps else backbone.encode(images)

    plain = items()  # nothing is drawn before the method is trained
    method.train()
    first, second = items(), items()
    assert not torch.allclose(first, second)
    assert not torch.allclose(first, plain)
    assert torch.isfinite(method.loss(episode(first)))
    method.eval()
    torch.testing.assert_close(items(), plain)
    method.train()
    backbone.eval()  # frozen
    torch.testing.assert_close(items(), items())
    batch = episode(items())
    method.eval()
    own = method.scores(*method.embed_episode(batch))
    torch.testing.assert_close(own, method.base.scores(*method.base.embed_episode(batch)))


def test_a_copy_of_ft_has_transformations_of_its_own() -> None:
    backbone, method = ToyBackbone(), FT(base=ProtoNet())
    method.build((32,), 0, backbone)
    own, other = copy.deepcopy((backbone, method))
    images = torch.randn(2, 3, 20, 20)
    method.train()  # and not the copy, such as a teacher
    torch.testing.assert_close(own(images), own(images))
    method.eval()
    other.train()
    torch.testing.assert_close(backbone(images), backbone(images))
    assert not torch.allclose(own(images), own(images))


def test_ft_nests_on_a_method_that_runs_the_backbone_itself() -> None:
    torch.manual_seed(0)
    backbone = ToyBackbone()
    method = FT(base=MAML(n_way=2, train_steps=1), layers=("blocks.1.1",))
    method.build((3, 20, 20), 0, backbone)
    assert method.consumes == "images"
    assert method.n_way == 2
    assert len(method.transformations) == 1
    batch = episode(torch.randn(4, 3, 20, 20))
    method.train()
    assert method.loss(batch) != method.loss(batch)


def test_ft_transforms_the_norms_that_are_named_and_all_by_default() -> None:
    method = FT(base=ProtoNet())
    method.build((32,), 0, ToyBackbone())
    assert len(method.transformations) == 2
    assert not method.state_dict()
    method = FT(base=ProtoNet(), layers=("layer?.bn2",))
    with pytest.raises(OptionError, match=r"got layer\?.bn2; it has blocks.0.1, blocks.1.1"):
        method.build((32,), 0, ToyBackbone())


class Inner(FewShotMethod):
    """The inner product with the mean of a class."""

    weightless = True

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        return query @ support.mean(dim=2).mT


def test_relevances_and_loss_worked_by_hand() -> None:
    # Scores of q = (2, 1) are 2 * 1 and 1 * 3; q belongs to the first way.
    support = torch.tensor([[[[1.0, 0.0]], [[0.0, 3.0]]]])
    query = torch.tensor([[[2.0, 1.0]]])
    batch = Batch(support=support, query=query, query_labels=torch.tensor([[0]]))
    # The log-odds of two ways are their difference, 2 - 3. Of this q has (2, -3) and the support
    # ((2, 0), (0, -3)): divided by the largest of each image, (2/3, -1), (1, 0) and (0, -1).
    method = LRP(base=Inner(), epsilon=0.0)
    parts = relevance(lambda p: method._log_odds(batch, p), (support, query), 0.0)
    torch.testing.assert_close(parts[0], torch.tensor([[[[2.0, 0.0]], [[0.0, -3.0]]]]))
    torch.testing.assert_close(parts[1], torch.tensor([[[2.0, -3.0]]]))
    # Weighted: q = (10/3, 0), the support (2, 0) and (0, 0), so scores 20/3 and 0.
    plain = math.log(1 + math.exp(3 - 2))
    weighted = math.log(1 + math.exp(-20 / 3))
    torch.testing.assert_close(method.loss(batch), torch.tensor(plain + 0.5 * weighted))
    other = LRP(base=Inner(), epsilon=0.0, xi=0.25, lambda_=2.0)
    torch.testing.assert_close(other.loss(batch), torch.tensor(0.25 * plain + 2 * weighted))


def test_the_epsilon_rule_through_two_layers_worked_by_hand() -> None:
    first = torch.tensor([[1.0, 1.0], [1.0, -3.0]])
    second = torch.tensor([[2.0, 5.0]])
    x = torch.tensor([[3.0, 1.0]])

    def run(parts: Any) -> Tensor:
        hidden = functional.relu(functional.linear(parts[0], first))
        return functional.linear(hidden, second).sum()

    # Hidden (4, 0), output 8. With epsilon 2: R of the first hidden is 8 * 8 / (8 + 2) = 6.4, and
    # of x = (3, 1): 3 / (4 + 2) and 1 / (4 + 2) of it.
    [found] = relevance(run, [x], 2.0)
    torch.testing.assert_close(found, torch.tensor([[3.2, 6.4 / 6]]))
    # Without it all relevance arrives.
    assert relevance(run, [x], 0.0)[0].sum().item() == pytest.approx(8.0)


def test_a_layer_and_a_function_follow_the_same_rule() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(4, 3, bias=False), torch.randn(2, 4)
    images, filters = torch.randn(1, 2, 5, 5), nn.Conv2d(2, 3, 3, bias=False)
    for run, other, given in (
        (layer, lambda v: v @ layer.weight.T, x),
        (filters, lambda v: functional.unfold(v, 3).mT @ filters.weight.flatten(1).T, images),
    ):
        [found] = relevance(lambda p, run=run: run(p[0]).sum(), [given], 0.5)
        [expected] = relevance(lambda p, other=other: other(p[0]).sum(), [given], 0.5)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("base", [RelationNet, partial(GNN, nf=8), TPN, RENet])
def test_lrp_reaches_the_weights_and_buffers_see_only_the_two_losses(base: Any) -> None:
    method = wrapped(LRP, base)
    batch = batch_for(method)
    method.loss(batch).backward()
    plain = built(base).train()
    plain.loss(batch)
    assert steps_seen(method) == [2 * count for count in steps_seen(plain)]
    assert any(p.grad is not None and p.grad.any() for p in method.parameters())
