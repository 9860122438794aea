"""The cross attention network."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fsf_methods.metric import CAN, _can
from fsframework.interfaces import Batch
from plugins.fsf_methods.tests.toys import built, by_task, episode, scored


def literal_attended(method: CAN, classes: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """Weigh maps ``(way, C, m)`` and ``(n, C, m)`` for each other: two ``(n, way, C, m)``."""
    unit_classes, unit_query = (functional.normalize(x, dim=1) for x in (classes, query))
    alike = torch.einsum("kci,ncj->nkij", unit_classes, unit_query)

    def weights(x: Tensor) -> Tensor:
        """Weigh the locations in the third dimension by kernels over those in the fourth."""
        means = x.mean(dim=2)
        hidden = method.norm(method.reduce(means).flatten(0, 1)).relu()
        kernels = method.expand(hidden).reshape(means.shape)
        fused = x * kernels[:, :, None]
        fused = fused.sum(dim=3) if method.fusion == "sum" else fused.mean(dim=3)
        return (fused / method.temperature).softmax(dim=2) + 1

    on_classes, on_query = weights(alike), weights(alike.mT)
    return classes[None] * on_classes[:, :, None], query[:, None] * on_query[:, :, None]


def literal_cosines(method: CAN, classes: Tensor, query: Tensor) -> Tensor:
    pooled = [x.mean(dim=3) for x in literal_attended(method, classes, query)]
    return method.scale * functional.cosine_similarity(*pooled, dim=2)


def close(found: Tensor, expected: Tensor) -> bool:
    # The temperature makes rounding errors 40 times as large.
    return torch.allclose(found, expected, rtol=1e-4, atol=1e-3)


def plain(method: CAN, support: Tensor, query: Tensor) -> Tensor:
    """Score maps ``(n, C, h, w)`` for classes ``(way, shot, C, h, w)``."""
    return literal_cosines(method, support.mean(dim=1).flatten(2), query.flatten(2))


def can(side: int = 3, **options: Any) -> CAN:
    return built(CAN, 6, side, side, n_base=7, **options)


@pytest.mark.parametrize("fusion", ["sum", "mean"])
@pytest.mark.parametrize("side", [1, 2, 3, 6])
def test_scores_are_the_literal_ones(side: int, fusion: str) -> None:
    method, batch = can(side, fusion=fusion), episode(6, side, side)
    with torch.no_grad():
        assert close(scored(method, batch), by_task(plain, method, batch))


def test_sum_and_mean_start_from_the_same_function() -> None:
    first, second = (scored(can(4, fusion=f), episode(6, 4, 4)) for f in ("sum", "mean"))
    assert close(first, second)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("side", [1, 3])
def test_the_loss_is_the_literal_one(side: int, training: bool) -> None:
    method = can(side, weight_nearest=0.3).train(training)
    other = copy.deepcopy(method)
    given = episode(6, side, side, tasks=1)
    support, query, labels = given.support, given.query, given.query_labels
    base = torch.tensor([[4, 0, 2, 4, 0, 2]])
    batch = Batch(support, query, labels, query_classes=base)
    with torch.no_grad():
        loss = method.loss(batch)
        maps, queries = support[0].mean(dim=1).flatten(2), query[0].flatten(2)
        on_classes, on_query = literal_attended(other, maps, queries)
        pooled = on_classes.mean(dim=3)
        expected = 0.0
        for i in range(6):
            for place in range(side**2):
                own = on_query[i, labels[0, i], :, place]
                expected += functional.cross_entropy(other.classify(own), base[0, i])
                cosines = functional.cosine_similarity(on_query[i, :, :, place], pooled[i], dim=1)
                expected += 0.3 * functional.cross_entropy(7 * cosines, labels[0, i])
    torch.testing.assert_close(loss, expected / (6 * side**2), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(list(method.buffers()), list(other.buffers()))


def literal_transductive(method: CAN, support: Tensor, query: Tensor) -> Tensor:
    """Score one task, letting queries join one by one."""
    scores = literal_cosines(method, support.mean(dim=1), query)
    n = len(query)
    for i in range(1, method.n_iterations + 1):
        count = min(n, max(1, round(i * method.candidates * n)))
        joining = scores.amax(dim=1).argsort(descending=True)[:count]
        own = scores.argmax(dim=1)
        members = [list(maps) for maps in support]
        for q in joining:
            members[own[q]].append(query[q])
        classes = torch.stack([torch.stack(maps).mean(dim=0) for maps in members])
        scores = literal_cosines(method, classes, query)
    return scores


@pytest.mark.parametrize(("n_iterations", "candidates"), [(1, 0.5), (2, 35 / 75), (3, 1.0)])
def test_transductive_scores_are_those_of_queries_that_join_one_by_one(
    n_iterations: int, candidates: float
) -> None:
    method = can(transductive=True, n_iterations=n_iterations, candidates=candidates)
    batch = episode(6, 3, 3, n=15)
    with torch.no_grad():
        found = scored(method, batch)
        for t in range(2):
            support, query = batch.support[t].flatten(3), batch.query[t].flatten(2)
            assert close(found[t], literal_transductive(method, support, query))
    assert not close(found, scored(can(), batch))


def test_the_papers_shares_of_75_queries() -> None:
    assert [round(i * CAN().candidates * 75) for i in (1, 2)] == [35, 70]


@pytest.mark.parametrize("transductive", [False, True])
def test_the_blocks_leave_no_seam(transductive: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    method, batch = can(transductive=transductive), episode(6, 3, 3, tasks=5)
    whole = scored(method, batch)
    monkeypatch.setitem(_can._WEIGHTS_AT_ONCE, "cpu", 400)
    assert close(scored(method, batch), whole)
