from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fsf_backbones import Conv64F
from fsf_methods.local import CovaMNet, _descriptors
from fsframework.interfaces import OptionError
from fsframework.testing import parametrize_with_checks
from plugins.fsf_methods.tests.local.maps import episode, rows, scored


@parametrize_with_checks([CovaMNet, partial(CovaMNet, divisor="locations", dropout=0.0)])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def built(side: int = 3, **options: Any) -> CovaMNet:
    torch.manual_seed(0)
    method = CovaMNet(**options)
    method.build((6, side, side), 0, Conv64F())
    return method.eval()


def literal(method: CovaMNet, support: Tensor, query: Tensor) -> Tensor:
    """Score maps ``(n, C, h, w)`` for classes ``(way, shot, C, h, w)``, one pair at a time."""
    scores = torch.zeros(len(query), len(support))
    for k, maps in enumerate(support):
        sigma = rows(maps).T.cov()
        if method.divisor == "locations":
            locations = maps[0, 0].numel()
            sigma = sigma * (len(maps) * locations - 1) / (locations - 1)
        for i, q in enumerate(query):
            x = rows(q[None]) - rows(q[None]).mean(dim=0)
            numbers = functional.leaky_relu(torch.stack([v @ sigma @ v for v in x]), 0.2)
            scores[i, k] = method.weigh(numbers)
    return scores


@pytest.mark.parametrize("at_once", [1, 500, 1 << 20])
@pytest.mark.parametrize(("side", "shot"), [(2, 1), (3, 2)])
@pytest.mark.parametrize("divisor", ["descriptors", "locations"])
def test_scores_are_the_literal_ones(
    divisor: str, side: int, shot: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_descriptors._NUMBERS_AT_ONCE, "cpu", at_once)
    method, batch = built(side, divisor=divisor), episode(side=side, shot=shot)
    assert batch.support is not None
    assert batch.query is not None
    with torch.no_grad():
        pairs = zip(batch.support, batch.query, strict=True)
        expected = torch.stack([literal(method, s, q) for s, q in pairs])
    torch.testing.assert_close(scored(method, batch), expected, rtol=1e-4, atol=1e-5)


def test_scores_worked_by_hand() -> None:
    # Class 0 varies along x: its descriptors (2, 0) and (-2, 0) have the variance 8 / 1.
    support = torch.tensor([[[2.0, -2.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, -1.0]]])
    query = torch.tensor([[[[[3.0, 1.0]], [[0.0, 2.0]]]]])  # minus its mean: (1, -1) and (-1, 1)
    method = CovaMNet()
    method.build((2, 1, 2), 0, Conv64F())
    with torch.no_grad():
        method.weigh.weight.copy_(torch.tensor([[1.0, 10.0]]))
        method.weigh.bias.fill_(0.5)
    method.eval()
    embedded = method.embed(support[:, :, None]), method.embed(query[0])
    with torch.no_grad():
        found = method.scores(embedded[0][None, :, None], embedded[1][None])
    torch.testing.assert_close(found, torch.tensor([[[88.5, 22.5]]]))


def test_dropout_only_changes_training() -> None:
    batch = episode()
    method = built(dropout=0.5)
    expected = scored(method, batch)
    torch.testing.assert_close(scored(built(dropout=0.0).train(), batch), expected)
    torch.manual_seed(0)
    draws = torch.stack([scored(method.train(), batch) for _ in range(400)])
    assert not torch.allclose(draws[0], expected)
    # The mean over many draws is the score without dropout.
    error = draws.std(dim=0) / 20
    assert ((draws.mean(dim=0) - expected).abs() < 5 * error + 1e-4).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"divisor": "all"}, "divisor must be 'descriptors' or 'locations', got 'all'"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
    ],
)
def test_options_are_validated(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        CovaMNet(**options)
