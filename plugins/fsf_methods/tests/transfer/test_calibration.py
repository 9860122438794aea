from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from fsf_backbones import Conv64F
from fsf_methods.transfer import DistributionCalibration
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks([partial(DistributionCalibration, n_samples=12, memory=8)])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def built(n_base: int, dim: int, **options: Any) -> DistributionCalibration:
    torch.manual_seed(0)
    method = DistributionCalibration(**options)
    method.build((dim,), n_base, Conv64F())
    return method


def step(method: DistributionCalibration, items: list[list[float]], classes: list[int]) -> None:
    method.loss(Batch(items=torch.tensor(items), classes=torch.tensor(classes)))


def test_training_remembers_the_last_vectors_of_each_class() -> None:
    method = built(3, 1, memory=2).train()
    step(method, [[1.0], [2.0], [3.0]], [0, 2, 0])
    assert method.seen.tolist() == [2, 0, 1]
    step(method, [[4.0], [5.0]], [0, 2])
    assert method.remembered[..., 0].tolist() == [[4, 3], [0, 0], [2, 5]]
    method.eval()
    step(method, [[9.0]], [1])
    assert method.seen.tolist() == [3, 0, 2], "evaluation remembers nothing"


def test_a_gaussian_worked_by_hand() -> None:
    method = built(4, 2, k=2, alpha=0.5, memory=3).train()
    # Means (1, 2), (5, 0) and (40, 40); the last class is never seen.
    step(method, [[0.0, 2.0], [2.0, 2.0], [5.0, -1.0], [5.0, 1.0], [40.0, 40.0]], [0, 0, 1, 1, 2])
    # The image's roots are (3, 1). Variances are 2 along one direction each.
    mean, covariance = method.calibrated(torch.tensor([9.0, 1.0]))
    torch.testing.assert_close(mean, torch.tensor([(3 + 1 + 5) / 3, (1 + 2 + 0) / 3]))
    torch.testing.assert_close(covariance, torch.tensor([[1.5, 0.5], [0.5, 1.5]]))


def test_draws_have_the_calibrated_mean_and_covariance() -> None:
    method = built(3, 4, k=2, memory=5).train()
    generator = torch.Generator().manual_seed(0)
    items = torch.rand(15, 4, generator=generator) + 2 * torch.eye(4)[torch.arange(15) % 3]
    step(method, items.tolist(), [i % 3 for i in range(15)])
    image = torch.rand(1, 1, 1, 4, generator=generator)
    found = method._samples(image, *method._of_classes(method._draws(20000)))[0, 0, 0]
    mean, covariance = method.calibrated(image[0, 0, 0])
    torch.testing.assert_close(found.mean(dim=0), mean, rtol=0, atol=0.02)
    torch.testing.assert_close(found.T.cov(), covariance, rtol=0, atol=0.02)


def test_two_ways_and_unseen_classes_have_finite_scores() -> None:
    method = built(3, 4, n_samples=6, memory=5)
    scores = method.scores(torch.rand(2, 2, 1, 4), torch.rand(2, 3, 4))
    assert scores.shape == (2, 3, 2)
    assert scores.isfinite().all()


def test_the_seed_changes_the_draws_only() -> None:
    support, query = torch.rand(1, 3, 2, 4), torch.rand(1, 5, 4)
    scores = [built(3, 4, n_samples=20, seed=s).scores(support, query) for s in (0, 0, 1)]
    assert torch.equal(scores[0], scores[1])
    assert not torch.equal(scores[0], scores[2])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", 0),
        ("alpha", -1.0),
        ("beta", 0.0),
        ("n_samples", 0),
        ("memory", 1),
        ("c", 0.0),
        ("tol", 0.0),
        ("seed", -1),
    ],
)
def test_options_are_checked(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"{name} must be .* got {value!r}"):
        DistributionCalibration(**{name: value})
