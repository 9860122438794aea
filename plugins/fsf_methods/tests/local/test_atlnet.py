from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_backbones import Conv64F
from fsf_methods.local import ATLNet, _descriptors
from fsframework.interfaces import OptionError
from fsframework.testing import parametrize_with_checks
from plugins.fsf_methods.tests.local.maps import episode, rows, scored


@parametrize_with_checks([ATLNet])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def built(**options: Any) -> ATLNet:
    torch.manual_seed(0)
    method = ATLNet(**options)
    method.build((6, 3, 3), 0, Conv64F())
    nn.init.normal_(method.norm.bias, std=0.3)
    return method.eval()


def literal(method: ATLNet, support: Tensor, query: Tensor) -> Tensor:
    """Score maps ``(n, C, h, w)`` for classes ``(way, shot, C, h, w)``, one location at a time."""

    def learned(maps: Tensor) -> Tensor:
        return functional.leaky_relu(method.norm(method.project(maps)), 0.2)

    scores = torch.zeros(len(query), len(support))
    own, of_support = rows(support.flatten(0, 1)), rows(learned(support.flatten(0, 1)))
    classes = torch.arange(len(support)).repeat_interleave(len(own) // len(support))
    for i, q in enumerate(query):
        for x, there in zip(rows(q[None]), rows(learned(q[None])), strict=True):
            unit = functional.normalize(there, dim=0)
            hidden = functional.leaky_relu(method.hide(unit), 0.2)
            threshold = 0.4 + 0.5 * method.threshold(hidden).sigmoid()
            attention = (
                20 * (functional.cosine_similarity(unit, of_support) - threshold)
            ).sigmoid()
            matches = attention / attention.sum() * functional.cosine_similarity(x, own)
            for k in range(len(support)):
                scores[i, k] += 3 * matches[classes == k].sum()
    return scores / query[0, 0].numel() / support.shape[1]


@pytest.mark.parametrize("at_once", [1, 3000, 1 << 20])
@pytest.mark.parametrize("shot", [1, 2])
def test_scores_are_the_literal_ones(
    shot: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_descriptors._NUMBERS_AT_ONCE, "cpu", at_once)
    method = built(scale=3.0, attention_scale=20.0, least_threshold=0.4, threshold_range=0.5)
    batch = episode(shot=shot)
    assert batch.support is not None
    assert batch.query is not None
    with torch.no_grad():
        pairs = zip(batch.support, batch.query, strict=True)
        expected = torch.stack([literal(method, s, q) for s, q in pairs])
    torch.testing.assert_close(scored(method, batch), expected, rtol=1e-4, atol=1e-5)


def test_the_norm_sees_queries_and_support_one_after_the_other() -> None:
    method, batch = built().train(), episode()
    method.loss(batch)
    other = built().train()
    assert batch.support is not None
    assert batch.query is not None
    with torch.no_grad():
        other.embed(batch.query.flatten(0, 1))
        other.embed(batch.support.flatten(0, 2))
    torch.testing.assert_close(method.norm.running_mean, other.norm.running_mean)
    torch.testing.assert_close(method.norm.running_var, other.norm.running_var)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 0.0}, "scale must be above 0, got 0.0"),
        ({"attention_scale": -1.0}, "attention_scale must be above 0, got -1.0"),
        ({"least_threshold": 2.0}, r"least_threshold must be in \[-1, 1\], got 2.0"),
        ({"threshold_range": -0.1}, "threshold_range must be at least 0, got -0.1"),
    ],
)
def test_options_are_validated(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ATLNet(**options)
