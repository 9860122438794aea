from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fsf_backbones import Conv64F
from fsf_methods.metric import MatchingNet
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks(
    [MatchingNet, partial(MatchingNet, temperature=0.1), partial(MatchingNet, full_context=True)]
)
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def literal(support: Tensor, query: Tensor, temperature: float) -> Tensor:
    """Score ``(way, shot, D)`` and ``(n, D)``: ``(n, way)``."""
    way, shot = support.shape[:2]
    cosines = functional.cosine_similarity(query[:, None], support.flatten(0, 1), dim=-1)
    attention = (cosines / temperature).softmax(dim=1)
    return attention.reshape(-1, way, shot).sum(dim=2).log()


def test_probabilities_worked_by_hand() -> None:
    # Cosines with the query: 1 and 0 for the first class, -1 and 0 for the second.
    support = torch.tensor([[[[2.0, 0.0], [0.0, 1.0]], [[-3.0, 0.0], [0.0, -1.0]]]])
    scores = MatchingNet().scores(support, torch.tensor([[[5.0, 0.0]]]))
    shares = [math.e + 1, 1 / math.e + 1]
    expected = torch.tensor([[[share / sum(shares) for share in shares]]])
    torch.testing.assert_close(scores.exp(), expected)


@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_scores_and_gradients_are_the_literal_ones(temperature: float) -> None:
    torch.manual_seed(0)
    method = MatchingNet(temperature=temperature)
    support = torch.randn(2, 4, 3, 16).requires_grad_()
    query = torch.randn(2, 5, 16).requires_grad_()
    found = method.scores(support, query)
    expected = torch.stack(
        [literal(s, q, temperature) for s, q in zip(support, query, strict=True)]
    )
    torch.testing.assert_close(found, expected)
    mine = torch.autograd.grad(found.square().sum(), (support, query))
    theirs = torch.autograd.grad(expected.square().sum(), (support, query))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_loss_is_the_negative_log_likelihood() -> None:
    torch.manual_seed(0)
    support, query = torch.randn(2, 3, 2, 8), torch.randn(2, 6, 8)
    labels = torch.arange(6).expand(2, 6) % 3
    method = MatchingNet()
    likelihood = method.scores(support, query).gather(2, labels[:, :, None])
    loss = method.loss(Batch(support, query, labels))
    torch.testing.assert_close(loss, -likelihood.mean())


def test_scores_stay_finite_where_probabilities_do_not_stay_above_0() -> None:
    support = torch.tensor([[[[1.0, 0.0]], [[-1.0, 0.0]]]], requires_grad=True)
    query = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]], requires_grad=True)
    scores = MatchingNet(temperature=1e-3).scores(support, query)
    torch.testing.assert_close(scores[0, 0].detach(), torch.tensor([0.0, -2000.0]))
    torch.testing.assert_close(scores[0, 1].exp(), torch.tensor([0.5, 0.5]))
    scores.sum().backward()
    assert support.grad is not None
    assert support.grad.isfinite().all()
    assert query.grad is not None
    assert query.grad.isfinite().all()


def contextual(n_steps: int = 3) -> MatchingNet:
    torch.manual_seed(0)
    method = MatchingNet(full_context=True, n_steps=n_steps)
    method.build((6,), 7, Conv64F())
    return method.eval()


def run_lstm(weights: dict[str, Tensor], inputs: Tensor, suffix: str) -> list[Tensor]:
    """Return the states of an LSTM over ``(m, D)``, as in its equations."""
    states, h, c = [], torch.zeros(inputs.shape[1]), torch.zeros(inputs.shape[1])
    for x in inputs:
        h, c = lstm_step(weights, x, h, c, suffix)
        states.append(h)
    return states


def lstm_step(
    weights: dict[str, Tensor], x: Tensor, h: Tensor, c: Tensor, suffix: str
) -> tuple[Tensor, Tensor]:
    gates = weights[f"weight_ih{suffix}"] @ x + weights[f"bias_ih{suffix}"]
    gates = gates + weights[f"weight_hh{suffix}"] @ h + weights[f"bias_hh{suffix}"]
    i, f, g, o = gates.chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def test_full_context_is_that_of_the_equations() -> None:
    method = contextual()
    support, query = torch.randn(1, 3, 2, 6), torch.randn(1, 4, 6)
    vectors = support[0].flatten(0, 1)
    order = vectors.sum(dim=1).argsort()
    listed = vectors[order]
    of_support = {name: p.detach() for name, p in method.read_support.named_parameters()}
    forward = run_lstm(of_support, listed, "_l0")
    backward = run_lstm(of_support, listed.flip(0), "_l0_reverse")[::-1]
    g = torch.empty_like(vectors)
    for place, f, b in zip(order, forward, backward, strict=True):
        g[place] = f + b + vectors[place]

    of_query = {name: p.detach() for name, p in method.read_query.named_parameters()}
    fs = []
    for x in query[0]:
        h, c = torch.zeros(6), torch.zeros(6)
        for _ in range(3):
            read = (g @ h).softmax(dim=0) @ g
            hidden, c = lstm_step(of_query, torch.cat([x, read]), h, c, "")
            h = hidden + x
        fs.append(h)
    expected = literal(g.reshape(3, 2, 6), torch.stack(fs), 1.0)
    with torch.no_grad():
        torch.testing.assert_close(method.scores(support, query)[0], expected)


def test_full_context_changes_scores_and_learns() -> None:
    method = contextual().train()
    support, query = torch.randn(2, 3, 2, 6), torch.randn(2, 6, 6)
    plain = MatchingNet().scores(support, query)
    assert not torch.allclose(method.scores(support, query), plain)
    method.loss(Batch(support, query, torch.arange(6).expand(2, 6) % 3)).backward()
    assert all(p.grad is not None and p.grad.any() for p in method.parameters())


def test_works_in_half_and_double_precision() -> None:
    for dtype in (torch.bfloat16, torch.float64):
        support, query = torch.randn(2, 5, 1, 8, dtype=dtype), torch.randn(2, 3, 8, dtype=dtype)
        assert MatchingNet().scores(support, query).dtype == dtype


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature must be above 0, got 0.0"),
        ({"n_steps": 0}, "n_steps must be at least 1, got 0"),
    ],
)
def test_options_are_validated(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        MatchingNet(**options)
