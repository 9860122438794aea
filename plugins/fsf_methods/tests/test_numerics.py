"""What every method of some kind does with unusual numbers, precisions and orders."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fsf_methods.gradient import ANIL
from fsf_methods.metric import CAN, MatchingNet, RENet
from fsf_methods.transfer import RFS
from fsframework.interfaces import Batch, OptionError
from plugins.fsf_methods.tests.toys import built, episode, made, method_class, scored


@pytest.mark.parametrize(
    "name", ["baseline", "baseline-plus-plus", "matchingnet", "protonet", "rfs"]
)
def test_scores_have_the_precision_of_the_items(name: str) -> None:
    method, batch = made(name), episode(30)
    expected = method.scores(batch.support, batch.query)
    for dtype, share in ((torch.float64, 1e-3), (torch.bfloat16, 0.05)):
        found = method.scores(batch.support.to(dtype), batch.query.to(dtype))
        assert found.dtype == dtype
        assert (found - expected).abs().max() < share * (expected.max() - expected.min())


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("baseline", [9]),
        ("baseline-plus-plus", [9]),
        ("dn4", [5, 3, 3]),
        ("r2d2", [1200]),
        ("rfs", [30]),
    ],
)
def test_tasks_are_solved_in_full_precision(name: str, shape: list[int]) -> None:
    method, batch = made(name), episode(*shape)
    expected = scored(method, batch)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(scored(method, batch), expected)
    if name in ("dn4", "r2d2"):
        half = Batch(batch.support.bfloat16(), batch.query.bfloat16())
        in_full = Batch(half.support.float(), half.query.float())
        assert torch.equal(scored(method, half), scored(method, in_full))


def test_the_loss_in_half_precision_adapts_in_single() -> None:
    method, batch = built(ANIL, 6, n_way=3).train(), episode(6)
    expected = method.loss(batch)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(method.loss(batch), expected)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [
        ("baseline", [9], {}),
        ("baseline-plus-plus", [9], {}),
        ("can", [6, 3, 3], {}),
        ("dsn", [3, 20, 20], {}),
        ("dsn", [3, 20, 20], {"centre": False}),
        ("matchingnet", [8], {"temperature": 1e-3}),
        ("ncc", [8], {}),
        ("ncc", [8], {"metric": "euclidean"}),
        ("protonet", [8], {}),
        ("renet", [12, 1, 1], {}),
    ],
)
def test_zeros_and_equal_images_give_finite_scores_and_gradients(
    name: str, shape: list[int], options: Any, training: bool
) -> None:
    method = built(method_class(name), *shape, n_base=7, **options).train(training)
    support = episode(*shape).support[:, :, :1].repeat(1, 1, 3, *[1] * len(shape))
    query = episode(*shape).query
    support[:, 0], query[:, 0], query[:, 1, :1] = 0.0, 0.0, 0.0
    leaves = support.requires_grad_(), query.requires_grad_()
    for factor in (1.0, 1e4):
        pair = method.embed_episode(Batch(factor * leaves[0], factor * leaves[1]))
        scores = method.scores(*pair)
        assert scores.isfinite().all()
        if scores.requires_grad:
            found = torch.autograd.grad(scores.sum(), leaves, allow_unused=True)
            assert all(g is None or g.isfinite().all() for g in found)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("cls", "shape", "options", "cancelled"),
    [
        # In training a BatchNorm removes what the bias or the norm before it adds.
        (CAN, [6, 3, 3], {"fusion": "mean"}, {"reduce.bias"}),
        (RENet, [12, 5, 5], {}, {"widen.over_uv.norm.bias", "narrow.over_uv.norm.bias"}),
        (MatchingNet, [6], {"full_context": True}, set()),
    ],
)
def test_the_gradient_reaches_every_parameter(
    cls: Any, shape: list[int], options: Any, cancelled: set[str], training: bool
) -> None:
    method = built(cls, *shape, n_base=7, **options).train(training)
    batch = episode(*shape)
    classes = batch.query_labels
    classes = {"support_classes": torch.arange(3)[None, :, None].expand(2, 3, 2),
               "query_classes": classes}  # fmt: skip
    method.loss(Batch(batch.support, batch.query, batch.query_labels, **classes)).backward()
    without = {n for n, p in method.named_parameters() if p.grad is None or not p.grad.any()}
    assert without <= (cancelled if training else set())


@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [
        ("gnn", [8], {"n_way": 3, "nf": 8, "width": 5, "statistics": "batch"}),
        ("sib", [8], {"n_way": 3, "lr": 0.5}),
        ("tpn", [8, 5, 5], {"k": 4}),
    ],
)
def test_the_order_of_the_queries_is_of_no_effect(
    name: str, shape: list[int], options: Any
) -> None:
    method, batch = built(method_class(name), *shape, **options), episode(*shape, n=9)
    order = torch.randperm(9)
    found = scored(method, Batch(batch.support, batch.query[:, order]))
    torch.testing.assert_close(found, scored(method, batch)[:, order], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cls", [CAN, RENet, RFS])
def test_without_base_classes_there_is_no_classifier(cls: Any) -> None:
    method = built(cls, 12, 5, 5)
    assert method.classify is None
    if cls is RFS:
        with pytest.raises(OptionError, match="no classifier of the base classes"):
            method.class_logits(torch.rand(1, 12))


@pytest.mark.parametrize("name", ["baseline", "baseline-plus-plus"])
def test_the_baselines_accept_no_teacher(name: str) -> None:
    method = built(method_class(name), 9, n_base=4)
    batch = Batch(
        items=torch.randn(6, 9), classes=torch.arange(6) % 4, teacher_logits=torch.zeros(6, 4)
    )
    with pytest.raises(OptionError, match="does not learn from a teacher"):
        method.loss(batch)
