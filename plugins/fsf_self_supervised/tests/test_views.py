"""Views: values worked out by hand, agreement with torchvision, what each option does."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from fsf_self_supervised.views import (
    ColorPermutation,
    Jigsaw,
    MultiCrop,
    Patches,
    Product,
    Rotation,
    SimCLR,
)
from fsf_self_supervised.views._color import jittered
from fsf_self_supervised.views._grid import distant_permutations


def numbered(size: int, n: int = 1) -> Tensor:
    """Images whose pixels are all different, values in 0..1."""
    pixels = n * 3 * size * size
    return (torch.arange(pixels, dtype=torch.float64) / pixels).reshape(n, 3, size, size)


def test_rotation_is_counter_clockwise():
    image = torch.tensor([[0.1, 0.2], [0.3, 0.4]]).expand(1, 3, 2, 2)
    found = Rotation(angles=(90, 270, 180)).make(image)
    assert torch.equal(found.images[0, 0, 0], torch.tensor([[0.2, 0.4], [0.1, 0.3]]))
    assert torch.equal(found.images[0, 1, 0], torch.tensor([[0.3, 0.1], [0.4, 0.2]]))
    assert torch.equal(found.images[0, 2, 0], torch.tensor([[0.4, 0.3], [0.2, 0.1]]))
    assert found.applied.tolist() == [[0, 1, 2]]


def test_colors_are_permuted_as_named():
    image = torch.tensor([0.1, 0.2, 0.3]).reshape(1, 3, 1, 1)
    found = ColorPermutation(orders=("rgb", "gbr", "bgr")).make(image).images[0, :, :, 0, 0]
    torch.testing.assert_close(
        found, torch.tensor([[0.1, 0.2, 0.3], [0.2, 0.3, 0.1], [0.3, 0.2, 0.1]])
    )


def composed(angles: tuple[int, ...], orders: tuple[str, ...]) -> Product:
    return Product(first=Rotation(angles=angles), then=ColorPermutation(orders=orders))


CYCLES = ("rgb", "gbr", "brg")
COMPOSED = {
    "rot_color_perm6": composed((0, 180), CYCLES),
    "rot_color_perm12": composed((0, 90, 180, 270), CYCLES),
    "rot_color_perm24": Product(first=Rotation(), then=ColorPermutation()),
}
"""The composed transformations of Lee et al. 2020, by the names in their code."""


@pytest.mark.parametrize(("name", "n"), [(name, int(name[14:])) for name in COMPOSED])
def test_a_product_has_every_turn_in_every_order_of_colours(name: str, n: int) -> None:
    # One image of 2 x 2 pixels, whose channels are 1, 10 and 100 times 1, 2, 3, 4 (over 1000).
    pixels = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    image = torch.stack([pixels, 10 * pixels, 100 * pixels]) / 1000
    corners = {24: "1243", 12: "1243", 6: "14"}[n]  # upper left, after each turn
    scales = {24: ["rgb", "rbg", "grb", "gbr", "brg", "bgr"]}.get(n, CYCLES)
    found = COMPOSED[name].make(image[None])
    assert found.images.shape == (1, n, 3, 2, 2)
    assert found.applied.tolist() == [list(range(n))]
    by_hand = [
        [int(corner) * {"r": 1, "g": 10, "b": 100}[channel] for channel in order]
        for corner in corners
        for order in scales
    ]
    torch.testing.assert_close(found.images[0, :, :, 0, 0] * 1000, torch.tensor(by_hand).float())


def test_a_product_of_random_views_keeps_numbers_and_images_apart():
    images = numbered(12, n=3)
    maker = Product(first=Rotation(angles=(0, 180)), then=Patches(grid=2, gap=0.0))
    found = maker.make(images)
    cells = Patches(grid=2, gap=0.0)
    for turn, view in enumerate((images, images.flip(-2, -1))):
        expected = cells.make(view)
        assert torch.equal(found.images[:, 4 * turn : 4 * turn + 4], expected.images)
        assert torch.equal(found.applied[:, 4 * turn : 4 * turn + 4], expected.applied + 4 * turn)
    assert Product(first=SimCLR(), then=Rotation()).random


def test_patches_without_a_gap_are_the_cells():
    image = numbered(7)
    found = Patches(gap=0.0).make(image).images
    # 7 pixels make three cells of 2; the last row and column belong to none.
    assert found.shape == (1, 9, 3, 2, 2)
    for cell, (row, column) in enumerate(itertools.product(range(3), repeat=2)):
        part = image[0, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        assert torch.equal(found[0, cell], part)


def test_patches_stay_within_their_cells():
    image = numbered(30, n=40)
    found = Patches(gap=0.3).make(image).images
    assert found.shape == (40, 9, 3, 7, 7)
    starts = set()
    for n, cell in itertools.product(range(40), range(9)):
        place = (image[n, 0] == found[n, cell, 0, 0, 0]).nonzero()[0]
        row, column = (place - 10 * torch.tensor([cell // 3, cell % 3])).tolist()
        starts.add((row, column))
        top, left = place.tolist()
        assert torch.equal(found[n, cell], image[n, :, top : top + 7, left : left + 7])
    assert starts == set(itertools.product(range(4), repeat=2))


def test_a_jigsaw_is_a_permutation_of_the_cells():
    images = numbered(9, n=50)
    cells = Patches(gap=0.0).make(images).images
    found = Jigsaw(gap=0.0, n_permutations=5).make(images)
    orders = torch.from_numpy(distant_permutations(9, 5))
    for n in range(50):
        assert torch.equal(found.images[n], cells[n, orders[found.applied[n, 0]]])
        assert len(set(found.applied[n].tolist())) == 1
    assert set(found.applied[:, 0].tolist()) == set(range(5))


def test_permutations_are_far_apart():
    found = distant_permutations(9, 35)
    assert (np.sort(found, axis=1) == np.arange(9)).all()
    apart = (found[:, None] != found[None]).sum(axis=2)[np.triu_indices(35, 1)]
    assert apart.min() >= 7
    assert found[0].tolist() == list(range(9))
    assert len({tuple(row) for row in distant_permutations(4, 24).tolist()}) == 24


GREY = torch.tensor([0.299, 0.587, 0.114])[:, None, None]


class TestColors:
    """One linear map per image does what the four changes do one after another."""

    def changed(self, images: Tensor, **most: float) -> Tensor:
        order = ("brightness", "contrast", "saturation", "hue")
        torch.manual_seed(0)
        return jittered(images, tuple(most.get(name, 0.0) for name in order), 1.0)

    def factors(self, most: float, place: int, n: int) -> Tensor:
        torch.manual_seed(0)
        return 1 + most * (2 * torch.rand(5, n)[place] - 1)

    @pytest.fixture
    def images(self) -> Tensor:
        # Moderate values, which no change takes out of 0..1.
        return 0.35 + 0.2 * torch.rand(16, 3, 8, 8, generator=torch.Generator().manual_seed(1))

    def test_nothing_to_change(self, images):
        torch.testing.assert_close(self.changed(images), images)

    @pytest.mark.parametrize("change", ["brightness", "contrast", "saturation"])
    def test_a_change_is_a_factor_of_what_differs_from_its_base(self, images, change):
        luminance = (images * GREY).sum(1, keepdim=True)
        bases = {
            "brightness": torch.zeros(()),
            "contrast": luminance.mean((2, 3), keepdim=True),
            "saturation": luminance,
        }
        base = bases[change]
        factor = self.factors(0.4, list(bases).index(change), 16)[:, None, None, None]
        expected = base + factor * (images - base)
        torch.testing.assert_close(
            self.changed(images, **{change: 0.4}), expected, atol=1e-4, rtol=0
        )

    def test_hue_keeps_greys_and_luminance(self, images):
        found = self.changed(images, hue=0.5)
        torch.testing.assert_close((found * GREY).sum(1), (images * GREY).sum(1))
        assert (found - images).abs().max() > 0.05
        greys = images[:, :1].expand(-1, 3, -1, -1)
        torch.testing.assert_close(self.changed(greys, hue=0.5), greys)

    def test_a_third_of_a_turn_makes_red_mostly_green_or_blue(self):
        red = torch.tensor([0.6, 0.2, 0.2]).reshape(1, 3, 1, 1).expand(400, -1, -1, -1)
        found = self.changed(red, hue=0.5)[:, :, 0, 0]
        turns = (self.factors(0.5, 3, 400) - 1).abs()
        largest = found.argmax(dim=1)
        assert (largest[turns < 0.08] == 0).all()
        assert (largest[(turns > 0.25) & (turns < 0.4)] != 0).all()

    def test_the_share_that_is_changed(self):
        images = torch.rand(2000, 3, 2, 2)
        changed = (jittered(images, (0.8, 0.8, 0.8, 0.2), 0.3) - images).abs().amax(
            (1, 2, 3)
        ) > 1e-5
        assert 0.25 < changed.float().mean() < 0.35


def test_without_changes_a_view_is_a_crop():
    # Of an image that is linear in its coordinates, a crop is linear too; its slope says its size.
    ramp = torch.linspace(0, 1, 40)
    image = torch.stack(
        [ramp.expand(40, 40), ramp[:, None].expand(40, 40), torch.full((40, 40), 0.5)]
    )
    torch.manual_seed(0)
    maker = SimCLR(strength=0.0, blur=0.0, grey=0.0, min_area=0.25, n_views=400)
    views = maker.make(image[None]).images[0]
    inner = views[:, :, 4:-4, 4:-4]
    width = (inner[:, 0].diff(dim=2).mean((1, 2)) * 39).abs()
    height = (inner[:, 1].diff(dim=1).mean((1, 2)) * 39).abs()
    area, ratio = width * height, width / height
    assert area.min() > 0.23
    assert area.max() < 1.02
    assert 0.7 < ratio.min() < 0.8
    assert 1.25 < ratio.max() < 1.4
    torch.testing.assert_close(inner[:, 2], torch.full_like(inner[:, 2], 0.5))
    mirrored = inner[:, 0].diff(dim=2).mean((1, 2)) < 0
    assert 0.4 < mirrored.float().mean() < 0.6


def test_greyscale_and_blur_take_their_shares():
    images = torch.rand(400, 3, 24, 24)
    torch.manual_seed(0)
    grey = SimCLR(strength=0.0, blur=0.0, grey=0.2, min_area=1.0).make(images).images
    colour = (grey[:, :, 0] - grey[:, :, 1]).abs().amax((2, 3))
    assert 0.15 < (colour < 1e-5).float().mean() < 0.25
    sharp = SimCLR(strength=0.0, blur=0.0, grey=0.0).make(images).images.diff(dim=-1).abs().mean()
    soft = SimCLR(strength=0.0, blur=1.0, grey=0.0).make(images).images.diff(dim=-1).abs().mean()
    assert soft < 0.7 * sharp


def test_small_views_show_smaller_parts():
    ramp = torch.linspace(0, 1, 56).expand(1, 3, 56, 56)
    found = MultiCrop(strength=0.0, n_small=3).make(ramp.repeat(50, 1, 1, 1))
    assert found.small is not None
    assert found.small.shape == (50, 3, 3, 24, 24)
    assert found.images.shape == (50, 2, 3, 56, 56)
    span = (found.small.amax(-1) - found.small.amin(-1)).mean((2, 3))
    assert span.max() < 0.45
    assert (found.images.amax(-1) - found.images.amin(-1)).mean((2, 3)).min() > 0.3
