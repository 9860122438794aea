from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fsf_methods.metric import ProtoNet
from fsframework.interfaces import Batch
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks([ProtoNet])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def test_scores_of_two_tasks_worked_by_hand() -> None:
    support = torch.tensor(
        [
            [[[0.0, 0.0], [2.0, 0.0]], [[0.0, 4.0], [0.0, 6.0]]],  # prototypes (1, 0), (0, 5)
            [[[1.0, 1.0], [1.0, 1.0]], [[-1.0, 0.0], [-3.0, 0.0]]],  # prototypes (1, 1), (-2, 0)
        ]
    )
    query = torch.tensor([[[1.0, 1.0], [0.0, 5.0]], [[0.0, 0.0], [1.0, 1.0]]])
    expected = torch.tensor([[[-1.0, -17.0], [-26.0, 0.0]], [[-2.0, -4.0], [0.0, -10.0]]])
    torch.testing.assert_close(ProtoNet().scores(support, query), expected)


def test_loss_is_the_cross_entropy_of_the_scores() -> None:
    support = torch.tensor([[[[0.0]], [[2.0]]]])
    query = torch.tensor([[[0.0], [1.0]]])
    loss = ProtoNet().loss(Batch(support, query, torch.tensor([[0, 0]])))
    # The first query is 0 and 4 from the prototypes, the second 1 from both.
    expected = (torch.log1p(torch.exp(torch.tensor(-4.0))) + torch.log(torch.tensor(2.0))) / 2
    torch.testing.assert_close(loss, expected)


def literal(support: Tensor, query: Tensor) -> Tensor:
    return -(query[:, :, None] - support.mean(dim=2)[:, None]).square().sum(dim=-1)


def test_scores_and_gradients_are_those_of_the_literal_distance() -> None:
    torch.manual_seed(0)
    # Far from the origin, as features after a ReLU are.
    support = (torch.randn(3, 5, 4, 64) + 2).requires_grad_()
    query = (torch.randn(3, 7, 64) + 2).requires_grad_()
    expected = literal(support.double(), query.double())
    scores = ProtoNet().scores(support, query)
    spread = (expected.amax(dim=2) - expected.amin(dim=2)).mean()
    assert (scores - expected).abs().max() / spread < 1e-4
    weights = torch.randn(3, 7, 5)
    found = torch.autograd.grad((scores * weights).sum(), (support, query))
    wanted = torch.autograd.grad((expected * weights).sum(), (support, query))
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_gradient_is_finite_for_vectors_of_zeros() -> None:
    query = torch.zeros(1, 2, 8, requires_grad=True)
    ProtoNet().scores(torch.zeros(1, 5, 1, 8), query).sum().backward()
    assert query.grad is not None
    assert query.grad.isfinite().all()


def test_works_in_half_and_double_precision() -> None:
    for dtype in (torch.bfloat16, torch.float64):
        support, query = torch.randn(2, 5, 1, 8, dtype=dtype), torch.randn(2, 3, 8, dtype=dtype)
        assert ProtoNet().scores(support, query).dtype == dtype
