"""The transductive methods: GNN, SIB, TPN and PUTM."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from fsf_methods.adaptation import PUTM
from fsf_methods.transductive import GNN, TPN
from fsframework.interfaces import Batch, OptionError
from plugins.fsf_methods.tests.toys import built, episode


def gnn(**options: Any) -> GNN:
    return built(GNN, 6, n_way=3, nf=8, **options)


def test_running_statistics_are_those_of_all_pairs_of_all_graphs() -> None:
    method, batch = gnn().train(), episode(6, tasks=1, n=4)
    edges = method.edges[0]
    mean, var = edges.norms[0].running_mean.clone(), edges.norms[0].running_var.clone()
    support = torch.cat([batch.support[0].flatten(0, 1), torch.eye(3).repeat_interleave(2, 0)], 1)
    graphs = [
        torch.cat([support, torch.cat([query, torch.full((3,), 1 / 3)])[None]])
        for query in batch.query[0]
    ]
    pairs = torch.cat([(x[:, None] - x).abs().flatten(0, 1) for x in graphs])
    found = edges.layers[0](pairs)
    method.scores(batch.support, batch.query)
    torch.testing.assert_close(edges.norms[0].running_mean, 0.9 * mean + 0.1 * found.mean(dim=0))
    torch.testing.assert_close(edges.norms[0].running_var, 0.9 * var + 0.1 * found.var(dim=0))


@pytest.mark.parametrize("most", [1, 1500, 9000])
@pytest.mark.parametrize("options", [{}, {"statistics": "batch"}])
def test_evaluation_in_blocks_changes_nothing(
    options: Any, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, batch = gnn(**options), episode(6, tasks=3)
    whole = method.scores(batch.support, batch.query)
    place = "fsf_methods.transductive._gnn._NUMBERS_AT_ONCE"
    monkeypatch.setattr(place, {"cpu": most, "cuda": most})
    found = method.scores(batch.support, batch.query)
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-6)


def test_in_training_one_query_of_every_class_shares_a_graph_whatever_their_order() -> None:
    method = gnn(width=128, statistics="batch", graph="class", unknown="zeros").train()
    batch, order = episode(6, tasks=1), [1, 0, 2, 4, 5, 3]
    # The first of each class stays before the second.
    other = Batch(batch.support, batch.query[:, order], batch.query_labels[:, order])
    torch.testing.assert_close(method.loss(batch), method.loss(other))
    with pytest.raises(OptionError, match="must be a multiple of 3, got 5"):
        method.scores(batch.support, batch.query[:, :5])


def test_the_mean_and_the_sum_of_the_differences() -> None:
    nodes = torch.tensor([[[0.0, 0.0], [1.0, 1.0]]])
    mean, total = TPN()._graph(nodes), TPN(distance="sum")._graph(nodes)
    assert mean[0, 0, 1].item() == pytest.approx(math.exp(-0.5))
    assert total[0, 0, 1].item() == pytest.approx(math.exp(-1.0))
    assert total[0].diagonal().tolist() == [1.0, 1.0]


SUPPORT = torch.tensor([[[[2.0, 0.0]], [[0.0, 3.0]]]])


QUERY = torch.tensor([[[1.0, 0.0], [4.0, 0.0], [0.0, 1.0]]])


def test_without_rounds_putm_is_a_softmax_of_distances() -> None:
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
def test_one_round_of_putm_worked_by_hand(beta: float, mass: list[list[float]]) -> None:
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
