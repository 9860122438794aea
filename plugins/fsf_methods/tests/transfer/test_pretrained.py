from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from fsf_methods.transfer import KNN, Baseline, BaselinePlusPlus, Cosine, Linear
from fsframework.interfaces import OptionError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks(
    [
        partial(Linear, steps=50),
        partial(Cosine, steps=50),
        KNN,
        partial(KNN, k=1, metric="euclidean"),
    ]
)
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def test_linear_and_cosine_fit_as_the_baselines_do() -> None:
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(2, 3, 2, 7, generator=generator)
    query = torch.randn(2, 5, 7, generator=generator)
    assert torch.equal(Linear().scores(support, query), Baseline().scores(support, query))
    expected = BaselinePlusPlus(scale=10.0, learn_lengths=False).scores(support, query)
    assert torch.equal(Cosine().scores(support, query), expected)


def test_neighbours_worked_by_hand() -> None:
    # On the circle at 0 and 90 degrees, and at 180 and 60.
    support = torch.tensor([[[[2.0, 0.0], [0.0, 3.0]], [[-1.0, 0.0], [0.5, 0.75**0.5]]]])
    query = torch.tensor([[[0.5, 0.75**0.5]]])  # at 60
    # Similarities brought to 0..1: (1 + cosine) / 2.
    beside, here, below = (1 + 0.75**0.5) / 2, 1.0, 0.75
    for k, expected in (
        (1, [0.0, 1 + here / 2]),
        (2, [1 + beside / 2, 1 + here / 2]),
        (3, [2 + (beside + below) / 4, 1 + here / 2]),
        (9, [2 + (beside + below) / 4, 2 + (here + 0.25) / 4]),
    ):
        torch.testing.assert_close(KNN(k=k).scores(support, query), torch.tensor([[expected]]))


def test_neighbours_by_distance_heed_the_length() -> None:
    support = torch.tensor([[[[10.0, 0.0]], [[1.0, 1.0]]]])
    query = torch.tensor([[[1.0, 0.0]]])
    by_angle = KNN(k=1).scores(support, query)
    by_distance = KNN(k=1, metric="euclidean").scores(support, query)
    torch.testing.assert_close(by_angle, torch.tensor([[[1.5, 0.0]]]))
    torch.testing.assert_close(by_distance, torch.tensor([[[0.0, 1.25]]]))


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        (KNN, "k", 0),
        (KNN, "metric", "l1"),
        (Cosine, "scale", 0.0),
        (Cosine, "lr", 0.0),
        (Linear, "optimizer", "lbfgs"),
    ],
)
def test_options_are_checked(method: Any, name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"{name} must be .* got {value!r}"):
        method(**{name: value})
