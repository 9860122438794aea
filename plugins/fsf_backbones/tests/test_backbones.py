"""What every backbone does: sizes of maps, pooling, normalisation, weights per task, options."""

from __future__ import annotations

import copy
import math
import re
from functools import partial
from typing import Any

import pytest
import torch
from torch.func import functional_call, vmap

from fsf_backbones import (
    Conv32F,
    Conv64F,
    Conv64FUnpadded,
    ConvR2D2,
    ResNet10,
    ResNet12,
    ResNet18,
    ResNet50,
    WideResNet,
)
from fsframework.interfaces import OptionError, Preprocessing
from fsframework.testing import parametrize_with_checks

NARROW = (4, 6, 8, 10)
SMALL = [
    Conv64F,
    partial(ConvR2D2, drop_rate=0.1),
    partial(ResNet12, widths=NARROW, drop_rate=0.1),
    partial(ResNet10, stem="3x3", widths=NARROW),
    partial(ResNet18, widths=NARROW),
    partial(ResNet18, stem="7x7", widths=NARROW),
    partial(ResNet50, stem="3x3", widths=NARROW),
    partial(WideResNet, depth=10, width=1, drop_rate=0.1),
]


# The others are checked with all plugins.
@parametrize_with_checks([SMALL[2], SMALL[5], SMALL[7], partial(Conv64F, last_pool=False)])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


@pytest.mark.parametrize(
    ("make", "exactly"),
    [
        # By hand, of three blocks of n filters on m channels: 9 m n weights, n biases, n scales
        # and n shifts.
        (Conv32F, 9 * 3 * 32 + 3 * 9 * 32**2 + 4 * 3 * 32),
        (Conv64F, 9 * 3 * 64 + 3 * 9 * 64**2 + 4 * 3 * 64),
        (ConvR2D2, 9 * (3 * 96 + 96 * 192 + 192 * 384 + 384 * 512) + 3 * (96 + 192 + 384 + 512)),
        (ResNet12, 12_424_320),
        # By hand, blocks: 73,984 + 230,144 + 919,040 + 3,673,088; stem: 9,408 + 128.
        (ResNet10, 4_905_792),
        (partial(ResNet18, stem="7x7"), 11_176_512),
        # 3 x 3 x 3 x 64 weights replace the stem's 7 x 7 x 3 x 64.
        (ResNet18, 11_176_512 - 9_408 + 1_728),
        (ResNet50, 23_508_032),
        # The published 36,479,194 include a classifier of ten classes: 640 x 10 weights, 10 biases.
        (WideResNet, 36_479_194 - 6_410),
    ],
)
def test_numbers_of_parameters(make: Any, exactly: int) -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in make().parameters()) == exactly


# Every pooling drops an odd row.
HALVED = {16: 1, 32: 2, 42: 2, 64: 4, 84: 5, 105: 6}


@pytest.mark.parametrize(
    ("make", "channels", "sides"),
    [
        (Conv32F, 32, HALVED),
        (Conv64F, 64, HALVED),
        (partial(Conv64F, last_pool=False), 64, {84: 10, 8: 1}),
        (partial(Conv64F, maxpool_last2=False), 64, {84: 10, 8: 1}),
        (partial(Conv64F, last_pool=False, maxpool_last2=False), 64, {84: 21, 4: 1}),
        (Conv64FUnpadded, 64, {10: 1, 28: 5, 84: 19}),
        (ConvR2D2, 896, {16: 1, 32: 3, 84: 9}),
        (partial(ResNet12, drop_rate=0.1), 640, HALVED),
        (partial(ResNet12, maxpool_last2=False), 640, {84: 21, 4: 1}),
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
            assert backbone(torch.zeros(2, 3, size, size)).shape == (2, channels, side, side)


@pytest.mark.parametrize(
    ("make", "smallest"),
    [
        (Conv32F, 16),
        (Conv64F, 16),
        (partial(Conv64F, last_pool=False), 8),
        (partial(Conv64F, last_pool=False, maxpool_last2=False), 4),
        (Conv64FUnpadded, 10),
        (ConvR2D2, 16),
        (partial(ResNet12, widths=NARROW), 16),
        (partial(ResNet12, widths=NARROW, maxpool_last2=False), 4),
    ],
)
def test_images_that_are_too_small_are_refused(make: Any, smallest: int) -> None:
    with pytest.raises(OptionError, match=f"at least {smallest} x {smallest} pixels"):
        make().eval()(torch.zeros(1, 3, 84, smallest - 1))


def test_the_normalisation_and_the_size_are_those_of_the_instance() -> None:
    own: Any = {"mean": (0.1, 0.2, 0.3), "std": (1.0, 2.0, 3.0)}
    for make in SMALL:
        usual = make().preprocessing
        assert usual == Preprocessing(size=usual.size)
        assert make(**own).preprocessing == Preprocessing(size=usual.size, **own)
    assert Conv64F.preprocessing == Preprocessing()
    stems = {"3x3": 84, "7x7": 224}
    for stem, size in stems.items():
        assert ResNet18(widths=NARROW, stem=stem).preprocessing.size == size
    assert ResNet10(widths=NARROW).preprocessing.size == 224


@pytest.mark.parametrize("make", SMALL)
def test_vectors_average_or_flatten_channel_first(make: Any) -> None:
    maps = torch.randn(2, 8, 2, 3).to(memory_format=torch.channels_last)
    usual = (
        maps.contiguous().reshape(2, -1) if make().pooling == "flatten" else maps.mean(dim=(2, 3))
    )
    assert torch.equal(make().vectors(maps), usual)
    assert torch.equal(make(pooling="mean").vectors(maps), maps.mean(dim=(2, 3)))
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


@pytest.mark.parametrize("make", SMALL)
def test_in_evaluation_a_norm_is_part_of_its_convolution(make: Any) -> None:
    backbone = make().double().train()
    images = torch.randn(4, 3, 64, 64, dtype=torch.float64)
    backbone(images + 1)  # running statistics that are not 0 and 1
    backbone.eval()
    watched, seen = copy.deepcopy(backbone), []
    for module in watched.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.register_forward_hook(lambda *_: seen.append(1))
    one, other = backbone(images), watched(images)
    assert len(seen) == sum(isinstance(m, torch.nn.BatchNorm2d) for m in backbone.modules())
    torch.testing.assert_close(one, other)
    for maps in (one, other):
        maps.square().sum().backward()
    for (name, p), same in zip(backbone.named_parameters(), watched.parameters(), strict=True):
        torch.testing.assert_close(p.grad, same.grad, msg=name)


def test_a_layer_in_place_of_a_convolution_or_a_norm_is_run() -> None:
    backbone = Conv64F().eval()
    images = torch.randn(2, 3, 32, 32)
    expected = backbone(images)
    block = backbone.blocks[0]
    block.conv = Doubled(block.conv)
    block.norm.running_mean *= 2
    block.norm.running_var *= 4
    block.norm.eps *= 4
    torch.testing.assert_close(backbone(images), expected)
    block.norm = Doubled(block.norm)
    block.norm.layer.weight.data /= 2
    torch.testing.assert_close(backbone(images), expected)


class Doubled(torch.nn.Module):
    """Twice what a layer returns."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        doubled: torch.Tensor = 2 * self.layer(x)
        return doubled


STD: dict[str, Any] = {"std": (0.2, 0.0, 0.2)}
REFUSED: list[tuple[Any, dict[str, Any]]] = [
    (Conv64F, {"negative_slope": 1.0, "pooling": "max", "mean": (0.5, 0.5), **STD}),
    (Conv64F, {"negative_slope": -0.1, "mean": (0.5, 0.5, math.nan)}),
    (ConvR2D2, {"drop_rate": 1.0, "pooling": "max"}),
    (ResNet12, {"drop_rate": 1.0, "drop_block_size": 0, "drop_ramp_steps": -1, "pooling": "max"}),
    (ResNet12, {"widths": (8, 16, 24), **STD}),
    (ResNet10, {"stem": "5x5", "pooling": "max", **STD}),
    (ResNet18, {"widths": (8, 16, 24, 0)}),
    (ResNet50, {"widths": (8, 16, 24)}),
    (WideResNet, {"depth": 27, "width": 0, "drop_rate": 1.0, "pooling": "max", **STD}),
    (WideResNet, {"depth": 4, "mean": (0.5, 0.5, math.nan)}),
]


@pytest.mark.parametrize(
    ("make", "option", "value"),
    [(make, *given) for make, options in REFUSED for given in options.items()],
)
def test_a_value_outside_its_range_is_refused(make: Any, option: str, value: Any) -> None:
    with pytest.raises(OptionError, match=rf"{option} must .*{re.escape(repr(value))}"):
        make(**{option: value})
