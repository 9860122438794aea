"""Words of pictures drawn so that their words are beyond doubt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fsf_detectors.appearance import RULES, Appearance, measured
from fsframework.interfaces import DataError
from fsframework.testing import Check, Make, parametrize_with_checks
from fsframework.values import UInt8Array

SEED = 20240611


@parametrize_with_checks([Appearance])
def test_conformance(make: Make, check: Check) -> None:
    check(make)


def paper(
    height: int = 64, width: int = 64, colour: tuple[int, int, int] = (255, 255, 255)
) -> UInt8Array:
    return np.full((height, width, 3), colour, np.uint8)


def drawn(
    rows: slice, columns: slice, ink: int | tuple[int, int, int] = 0, ground: int = 255
) -> UInt8Array:
    image = paper(colour=(ground,) * 3)
    image[rows, columns] = ink
    return image


def stripes(direction: str) -> UInt8Array:
    y, x = np.mgrid[:64, :64]
    phase = {"upright": x, "level": y, "rising": x + y, "falling": x - y}[direction]
    return np.repeat(np.where(phase // 8 % 2, 255, 0).astype(np.uint8)[..., None], 3, axis=-1)


def words(image: UInt8Array) -> frozenset[str]:
    return Appearance().detect([image])[0]


WHOLE, MIDDLE = slice(0, 64), slice(24, 40)


@pytest.mark.parametrize(
    ("image", "has", "lacks"),
    [
        (drawn(MIDDLE, slice(4, 20)), "left bright grey", "right top bottom centred colourful"),
        (drawn(MIDDLE, slice(44, 60)), "right", "left top bottom centred"),
        (drawn(slice(4, 20), MIDDLE), "top light-below", "left right bottom light-above"),
        (drawn(slice(44, 60), MIDDLE), "bottom light-above", "left right top light-below"),
        (drawn(MIDDLE, MIDDLE), "centred compact sparse symmetric no-direction", "left right wide"),
        (drawn(MIDDLE, slice(8, 56)), "wide centred", "tall"),
        (drawn(slice(8, 56), MIDDLE), "tall centred", "wide"),
        (drawn(slice(8, 56), slice(8, 56)), "dense dark", "sparse compact bright patterned-border"),
        (drawn(MIDDLE, MIDDLE, 255, 0), "dark light-middle", "bright dark-middle"),
        (stripes("upright"), "upright-lines busy high-contrast", "level-lines no-direction plain"),
        (stripes("level"), "level-lines busy", "upright-lines rising-lines falling-lines"),
        (stripes("rising"), "rising-lines", "falling-lines level-lines upright-lines"),
        (stripes("falling"), "falling-lines", "rising-lines level-lines upright-lines"),
        (paper(colour=(200, 40, 40)), "red-border colourful", "yellow-border grey blue-border"),
        (paper(colour=(200, 190, 40)), "yellow-border", "red-border green-border"),
        (paper(colour=(40, 180, 60)), "green-border", "yellow-border blue-border"),
        (paper(colour=(60, 90, 220)), "blue-border", "green-border red-border"),
    ],
)  # fmt: skip
def test_drawings_have_the_words_that_name_them(image: UInt8Array, has: str, lacks: str) -> None:
    found = words(image)
    assert set(has.split()) <= found
    assert not set(lacks.split()) & found


def test_an_empty_image_has_no_words_of_place_or_direction() -> None:
    for colour in ((255, 255, 255), (0, 0, 0), (127, 127, 127)):
        found = words(paper(colour=colour))
        assert found - {"bright", "dark"} == {
            "grey", "low-contrast", "plain", "sparse", "light-middle", "symmetric", "no-direction",
            "smooth",
        }  # fmt: skip


def test_measures_worked_by_hand() -> None:
    """A white square of 8 x 8 on black at rows 8..15, columns 16..23 of 32 x 32."""
    image = np.zeros((32, 32, 3), np.uint8)
    image[8:16, 16:24] = 255
    found = {name: float(values[0]) for name, values in measured([image]).items()}
    share = 64 / 1024
    assert found["light"] == pytest.approx(share, abs=1e-6)
    assert found["contrast"] == pytest.approx(np.sqrt(share * (1 - share)), abs=1e-6)
    assert found["ink"] == share
    assert (found["x"], found["y"]) == pytest.approx((0.125, -0.125), abs=1e-6)
    assert found["off_centre"] == pytest.approx(0.125 * np.sqrt(2), abs=1e-6)
    # Eight positions 1/32 apart: their variance is (64 - 1) / 12 times the squared step.
    assert found["spread"] == pytest.approx(np.sqrt(2 * 63 / 12) / 32, abs=1e-5)
    assert found["stretch"] == pytest.approx(0, abs=1e-5)
    assert found["above"] == pytest.approx(2 * share, abs=1e-6)
    assert found["middle"] == pytest.approx(64 / 256, abs=1e-6)
    # The central 8 x 8 are rows and columns 12..19: 4 x 4 of them white, of 64; the mean is 1/16.
    assert found["fill"] == pytest.approx((16 / 64) / share, abs=1e-4)
    assert found["fineness"] == pytest.approx(0, abs=1e-5)
    # Mirrored, the white pixels are columns 8..15: no overlap.
    assert found["symmetry"] == pytest.approx(-share / (1 - share), abs=1e-5)
    assert np.isnan(found["border_hue"])


def test_words_depend_only_on_the_image() -> None:
    rng = np.random.default_rng(SEED)
    sizes = rng.integers(5, 90, (12, 2))
    images = [rng.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in sizes]
    together = Appearance().detect(images)
    assert together == [words(image) for image in images]
    assert Appearance().detect([]) == []
    strided = np.repeat(images[0], 2, axis=1)[:, ::2]
    assert words(strided) == together[0]


def test_rules_name_measures_and_each_word_once() -> None:
    assert len({rule.word for rule in RULES}) == len(RULES)
    assert {rule.measure for rule in RULES} <= set(measured([paper()]))


def test_the_readme_has_every_rule() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    for rule in RULES:
        bounds = [f"{b:g}" for b in (rule.low, rule.high) if np.isfinite(b)]
        said = " to ".join(bounds) if len(bounds) == 2 else ""
        said = said or (f"below {bounds[0]}" if rule.low == -np.inf else f"from {bounds[0]}")
        assert f"| `{rule.word}` | `{rule.measure}` {said} |" in text


def test_arrays_that_are_not_images_are_refused() -> None:
    with pytest.raises(DataError, match=r"must be uint8 \(height, width, 3\), not uint8 \(8, 8\)"):
        Appearance().detect([np.zeros((8, 8), np.uint8)])


def test_provenance_names_the_rules() -> None:
    told = Appearance().provenance()
    assert told["rules"].startswith(f"{len(RULES)} words, sha256:")
