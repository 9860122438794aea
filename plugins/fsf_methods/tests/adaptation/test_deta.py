from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from fsf_methods.adaptation import DETA
from fsf_methods.adaptation._deta import (
    clustering_loss,
    patch_scores,
    patch_weights,
    prototypes,
)
from fsframework.interfaces import OptionError
from fsframework.testing import parametrize_with_checks
from tests.golden_heads import assert_array, assert_loss, assert_scores, golden_heads, read_case


@parametrize_with_checks([partial(DETA, steps=2, n_patches=2, lr=0.1)])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


@golden_heads("DETA")
def test_golden_heads_deta(path: Path) -> None:
    case = read_case(path)
    n_patches = int(case.number("K_patch"))
    images = case.tensor("support_features").reshape(case.way, case.shot, -1)
    patches = case.tensor("patch_features").reshape(case.way, case.shot, n_patches, -1)
    ways = torch.arange(case.way)
    assert torch.equal(case.tensor("support_labels"), ways.repeat_interleave(case.shot))
    trust = patch_weights(patches)
    assert_array(trust.flatten(), case.tensor("patch_weight"))
    assert_array(trust.mean(dim=2).flatten(), case.tensor("image_weight"))
    method = DETA(
        n_patches=n_patches,
        balance=case.number("balance"),
        momentum=case.number("momentum"),
        temperature=case.number("temperature"),
    )
    projector = case.parameters["projector.weight"]
    earlier = case.tensor("previous_image_weight").reshape(case.way, case.shot)
    loss, of_images = method.denoised_loss(projector, images, patches, earlier)
    assert_array(of_images.flatten(), case.tensor("image_weight_momentum"))
    scores = patch_scores(patches, trust, prototypes(images, of_images))
    assert_scores(scores, case.tensor("scores"))
    labels = case.tensor("query_labels")
    assert_loss(functional.cross_entropy(scores, labels), case.tensor("loss_prototype"))
    clusters = clustering_loss(patches @ projector.mT, trust, method.temperature)
    assert_loss(clusters, case.tensor("loss_clustering"))
    assert_loss(loss, case.tensor("loss"))


def test_crops_are_parts_of_the_image_enlarged() -> None:
    # A crop of a ramp is a ramp of smaller slope; all images have the same crops.
    ramp = torch.arange(8.0).expand(2, 3, 8, 8)
    method = DETA(n_patches=4, least_area=0.2)
    crops = method._cropped(ramp, random.Random(0))
    assert crops.shape == (8, 3, 8, 8)
    torch.testing.assert_close(crops[:4], crops[4:])
    for crop in crops[:4, 0]:
        steps = crop[0].diff()
        inner = steps[1:-1]
        torch.testing.assert_close(crop[0].expand(8, 8), crop)
        assert 0.3 < inner[0] <= 1
        torch.testing.assert_close(inner, inner[:1].expand(5), atol=1e-4, rtol=0)


def test_an_image_unlike_its_class_has_less_weight() -> None:
    patches = torch.zeros(2, 3, 1, 3)
    patches[0, :, :, 0] = 1
    patches[1, :, :, 1] = 1
    # The last image of the first class looks like the second class.
    patches[0, 2] = torch.tensor([0.0, 1.0, 0.0])
    trust = patch_weights(patches)[0, :, 0]
    within = torch.tensor([1 / 2, 1 / 2, 0.0])
    others = torch.tensor([0.0, 0.0, 1.0])
    expected = (2 * within).softmax(0) / (2 * others).softmax(0)
    torch.testing.assert_close(trust, expected, atol=1e-4, rtol=0)
    assert trust[2] < trust[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_patches": 0}, "n_patches must be at least 1, got 0"),
        ({"momentum": 1.5}, "momentum must be at most 1, got 1.5"),
        ({"least_area": 0.0}, "least_area must be above 0, got 0"),
        ({"least_area": 2.0}, "least_area must be at most 1, got 2"),
        ({"temperature": 0.0}, "temperature must be above 0, got 0"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        DETA(**options)
