"""Blocks of the backbones, by the equations of their papers."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from fsf_backbones import Conv64F, ResNet12, WideResNet
from fsf_backbones._resnet12 import _DropBlock

SMALL = (8, 16, 24, 32)


@pytest.mark.parametrize("leaky", [False, True])
def test_a_block_of_conv64f_is_convolution_norm_rectifier_and_pooling(leaky: bool) -> None:
    backbone = Conv64F(leaky_relu=leaky, negative_slope=0.3).eval()
    expected = images = torch.randn(2, 3, 37, 41)
    for block in backbone.blocks:
        expected = block.norm(block.conv(expected))
        expected = nn.functional.leaky_relu(expected, 0.3 if leaky else 0.0)
        expected = nn.functional.max_pool2d(expected, 2)
    torch.testing.assert_close(backbone(images), expected)


def test_a_stage_of_resnet12_is_three_convolutions_with_a_shortcut() -> None:
    backbone = ResNet12(widths=SMALL).eval()
    expected = images = torch.randn(2, 3, 37, 41)
    for stage in backbone.stages:
        y = functional.leaky_relu(stage.norm1(stage.conv1(expected)), 0.1)
        y = functional.leaky_relu(stage.norm2(stage.conv2(y)), 0.1)
        y = stage.norm3(stage.conv3(y)) + stage.shortcut_norm(stage.shortcut(expected))
        expected = functional.max_pool2d(functional.leaky_relu(y, 0.1), 2)
    torch.testing.assert_close(backbone(images), expected)


def test_resnet12_drops_only_in_training() -> None:
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


def test_a_wide_block_normalises_before_it_convolves() -> None:
    backbone = WideResNet(depth=10, width=1).eval()
    for module in backbone.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.5, 0.5)
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
    images = torch.randn(2, 3, 21, 18)
    x = backbone.conv(images)
    for stage in backbone.stages:
        for block in stage:
            y = functional.relu(block.norm1(x))
            kept = (
                x
                if block.shortcut is None
                else block.shortcut(y[:, :, :: block.stride, :: block.stride])
            )
            x = kept + block.conv2(functional.relu(block.norm2(block.conv1(y))))
    assert [s[0].shortcut is None for s in backbone.stages] == [True, False, False]
    torch.testing.assert_close(backbone(images), functional.relu(backbone.norm(x)))


def test_a_wide_block_drops_only_in_training() -> None:
    plain, dropping = (WideResNet(depth=10, width=1, drop_rate=r) for r in (0.0, 0.5))
    dropping.load_state_dict(plain.state_dict())
    images = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(plain.eval()(images), dropping.eval()(images))
    assert not torch.allclose(plain.train()(images), dropping.train()(images))
