from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from fsf_methods.transductive import TPN
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks
from fsframework.testing.method import ToyBackbone
from tests.golden_heads import (
    Case,
    assert_array,
    assert_loss,
    assert_scores,
    golden_heads,
    read_case,
)


@parametrize_with_checks([partial(TPN, k=10)])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


NAMES = {
    "layer1.0": "scale.0",
    "layer1.1": "scale.1",
    "layer2.0": "scale.4",
    "layer2.1": "scale.5",
    "fc3": "scale.9",
    "fc4": "scale.11",
}
"""Our name of each layer of the reference."""


def from_case(case: Case) -> TPN:
    method = TPN(k=int(case.number("k")), alpha=case.number("alpha"))
    method.build(case.arrays["query"].shape[1:], 0, ToyBackbone())
    state = {}
    for name, tensor in case.parameters.items():
        stem, _, last = name.removeprefix("relation.").rpartition(".")
        state[f"{NAMES[stem]}.{last}"] = tensor
    missing, unexpected = method.load_state_dict(state, strict=False)
    assert not unexpected
    assert all(name.endswith("num_batches_tracked") for name in missing)
    return method


@golden_heads("TPN")
def test_golden_heads_tpn(path: Path) -> None:
    case = read_case(path)
    method = from_case(case).eval()
    support, query = case.tensor("support")[None], case.tensor("query")[None]
    labels = case.tensor("query_labels")[None]
    batch = Batch(support=support, query=query, query_labels=labels)
    maps = torch.cat([support.flatten(0, 2), query[0]])
    assert_array(method.scale(maps), case.tensor("sigma"))
    scores = method.scores(*method.embed_episode(batch))
    assert_scores(scores[0], case.tensor("scores"))
    whole = method._propagated(*method.embed_episode(batch))[0]
    n = support.shape[1:3].numel()
    assert_scores(whole[:n], case.tensor("scores_support"))
    assert_loss(method.loss(batch).detach(), case.number("loss_eval"))
    assert_loss(method.train().loss(batch).detach(), case.number("loss"))


def test_labels_worked_by_hand() -> None:
    # Two images of support and a query that equals the first. With k = 2 the second keeps itself
    # and one of the others, at a distance so large that its weight is 0.
    method = TPN(k=2, alpha=0.5)
    support = torch.tensor([[[[0.0, 0.0]], [[60.0, 80.0]]]])
    found = method.scores(support, torch.tensor([[[0.0, 0.0]]]))
    # W of the first two nodes is all ones, S = 1/2 everywhere, I - S/2 = [[3/4, -1/4], ...], whose
    # inverse is [[3/2, 1/2], [1/2, 3/2]].
    torch.testing.assert_close(found, torch.tensor([[[0.5, 0.0]]]))


def test_the_mean_and_the_sum_of_the_differences() -> None:
    nodes = torch.tensor([[[0.0, 0.0], [1.0, 1.0]]])
    mean, total = TPN()._graph(nodes), TPN(distance="sum")._graph(nodes)
    assert mean[0, 0, 1].item() == pytest.approx(math.exp(-0.5))
    assert total[0, 0, 1].item() == pytest.approx(math.exp(-1.0))
    assert total[0].diagonal().tolist() == [1.0, 1.0]


def test_an_edge_stays_if_either_end_keeps_it() -> None:
    # On a line at 0, 1, 1.5: with k = 2 nodes 0 and 2 keep 1, and 1 keeps 2.
    graph = TPN(k=2)._graph(torch.tensor([[[0.0], [1.0], [1.5]]]))[0] > 0
    assert graph.tolist() == [[True, True, False], [True, True, True], [False, True, True]]


def test_the_order_of_the_queries_is_of_no_effect() -> None:
    torch.manual_seed(0)
    support, query = torch.randn(2, 3, 2, 8), torch.randn(2, 9, 8)
    order = torch.randperm(9)
    found = TPN(k=4).scores(support, query[:, order])
    expected = TPN(k=4).scores(support, query)[:, order]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k must be at least 1, got 0"),
        ({"alpha": 1.0}, "alpha must be above 0 and below 1, got 1.0"),
        ({"distance": "max"}, "distance must be 'mean' or 'sum', got 'max'"),
    ],
)
def test_options_outside_their_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        TPN(**options)
