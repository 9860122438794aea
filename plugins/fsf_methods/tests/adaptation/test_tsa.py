from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_backbones import Conv64F, ResNet12
from fsf_methods.adaptation import TSA
from fsf_methods.adaptation._adapters import Adapters, vectors_of
from fsframework.interfaces import Backbone, OptionError
from fsframework.testing import parametrize_with_checks
from tests.golden_heads import (
    Case,
    assert_array,
    assert_loss,
    assert_scores,
    golden_heads,
    read_case,
)


@parametrize_with_checks(
    [
        partial(TSA, steps=3),
        partial(TSA, adapter="serial", form="vector", alignment=False, steps=1, tasks_at_once=3),
    ]
)
def test_conformance(make: Any, check: Any) -> None:
    check(make)


class Block(nn.Module):
    """Two 3 x 3 convolutions, with a 1 x 1 convolution as shortcut where the shape changes."""

    def __init__(self, before: int, after: int, stride: int, *, changes: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = nn.Sequential()
        if changes:
            shortcut = nn.Conv2d(before, after, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class SmallResNet(Backbone):
    """The network of the reference cases, with the shapes of given weights by its names."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        width = len(weights["conv1.weight"])
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.stages = "layer1", "layer2", "layer3", "layer4"
        for stage in self.stages:
            after, before = weights[f"{stage}.0.conv1.weight"].shape[:2]
            changes = f"{stage}.0.downsample.0.weight" in weights
            block = Block(before, after, 2 if changes else 1, changes=changes)
            setattr(self, stage, nn.Sequential(block))
        self.load_state_dict(weights, strict=False)

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = functional.relu(self.bn1(self.conv1(images)))
        for stage in self.stages:
            maps = getattr(self, stage)(maps)
        return maps


def network(case: Case) -> SmallResNet:
    own = {
        name.removeprefix("backbone.").replace(".conv.weight", ".weight"): value
        for name, value in case.parameters.items()
        if name.startswith("backbone.") and "alpha" not in name
    }
    return SmallResNet(own).eval()


def adapter_weights(arrays: dict[str, Tensor], start: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the reference's adapters in the shapes and under the names of ``start``."""
    theirs = {}
    for name, like in start.items():
        place, _, part = name.rpartition(".")
        key = {"alpha": f"backbone.{place}.alpha", "bias": f"backbone.{place}.alpha_bias"}
        theirs[name] = arrays[key.get(part, "beta.weight")].reshape(like.shape)
    return theirs


@golden_heads("TSA")
def test_golden_heads_tsa(path: Path) -> None:
    case = read_case(path)
    backbone = network(case)
    support, query = case.tensor("support"), case.tensor("query")
    method = TSA(
        adapter=case.text("ad_type"),  # type: ignore[arg-type]
        form=case.text("ad_form"),  # type: ignore[arg-type]
        lr=case.number("lr"),
        alignment_lr=case.number("lr_beta"),
    )
    method.build(support.shape[2:], 0, backbone)
    adapters = Adapters(backbone, method.adapter, method.form)
    with torch.no_grad():
        start = method.start(adapters, support.flatten(0, 1))
        given = adapter_weights(case.parameters, start)
        features = vectors_of(adapters)(given, support.flatten(0, 1))
        assert_array(features, case.tensor("support_features_before").flatten(1))
        for steps, suffix in ((0, "_before"), (int(case.number("max_iter")), "")):
            method.steps = steps
            scores, after = method.fitted_scores(adapters, given, support, query)
            assert_scores(scores, case.tensor(f"scores{suffix}"))
            loss = functional.cross_entropy(scores, case.tensor("query_labels"))
            assert_loss(loss, case.tensor(f"loss{suffix}"))
    expected = {
        key.removeprefix("after."): case.tensor(key)
        for key in case.arrays
        if key.startswith("after.")
    }
    for name, value in adapter_weights(expected, start).items():
        assert_array(after[name], value)


def test_adapters_worked_by_hand() -> None:
    # A convolution without a stem cannot be adapted, so there are two, of one location.
    class Two(Backbone):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 2, 1, bias=False)
            self.conv = nn.Conv2d(2, 2, 3, padding=1, bias=False)

        def forward(self, images: Tensor) -> Tensor:
            maps: Tensor = self.conv(self.stem(images))
            return maps

    backbone = Two()
    with torch.no_grad():
        backbone.stem.weight.copy_(torch.eye(2, 3)[..., None, None])
        backbone.conv.weight.zero_()
        backbone.conv.weight[:, :, 1, 1] = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    image = torch.tensor([5.0, 7.0, 0.0]).reshape(1, 3, 1, 1)
    alpha = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    bias = torch.tensor([0.5, 0.0])
    # The convolution returns (7, 10).
    cases = [
        ("residual", "matrix", {"conv.alpha": alpha}, [7.0 + 5, 10 + 12]),
        ("residual", "vector", {"conv.alpha": torch.tensor([1.0, 2.0])}, [7.0 + 5, 10 + 14]),
        ("serial", "matrix", {"conv.alpha": alpha, "conv.bias": bias}, [7.5, 17]),
    ]
    for kind, form, weights, expected in cases:
        adapters = Adapters(backbone, kind, form)  # type: ignore[arg-type]
        assert set(adapters.start(image)) == set(weights)
        assert all(weights[n].shape == w.shape for n, w in adapters.start(image).items())
        torch.testing.assert_close(adapters.encode(weights, image), torch.tensor([expected]))
    assert not backbone.conv._forward_hooks


def test_all_but_the_first_3x3_convolution_are_adapted() -> None:
    backbone = ResNet12(widths=(4, 4, 4, 4))
    names = set(Adapters(backbone, "residual", "matrix").convolutions)
    every = {f"stages.{stage}.conv{n}" for stage in range(4) for n in (1, 2, 3)}
    assert names == every - {"stages.0.conv1"}


def test_several_tasks_at_once_are_scored_as_one_by_one() -> None:
    torch.manual_seed(0)
    support, query = torch.randn(3, 3, 2, 3, 20, 20), torch.randn(3, 4, 3, 20, 20)
    one, three = TSA(steps=2), TSA(steps=2, tasks_at_once=3)
    backbone = Conv64F().eval()
    for method in (one, three):
        method.build((3, 20, 20), 0, backbone)
    torch.testing.assert_close(
        one.scores(support, query), three.scores(support, query), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"adapter": "parallel"}, "adapter must be one of residual, serial, got 'parallel'"),
        ({"form": "scalar"}, "form must be one of matrix, vector, got 'scalar'"),
        ({"steps": -1}, "steps must be at least 0, got -1"),
        ({"lr": -1.0}, "lr must be at least 0, got -1.0"),
        ({"tasks_at_once": 0}, "tasks_at_once must be at least 1, got 0"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        TSA(**options)


def test_a_backbone_without_3x3_convolutions_is_refused() -> None:
    class Patches(Backbone):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Conv2d(3, 4, 4, stride=4)

        def forward(self, images: Tensor) -> Tensor:
            maps: Tensor = self.project(images)
            return maps

    with pytest.raises(OptionError, match="but Patches has none"):
        TSA().build((3, 20, 20), 0, Patches())
