"""The methods that compare vectors: ProtoNet, MatchingNet, R2D2 and VERSA."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.metric import R2D2, MatchingNet, ProtoNet, Versa
from fsframework.interfaces import Batch
from plugins.fsf_methods.tests.toys import assert_same_gradients, built, by_task, episode


def test_loss_is_the_cross_entropy_of_the_scores() -> None:
    support = torch.tensor([[[[0.0]], [[2.0]]]])
    query = torch.tensor([[[0.0], [1.0]]])
    loss = ProtoNet().loss(Batch(support, query, torch.tensor([[0, 0]])))
    # The first query is 0 and 4 from the prototypes, the second 1 from both.
    expected = (torch.log1p(torch.exp(torch.tensor(-4.0))) + torch.log(torch.tensor(2.0))) / 2
    torch.testing.assert_close(loss, expected)


def distances(method: Any, support: Tensor, query: Tensor) -> Tensor:
    return -(query[:, None] - support.mean(dim=1)).square().sum(dim=-1)


def test_scores_and_gradients_of_protonet_are_the_literal_ones() -> None:
    # Far from the origin, as features after a ReLU are.
    batch = episode(64, tasks=3, way=5, shot=4, n=7)
    support, query = (x.add(2).requires_grad_() for x in (batch.support, batch.query))
    expected = by_task(distances, None, Batch(support.double(), query.double()))
    scores = ProtoNet().scores(support, query)
    spread = (expected.amax(dim=2) - expected.amin(dim=2)).mean()
    assert (scores - expected).abs().max() / spread < 1e-4
    assert_same_gradients(scores, expected, (support, query), rtol=1e-4, atol=1e-4)


def attended(method: Any, support: Tensor, query: Tensor) -> Tensor:
    """Score ``(way, shot, D)`` and ``(n, D)``: ``(n, way)``."""
    way, shot = support.shape[:2]
    cosines = functional.cosine_similarity(query[:, None], support.flatten(0, 1), dim=-1)
    attention = (cosines / method.temperature).softmax(dim=1)
    return attention.reshape(-1, way, shot).sum(dim=2).log()


@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_scores_and_gradients_of_matchingnet_are_the_literal_ones(temperature: float) -> None:
    method, batch = MatchingNet(temperature=temperature), episode(16, way=4, shot=3, n=5)
    leaves = batch.support.requires_grad_(), batch.query.requires_grad_()
    found, expected = method.scores(*leaves), by_task(attended, method, batch)
    torch.testing.assert_close(found, expected)
    assert_same_gradients(found, expected, leaves, rtol=1e-4, atol=1e-4)
    likelihood = expected.gather(2, batch.query_labels[:, :, None])
    torch.testing.assert_close(method.loss(batch), -likelihood.mean())


def test_scores_stay_finite_where_probabilities_do_not_stay_above_0() -> None:
    support = torch.tensor([[[[1.0, 0.0]], [[-1.0, 0.0]]]])
    query = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]])
    scores = MatchingNet(temperature=1e-3).scores(support, query)
    torch.testing.assert_close(scores[0, 0], torch.tensor([0.0, -2000.0]))
    torch.testing.assert_close(scores[0, 1].exp(), torch.tensor([0.5, 0.5]))


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
    method = built(MatchingNet, 6, full_context=True, n_steps=3)
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
    expected = attended(method, g.reshape(3, 2, 6), torch.stack(fs))
    with torch.no_grad():
        torch.testing.assert_close(method.scores(support, query)[0], expected)


def primal(method: R2D2, support: Tensor, query: Tensor) -> Tensor:
    """Solve the primal system, one row per number of a vector, in float64."""
    x = support.double().flatten(0, 1)
    y = torch.eye(len(support), dtype=torch.float64).repeat_interleave(support.shape[1], dim=0)
    ridge = method.regularisation.double() * torch.eye(x.shape[1], dtype=torch.float64)
    scores = query.double() @ torch.linalg.inv(x.T @ x + ridge) @ x.T @ y
    return (method.scale * scores + method.bias).float()


@pytest.mark.parametrize("width", [3, 40, 1100])
def test_scores_and_gradients_of_r2d2_are_those_of_the_primal_system(width: int) -> None:
    method = R2D2(initial_lambda=5.0, initial_alpha=1.5, initial_beta=-0.2)
    batch = episode(width, tasks=3, way=4, shot=5)
    leaves = batch.support.requires_grad_(), batch.query.requires_grad_()
    found, expected = method.scores(*leaves), by_task(primal, method, batch)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    leaves = [*leaves, *method.parameters()]
    assert_same_gradients(found, expected, leaves, rtol=1e-3, atol=1e-4)


def test_few_dimensions_and_many_images_keep_the_digits_of_float64() -> None:
    torch.manual_seed(0)
    method = R2D2()
    batch = Batch(100 + 10 * torch.randn(2, 5, 15, 32), 100 + 10 * torch.randn(2, 9, 32))
    with torch.no_grad():
        found, expected = method.scores(batch.support, batch.query), by_task(primal, method, batch)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [16, 2000])
def test_a_lambda_that_training_took_to_zero_or_below_and_twins_give_finite_scores(
    width: int,
) -> None:
    method = R2D2()
    twins = torch.randn(1, 3, 1, width, generator=torch.Generator().manual_seed(0))
    for value in (0.0, -2.0):
        with torch.no_grad():
            method.regularisation.fill_(value)
        scores = method.scores(twins.expand(1, 3, 4, width), twins[:, :, 0])
        assert scores.isfinite().all()
        assert scores.argmax(dim=2).tolist() == [[0, 1, 2]]


def test_lambda_and_alpha_are_learned_and_beta_has_no_influence_on_the_loss() -> None:
    method = R2D2()
    method.loss(episode(16, way=5, n=10)).backward()
    gradients = {name: abs(p.grad.item()) for name, p in method.named_parameters()}
    assert gradients["regularisation"] > 1e-6
    assert gradients["scale"] > 1e-3
    assert gradients["bias"] < 1e-6
    assert not R2D2(learn_lambda=False).regularisation.requires_grad


def constant(network: nn.Module, values: list[float]) -> None:
    """Let a network return given numbers, whatever it is given."""
    last = network[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor(values))


def versa(**options: Any) -> Versa:
    """A classifier with the weights (1, 2), the variances (4, 1) and the bias 0.5 ± sqrt(3)."""
    method = Versa(dim=2, **options)
    method.build((2,), 0, None)
    constant(method.weight_mean, [1.0, 2.0])
    constant(method.weight_logvar, [math.log(4), 0.0])
    constant(method.bias_mean, [0.5])
    constant(method.bias_logvar, [math.log(3)])
    return method.eval()


SUPPORT, QUERY = torch.zeros(1, 2, 1, 2), torch.tensor([[[3.0, 1.0]]])


# The logits are 3 + 2 + 0.5, their variance 9 * 4 + 1 * 1 + 3 = 40.
MEAN, DEVIATION = 5.5, math.sqrt(40)


NOISE = torch.tensor([[1.0, -1.0], [0.5, 0.0]])[:, None, None]


def logits() -> list[list[float]]:
    return [[MEAN + DEVIATION * e for e in draw] for draw in ((1.0, -1.0), (0.5, 0.0))]


def softmax(pair: list[float]) -> list[float]:
    total = sum(map(math.exp, pair))
    return [math.exp(x) / total for x in pair]


def test_scores_of_versa_are_the_logits_of_the_mean_weights() -> None:
    torch.testing.assert_close(versa().scores(SUPPORT, QUERY), torch.tensor([[[MEAN, MEAN]]]))


@pytest.mark.parametrize("average", ["probabilities", "logits"])
def test_scores_of_versa_from_noise_worked_by_hand(average: Any) -> None:
    found = versa(average=average).scores_from(SUPPORT, QUERY, NOISE)
    draws = logits()
    if average == "probabilities":
        draws = [[math.log(p) for p in softmax(pair)] for pair in draws]
    expected = [math.log((math.exp(a) + math.exp(b)) / 2) for a, b in zip(*draws, strict=True)]
    torch.testing.assert_close(found, torch.tensor([[expected]]), rtol=1e-4, atol=1e-4)


def test_the_loss_averages_likelihoods_worked_by_hand() -> None:
    labels = torch.tensor([[1]])
    found = versa().loss_from(SUPPORT, QUERY, labels, NOISE)
    mean = sum(softmax(pair)[1] for pair in logits()) / 2
    torch.testing.assert_close(found, torch.tensor(-math.log(mean)), rtol=1e-4, atol=1e-4)


def test_versa_draws_in_training_unless_it_is_told_not_to() -> None:
    batch = episode(5)
    for sample in (True, False):
        method = built(Versa, 5, dim=4, sample=sample)
        assert (method.loss(batch) != method.loss(batch)) == sample
