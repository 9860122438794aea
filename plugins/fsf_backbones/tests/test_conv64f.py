from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from fsf_backbones import Conv32F, Conv64F
from fsframework.interfaces import OptionError, Preprocessing
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks([Conv32F, Conv64F])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


@pytest.mark.parametrize(("size", "side"), [(16, 1), (32, 2), (42, 2), (64, 4), (84, 5), (105, 6)])
def test_every_pooling_halves_the_map_and_drops_an_odd_row(size: int, side: int) -> None:
    maps = Conv64F().eval()(torch.randn(2, 3, size, size))
    assert maps.shape == (2, 64, side, side)


@pytest.mark.parametrize(
    ("options", "side", "smallest"),
    [
        ({}, 5, 16),
        ({"last_pool": False}, 10, 8),
        ({"maxpool_last2": False}, 10, 8),
        ({"last_pool": False, "maxpool_last2": False}, 21, 4),
    ],
)
def test_fewer_poolings_leave_larger_maps(
    options: dict[str, bool], side: int, smallest: int
) -> None:
    backbone = Conv64F(**options).eval()
    assert backbone(torch.zeros(1, 3, 84, 84)).shape == (1, 64, side, side)
    assert backbone(torch.zeros(1, 3, smallest, smallest)).shape == (1, 64, 1, 1)
    with pytest.raises(OptionError, match=f"at least {smallest} x {smallest} pixels"):
        backbone(torch.zeros(1, 3, 84, smallest - 1))


def test_conv32f_has_half_the_filters() -> None:
    narrow, wide = Conv32F().eval(), Conv64F()
    assert narrow(torch.zeros(1, 3, 84, 84)).shape == (1, 32, 5, 5)
    # A block of n filters on m channels: 9 m n weights, n biases, n scales and n shifts.
    for backbone, n in ((narrow, 32), (wide, 64)):
        by_hand = 9 * 3 * n + 3 * 9 * n * n + 4 * 3 * n
        assert sum(p.numel() for p in backbone.parameters()) == by_hand
    with pytest.raises(OptionError, match="conv32f needs images of at least 16 x 16 pixels"):
        narrow(torch.zeros(1, 3, 15, 84))


@pytest.mark.parametrize("leaky", [False, True])
def test_a_block_is_convolution_norm_rectifier_and_pooling(leaky: bool) -> None:
    backbone = Conv64F(leaky_relu=leaky, negative_slope=0.3).eval()
    expected = images = torch.randn(2, 3, 37, 41)
    for block in backbone.blocks:
        expected = block.norm(block.conv(expected))
        expected = nn.functional.leaky_relu(expected, 0.3 if leaky else 0.0)
        expected = nn.functional.max_pool2d(expected, 2)
    torch.testing.assert_close(backbone(images), expected)


def test_vectors_flatten_channel_first_or_average() -> None:
    maps = torch.arange(2 * 64 * 2 * 3.0).reshape(2, 64, 2, 3)
    last = maps.to(memory_format=torch.channels_last)
    assert torch.equal(Conv64F().vectors(last), maps.reshape(2, -1))
    assert torch.equal(Conv64F(pooling="mean").vectors(last), maps.mean(dim=(2, 3)))


def test_the_normalisation_is_that_of_the_instance() -> None:
    usual, other = Conv64F(), Conv64F(mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 3.0))
    assert usual.preprocessing == Preprocessing() == Conv64F.preprocessing
    assert other.preprocessing == Preprocessing(mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 3.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"negative_slope": -0.1}, r"negative_slope must be in \[0, 1\), got -0.1"),
        ({"negative_slope": 1.0}, r"negative_slope must be in \[0, 1\), got 1.0"),
        ({"pooling": "max"}, "pooling must be 'mean' or 'flatten', got 'max'"),
        ({"mean": (0.5, 0.5)}, r"mean must be three numbers, .*, got \(0.5, 0.5\)"),
        ({"mean": (0.5, 0.5, math.nan)}, "mean must be three numbers"),
        ({"std": (0.2, 0.0, 0.2)}, r"std must be above 0 in every channel, got \(0.2, 0.0, 0.2\)"),
    ],
)
def test_options_are_validated(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Conv64F(**options)


def test_maps_are_stored_channels_last_and_weights_contiguous() -> None:
    backbone = Conv64F()
    assert backbone(torch.zeros(2, 3, 84, 84)).is_contiguous(memory_format=torch.channels_last)
    assert all(p.is_contiguous() for p in backbone.state_dict().values())


def test_runs_under_vmap_with_weights_per_task() -> None:
    backbone = Conv64F().eval()
    images = torch.randn(2, 3, 3, 32, 32)
    weights = {n: torch.stack([p, 1.1 * p]) for n, p in backbone.named_parameters()}
    together = vmap(lambda w, x: functional_call(backbone, w, (x,)))(weights, images)
    for t in range(2):
        alone = functional_call(backbone, {n: p[t] for n, p in weights.items()}, (images[t],))
        torch.testing.assert_close(together[t], alone, rtol=1e-4, atol=1e-5)
