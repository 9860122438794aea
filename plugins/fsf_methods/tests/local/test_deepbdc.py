from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fsf_backbones import Conv64F
from fsf_methods.local import DeepBDC, STLDeepBDC
from fsf_methods.transfer import RFS, Logistic
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks
from tests.golden_heads import (
    Case,
    assert_array,
    assert_loss,
    assert_scores,
    golden_heads,
    read_case,
)


def stl(**options: Any) -> STLDeepBDC:
    return STLDeepBDC(classifier=RFS(), **options)


@parametrize_with_checks([DeepBDC, partial(DeepBDC, reduce_dim=8, metric="inner"), stl])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def reference(case: Case, method: Any) -> Any:
    """Build a method and load the pooling of a case."""
    method.build(case.arrays["query"].shape[1:], 0, Conv64F())
    named = {
        "dcov.temperature": "log_scale",
        "dcov.conv_dr_block.0": "reduce.0",
        "dcov.conv_dr_block.1": "reduce.1",
    }
    state = method.pool.state_dict()
    for theirs, value in case.parameters.items():
        start = next(name for name in named if theirs.startswith(name))
        ours = named[start] + theirs.removeprefix(start)
        state[ours] = value.reshape(state[ours].shape)
    method.pool.load_state_dict(state)
    return method.eval()


def episode(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    support, query, labels = (
        case.tensor(name)[None] for name in ("support", "query", "query_labels")
    )
    return support, query, labels


@golden_heads("DeepBDC")
def test_golden_heads_deepbdc(path: Path) -> None:
    case = read_case(path)
    method = reference(case, DeepBDC(reduce_dim=int(case.number("reduce_dim"))))
    support, query, labels = episode(case)
    vectors = method.embed_episode(Batch(support, query))
    by_class = torch.cat([vectors[0][0], vectors[1].reshape(case.way, -1, vectors[1].shape[2])], 1)
    assert_array(by_class.flatten(0, 1), case.tensor("embeddings"))
    assert_scores(method.scores(*vectors)[0], case.tensor("scores"))
    assert_loss(method.train().loss(Batch(support, query, labels)).detach(), case.tensor("loss"))


@golden_heads("DeepBDC")
def test_golden_heads_deepbdc_stl(path: Path) -> None:
    case = read_case(path)
    c = case.number("penalty_C")
    classifier = RFS(c=c, tol=1e-8)
    method = reference(
        case, STLDeepBDC(classifier=classifier, reduce_dim=int(case.number("reduce_dim")))
    )
    found = method.scores(*method.embed_episode(Batch(*episode(case)[:2])))[0]
    # The stopping rule of the reference's solver leaves 4e-3 of the spread with a small C.
    assert_scores(found, case.tensor("stl_decision"), 4e-2 if c < 1 else 1e-3)
    assert torch.equal(found.argmax(dim=1), case.tensor("stl_labels"))
    torch.testing.assert_close(
        found.softmax(dim=1), case.tensor("stl_probability"), rtol=0, atol=4e-2 if c < 1 else 1e-3
    )


def test_vectors_worked_by_hand() -> None:
    # Two channels of two locations, (0, 0) and (3, 4), are 5 apart. With scale 1, A is
    # [[0, 5], [5, 0]], whose row and column means are 2.5 each.
    method = DeepBDC()
    method.build((2, 1, 2), 0, Conv64F())
    with torch.no_grad():
        method.pool.log_scale.zero_()
        vector = method.embed(torch.tensor([[[[0.0, 0.0]], [[3.0, 4.0]]]]))
    torch.testing.assert_close(vector, torch.tensor([[-2.5, 2.5, -2.5]]), rtol=0, atol=4e-3)


def test_the_metric_depends_on_the_shots() -> None:
    support, query = torch.randn(2, 3, 2, 6), torch.randn(2, 5, 6)
    inner = torch.einsum("tnd,tkd->tnk", query, support.mean(dim=2))
    distance = -torch.cdist(query, support.mean(dim=2)).square()
    torch.testing.assert_close(DeepBDC(metric="inner").scores(support, query), inner)
    torch.testing.assert_close(DeepBDC(metric="euclidean").scores(support, query), distance)
    torch.testing.assert_close(DeepBDC().scores(support, query), distance)
    one = support[:, :, :1]
    expected = torch.einsum("tnd,tkd->tnk", query, one[:, :, 0])
    torch.testing.assert_close(DeepBDC().scores(one, query), expected)


def test_the_classifier_learns_from_the_pooled_batch() -> None:
    torch.manual_seed(0)
    method = stl(reduce_dim=3)
    method.build((4, 3, 3), 7, Conv64F())
    batch = Batch(items=torch.rand(6, 4, 3, 3), classes=torch.arange(6))
    logits = method.eval().class_logits(batch.items)
    assert logits.shape == (6, 7)
    expected = torch.nn.functional.cross_entropy(logits, batch.classes)
    torch.testing.assert_close(method.loss(batch), expected)
    assert method.reads_values == RFS().reads_values


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DeepBDC(reduce_dim=1), "reduce_dim must be at least 2, got 1"),
        (
            lambda: DeepBDC(metric="l1"),
            "metric must be 'by-shot', 'inner' or 'euclidean', got 'l1'",
        ),
        (
            lambda: STLDeepBDC(classifier=Logistic()),
            "must consume vectors and learn from batches, but Logistic consumes vectors and "
            "learns from nothing",
        ),
    ],
)
def test_options_are_validated(make: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make()
