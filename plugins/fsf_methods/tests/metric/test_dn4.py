from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fsf_methods.metric import DN4, _dn4
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks([DN4, partial(DN4, n_k=1), partial(DN4, n_k=7)])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def literal(n_k: int, support: Tensor, query: Tensor) -> Tensor:
    """Score maps ``(way, shot, C, h, w)`` and ``(n, C, h, w)``, descriptor by descriptor."""
    scores = torch.zeros(len(query), len(support), dtype=query.dtype)
    for i, q in enumerate(query):
        for k, s in enumerate(support):
            pool = s.movedim(1, 3).flatten(0, 2)
            for descriptor in q.flatten(1).T:
                cosines = functional.cosine_similarity(descriptor[None], pool, dim=1)
                scores[i, k] += cosines.sort(descending=True).values[:n_k].sum()
    return scores


def items(
    side: int, shot: int, *, tasks: int = 2, way: int = 3, n: int = 4, channels: int = 5
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    # After the rectifier some descriptors are all 0, and cosines are equal.
    return (
        torch.randn(tasks, way, shot, channels, side, side, generator=generator).relu(),
        torch.randn(tasks, n, channels, side, side, generator=generator).relu(),
    )


def scored(method: DN4, support: Tensor, query: Tensor) -> Tensor:
    return method.scores(*method.embed_episode(Batch(support, query)))


def test_scores_worked_by_hand() -> None:
    # Maps of two locations. The query's descriptors point along x and y.
    query = torch.tensor([[[[[2.0, 0.0]], [[0.0, 5.0]]]]])
    along_x, diagonal = [[[1.0, 3.0]], [[0.0, 0.0]]], [[[1.0, -1.0]], [[1.0, -1.0]]]
    support = torch.tensor([[[along_x], [diagonal]]])
    # The first class has cosines 1, 1 and 0, 0; the second 0.707, -0.707 twice.
    torch.testing.assert_close(scored(DN4(n_k=1), support, query), torch.tensor([[[1.0, 2**0.5]]]))
    torch.testing.assert_close(scored(DN4(n_k=2), support, query), torch.tensor([[[2.0, 0.0]]]))


@pytest.mark.parametrize("n_k", [1, 2, 3, 4])
@pytest.mark.parametrize(("side", "shot"), [(1, 1), (1, 2), (2, 1), (3, 2), (5, 2), (7, 3)])
def test_scores_are_the_literal_ones(side: int, shot: int, n_k: int) -> None:
    support, query = items(side, shot, n=2)
    found = scored(DN4(n_k=n_k), support, query)
    expected = [literal(n_k, s, q) for s, q in zip(support, query, strict=True)]
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("size", [4, 8, 12, 28, 44, 104, 512, 2304])
def test_the_three_largest_are_those_of_topk(size: int) -> None:
    values = torch.randn(2, size, 7, generator=torch.Generator().manual_seed(size))
    values[1] = values[1].round()  # many are equal
    expected = values.topk(3, dim=1).values
    assert torch.equal(torch.stack(_dn4._three_largest(values.clone()), dim=1), expected)


def test_padding_is_small_and_can_be_halved() -> None:
    for size in range(1, 5000):
        padded = _dn4._padded(size)
        assert padded % 4 == 0
        assert size <= padded <= max(1.15 * size, size + 3)


@pytest.mark.parametrize("most", [1, 100, 3000, 1 << 20])
def test_the_blocks_leave_no_seam(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    support, query = items(3, 2, tasks=3)
    expected = torch.stack([literal(3, s, q) for s, q in zip(support, query, strict=True)])
    monkeypatch.setitem(_dn4._COSINES_AT_ONCE, "cpu", most)
    torch.testing.assert_close(scored(DN4(), support, query), expected)
    torch.testing.assert_close(scored(DN4(), support.requires_grad_(), query).detach(), expected)


@pytest.mark.parametrize(("side", "n_k"), [(1, 3), (3, 1), (3, 3), (3, 5)])
def test_gradients_are_those_of_all_cosines(side: int, n_k: int) -> None:
    support, query = (x.double() + 0.1 for x in items(side, 2))
    leaves = support.requires_grad_(), query.requires_grad_()
    weights = torch.randn(2, 4, 3, dtype=torch.float64)
    found = scored(DN4(n_k=n_k), *leaves)
    expected = torch.stack([literal(n_k, s, q) for s, q in zip(*leaves, strict=True)])
    torch.testing.assert_close(found, expected)
    mine = torch.autograd.grad((found * weights).sum(), leaves)
    theirs = torch.autograd.grad((expected * weights).sum(), leaves)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_half_precision_is_scored_in_full() -> None:
    support, query = (x.bfloat16() for x in items(3, 2))
    expected = scored(DN4(), support.float(), query.float())
    assert torch.equal(scored(DN4(), support, query), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(scored(DN4(), support.float(), query.float()), expected)


def test_options_are_validated() -> None:
    with pytest.raises(OptionError, match="n_k must be at least 1, got 0"):
        DN4(n_k=0)
