from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fsf_methods.metric import R2D2
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks([R2D2, partial(R2D2, learn_lambda=False, initial_alpha=10.0)])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def literal(method: R2D2, support: Tensor, query: Tensor) -> Tensor:
    """Solve the primal system, one row per number of a vector, task by task, in float64."""
    scores = []
    for s, q in zip(support.double(), query.double(), strict=True):
        x = s.flatten(0, 1)
        y = torch.eye(len(s), dtype=torch.float64).repeat_interleave(s.shape[1], dim=0)
        ridge = method.regularisation.double() * torch.eye(x.shape[1], dtype=torch.float64)
        scores.append(method.scale * (q @ torch.linalg.inv(x.T @ x + ridge) @ x.T @ y))
    return torch.stack(scores) + method.bias


def test_scores_worked_by_hand() -> None:
    # X = I, so W = Y / (1 + lambda) = I / 4; scores are 2 Q / 4 + 0.5.
    method = R2D2(initial_lambda=3.0, initial_alpha=2.0, initial_beta=0.5)
    support = torch.eye(2).reshape(1, 2, 1, 2)
    scores = method.scores(support, torch.tensor([[[1.0, 3.0], [0.0, -4.0]]]))
    torch.testing.assert_close(scores, torch.tensor([[[1.0, 2.0], [0.5, -1.5]]]))


@pytest.mark.parametrize("width", [3, 40, 1100])
def test_scores_and_gradients_are_those_of_the_primal_system(width: int) -> None:
    torch.manual_seed(0)
    method = R2D2(initial_lambda=5.0, initial_alpha=1.5, initial_beta=-0.2)
    support = torch.randn(3, 4, 5, width).relu().requires_grad_()
    query = torch.randn(3, 6, width).relu().requires_grad_()
    found, expected = method.scores(support, query), literal(method, support, query)
    torch.testing.assert_close(found, expected.float(), rtol=1e-4, atol=1e-5)
    assert found.dtype == torch.float32
    leaves = [support, query, *method.parameters()]
    mine = torch.autograd.grad(found.square().sum(), leaves)
    theirs = torch.autograd.grad(expected.square().sum(), leaves)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_few_dimensions_and_many_images_keep_the_digits_of_float64() -> None:
    torch.manual_seed(0)
    method = R2D2()
    support, query = 100 + 10 * torch.randn(2, 5, 15, 32), 100 + 10 * torch.randn(2, 9, 32)
    with torch.no_grad():
        found, expected = method.scores(support, query), literal(method, support, query)
    torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=1e-5)


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
    torch.manual_seed(0)
    method = R2D2()
    support, query = torch.randn(2, 5, 2, 16), torch.randn(2, 10, 16)
    labels = torch.arange(10).expand(2, 10) % 5
    loss = method.loss(Batch(support, query, labels))
    expected = functional.cross_entropy(method.scores(support, query).flatten(0, 1), labels.ravel())
    torch.testing.assert_close(loss, expected)
    loss.backward()
    gradients = {name: p.grad.item() for name, p in method.named_parameters() if p.grad is not None}
    assert abs(gradients["regularisation"]) > 1e-6
    assert abs(gradients["scale"]) > 1e-3
    assert abs(gradients["bias"]) < 1e-6
    assert not R2D2(learn_lambda=False).regularisation.requires_grad


def test_half_precision_is_solved_in_full() -> None:
    torch.manual_seed(0)
    support, query = torch.randn(1, 5, 3, 1200).bfloat16(), torch.randn(1, 4, 1200).bfloat16()
    method = R2D2()
    expected = method.scores(support.float(), query.float())
    assert torch.equal(method.scores(support, query), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(method.scores(support.float(), query.float()), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial_lambda": 0.0}, "initial_lambda must be above 0 and finite, got 0.0"),
        ({"initial_alpha": 0.0}, "initial_alpha must be finite and not 0, got 0.0"),
        ({"initial_beta": float("nan")}, "initial_beta must be finite, got nan"),
    ],
)
def test_options_are_validated(options: dict[str, float], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        R2D2(**options)  # type: ignore[arg-type]
