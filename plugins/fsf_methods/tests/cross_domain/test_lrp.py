from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.cross_domain import ATA, LRP
from fsf_methods.cross_domain._lrp import relevance
from fsf_methods.gradient import MAML
from fsf_methods.metric import ProtoNet, RelationNet, RENet
from fsf_methods.transductive import GNN, TPN
from fsf_methods.transfer import Baseline
from fsframework.interfaces import Batch, FewShotMethod, OptionError
from fsframework.testing import parametrize_with_checks
from fsframework.testing.method import ITEM_SHAPES, built


def wrapped(base: Any, **options: Any) -> LRP:
    return LRP(base=base(), **options)


@parametrize_with_checks([partial(wrapped, TPN)])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


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


def counts(method: FewShotMethod) -> list[int]:
    """How many batches each BatchNorm has seen."""
    return [int(b) for n, b in method.named_buffers() if n.endswith("num_batches_tracked")]


@pytest.mark.parametrize("base", [RelationNet, partial(GNN, nf=8), TPN, RENet])
def test_it_nests_and_buffers_see_only_the_two_losses(base: Any) -> None:
    method = built(partial(wrapped, base)).train()
    torch.manual_seed(1)
    shape = ITEM_SHAPES[method.consumes]
    classes = torch.arange(10) % 5
    batch = Batch(torch.rand(1, 5, 1, *shape), torch.rand(1, 10, *shape), classes[None])
    if method.learns_from == "both":
        batch = dataclasses.replace(
            batch,
            support_classes=torch.arange(5).reshape(1, 5, 1),
            query_classes=classes[None],
            items=torch.rand(10, *shape),
            classes=classes,
        )
    loss = method.loss(batch)
    assert torch.isfinite(loss)
    plain = built(base).train()
    plain.loss(batch)
    assert counts(method) == [2 * count for count in counts(plain)]
    loss.backward()
    assert any(p.grad is not None and p.grad.any() for p in method.parameters())


def test_what_does_not_fit_is_one_sentence() -> None:
    with pytest.raises(OptionError, match="learn from episodes, but Baseline learns from batches"):
        LRP(base=Baseline())
    for base in (MAML(), ATA(base=ProtoNet())):
        message = f"trained on vectors or maps, but {type(base).__name__} is trained on images"
        with pytest.raises(OptionError, match=message):
            LRP(base=base)
    with pytest.raises(OptionError, match="xi and lambda_ must not both be 0"):
        LRP(base=ProtoNet(), xi=0.0, lambda_=0.0)
    with pytest.raises(OptionError, match="epsilon must be at least 0 and finite, got -1"):
        LRP(base=ProtoNet(), epsilon=-1.0)
