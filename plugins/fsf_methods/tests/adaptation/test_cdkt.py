from __future__ import annotations

import itertools
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fsf_backbones import Conv64F
from fsf_methods.adaptation import CDKT
from fsf_methods.adaptation._logistic_softmax import (
    MeanField,
    drawn_probabilities,
    expected_log_sigmoid,
    log_probabilities,
)
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks
from tests.golden_heads import (
    Case,
    assert_array,
    assert_loss,
    assert_scores,
    golden_heads,
    read_case,
)


@parametrize_with_checks(
    [
        CDKT,
        partial(CDKT, objective="pl", kernel="rbf", mean=-1.0, temperature=0.5, test_steps=5),
        partial(CDKT, kernels="per-way", n_way=4, form="code", objective="pl", n_samples=50),
    ]
)
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def of_case(case: Case) -> CDKT:
    method = CDKT(
        kernel=case.text("kernel"),  # type: ignore[arg-type]
        kernels="per-way",
        n_way=case.way,
        temperature=float(case.arrays["temperature"].item()),
        mean=float(case.arrays["negmean"].item()),
        train_steps=int(case.arrays["steps_train"].item()),
        test_steps=int(case.arrays["steps_test"].item()),
        form="code",
    )
    method.build((case.arrays["query"].shape[1],), 0, Conv64F())
    state = {"raw_outputscale": case.tensor("outputscale")}
    if method.kernel == "rbf":
        state["raw_lengthscale"] = case.tensor("lengthscale")
    method.load_state_dict({name: scale.expm1().log() for name, scale in state.items()})
    return method.eval()


def started(case: Case, method: CDKT, items: Tensor, targets: Tensor, prefix: str) -> MeanField:
    """Return the posterior of items ``(m, D)`` from the given start, after its steps."""
    field = MeanField(
        method.covariance(items[None], items[None]),
        targets[None],
        temperature=method.temperature,
        mean=method.mean,
    )
    field.mu = case.tensor(f"{prefix}_mu")[None]
    field.alpha = case.tensor(f"{prefix}_alpha")[None]
    field.omega = case.tensor(f"{prefix}_omega")[None]
    for _ in range(method.test_steps if prefix == "initial" else method.train_steps):
        field.step()
    return field


@golden_heads("CDKT")
def test_golden_heads_cdkt(path: Path) -> None:
    case = read_case(path)
    method = of_case(case)
    support, query = (method.embed(case.tensor(name)) for name in ("support", "query"))
    ways = torch.eye(case.way)
    field = started(
        case, method, support.flatten(0, 1), ways.repeat_interleave(case.shot, 1), "initial"
    )
    assert_array(field.mu[0], case.tensor("mu"))
    assert_array(field.variance[0], case.tensor("sigma").diagonal(dim1=1, dim2=2))
    cross = method.covariance(query[None], support.flatten(0, 1)[None])
    mean = field.predictive_mean(cross, with_prior=False)
    covariance = field.predictive_covariance(cross, method.covariance(query[None], query[None]))
    assert_array(mean[0], case.tensor("posterior_mean"))
    assert_array(covariance[0], case.tensor("posterior_covariance"))
    drawn = drawn_probabilities(mean, covariance, case.tensor("eps"), method.temperature)
    assert_scores(drawn[0].mT, case.tensor("scores"))
    # With its own start, and the integral for 200 samples, whose standard error is about 0.01.
    exact = method.scores(support[None], query[None])[0].exp()
    torch.testing.assert_close(exact, case.tensor("scores"), atol=0.08, rtol=0)
    # The bound is that of support and queries, class by class.
    together = torch.cat([support, query.reshape(case.way, -1, query.shape[1])], dim=1)
    targets = ways.repeat_interleave(together.shape[1], 1)
    field = started(case, method, together.flatten(0, 1), targets, "initial_train")
    assert_array(field.mu[0], case.tensor("elbo_mu"))
    assert_loss(-field.lower_bound(complete=False)[0].detach(), case.tensor("loss"))


def gaussians() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    mean = 3 * torch.randn(1, 4, 6, generator=generator, dtype=torch.float64)
    return mean - 2, 4 * torch.rand(1, 4, 6, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_integral_is_what_many_samples_approach(temperature: float) -> None:
    mean, variance = gaussians()
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(200_000, 4, 6, generator=generator, dtype=torch.float64)
    latent = (mean[0] + variance[0].sqrt() * noise) / temperature
    odds = latent.sigmoid()
    expected = (odds / odds.sum(dim=1, keepdim=True)).mean(dim=0)
    found = log_probabilities(mean, variance, temperature)[0].exp()
    torch.testing.assert_close(found, expected, atol=3e-3, rtol=0)
    torch.testing.assert_close(
        expected_log_sigmoid(mean, variance, temperature)[0],
        torch.nn.functional.logsigmoid(latent).mean(dim=0),
        atol=3e-2,
        rtol=0,
    )


def test_without_variance_the_probabilities_are_those_of_the_means() -> None:
    # Sigmoids of 1/2 and 3/4.
    mean = torch.tensor([[[0.0], [math.log(3)]]])
    found = log_probabilities(mean, torch.zeros_like(mean), 1.0)[0, :, 0].exp()
    torch.testing.assert_close(found, torch.tensor([0.4, 0.6]), atol=1e-5, rtol=0)
    # Far below 0, where all sigmoids are small, their ratio is e.
    found = log_probabilities(torch.tensor([[[-50.0], [-51.0]]]), torch.zeros(1, 2, 1), 1.0)
    torch.testing.assert_close(found[0, 0] - found[0, 1], torch.tensor([1.0]), atol=1e-4, rtol=0)


def test_one_step_worked_by_hand() -> None:
    # One item, two ways, K = 2: every update is a number.
    field = MeanField(
        torch.full((1, 1, 1, 1), 2.0),
        torch.tensor([[[1.0], [0.0]]]),
        temperature=1.0,
        mean=-1.0,
    )
    field.step()
    g = 0.1
    gamma = math.exp(torch.digamma(torch.tensor(7.5))) / (4 * math.cosh(g / 2))
    variance = 1 / (1 / 2 + 0.5)
    mu = [variance * ((y - gamma) / 2 - 1 / 2) for y in (1, 0)]
    omega = [(gamma + y) * math.tanh(g / 2) / (2 * g) for y in (1, 0)]
    torch.testing.assert_close(field.alpha, torch.tensor([[1 + 2 * gamma]]))
    torch.testing.assert_close(field.variance.flatten(), torch.tensor([variance] * 2))
    torch.testing.assert_close(field.mu.flatten(), torch.tensor(mu))
    torch.testing.assert_close(field.omega.flatten(), torch.tensor(omega))


def test_the_bound_does_not_fall_from_step_to_step() -> None:
    generator = torch.Generator().manual_seed(0)
    items = torch.randn(3, 12, 5, generator=generator, dtype=torch.float64)
    covariance = (items @ items.mT / 5)[:, None]
    targets = torch.eye(3, dtype=torch.float64).repeat(1, 4).expand(3, -1, -1)
    field = MeanField(covariance, targets, temperature=0.7, mean=0.3)
    bounds = []
    for _ in range(60):
        field.step()
        bounds.append(field.lower_bound(complete=True))
    # Factors of two steps meet in the bound, so the first ones may overshoot.
    for before, after in itertools.pairwise(bounds[10:]):
        assert (after >= before - 1e-9).all()
    # At the end it is below the log-likelihood, which is below 0.
    assert (bounds[-1] < 0).all()
    torch.testing.assert_close(bounds[-1], bounds[-2], atol=1e-6, rtol=0)


def test_more_images_than_dimensions_have_finite_scores_and_gradients() -> None:
    method = CDKT()
    method.build((3,), 0, Conv64F())
    generator = torch.Generator().manual_seed(0)
    batch = Batch(
        support=torch.rand(2, 3, 10, 3, generator=generator),
        query=torch.rand(2, 30, 3, generator=generator),
        query_labels=torch.arange(30).expand(2, -1) % 3,
    )
    loss = method.loss(batch)
    loss.backward()
    assert loss.isfinite()
    assert method.raw_outputscale.grad is not None
    assert method.raw_outputscale.grad.isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature must be above 0, got 0"),
        ({"test_steps": 0}, "test_steps must be at least 1, got 0"),
        ({"kernel": "cosine"}, "kernel must be one of linear, rbf, got 'cosine'"),
        ({"kernels": "per-way", "n_way": 1}, "n_way must be at least 2 for kernels per way, got 1"),
        ({"n_samples": 10}, "n_samples needs kernels = 'per-way'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        CDKT(**options)
