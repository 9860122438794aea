from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_backbones import Conv64F
from fsf_methods.metric import RENet
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks

N_BASE = 7


@parametrize_with_checks([RENet])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def built(channels: int = 12, side: int = 5, **options: Any) -> RENet:
    """Return a method in evaluation mode whose BatchNorms have seen something."""
    torch.manual_seed(0)
    method = RENet(**options)
    method.build((channels, side, side), N_BASE, Conv64F())
    for module in method.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
            assert module.running_mean is not None
            assert module.running_var is not None
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return method.eval()


def episode(
    *, tasks: int = 1, way: int = 3, shot: int = 2, n: int = 4, channels: int = 12, side: int = 5
) -> Batch:
    generator = torch.Generator().manual_seed(1)

    def items(*shape: int) -> Tensor:
        return torch.randn(*shape, channels, side, side, generator=generator).relu()

    classes = torch.stack([torch.randperm(N_BASE, generator=generator)[:way] for _ in range(tasks)])
    labels = (torch.arange(n) % way).expand(tasks, n)
    return Batch(
        support=items(tasks, way, shot),
        query=items(tasks, n),
        query_labels=labels,
        support_classes=classes[:, :, None].expand(tasks, way, shot),
        query_classes=classes.gather(1, labels),
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
    method = built(side=side).train(training)
    maps = torch.randn(6, 12, side, side)
    with torch.no_grad():
        expected = literal_embed(copy.deepcopy(method), maps)
        torch.testing.assert_close(method.embed(maps), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("side", [2, 3, 5, 6])
def test_scores_are_the_literal_ones(side: int, training: bool) -> None:
    method = built(side=side).train(training)
    batch = episode(side=side)
    assert batch.support is not None
    assert batch.query is not None
    with torch.no_grad():
        expected = literal_scores(copy.deepcopy(method), batch.support[0], batch.query[0])
        found = method.scores(batch.support, batch.query)[0]
    assert relative_error(found, expected) < 1e-4


@pytest.mark.parametrize(("way", "shot", "n"), [(2, 1, 1), (5, 5, 3), (3, 1, 45), (2, 3, 81)])
def test_the_blocks_in_which_pairs_are_scored_leave_no_seam(way: int, shot: int, n: int) -> None:
    method = built(channels=4, side=5)
    batch = episode(tasks=2, way=way, shot=shot, n=n, channels=4, side=5)
    assert batch.support is not None
    assert batch.query is not None
    with torch.no_grad():
        found = method.scores(batch.support, batch.query)
        for t in range(2):
            expected = literal_scores(method, batch.support[t], batch.query[t])
            assert relative_error(found[t], expected) < 1e-4


@pytest.mark.parametrize("training", [False, True])
def test_a_map_of_one_location_gives_finite_scores_and_gradients(training: bool) -> None:
    method = built(side=1).train(training)
    batch = episode(side=1)
    method.loss(batch).backward()
    gradients = [p.grad for p in method.parameters() if p.grad is not None]
    assert all(g.isfinite().all() for g in gradients)


def test_running_statistics_after_a_step_are_the_literal_ones() -> None:
    method = built().train()
    literal = copy.deepcopy(method)
    batch = episode()
    assert batch.support is not None
    assert batch.query is not None
    with torch.no_grad():
        method.scores(batch.support, batch.query)
        literal_scores(literal, batch.support[0], batch.query[0])
    expected = dict(literal.named_buffers())
    for name, found in method.named_buffers():
        torch.testing.assert_close(found, expected[name], rtol=1e-3, atol=1e-4, msg=name)


def test_evaluation_follows_the_current_parameters() -> None:
    method = built()
    batch = episode()
    assert batch.support is not None
    assert batch.query is not None
    with torch.no_grad():
        before = method.scores(batch.support, batch.query)
        method.narrow.over_uv.conv.weight.mul_(-1)
        assert method.widen.over_hw.norm.running_var is not None
        method.widen.over_hw.norm.running_var.mul_(2)
        after = method.scores(batch.support, batch.query)
        expected = literal_scores(method, batch.support[0], batch.query[0])
    assert not torch.allclose(before, after)
    assert relative_error(after[0], expected) < 1e-4


def test_with_only_the_episode_the_classes_of_its_images_are_learned() -> None:
    method = built(lambda_epi=0.5)
    batch = episode(tasks=2)
    assert batch.support is not None
    assert batch.query is not None
    assert batch.support_classes is not None
    assert batch.query_classes is not None
    assert batch.query_labels is not None
    assert method.classify is not None
    cross_entropy = functional.cross_entropy
    with torch.no_grad():
        support = method.embed(batch.support.flatten(0, 2))
        query = method.embed(batch.query.flatten(0, 1))
        images = torch.cat([support, query]).mean(dim=(2, 3))
        classes = torch.cat([batch.support_classes.flatten(), batch.query_classes.flatten()])
        shifted = (query - query.mean(dim=1, keepdim=True)).mean(dim=(2, 3))
        scores = method.scores(
            support.reshape(batch.support.shape), query.reshape(batch.query.shape)
        )
        expected = (
            cross_entropy(method.classify(images), classes)
            + cross_entropy(method.classify(shifted), batch.query_classes.flatten())
            + 0.5 * cross_entropy(scores.flatten(0, 1), batch.query_labels.flatten())
        )
        torch.testing.assert_close(method.loss(batch), expected)


@pytest.mark.parametrize("training", [False, True])
def test_with_a_batch_and_an_episode_the_batchs_classes_are_learned(training: bool) -> None:
    method = built(lambda_epi=0.5).train(training)
    other = copy.deepcopy(method)
    of_episode = episode(tasks=2)
    items, classes = torch.randn(9, 12, 5, 5).relu(), torch.arange(9) % N_BASE
    both = dataclasses.replace(of_episode, items=items, classes=classes)
    assert other.classify is not None
    assert of_episode.query_classes is not None
    assert of_episode.query_labels is not None
    cross_entropy = functional.cross_entropy
    with torch.no_grad():
        # The episode first, then the batch: each has its own statistics in training.
        support, query = other.embed_episode(of_episode)
        shifted = (query - query.mean(dim=2, keepdim=True)).mean(dim=(3, 4)).flatten(0, 1)
        scores = other.scores(support, query)
        expected = (
            cross_entropy(other.classify(other.embed(items).mean(dim=(2, 3))), classes)
            + cross_entropy(other.classify(shifted), of_episode.query_classes.flatten())
            + 0.5 * cross_entropy(scores.flatten(0, 1), of_episode.query_labels.flatten())
        )
        torch.testing.assert_close(method.loss(both), expected)


@pytest.mark.parametrize("training", [False, True])
def test_the_gradient_reaches_every_parameter(training: bool) -> None:
    method = built().train(training)
    method.loss(episode()).backward()
    without = {n for n, p in method.named_parameters() if p.grad is None or not p.grad.any()}
    # In training a BatchNorm removes what the one before it added.
    cancelled = {"widen.over_uv.norm.bias", "narrow.over_uv.norm.bias"} if training else set()
    assert without <= cancelled


@pytest.mark.parametrize("training", [False, True])
def test_gradients_are_the_literal_ones(training: bool) -> None:
    method = built().train(training)
    batch = episode()
    assert batch.support is not None
    assert batch.query is not None
    parameters = [*method.widen.parameters(), *method.narrow.parameters()]
    found = torch.autograd.grad(
        method.scores(batch.support, batch.query).square().sum(), parameters
    )
    expected = torch.autograd.grad(
        literal_scores(method, batch.support[0], batch.query[0]).square().sum(), parameters
    )
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_without_base_classes_there_is_no_classifier() -> None:
    method = RENet()
    method.build((12, 5, 5), 0, Conv64F())
    assert method.classify is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature must be above 0, got 0.0"),
        ({"temperature_attn": -1.0}, "temperature_attn must be above 0, got -1.0"),
        ({"lambda_epi": -0.1}, "lambda_epi must be at least 0, got -0.1"),
        ({"lambda_epi": float("nan")}, "lambda_epi must be at least 0, got nan"),
    ],
)
def test_options_are_validated(options: dict[str, float], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        RENet(**options)
