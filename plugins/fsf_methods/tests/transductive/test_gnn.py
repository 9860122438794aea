from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.transductive import GNN
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks
from fsframework.testing.method import ToyBackbone
from tests.golden_heads import Case, assert_loss, assert_scores, golden_heads, read_case

ACROSS_DOMAINS = {"width": 128, "statistics": "batch", "graph": "class", "unknown": "zeros"}


@parametrize_with_checks([partial(GNN, nf=32, width=16, statistics="batch", unknown="zeros")])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def built(size: int, **options: Any) -> GNN:
    method = GNN(**options)
    method.build((size,), 0, ToyBackbone())
    return method


def from_case(case: Case, prefix: str, **options: Any) -> GNN:
    """The method with a case's parameters, whose names are translated."""
    method = built(case.arrays["query"].shape[1], n_way=case.way, nf=int(case.number("nf")),
                   **options)  # fmt: skip
    renamed = {"fc.0": "reduce", "fc.1": "reduce_norm"}
    for number, stem in enumerate(("w0", "w1", "w_comp_last")):
        block = f"{prefix}.{stem if number == 2 else 'layer_' + stem}"
        for place in range(4):
            renamed[f"{block}.conv2d_{place + 1}"] = f"edges.{number}.layers.{place}"
            renamed[f"{block}.bn_{place + 1}"] = f"edges.{number}.norms.{place}"
        renamed[f"{block}.conv2d_last"] = f"edges.{number}.last"
    for number in range(2):
        renamed[f"{prefix}.layer_l{number}.fc"] = f"layers.{number}"
        renamed[f"{prefix}.layer_l{number}.bn"] = f"norms.{number}"
    renamed[f"{prefix}.layer_last.fc"] = "last"
    state = {}
    for name, tensor in case.parameters.items():
        stem, _, last = name.rpartition(".")
        state[f"{renamed[stem]}.{last}"] = tensor.flatten(1) if tensor.ndim == 4 else tensor
    method.load_state_dict(state)
    return method


def batch_of(case: Case) -> Batch:
    support, query = case.tensor("support")[None], case.tensor("query")[None]
    return Batch(support=support, query=query, query_labels=case.tensor("query_labels")[None])


@golden_heads("GNN")
def test_golden_heads_gnn(path: Path) -> None:
    case = read_case(path)
    method = from_case(case, "gnn", **ACROSS_DOMAINS)
    batch = batch_of(case)
    assert batch.support is not None
    assert batch.query is not None
    # Several tasks at once: the other one has other statistics.
    support = torch.cat([batch.support, batch.support.flip(3)])
    query = torch.cat([batch.query, 2 * batch.query])
    scores = method.eval().scores(support, query)
    assert_scores(scores[0], case.tensor("scores"))
    assert_loss(method.train().loss(batch).detach(), case.number("loss"))


@golden_heads("GNNoriginal")
def test_golden_heads_gnn_original(path: Path) -> None:
    case = read_case(path)
    method = from_case(case, "gnn_obj", unknown="zeros").eval()
    batch = batch_of(case)
    assert batch.support is not None
    assert batch.query is not None
    assert_scores(method.scores(batch.support, batch.query)[0], case.tensor("scores"))
    method.train()
    assert_scores(method.scores(batch.support, batch.query)[0], case.tensor("scores_train"))
    assert_loss(method.loss(batch).detach(), case.number("loss"))


class Plain(nn.Module):
    """The network with PyTorch's BatchNorm, on one graph after the other, all pairs written out."""

    def __init__(self, method: GNN) -> None:
        super().__init__()
        self.method = method

    def edges(self, number: int, x: Tensor) -> Tensor:
        edges: Any = self.method.edges[number]
        y = (x[:, :, None] - x[:, None]).abs().flatten(0, 2)
        for layer, norm in zip(edges.layers, edges.norms, strict=True):
            y = functional.leaky_relu(self.normed(norm, layer(y)), 0.01)
        logits = edges.last(y).reshape(len(x), x.shape[1], x.shape[1])
        return (logits - 1e8 * torch.eye(x.shape[1])).softmax(dim=2)

    def normed(self, norm: Any, y: Tensor) -> Tensor:
        return functional.batch_norm(
            y, norm.running_mean, norm.running_var, norm.weight, norm.bias, self.training
        )

    def forward(self, support: Tensor, query: Tensor) -> Tensor:
        way, shot = support.shape[:2]
        labels = torch.eye(way).repeat_interleave(shot, dim=0)
        nodes = torch.cat([support.flatten(0, 1), labels], dim=1)
        last = torch.cat([query, torch.full((len(query), way), 1 / way)], dim=1)
        x = torch.cat([nodes.expand(len(query), -1, -1), last[:, None]], dim=1)
        for number in range(2):
            weights = self.edges(number, x)
            y = self.method.layers[number](torch.cat([x, weights @ x], dim=2))
            y = self.normed(self.method.norms[number], y.flatten(0, 1)).reshape(y.shape)
            x = torch.cat([x, functional.leaky_relu(y, 0.01)], dim=2)
        found: Tensor = self.method.last(torch.cat([x, self.edges(2, x) @ x], dim=2)[:, -1])
        return found


@pytest.mark.parametrize("training", [False, True])
def test_pairs_counted_twice_give_what_all_pairs_give(training: bool) -> None:
    torch.manual_seed(0)
    method = built(6, n_way=3, nf=8)
    other = built(6, n_way=3, nf=8)
    other.load_state_dict(method.state_dict())
    plain = Plain(other).train(training)
    support, query = torch.randn(3, 2, 6), torch.randn(4, 6)
    expected = plain(support, query)
    found = method.train(training).scores(support[None], query[None])[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    for name, own in method.named_buffers():  # the running statistics after the call
        torch.testing.assert_close(own, other.get_buffer(name), rtol=1e-4, atol=1e-5)


def test_evaluation_in_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    support, query = torch.randn(3, 3, 2, 6), torch.randn(3, 6, 6)
    for options in ({}, {"statistics": "batch"}):
        method = built(6, n_way=3, nf=8, **options).eval()
        whole = method.scores(support, query)
        for most in (1, 1500, 9000):
            monkeypatch.setattr(
                "fsf_methods.transductive._gnn._NUMBERS_AT_ONCE", {"cpu": most, "cuda": most}
            )
            found = method.scores(support, query)
            torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-6)


def test_in_training_one_query_of_every_class_shares_a_graph_whatever_their_order() -> None:
    torch.manual_seed(0)
    method = built(6, n_way=3, nf=8, **ACROSS_DOMAINS)
    support, query = torch.randn(1, 3, 2, 6), torch.randn(1, 6, 6)
    labels = torch.tensor([[0, 0, 1, 1, 2, 2]])
    order = [4, 0, 2, 1, 5, 3]  # the first of each class stays before the second
    first = method.loss(Batch(support=support, query=query, query_labels=labels))
    second = method.loss(
        Batch(support=support, query=query[:, order], query_labels=labels[:, order])
    )
    torch.testing.assert_close(first, second)
    with pytest.raises(OptionError, match="must be a multiple of 3, got 5"):
        method.scores(support, query[:, :5])


def test_without_the_form_of_the_code_the_order_of_the_queries_is_of_no_effect() -> None:
    torch.manual_seed(0)
    method = built(6, n_way=3, nf=8, width=5, statistics="batch").eval()
    support, query = torch.randn(2, 3, 2, 6), torch.randn(2, 7, 6)
    order = torch.randperm(7)
    found = method.scores(support, query[:, order])
    torch.testing.assert_close(found, method.scores(support, query)[:, order], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_way": 1}, "n_way must be at least 2, got 1"),
        ({"nf": 7}, "nf must be even and at least 2, got 7"),
        ({"width": -1}, "width must be at least 0, got -1"),
        ({"graph": "all"}, "graph must be 'query' or 'class', got 'all'"),
    ],
)
def test_options_outside_their_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        GNN(**options)
