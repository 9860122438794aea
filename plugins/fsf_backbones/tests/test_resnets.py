from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch.func import functional_call, vmap
from torch.nn import functional

from fsf_backbones import ResNet10, ResNet18, ResNet50, WideResNet
from fsframework.interfaces import Backbone, OptionError, Preprocessing
from fsframework.testing import parametrize_with_checks

NARROW = (4, 6, 8, 10)
SMALL = [
    partial(ResNet10, stem="3x3", widths=NARROW),
    partial(ResNet18, widths=NARROW),
    partial(ResNet18, stem="7x7", widths=NARROW),
    partial(ResNet50, stem="3x3", widths=NARROW),
    partial(WideResNet, depth=10, width=1, drop_rate=0.1),
]


@parametrize_with_checks(SMALL)
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def n_parameters(backbone: Backbone) -> int:
    return sum(p.numel() for p in backbone.parameters())


@pytest.mark.parametrize(
    ("make", "published", "exactly"),
    [
        # By hand, blocks: 73,984 + 230,144 + 919,040 + 3,673,088; stem: 9,408 + 128.
        (ResNet10, 4.9e6, 4_905_792),
        (partial(ResNet18, stem="7x7"), 11.18e6, 11_176_512),
        # 3 x 3 x 3 x 64 weights replace the stem's 7 x 7 x 3 x 64.
        (ResNet18, 11.17e6, 11_176_512 - 9_408 + 1_728),
        (ResNet50, 23.5e6, 23_508_032),
        # The published 36,479,194 include a classifier of ten classes: 640 x 10 weights, 10 biases.
        (WideResNet, 36.5e6, 36_479_194 - 6_410),
    ],
)
def test_numbers_of_parameters(make: Any, published: float, exactly: int) -> None:
    with torch.device("meta"):
        backbone = make()
    assert n_parameters(backbone) == exactly == pytest.approx(published, rel=5e-3)


@pytest.mark.parametrize(
    ("make", "channels", "sides"),
    [
        (ResNet10, 512, {84: 3, 224: 7}),
        (ResNet18, 512, {84: 11, 224: 28}),
        (partial(ResNet18, stem="7x7"), 512, {84: 3, 224: 7}),
        (ResNet50, 2048, {84: 3, 224: 7}),
        (WideResNet, 640, {80: 20, 84: 21, 224: 56}),
    ],
)
def test_shapes_of_maps(make: Any, channels: int, sides: dict[int, int]) -> None:
    with torch.device("meta"):
        backbone = make().eval()
        for size, side in sides.items():
            maps = backbone(torch.zeros(2, 3, size, size))
            assert maps.shape == (2, channels, side, side)
            assert backbone.vectors(maps).shape == (2, channels)


@pytest.mark.parametrize("make", SMALL)
@pytest.mark.parametrize("size", [1, 5, 33])
def test_any_size_leaves_a_map(make: Any, size: int) -> None:
    assert make().eval()(torch.randn(2, 3, size, size)).isfinite().all()


def test_the_image_size_is_that_of_the_stem() -> None:
    assert ResNet10(widths=NARROW).preprocessing.size == 224
    assert ResNet18(widths=NARROW).preprocessing.size == 84
    assert ResNet18(widths=NARROW, stem="7x7").preprocessing.size == 224
    own = ResNet18(widths=NARROW, mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 3.0)).preprocessing
    assert own == Preprocessing(mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 3.0))
    assert WideResNet(depth=10, width=1).preprocessing == Preprocessing()


@pytest.mark.parametrize("make", SMALL)
def test_vectors_average_or_flatten_channel_first(make: Any) -> None:
    maps = torch.randn(2, 8, 2, 3).to(memory_format=torch.channels_last)
    assert torch.equal(make().vectors(maps), maps.mean(dim=(2, 3)))
    assert torch.equal(make(pooling="flatten").vectors(maps), maps.contiguous().reshape(2, -1))


@pytest.mark.parametrize("make", SMALL)
def test_maps_are_stored_channels_last_and_weights_contiguous(make: Any) -> None:
    backbone = make().eval()
    maps = backbone(torch.zeros(2, 3, 64, 64))
    assert maps.is_contiguous(memory_format=torch.channels_last)
    assert all(p.is_contiguous() for p in backbone.state_dict().values())


@pytest.mark.parametrize("make", SMALL)
@pytest.mark.parametrize("training", [False, True])
def test_runs_under_vmap_with_weights_per_task(make: Any, training: bool) -> None:
    backbone = make().double().eval()
    if training:
        # Gradient methods use the statistics of the batch and do not track them.
        for module in backbone.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean = module.running_var = None
    images = torch.randn(2, 3, 3, 32, 32, dtype=torch.float64)
    weights = {n: torch.stack([p, 1.1 * p]) for n, p in backbone.named_parameters()}
    together = vmap(lambda w, x: functional_call(backbone, w, (x,)))(weights, images)
    for t in range(2):
        alone = functional_call(backbone, {n: p[t] for n, p in weights.items()}, (images[t],))
        torch.testing.assert_close(together[t], alone)


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


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (ResNet10, {"stem": "5x5"}, "stem must be '7x7' or '3x3', got '5x5'"),
        (ResNet18, {"widths": (8, 16, 24)}, r"widths must be four positive integers, got \(8, 16"),
        (ResNet50, {"widths": (8, 16, 24, 0)}, "widths must be four positive integers"),
        (ResNet18, {"pooling": "max"}, "pooling must be 'mean' or 'flatten', got 'max'"),
        (ResNet18, {"std": (0.2, 0.2, -0.1)}, "std must be above 0 in every channel"),
        (WideResNet, {"depth": 27}, "depth must be 10, 16, 22, 28 and so on in steps of 6, got 27"),
        (WideResNet, {"depth": 4}, "depth must be 10, 16, 22, 28"),
        (WideResNet, {"width": 0}, "width must be at least 1, got 0"),
        (WideResNet, {"drop_rate": 1.0}, r"drop_rate must be in \[0, 1\), got 1.0"),
        (WideResNet, {"pooling": "max"}, "pooling must be 'mean' or 'flatten', got 'max'"),
        (WideResNet, {"mean": (0.5, 0.5, math.nan)}, "mean must be three numbers"),
    ],
)
def test_options_are_validated(make: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make(**options)
