from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch

from fsf_methods.adaptation import PUTM
from fsframework.interfaces import OptionError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks([PUTM, partial(PUTM, steps=3, beta=1.0, gamma=0.3)])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


SUPPORT = torch.tensor([[[[2.0, 0.0]], [[0.0, 3.0]]]])
QUERY = torch.tensor([[[1.0, 0.0], [4.0, 0.0], [0.0, 1.0]]])


def test_without_rounds_it_is_a_softmax_of_distances() -> None:
    scores = PUTM(steps=0, temperature=math.log(2), centre=False).scores(SUPPORT, QUERY)[0].exp()
    # The costs are 0 and 1, so odds are 2 to 1.
    expected = torch.tensor([[2 / 3, 1 / 3], [2 / 3, 1 / 3], [1 / 3, 2 / 3]])
    torch.testing.assert_close(scores, expected)


@pytest.mark.parametrize(
    ("beta", "mass"),
    [
        # Forward: shares 2/3, 2/3, 1/3 of the first class and 1/3, 1/3, 2/3 of the second.
        (1.0, [[2 / 3, 2 / 3, 1 / 3], [1 / 3, 1 / 3, 2 / 3]]),
        # Backward: weights 2, 2, 1 of 5 and 1, 1, 2 of 4, times 3 queries over 2 classes.
        (0.0, [[3 / 5, 3 / 5, 3 / 10], [3 / 8, 3 / 8, 3 / 4]]),
    ],
)
def test_one_round_worked_by_hand(beta: float, mass: list[list[float]]) -> None:
    tau = math.log(2)
    method = PUTM(steps=1, temperature=tau, beta=beta, gamma=2.0, centre=False)
    scores = method.scores(SUPPORT, QUERY)[0]
    # The data's prior is (5/9, 4/9), whichever part moves the prototypes.
    logits = torch.tensor([5 / 9, 4 / 9]).log().repeat(3, 1)
    units = [(1.0, 0.0), (1.0, 0.0), (0.0, 1.0)]
    for way, (start, own) in enumerate(zip([(1.0, 0.0), (0.0, 1.0)], mass, strict=True)):
        weight = 1 + 2 * sum(own)
        mu = [
            (start[d] + 2 * sum(m * u[d] for m, u in zip(own, units, strict=True))) / weight
            for d in range(2)
        ]
        for j, unit in enumerate(units):
            cosine = sum(u * m for u, m in zip(unit, mu, strict=True)) / math.hypot(*mu)
            logits[j, way] -= tau * (1 - cosine)
    torch.testing.assert_close(scores, logits.log_softmax(dim=1))


def test_the_mean_of_support_and_queries_is_subtracted() -> None:
    # Centred by hand, and of length 1 before and after: the mean is (3/5, 2/5).
    given = torch.tensor([[0.4, -0.4], [-0.6, 0.6]])
    by_hand = PUTM(steps=2, centre=False).scores(given[None, :, None], given[[0, 0, 1]][None])
    torch.testing.assert_close(PUTM(steps=2).scores(SUPPORT, QUERY), by_hand)


@pytest.mark.parametrize("counts", [[15, 15, 15, 15, 15], [35, 20, 10, 5, 5]])
def test_queries_improve_prototypes_of_few_images(counts: list[int]) -> None:
    generator = torch.Generator().manual_seed(0)
    centres = 0.8 * torch.randn(50, 5, 64, generator=generator).relu()
    labels = torch.arange(5).repeat_interleave(torch.tensor(counts))
    support = (centres[:, :, None] + torch.randn(50, 5, 1, 64, generator=generator)).relu()
    query = (centres[:, labels] + torch.randn(50, 75, 64, generator=generator)).relu()
    before, after = (
        (PUTM(steps=steps).scores(support, query).argmax(2) == labels).float().mean()
        for steps in (0, 10)
    )
    assert after > before + 0.08


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": -1}, "steps must be at least 0, got -1"),
        ({"temperature": 0.0}, "temperature must be above 0, got 0"),
        ({"beta": 1.1}, "beta must be at most 1, got 1.1"),
        ({"gamma": -1.0}, "gamma must be at least 0, got -1"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        PUTM(**options)
