from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fsf_backbones import Conv64F
from fsf_methods.gradient import ANIL
from fsframework.interfaces import Batch, OptionError


def built(size: int, **options: Any) -> ANIL:
    torch.manual_seed(0)
    method = ANIL(**options)
    method.build((size,), 0, Conv64F())
    return method.double()


def test_two_steps_worked_by_hand() -> None:
    method = built(1, n_way=2, inner_lr=1.0, test_steps=2).eval()
    with torch.no_grad():
        method.classify.weight.zero_()
        method.classify.bias.zero_()
    support = torch.tensor([[[[1.0]], [[-1.0]]]]).double()
    query = torch.tensor([[[2.0]]]).double()
    # At first both probabilities are 1/2 and the gradients of the weights -1/2 and 1/2, without
    # one of the biases; then the logits of the first image differ by 1, and its residual is r.
    r = 1 / (1 + torch.tensor(1.0).double().exp())
    expected = 2 * (0.5 + r)
    with torch.no_grad():
        torch.testing.assert_close(
            method.scores(support, query)[0, 0], torch.stack([expected, -expected])
        )


def literal(method: ANIL, support: Tensor, query: Tensor, steps: int) -> Tensor:
    """Return the logits of one task, support ``(way, shot, D)``, by PyTorch's gradients."""
    way, shot, _ = support.shape
    labels = torch.arange(way).repeat_interleave(shot)
    head = method.classify.start(1, way)
    weight, bias = head[0][0], head[1][0]
    for _ in range(steps):
        logits = functional.linear(support.flatten(0, 1), weight, bias)
        loss = functional.cross_entropy(logits, labels)
        found = torch.autograd.grad(loss, (weight, bias), create_graph=not method.first_order)
        weight, bias = weight - method.inner_lr * found[0], bias - method.inner_lr * found[1]
    return functional.linear(query, weight, bias)


@pytest.mark.parametrize("options", [{}, {"head": "shared"}, {"first_order": True}])
@pytest.mark.parametrize("training", [True, False])
def test_scores_and_gradients_are_those_of_a_loop(options: Any, training: bool) -> None:
    method = built(6, n_way=3, inner_lr=0.4, train_steps=3, test_steps=5, **options)
    method.train(training)
    support = torch.randn(4, 3, 2, 6).double().requires_grad_()
    query = torch.randn(4, 7, 6).double().requires_grad_()
    steps = 3 if training else 5
    expected = torch.stack(
        [literal(method, s, q, steps) for s, q in zip(support, query, strict=True)]
    )
    scores = method.scores(support, query)
    torch.testing.assert_close(scores, expected)
    direction = torch.randn_like(scores)
    leaves = [query, *method.parameters()]
    if not method.first_order:
        leaves.append(support)
    found = torch.autograd.grad((scores * direction).sum(), leaves)
    wanted = torch.autograd.grad((expected * direction).sum(), leaves)
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_long_vectors_and_high_rates_do_not_amplify_rounding() -> None:
    method = built(1600, inner_lr=0.05, test_steps=10).eval()
    support, query = torch.randn(2, 5, 5, 1600).abs(), torch.randn(2, 20, 1600).abs()
    with torch.no_grad():
        expected = method.scores(support.double(), query.double())
        scores = method.float().scores(support, query).double()
    spread = (expected.amax(dim=2) - expected.amin(dim=2)).mean()
    assert (scores - expected).abs().max() / spread < 1e-3


def test_loss_in_half_precision_adapts_in_single() -> None:
    method = built(6, n_way=3).float().train()
    labels = torch.zeros(2, 4, dtype=torch.int64)
    batch = Batch(torch.randn(2, 3, 2, 6), torch.randn(2, 4, 6), labels)
    expected = method.loss(batch)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(method.loss(batch), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inner_lr": -1.0}, "inner_lr must be above 0, got -1.0"),
        ({"test_steps": 0}, "test_steps must be at least 1, got 0"),
        ({"n_way": 1}, "n_way must be at least 2 for a learned head, got 1"),
    ],
)
def test_options_outside_their_range_are_refused(options: Any, message: str) -> None:
    with pytest.raises(OptionError, match=f"^{message}$"):
        ANIL(**options)
