"""The methods that compare local descriptors, with plain forms of their scores."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence
from torch.nn import functional

from fsf_methods.local import ADM, CPEA, FRN, ATLNet, CovaMNet, DeepBDC, _descriptors
from fsf_methods.metric import DN4, _dn4
from fsf_methods.transfer import RFS
from fsframework.interfaces import Batch
from plugins.fsf_methods.tests.toys import (
    assert_same_gradients,
    built,
    by_task,
    episode,
    made,
    rows,
    scored,
)

# Plain forms: of maps (n, C, h, w) for classes (way, shot, C, h, w), one pair at a time.


def nearest(n_k: int, query: Tensor, pool: Tensor) -> Tensor:
    """Add each descriptor's ``n_k`` largest cosines to those of a pool."""
    cosines = functional.cosine_similarity(query[:, None], pool, dim=2)
    return cosines.sort(dim=1, descending=True).values[:, :n_k].sum()


def plain_dn4(method: DN4, support: Tensor, query: Tensor) -> Tensor:
    return torch.stack(
        [
            torch.stack([nearest(method.n_k, rows(q[None]), rows(maps)) for maps in support])
            for q in query
        ]
    )


def plain_adm(method: ADM, support: Tensor, query: Tensor) -> Tensor:
    def normal(x: Tensor) -> MultivariateNormal:
        added = method.ridge * torch.eye(x.shape[1])
        return MultivariateNormal(x.mean(dim=0), x.T.cov() + added)

    measures = torch.zeros(len(query), 2, len(support))
    for i, q in enumerate(query):
        for k, maps in enumerate(support):
            x, pool = rows(q[None]), rows(maps)
            measures[i, 0, k] = -kl_divergence(normal(x), normal(pool))
            measures[i, 1, k] = nearest(method.n_k, x, pool)
    normed = method.norm(measures.flatten(1)).reshape(measures.shape)
    return method.weights[0] * normed[:, 0] + method.weights[1] * normed[:, 1]


def plain_atlnet(method: ATLNet, support: Tensor, query: Tensor) -> Tensor:
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


def plain_covamnet(method: CovaMNet, support: Tensor, query: Tensor) -> Tensor:
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


ATTENTION = {"attention_scale": 20.0, "least_threshold": 0.4, "threshold_range": 0.5}
CASES: list[tuple[Any, Any, dict[str, Any], dict[str, Any]]] = [
    *((DN4, plain_dn4, {"n_k": n_k}, {"side": side, "shot": shot})
      for n_k in (1, 2, 3, 4) for side, shot in ((1, 1), (1, 2), (2, 1), (3, 2), (5, 3))),
    (ADM, plain_adm, {"n_way": 4, "n_k": 3}, {"shot": 1}),
    (ADM, plain_adm, {"n_way": 4, "n_k": 1}, {"shot": 2}),
    (ATLNet, plain_atlnet, {"scale": 3.0, **ATTENTION}, {"shot": 1}),
    (ATLNet, plain_atlnet, {"scale": 3.0, **ATTENTION}, {"shot": 2}),
    *((CovaMNet, plain_covamnet, {"divisor": divisor}, {"side": side, "shot": shot})
      for divisor in ("descriptors", "locations") for side, shot in ((2, 1), (3, 2))),
    # What these return is compared with their golden cases.
    (CPEA, None, {}, {"shot": 2}),
    (FRN, None, {}, {"shot": 1, "channels": 20}),
    (FRN, None, {}, {"shot": 3, "channels": 5}),
]  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("at_once", [1, 3000, 1 << 20])
@pytest.mark.parametrize(("cls", "plain", "options", "shape"), CASES)
def test_scores_are_the_plain_ones_in_blocks_of_any_size(
    cls: Any, plain: Any, options: Any, shape: Any, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels, side = shape.get("channels", 6), shape.get("side", 3)
    method = built(cls, channels, side, side, **options)
    batch = episode(channels, side, side, tasks=3, way=4, shot=shape["shot"], n=5)
    with torch.no_grad():
        expected = by_task(plain, method, batch) if plain else scored(method, batch)
    monkeypatch.setitem(_descriptors._NUMBERS_AT_ONCE, "cpu", at_once)
    monkeypatch.setitem(_dn4._COSINES_AT_ONCE, "cpu", at_once)
    found = scored(method, batch)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 if cls is ADM else 1e-5)


@pytest.mark.parametrize("at_once", [100, 1 << 20])
@pytest.mark.parametrize(("side", "n_k"), [(1, 3), (3, 1), (3, 3), (3, 5)])
def test_gradients_of_dn4_are_those_of_all_cosines(
    side: int, n_k: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_dn4._COSINES_AT_ONCE, "cpu", at_once)
    method, batch = DN4(n_k=n_k), episode(5, side, side, n=4)
    leaves = [(x.double() + 0.1).requires_grad_() for x in (batch.support, batch.query)]
    found = method.scores(*method.embed_episode(Batch(*leaves)))
    expected = by_task(plain_dn4, method, Batch(*leaves))
    torch.testing.assert_close(found, expected)
    assert_same_gradients(found, expected, leaves)


def test_the_norm_of_atlnet_sees_queries_and_support_one_after_the_other() -> None:
    method, other = (built(ATLNet, 6, 3, 3).train() for _ in range(2))
    batch = episode(6, 3, 3)
    method.loss(batch)
    with torch.no_grad():
        other.embed(batch.query.flatten(0, 1))
        other.embed(batch.support.flatten(0, 2))
    torch.testing.assert_close(dict(method.norm.named_buffers()), dict(other.norm.named_buffers()))


def test_dropout_of_covamnet_only_changes_training() -> None:
    batch = episode(6, 3, 3)
    method = built(CovaMNet, 6, 3, 3, dropout=0.5)
    expected = scored(method, batch)
    torch.testing.assert_close(
        scored(built(CovaMNet, 6, 3, 3, dropout=0.0).train(), batch), expected
    )
    draws = torch.stack([scored(method.train(), batch) for _ in range(400)])
    assert not torch.allclose(draws[0], expected)
    # The mean over many draws is the score without dropout.
    error = draws.std(dim=0) / 20
    assert ((draws.mean(dim=0) - expected).abs() < 5 * error + 1e-4).all()


def test_the_overlap_of_frn_worked_by_hand() -> None:
    # Rows (1, 0), (0, 2) and (3, 3): the third has cosines of 1 / sqrt(2) with the others.
    support = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]).reshape(1, 3, 1, 1, 2)
    torch.testing.assert_close(FRN().overlap(support), torch.tensor([1.0]))


def test_the_divisor_of_the_loss_of_frn() -> None:
    batch = episode(6, 3, 3)
    found = FRN(loss_divisor=5.0).loss(batch)
    divided = Batch(batch.support / 5, batch.query / 5, batch.query_labels)
    torch.testing.assert_close(found, FRN().loss(divided))
    torch.testing.assert_close(FRN(divisor=5.0).loss(batch), found)


def test_the_metric_of_deepbdc_depends_on_the_shots() -> None:
    support, query = torch.randn(2, 3, 2, 6), torch.randn(2, 5, 6)
    inner = torch.einsum("tnd,tkd->tnk", query, support.mean(dim=2))
    distance = -torch.cdist(query, support.mean(dim=2)).square()
    torch.testing.assert_close(DeepBDC(metric="inner").scores(support, query), inner)
    torch.testing.assert_close(DeepBDC(metric="euclidean").scores(support, query), distance)
    torch.testing.assert_close(DeepBDC().scores(support, query), distance)
    one = support[:, :, :1]
    expected = torch.einsum("tnd,tkd->tnk", query, one[:, :, 0])
    torch.testing.assert_close(DeepBDC().scores(one, query), expected)


def test_the_classifier_of_stl_deepbdc_learns_from_the_pooled_batch() -> None:
    method = made("stl-deepbdc", classifier="rfs", reduce_dim=3)
    method.build((4, 3, 3), 7, None)
    batch = Batch(items=torch.rand(6, 4, 3, 3), classes=torch.arange(6))
    logits = method.eval().class_logits(batch.items)
    assert logits.shape == (6, 7)
    expected = functional.cross_entropy(logits, batch.classes)
    torch.testing.assert_close(method.loss(batch), expected)
    assert method.reads_values == RFS().reads_values
