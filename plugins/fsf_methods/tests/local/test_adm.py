from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence
from torch.nn import functional

from fsf_methods.local import ADM, _descriptors
from fsframework.interfaces import OptionError
from fsframework.testing import parametrize_with_checks
from plugins.fsf_methods.tests.local.maps import episode, rows, scored


@parametrize_with_checks([ADM, partial(ADM, n_way=3, n_k=1)])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def literal(method: ADM, support: Tensor, query: Tensor) -> Tensor:
    """Return both measures of maps ``(n, C, h, w)`` for classes ``(way, shot, C, h, w)``."""

    def normal(x: Tensor) -> MultivariateNormal:
        added = method.ridge * torch.eye(x.shape[1])
        return MultivariateNormal(x.mean(dim=0), x.T.cov() + added)

    measures = torch.zeros(len(query), 2, len(support))
    for i, q in enumerate(query):
        for k, maps in enumerate(support):
            x, pool = rows(q[None]), rows(maps)
            measures[i, 0, k] = -kl_divergence(normal(x), normal(pool))
            for descriptor in x:
                cosines = functional.cosine_similarity(descriptor, pool)
                measures[i, 1, k] += cosines.sort(descending=True).values[: method.n_k].sum()
    return measures


@pytest.mark.parametrize("at_once", [1, 3000, 1 << 20])
@pytest.mark.parametrize(("shot", "n_k"), [(1, 3), (2, 1)])
def test_scores_are_the_literal_ones(
    shot: int, n_k: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_descriptors._NUMBERS_AT_ONCE, "cpu", at_once)
    torch.manual_seed(0)
    method = ADM(n_way=4, n_k=n_k).eval()
    torch.nn.init.uniform_(method.norm.weight, 0.5, 1.5)
    torch.nn.init.normal_(method.norm.bias)
    batch = episode(shot=shot)
    assert batch.support is not None
    assert batch.query is not None
    with torch.no_grad():
        pairs = zip(batch.support, batch.query, strict=True)
        measures = torch.cat([literal(method, s, q) for s, q in pairs])
        normed = method.norm(measures.flatten(1)).reshape(measures.shape)
        expected = method.weights[0] * normed[:, 0] + method.weights[1] * normed[:, 1]
    found = scored(method, batch)
    torch.testing.assert_close(found, expected.reshape(found.shape), rtol=1e-4, atol=1e-4)


def test_the_divergence_worked_by_hand() -> None:
    # One channel. The query: mean 0, variance 2; the class: mean 1, variance 8; no ridge to speak
    # of. KL = (2 / 8 + 1 / 8 - 1 + log(8 / 2)) / 2.
    query = torch.tensor([[[[1.0], [-1.0]]]])
    pools = torch.tensor([[[[3.0], [-1.0]]]])
    found = ADM(ridge=1e-9).divergences(pools, query)
    expected = (0.25 + 0.125 - 1 + torch.tensor(4.0).log()) / 2
    torch.testing.assert_close(found, expected.reshape(1, 1, 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_way": 1}, "n_way must be at least 2, got 1"),
        ({"n_k": 0}, "n_k must be at least 1, got 0"),
        ({"ridge": 0.0}, "ridge must be above 0, got 0.0"),
    ],
)
def test_options_are_validated(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ADM(**options)


def test_another_number_of_ways_is_refused() -> None:
    batch = episode(way=3)
    with pytest.raises(OptionError, match="n_way = 5 ways, but the tasks have 3; set n_way"):
        scored(ADM(), batch)
