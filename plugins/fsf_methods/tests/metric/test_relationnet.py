from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_backbones import Conv64F
from fsf_methods.metric import RelationNet, _relationnet
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks([RelationNet, partial(RelationNet, objective="cross-entropy")])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def built(size: tuple[int, int] = (5, 5), **options: Any) -> RelationNet:
    """Return a method in evaluation mode whose BatchNorms have seen something."""
    torch.manual_seed(0)
    method = RelationNet(**options)
    method.build((6, *size), 7, Conv64F())
    for module in method.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight)  # also below 0
            nn.init.normal_(module.bias)
            assert module.running_mean is not None
            assert module.running_var is not None
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return method.eval()


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


def items(size: tuple[int, int], n: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(2, 3, 2, 6, *size, generator=generator),
        torch.randn(2, n, 6, *size, generator=generator),
    )


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("size", [(1, 1), (2, 2), (3, 1), (5, 5), (10, 7)])
def test_scores_are_those_of_concatenated_pairs(size: tuple[int, int], training: bool) -> None:
    method = built(size).train(training)
    with torch.no_grad():
        expected = literal(copy.deepcopy(method), *items(size))
        torch.testing.assert_close(method.scores(*items(size)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("size", [(8, 8), (21, 10)])
def test_without_padding_the_maps_shrink(size: tuple[int, int], training: bool) -> None:
    method = built(size, padding=False).train(training)
    with torch.no_grad():
        expected = literal(copy.deepcopy(method), *items(size))
        torch.testing.assert_close(method.scores(*items(size)), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(OptionError, match="padding must be true for maps of 7 x 21"):
        built((7, 21), padding=False)


def test_running_statistics_after_a_step_are_the_literal_ones() -> None:
    method = built().train()
    other = copy.deepcopy(method)
    with torch.no_grad():
        method.scores(*items((5, 5)))
        literal(other, *items((5, 5)))
    expected = dict(other.named_buffers())
    for name, found in method.named_buffers():
        torch.testing.assert_close(found, expected[name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("most", [1, 2000, 1 << 20])
def test_the_blocks_in_which_pairs_are_scored_leave_no_seam(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_relationnet._NUMBERS_AT_ONCE, "cpu", most)
    method, batch = built(), items((5, 5), n=7)
    with torch.no_grad():
        torch.testing.assert_close(method.scores(*batch), literal(method, *batch))


@pytest.mark.parametrize("training", [False, True])
def test_gradients_are_the_literal_ones(training: bool) -> None:
    method = built().train(training)
    parameters = list(method.parameters())
    mine = torch.autograd.grad(method.scores(*items((5, 5))).square().sum(), parameters)
    theirs = torch.autograd.grad(literal(method, *items((5, 5))).square().sum(), parameters)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_the_losses_are_those_stated() -> None:
    support, query = items((5, 5), n=6)
    labels = torch.arange(6).expand(2, 6) % 3
    batch = Batch(support, query, labels)
    method = built()
    with torch.no_grad():
        scores = method.scores(support, query)
        errors = [
            (scores[t, i, k].sigmoid() - float(k == labels[t, i])) ** 2
            for t in range(2)
            for i in range(6)
            for k in range(3)
        ]
        torch.testing.assert_close(method.loss(batch), torch.stack(errors).mean())
        softly = built(objective="cross-entropy").loss(batch)
        expected = functional.cross_entropy(scores.flatten(0, 1), labels.flatten())
        torch.testing.assert_close(softly, expected)


@pytest.mark.parametrize("objective", ["mse", "cross-entropy"])
def test_maps_of_one_location_are_learned(objective: str) -> None:
    torch.manual_seed(0)
    method = RelationNet(objective=objective)  # type: ignore[arg-type]
    method.build((6, 1, 1), 7, Conv64F())
    optimiser = torch.optim.Adam(method.parameters(), lr=5e-3)
    labels = torch.arange(15).expand(4, 15) % 3
    for _ in range(60):
        centres = 2 * torch.randn(4, 3, 6)
        support = centres[:, :, None] + 0.2 * torch.randn(4, 3, 2, 6)
        query = torch.take_along_dim(centres, labels[:, :, None], 1) + 0.2 * torch.randn(4, 15, 6)
        batch = Batch(support[..., None, None], query[..., None, None], labels)
        optimiser.zero_grad()
        method.loss(batch).backward()
        optimiser.step()
    assert batch.support is not None
    assert batch.query is not None
    with torch.no_grad():
        predicted = method.eval().scores(batch.support, batch.query).argmax(dim=2)
    assert (predicted == labels).float().mean() > 0.7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "hinge"}, "objective must be 'mse' or 'cross-entropy', got 'hinge'"),
        ({"hidden": 0}, "hidden must be at least 1, got 0"),
    ],
)
def test_options_are_validated(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        RelationNet(**options)
