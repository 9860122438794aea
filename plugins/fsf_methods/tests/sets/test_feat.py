from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fsf_backbones import Conv64F
from fsf_methods.sets import FEAT
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks([FEAT, partial(FEAT, metric="cosine", objective="libfewshot")])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def built(**options: Any) -> FEAT:
    torch.manual_seed(0)
    method = FEAT(dropout=0.0, attention_dropout=0.0, temperature=2.0, **options)
    method.build((6,), 0, Conv64F())
    return method


def vectors(shot: int = 2, n: int = 6) -> Batch:
    generator = torch.Generator().manual_seed(0)
    return Batch(
        torch.randn(2, 3, shot, 6, generator=generator),
        torch.randn(2, n, 6, generator=generator),
        torch.tensor([[0, 2, 1, 0, 2, 1], [2, 2, 1, 1, 0, 0]])[:, :n],
    )


def attended(method: FEAT, items: Tensor) -> Tensor:
    """Transform one set ``(m, D)``."""
    layer = method.attention
    logits = layer.queries(items) @ layer.keys(items).T / 6**0.5
    found = layer.leave(logits.softmax(dim=1) @ layer.values(items))
    return functional.layer_norm(found + items, (6,))


def compared(method: FEAT, query: Tensor, points: Tensor) -> Tensor:
    if method.metric == "cosine":
        return functional.cosine_similarity(query[:, None], points, dim=2)
    return -torch.cdist(query, points).square()


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_scores_are_the_literal_ones(metric: str) -> None:
    method, batch = built(metric=metric), vectors()
    assert batch.support is not None
    assert batch.query is not None
    with torch.no_grad():
        found = method.scores(batch.support, batch.query)
        for t in range(2):
            prototypes = attended(method, batch.support[t].mean(dim=1))
            expected = compared(method, batch.query[t], prototypes) / 2
            torch.testing.assert_close(found[t], expected)


@pytest.mark.parametrize("objective", ["paper", "libfewshot"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_the_loss_is_the_literal_one(metric: str, objective: str) -> None:
    method = built(metric=metric, objective=objective, balance=0.3, regulariser_temperature=5.0)
    batch = vectors()
    assert batch.support is not None
    assert batch.query is not None
    assert batch.query_labels is not None
    with torch.no_grad():
        logits = method.scores(batch.support, batch.query)
        own = functional.cross_entropy(logits.flatten(0, 1), batch.query_labels.flatten())
        losses = []
        for t in range(2):
            labels = batch.query_labels[t]
            sets = [torch.cat([batch.support[t, k], batch.query[t][labels == k]]) for k in range(3)]
            centres = torch.stack([attended(method, items).mean(dim=0) for items in sets])
            scores = compared(method, torch.cat(sets), centres) / 5
            truth = torch.arange(3).repeat_interleave(4)
            if objective == "libfewshot":
                truth = torch.cat([torch.arange(3).repeat_interleave(2)] * 2)
            losses.append(functional.cross_entropy(scores, truth))
        regulariser = torch.stack(losses).mean()
        found = method.loss(batch)
    weights = (1.0, 0.3) if objective == "paper" else (0.3, 1.0)
    torch.testing.assert_close(found, weights[0] * own + weights[1] * regulariser)


def test_dropout_is_for_training() -> None:
    torch.manual_seed(0)
    method = FEAT()
    method.build((6,), 0, Conv64F())
    batch = vectors()
    assert batch.support is not None
    assert batch.query is not None
    with torch.no_grad():
        first, second = (method.scores(batch.support, batch.query) for _ in range(2))
        assert not torch.equal(first, second)
        first, second = (method.eval().scores(batch.support, batch.query) for _ in range(2))
        assert torch.equal(first, second)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "dot"}, "metric must be 'euclidean' or 'cosine', got 'dot'"),
        ({"objective": "code"}, "objective must be 'paper' or 'libfewshot', got 'code'"),
        ({"balance": -1.0}, "balance must be at least 0, got -1.0"),
        ({"temperature": 0.0}, "temperature must be above 0, got 0.0"),
        ({"regulariser_temperature": 0.0}, "regulariser_temperature must be above 0, got 0.0"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        ({"attention_dropout": -0.5}, r"attention_dropout must be in \[0, 1\), got -0.5"),
    ],
)
def test_options_are_validated(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        FEAT(**options)
