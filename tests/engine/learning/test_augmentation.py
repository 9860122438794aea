"""Augmentation: each image in its own way, within the ranges, the same for the same seed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fsframework.engine.learning.augmentation import augmented

KINDS = ("resized-crop", "color-jitter", "flip")
GREY = torch.tensor([0.299, 0.587, 0.114])


def ramp(n: int = 400, size: int = 24) -> Tensor:
    """Return images whose red rises from left to right, green from top to bottom."""
    line = torch.linspace(40, 200, size)
    image = torch.stack(
        [
            line.expand(size, size),
            line[:, None].expand(size, size),
            line.new_full((size, size), 100),
        ]
    )
    return image.expand(n, 3, size, size).contiguous()


def changed(*kinds: str, images: Tensor | None = None, seed: int = 0) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return augmented(ramp() if images is None else images, kinds)


@pytest.mark.parametrize("kinds", [(k,) for k in KINDS] + [KINDS])
def test_the_seed_decides_and_images_differ(kinds: tuple[str, ...]) -> None:
    first = changed(*kinds)
    assert first.shape == (400, 3, 24, 24)
    assert first.isfinite().all()
    assert first.min() >= -1e-3
    assert first.max() <= 255 + 1e-3
    assert torch.equal(first, changed(*kinds))
    assert not torch.equal(first, changed(*kinds, seed=1))
    assert len(first.flatten(1).unique(dim=0)) > (1 if kinds == ("flip",) else 390)


def test_what_is_not_asked_for_leaves_the_draws_of_the_rest_alone() -> None:
    both = changed("flip", "color-jitter")
    flipped = changed("flip")
    torch.testing.assert_close(changed("color-jitter", images=flipped), both)


def test_flip_turns_half_of_the_images_left_for_right() -> None:
    images = ramp()
    flipped = changed("flip", images=images)
    turned = (flipped == images.flip(-1)).flatten(1).all(dim=1)
    same = (flipped == images).flatten(1).all(dim=1)
    assert (turned | same).all()
    assert 150 < int(turned.sum()) < 250


def test_a_crop_is_a_part_of_the_image_in_area_and_ratio() -> None:
    cropped = changed("resized-crop")
    red, green = cropped[:, 0], cropped[:, 1]
    # On the ramps a part of width w spans w of the values; a pixel's centre lies half a pixel in.
    width = (red[:, 0, -2] - red[:, 0, 1]) / (200 - 40) * 23 / 21
    height = (green[:, -2, 0] - green[:, 1, 0]) / (200 - 40) * 23 / 21
    area, ratio = width * height, width / height
    assert area.min() > 0.07
    assert area.max() <= 1.03
    assert 0.45 < float(area.mean()) < 0.6
    assert ratio.min() > 0.72
    assert ratio.max() < 1.4
    # Nothing is turned or sheared: red is the same in a column, green in a row, blue all over.
    torch.testing.assert_close(red, red[:, :1].expand_as(red), atol=1e-2, rtol=0)
    torch.testing.assert_close(green, green[:, :, :1].expand_as(green), atol=1e-2, rtol=0)
    torch.testing.assert_close(cropped[:, 2], torch.full_like(red, 100.0), atol=1e-2, rtol=0)
    assert (red[:, 0, 1] < red[:, 0, -2]).all()


def test_a_crop_that_also_flips_keeps_its_place() -> None:
    plain, both = changed("resized-crop"), changed("resized-crop", "flip")
    mirrored = both[:, 0, 0, 0] > both[:, 0, 0, -1]
    torch.testing.assert_close(both[~mirrored], plain[~mirrored], atol=1e-2, rtol=0)
    torch.testing.assert_close(both[mirrored], plain[mirrored].flip(-1), atol=1e-2, rtol=0)


def test_jitter_multiplies_brightness_and_leaves_grey_images_grey() -> None:
    grey = torch.full((400, 3, 4, 4), 100.0)
    jittered = changed("color-jitter", images=grey)
    # A flat grey image has neither contrast nor saturation: only its brightness changes.
    assert jittered.std(dim=(1, 2, 3)).max() < 1e-3
    level = jittered.mean(dim=(1, 2, 3)) / 100
    assert 0.6 <= level.min() < 0.63
    assert 1.37 < level.max() <= 1.4


def test_jitter_worked_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    # Draws of 3/4 make each factor 1 + 0.4 * (2 * 0.75 - 1) = 1.2.
    monkeypatch.setattr(torch, "rand", lambda *shape: torch.full(shape, 0.75))
    image = torch.tensor([[100.0, 50.0], [20.0, 60.0], [10.0, 200.0]]).reshape(1, 3, 1, 2)
    bright = 1.2 * image[0, :, 0]
    mean = (GREY @ bright).mean()
    contrasted = (mean + 1.2 * (bright - mean)).clamp(0, 255)
    grey = GREY @ contrasted
    expected = (grey + 1.2 * (contrasted - grey)).clamp(0, 255)
    torch.testing.assert_close(augmented(image, ["color-jitter"])[0, :, 0], expected)
