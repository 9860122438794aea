"""The relational embedding network."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fsf_methods.metric import RENet
from fsframework.interfaces import Batch
from plugins.fsf_methods.tests.toys import assert_same_gradients, built, by_task
from plugins.fsf_methods.tests.toys import episode as without_classes

N_BASE = 7


def renet(side: int = 5, channels: int = 12, **options: Any) -> RENet:
    return built(RENet, channels, side, side, n_base=N_BASE, **options)


def episode(side: int = 5, channels: int = 12, **counts: int) -> Batch:
    """Return tasks of three ways whose classes are 0, 1 and 2, or 3, 4 and 5."""
    batch = without_classes(channels, side, side, **{"tasks": 1, "n": 4, **counts})
    classes = torch.arange(6).reshape(2, 3)[: len(batch.query)]
    return dataclasses.replace(
        batch,
        support_classes=classes[:, :, None].expand(-1, -1, 2),
        query_classes=classes.gather(1, batch.query_labels),
    )


# The paper's formulas, literally and slowly: whole tensors, one task at a time, 3-d convolutions
# over unfolded correlations, separate BatchNorms.


def literal_embed(method: RENet, maps: Tensor) -> Tensor:
    layers = method.self_correlation
    n, _, h, w = maps.shape
    unit = functional.normalize(maps.relu(), dim=1)
    windows = functional.unfold(unit, 5, padding=2).reshape(n, -1, 5, 5, h, w)
    x = (windows * unit[:, :, None, None]).permute(0, 1, 4, 5, 2, 3).flatten(2, 3)
    x = x.reshape(*x.shape[:3], 25)
    x = layers.enter.norm(layers.enter.conv(x)).relu().reshape(n, -1, h * w, 5, 5)
    for layer in (layers.shrink, layers.shrink_more):
        x = functional.conv3d(x, layer.conv.weight[:, :, None])
        x = layer.norm(x.flatten(3)).reshape(x.shape).relu()
    x = layers.leave.norm(layers.leave.conv(x.reshape(n, -1, h, w)))
    return (x + maps).relu()


def literal_refined(method: RENet, x: Tensor) -> Tensor:
    """Map ``(pairs, 1, h, w, u, v)`` to the same."""
    for layer in (method.widen, method.narrow):
        pairs, _, h, w, u, v = x.shape
        x = functional.conv3d(
            x.reshape(pairs, -1, h, w, u * v),
            layer.over_hw.conv.weight[..., None],
            padding=(1, 1, 0),
        )
        x = layer.over_hw.norm(x.flatten(3)).relu()
        x = functional.conv3d(
            x.reshape(pairs, -1, h * w, u, v),
            layer.over_uv.conv.weight[:, :, None],
            padding=(0, 1, 1),
        )
        x = layer.over_uv.norm(x.flatten(3))
        x = layer.over_channels.norm(layer.over_channels.conv(x)).reshape(pairs, -1, h, w, u, v)
        if layer is method.widen:
            x = x.relu()
    return x


def literal_scores(method: RENet, support: Tensor, query: Tensor) -> Tensor:
    """Map ``(way, shot, C, h, w)`` and ``(n, C, h, w)`` to ``(n, way)``."""
    way, shot, _, h, w = support.shape
    n = len(query)
    support = support.flatten(0, 1)
    support = support - support.mean(dim=1, keepdim=True)
    query = query - query.mean(dim=1, keepdim=True)

    def directions(maps: Tensor) -> Tensor:
        reduced = method.reduce.norm(method.reduce.conv(maps)).relu()
        return functional.normalize(reduced, dim=1, eps=1e-8)

    x = torch.einsum("scij,qckl->qsijkl", directions(support), directions(query))
    x = x.reshape(-1, 1, h, w, h, w)
    plain = literal_refined(method, x)
    x = plain + literal_refined(method, x.permute(0, 1, 4, 5, 2, 3)).permute(0, 1, 4, 5, 2, 3)
    x = x.reshape(n, way * shot, h * w, h * w)

    def weights(dim: int) -> Tensor:
        normal = (x - x.mean(dim=dim, keepdim=True)) / (x.var(dim=dim, keepdim=True) + 1e-5).sqrt()
        return (normal / method.temperature_attn).softmax(dim=dim)

    on_support = weights(2).sum(dim=3).reshape(n, way * shot, 1, h, w)
    on_query = weights(3).sum(dim=2).reshape(n, way * shot, 1, h, w)
    pooled = [
        attended.mean(dim=(-2, -1)).reshape(n, way, shot, -1).mean(dim=2)
        for attended in (on_support * support, on_query * query[:, None])
    ]
    return functional.cosine_similarity(*pooled, dim=-1) / method.temperature


def relative_error(found: Tensor, expected: Tensor) -> float:
    spread = (expected.amax(dim=-1) - expected.amin(dim=-1)).mean()
    return ((found - expected).abs().max() / spread).item()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("side", [2, 3, 4, 5, 6])
def test_embed_is_the_literal_one(side: int, training: bool) -> None:
    method = renet(side).train(training)
    maps = torch.randn(6, 12, side, side)
    with torch.no_grad():
        expected = literal_embed(copy.deepcopy(method), maps)
        torch.testing.assert_close(method.embed(maps), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("side", [2, 3, 5, 6])
def test_scores_gradients_and_statistics_are_the_literal_ones(side: int, training: bool) -> None:
    method, batch = renet(side).train(training), episode(side)
    literal = copy.deepcopy(method)
    found = method.scores(batch.support, batch.query)
    statistics = dict(copy.deepcopy(method).named_buffers())
    expected = by_task(literal_scores, literal, batch)
    assert relative_error(found, expected) < 1e-4
    buffers = dict(literal.named_buffers())
    torch.testing.assert_close(statistics, buffers, rtol=1e-3, atol=1e-4)
    if side == 6:  # gradients differ by rounding
        return
    expected = by_task(literal_scores, method, batch)
    parameters = [*method.widen.parameters(), *method.narrow.parameters()]
    assert_same_gradients(found, expected, parameters, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("way", "shot", "n"), [(2, 1, 1), (5, 5, 3), (3, 1, 45), (2, 3, 81)])
def test_the_blocks_in_which_pairs_are_scored_leave_no_seam(way: int, shot: int, n: int) -> None:
    method, batch = renet(channels=4), without_classes(4, 5, 5, way=way, shot=shot, n=n)
    with torch.no_grad():
        found = method.scores(batch.support, batch.query)
        expected = by_task(literal_scores, method, batch)
    assert all(relative_error(*pair) < 1e-4 for pair in zip(found, expected, strict=True))


def test_evaluation_follows_the_current_parameters() -> None:
    method, batch = renet(), episode()
    with torch.no_grad():
        before = method.scores(batch.support, batch.query)
        method.narrow.over_uv.conv.weight.mul_(-1)
        method.widen.over_hw.norm.running_var.mul_(2)
        after = method.scores(batch.support, batch.query)
        expected = by_task(literal_scores, method, batch)
    assert not torch.allclose(before, after)
    assert relative_error(after, expected) < 1e-4


@pytest.mark.parametrize(("with_batch", "training"), [(False, False), (True, False), (True, True)])
def test_the_loss_is_the_stated_one(with_batch: bool, training: bool) -> None:
    method, batch = renet(lambda_epi=0.5).train(training), episode(tasks=2)
    other, cross_entropy = copy.deepcopy(method), functional.cross_entropy
    with torch.no_grad():
        # The episode first, then the batch: each has its own statistics in training.
        support, query = other.embed_episode(batch)
        scores = other.scores(support, query)
        if with_batch:
            items, classes = torch.randn(9, 12, 5, 5).relu(), torch.arange(9) % N_BASE
            batch = dataclasses.replace(batch, items=items, classes=classes)
            images = other.embed(items)
        else:
            # Without one, the images of the episode are classified.
            images = torch.cat([support.flatten(0, 2), query.flatten(0, 1)])
            classes = torch.cat([batch.support_classes.flatten(), batch.query_classes.flatten()])
        shifted = (query - query.mean(dim=2, keepdim=True)).mean(dim=(3, 4)).flatten(0, 1)
        expected = (
            cross_entropy(other.classify(images.mean(dim=(2, 3))), classes)
            + cross_entropy(other.classify(shifted), batch.query_classes.flatten())
            + 0.5 * cross_entropy(scores.flatten(0, 1), batch.query_labels.flatten())
        )
        torch.testing.assert_close(method.loss(batch), expected)
