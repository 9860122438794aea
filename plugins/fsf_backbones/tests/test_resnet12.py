from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from fsf_backbones import ResNet12
from fsf_backbones._resnet12 import _DropBlock
from fsframework.interfaces import OptionError, Preprocessing
from fsframework.testing import parametrize_with_checks

SMALL = (8, 16, 24, 32)


class SmallResNet12(ResNet12):
    """ResNet12 with few channels, to save time."""

    def __init__(self, *, drop_rate: float = 0.1) -> None:
        super().__init__(widths=SMALL, drop_rate=drop_rate)


@parametrize_with_checks([SmallResNet12])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def test_the_papers_widths_are_the_default() -> None:
    backbone = ResNet12().eval()
    maps = backbone(torch.zeros(1, 3, 32, 32))
    assert maps.shape == (1, 640, 2, 2)
    assert torch.equal(backbone.vectors(maps), maps.mean(dim=(2, 3)))
    assert sum(p.numel() for p in backbone.parameters()) == 12_424_320


@pytest.mark.parametrize(("size", "side"), [(16, 1), (32, 2), (42, 2), (64, 4), (84, 5), (105, 6)])
@pytest.mark.parametrize("training", [False, True])
def test_every_pooling_halves_the_map_and_drops_an_odd_row(
    size: int, side: int, training: bool
) -> None:
    backbone = ResNet12(widths=SMALL, drop_rate=0.1).train(training)
    maps = backbone(torch.randn(2, 3, size, size))
    assert maps.shape == (2, 32, side, side)
    assert maps.isfinite().all()


@pytest.mark.parametrize(("pool", "side", "smallest"), [(True, 5, 16), (False, 21, 4)])
def test_smallest_images(pool: bool, side: int, smallest: int) -> None:
    backbone = ResNet12(widths=SMALL, maxpool_last2=pool).eval()
    assert backbone(torch.zeros(1, 3, 84, 84)).shape == (1, 32, side, side)
    assert backbone(torch.zeros(1, 3, smallest, smallest)).shape == (1, 32, 1, 1)
    with pytest.raises(OptionError, match=f"at least {smallest} x {smallest} pixels"):
        backbone(torch.zeros(1, 3, smallest - 1, 84))


def test_a_stage_is_three_convolutions_with_a_shortcut() -> None:
    backbone = ResNet12(widths=SMALL).eval()
    expected = images = torch.randn(2, 3, 37, 41)
    for stage in backbone.stages:
        y = functional.leaky_relu(stage.norm1(stage.conv1(expected)), 0.1)
        y = functional.leaky_relu(stage.norm2(stage.conv2(y)), 0.1)
        y = stage.norm3(stage.conv3(y)) + stage.shortcut_norm(stage.shortcut(expected))
        expected = functional.max_pool2d(functional.leaky_relu(y, 0.1), 2)
    torch.testing.assert_close(backbone(images), expected)


def test_vectors_average_or_flatten_channel_first() -> None:
    maps = torch.arange(2 * 32 * 2 * 3.0).reshape(2, 32, 2, 3)
    last = maps.to(memory_format=torch.channels_last)
    assert torch.equal(ResNet12(widths=SMALL).vectors(last), maps.mean(dim=(2, 3)))
    flattening = ResNet12(widths=SMALL, pooling="flatten")
    assert torch.equal(flattening.vectors(last), maps.reshape(2, -1))


def test_the_normalisation_is_that_of_the_instance() -> None:
    other = ResNet12(widths=SMALL, mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 3.0))
    assert other.preprocessing == Preprocessing(mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 3.0))
    assert ResNet12(widths=SMALL).preprocessing == Preprocessing()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"widths": (8, 16, 24)}, r"widths must be four positive integers, got \(8, 16, 24\)"),
        ({"widths": (8, 16, 24, 0)}, "widths must be four positive integers"),
        ({"drop_rate": 1.0}, r"drop_rate must be in \[0, 1\), got 1.0"),
        ({"drop_block_size": 0}, "drop_block_size must be at least 1, got 0"),
        ({"drop_ramp_steps": -1}, "drop_ramp_steps must be at least 0, got -1"),
        ({"pooling": "max"}, "pooling must be 'mean' or 'flatten', got 'max'"),
        ({"std": (0.2, 0.2, -0.1)}, "std must be above 0 in every channel"),
    ],
)
def test_options_are_validated(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ResNet12(**options)


def test_drops_only_in_training() -> None:
    backbone = ResNet12(widths=SMALL, drop_rate=0.3, drop_ramp_steps=0)
    plain = ResNet12(widths=SMALL)
    plain.load_state_dict(backbone.state_dict())
    images = torch.randn(4, 3, 84, 84)
    assert (backbone.train()(images) == 0).float().mean() > 0.1
    assert (plain.train()(images) == 0).float().mean() < 0.01
    plain.load_state_dict(backbone.state_dict())
    torch.testing.assert_close(backbone.eval()(images), plain.eval()(images))


@pytest.mark.parametrize("side", [10, 5, 2, 1])
def test_drop_block_drops_whole_squares_of_about_the_rate(side: int) -> None:
    torch.manual_seed(0)
    block = _DropBlock(0.1, block_size=5, ramp_steps=0).train()
    x = torch.ones(64, 256, side, side)
    y = block(x)
    # A location stays if none of the squares that cover it is dropped; squares may overlap.
    size = min(5, side)
    corners = side - size + 1
    gamma = 0.1 * side**2 / size**2 / corners**2
    covering = functional.conv2d(
        torch.ones(1, 1, corners, corners), torch.ones(1, 1, size, size), padding=size - 1
    )
    kept = (1 - gamma) ** covering[0, 0]
    assert (y != 0).float().mean() == pytest.approx(kept.mean().item(), abs=0.005)
    assert y.mean() == pytest.approx(1, abs=1e-5)
    zero = (y == 0).float()
    opened = functional.max_pool2d(
        functional.pad(-functional.max_pool2d(-zero, size, stride=1), [size - 1] * 4),
        size,
        stride=1,
    )
    assert torch.equal(opened, zero), "every dropped location belongs to a dropped square"


def test_drop_block_reaches_its_rate_step_by_step_and_continues_after_loading() -> None:
    torch.manual_seed(0)
    block = _DropBlock(0.5, block_size=1, ramp_steps=4).train()
    x = torch.ones(32, 64, 8, 8)
    shares = [(block(x) == 0).float().mean().item() for _ in range(3)]
    resumed = _DropBlock(0.5, block_size=1, ramp_steps=4).train()
    resumed.load_state_dict(block.state_dict())
    shares += [(resumed(x) == 0).float().mean().item() for _ in range(2)]
    assert shares == pytest.approx([0.125, 0.25, 0.375, 0.5, 0.5], abs=0.01)
