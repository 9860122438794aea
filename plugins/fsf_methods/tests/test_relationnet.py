"""The relation network."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods._shared import batch_statistics
from fsf_methods.metric import RelationNet, _relationnet
from fsframework.interfaces import OptionError
from plugins.fsf_methods.tests.toys import assert_same_gradients, built, episode


def net(*size: int, **options: Any) -> RelationNet:
    """Return a method whose BatchNorms have seen something, with weights also below 0."""
    method = built(RelationNet, 6, *size, **options)
    nn.init.normal_(method.first.norm.weight)
    nn.init.normal_(method.second.norm.weight)
    return method


def literal(method: RelationNet, support: Tensor, query: Tensor) -> Tensor:
    """Convolve every pair of ``(tasks, way, shot, C, h, w)`` and ``(tasks, n, C, h, w)``."""
    classes = support.sum(dim=2)
    tasks, way = classes.shape[:2]
    shape = tasks, query.shape[1], way, *query.shape[2:]
    x = torch.cat([classes[:, None].expand(shape), query[:, :, None].expand(shape)], dim=3)
    x = x.flatten(0, 2)
    for block in (method.first, method.second):
        x = block.norm(block.conv(x)).relu()  # the layer itself pads or not
        x = functional.max_pool2d(x, [min(2, side) for side in x.shape[2:]])
    return method.relate(method.combine(x.flatten(1)).relu()).reshape(shape[:3])


SIZES = [(1, 1), (2, 2), (3, 1), (5, 5), (10, 7)]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("size", "padding"), [*((size, True) for size in SIZES), ((8, 8), False), ((21, 10), False)]
)
def test_scores_gradients_and_statistics_are_those_of_concatenated_pairs(
    size: tuple[int, int], padding: bool, training: bool
) -> None:
    method = net(*size, padding=padding).train(training)
    other, batch = copy.deepcopy(method), episode(6, *size)
    found = method.scores(batch.support, batch.query)
    statistics = [b.clone() for b in method.buffers()]
    expected = literal(other, batch.support, batch.query)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(statistics, list(other.buffers()), rtol=1e-4, atol=1e-5)
    # The same weights, so that both have gradients.
    expected = literal(method, batch.support, batch.query)
    assert_same_gradients(found, expected, method.parameters(), rtol=1e-3, atol=1e-3)


def test_small_maps_need_padding() -> None:
    with pytest.raises(OptionError, match="padding must be true for maps of 7 x 21"):
        net(7, 21, padding=False)


@pytest.mark.parametrize("most", [1, 2000, 1 << 20])
def test_the_blocks_in_which_pairs_are_scored_leave_no_seam(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_relationnet._NUMBERS_AT_ONCE, "cpu", most)
    method, batch = net(5, 5), episode(6, 5, 5, n=7)
    with torch.no_grad():
        found, expected = (
            score(batch.support, batch.query)
            for score in (method.scores, lambda *pair: literal(method, *pair))
        )
    torch.testing.assert_close(found, expected)


def test_the_losses_are_those_stated() -> None:
    method, batch = net(5, 5), episode(6, 5, 5)
    with torch.no_grad():
        scores = method.scores(batch.support, batch.query)
        truth = functional.one_hot(batch.query_labels, 3)
        errors = (scores.sigmoid() - truth).square()
        torch.testing.assert_close(method.loss(batch), errors.mean())
        softly = net(5, 5, objective="cross-entropy").loss(batch)
        expected = functional.cross_entropy(scores.flatten(0, 1), batch.query_labels.flatten())
        torch.testing.assert_close(softly, expected)


def test_batch_norm_uses_each_tasks_own_images() -> None:
    method = built(RelationNet, 3, 16, 16, batch_norm="batch")
    assert method.consumes == "images"
    assert method.transductive
    batch = episode(3, 16, 16)
    before = copy.deepcopy(method.state_dict())

    def literally(support: Tensor, query: Tensor) -> Tensor:
        one = copy.deepcopy(method).train()
        maps = one.backbone(support[0].flatten(0, 1)).unflatten(0, support.shape[1:3])
        return literal(one, maps[None], one.backbone(query[0])[None])

    tasks = zip(batch.support.split(1), batch.query.split(1), strict=True)
    expected = torch.cat([literally(*task) for task in tasks])
    for training in (False, True):
        method.train(training)
        found = method.scores(batch.support, batch.query)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        assert all(part.training == training for part in method.modules())
    torch.testing.assert_close(dict(method.state_dict()), dict(before), rtol=0, atol=0)
    # On a GPU, tasks run in parallel.
    with batch_statistics(method):
        parallel = torch.vmap(method._of_task)(batch.support, batch.query)
    torch.testing.assert_close(parallel, expected, rtol=1e-4, atol=1e-4)
