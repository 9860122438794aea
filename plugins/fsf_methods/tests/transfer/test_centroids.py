from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch

from fsf_methods.transfer import NCC
from fsframework.interfaces import OptionError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks(
    [
        NCC,
        partial(NCC, normalize=False),
        partial(NCC, metric="euclidean", normalize=False),
        partial(NCC, metric="euclidean", centre=True),
    ]
)
def test_conformance(make: Any, check: Any) -> None:
    check(make)


# Two ways of two shots; their lengths differ, so that it matters whether they are normalised.
SUPPORT = torch.tensor([[[[3.0, 0.0], [0.0, 1.0]], [[-2.0, 0.0], [-4.0, 0.0]]]])
QUERY = torch.tensor([[[0.0, 2.0], [-1.0, 0.0]]])
ROOT = math.sqrt(0.5)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # Means (1/2, 1/2) and (-1, 0) of unit vectors.
        ({}, [[ROOT, 0.0], [-ROOT, 1.0]]),
        # Means (3/2, 1/2) and (-3, 0).
        ({"normalize": False}, [[1 / math.sqrt(10), 0.0], [-3 / math.sqrt(10), 1.0]]),
        # Queries (0, 1) and (-1, 0) to the means of unit vectors.
        ({"metric": "euclidean"}, [[-0.5, -2.0], [-2.5, 0.0]]),
        # Queries as they are to the means (3/2, 1/2) and (-3, 0).
        ({"metric": "euclidean", "normalize": False}, [[-4.5, -13.0], [-6.5, -4.0]]),
        # The support's mean is (-3/4, 1/4): it moves means and queries alike.
        (
            {"metric": "euclidean", "normalize": False, "centre": True},
            [[-4.5, -13.0], [-6.5, -4.0]],
        ),
        # Means (9/4, 1/4) and (-9/4, -1/4), queries (3/4, 7/4) and (-1/4, -1/4).
        (
            {"normalize": False, "centre": True},
            [
                [34 / math.sqrt(82 * 58), -34 / math.sqrt(82 * 58)],
                [-10 / math.sqrt(82 * 2), 10 / math.sqrt(82 * 2)],
            ],
        ),
    ],
)
def test_scores_worked_by_hand(options: dict[str, Any], expected: list[list[float]]) -> None:
    scores = NCC(**options).scores(SUPPORT, QUERY)
    torch.testing.assert_close(scores, torch.tensor([expected]))


def test_vectors_of_zeros_have_finite_scores() -> None:
    for metric in ("cosine", "euclidean"):
        assert (
            NCC(metric=metric)
            .scores(torch.zeros(1, 3, 2, 4), QUERY.repeat(1, 1, 2))
            .isfinite()
            .all()
        )


def test_an_unknown_metric_is_an_error() -> None:
    with pytest.raises(OptionError, match="metric must be 'cosine' or 'euclidean', got 'l1'"):
        NCC(metric="l1")  # type: ignore[arg-type]
