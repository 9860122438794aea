from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fsf_datasets import Planted, _render
from fsf_datasets._contours import draw_contours
from fsframework.interfaces import OptionError

KINDS = Planted.kinds
NOTHING = "none"
Pixels = np.ndarray[Any, np.dtype[np.float64]]


@pytest.fixture(scope="module")
def data() -> Planted:
    return Planted()


@cache
def independent() -> Planted:
    """Images whose attributes are independent, so that every combination occurs."""
    return Planted(strength=0)


def chosen(**fixed: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """At most 16 images with these attributes."""
    columns = independent().metadata
    alike = np.all([np.array(columns[kind]) == word for kind, word in fixed.items()], axis=0)
    return np.flatnonzero(alike)[:16]


def shown(kind: str, word: str, **fixed: str) -> Pixels:
    """The same images with the fixed attributes, as they look with this word of a kind."""
    return independent().changed_images(chosen(**fixed), kind, word, 84).astype(float)


def test_words_and_captions_agree_with_the_columns(data: Planted) -> None:
    for index in range(0, len(data.keys), 97):
        values = {data.metadata[kind][index] for kind in KINDS} - {NOTHING}
        assert data.metadata["words"][index] == ";".join(sorted(values))
        caption = data.metadata["caption"][index]
        assert values <= set(caption.removesuffix(".").split())
        assert NOTHING not in caption
    words = [word for kind in KINDS.values() for word in kind]
    assert len(words) == len(set(words))


@pytest.mark.parametrize("kind", KINDS)
def test_strength_zero_makes_attributes_independent_of_the_class(kind: str) -> None:
    data = Planted(strength=0)
    column = np.searchsorted(KINDS[kind], data.metadata[kind])
    table = np.zeros((100, len(KINDS[kind])))
    np.add.at(table, (data.labels, column), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-3


def test_attributes_of_different_kinds_are_independent_within_a_class() -> None:
    data = Planted(n_per_class=400)
    of_class = data.labels == 3
    first, second = (np.array(data.metadata[kind])[of_class] for kind in ("background", "colour"))
    table = stats.contingency.crosstab(first, second).count
    assert stats.chi2_contingency(table).pvalue > 1e-3


def test_every_split_prefers_every_value_about_equally(data: Planted) -> None:
    start = 0
    for classes in data.splits.values():
        for kind, values in KINDS.items():
            counts = Counter(data.preferences[kind][start : start + len(classes)])
            assert set(counts) == set(values)
            assert max(counts.values()) - min(counts.values()) <= 2
        start += len(classes)


def test_an_image_depends_on_no_block(data: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = np.arange(5, len(data.keys), 401)
    together = data.images(chosen, 84)
    assert np.array_equal(together[[3]], data.images(chosen[[3]], 84))
    own = data.images(chosen, 42)
    assert np.array_equal(own[7], data.image(chosen[7]))
    monkeypatch.setattr(_render, "_BLOCK_PIXELS", 3 * 84**2)
    assert np.array_equal(together, data.images(chosen, 84))
    assert np.array_equal(together[::-1], data.images(chosen[::-1], 84))


def test_any_size_shows_the_same_picture(data: Planted) -> None:
    chosen = np.arange(0, len(data.keys), 1601)
    small, large = data.images(chosen, 32), data.images(chosen, 128)
    averaged = large.reshape(-1, 32, 4, 32, 4, 3).mean(axis=(2, 4))
    assert np.abs(averaged - small).mean() < 3
    assert data.images([0], 16).shape == (1, 16, 16, 3)
    assert data.images([], 84).shape == (0, 84, 84, 3)
    assert Planted(size=20, n_per_class=1).image(0).shape == (20, 20, 3)


@pytest.mark.parametrize("background", KINDS["background"])
def test_corners_have_the_colour_of_the_background(background: str) -> None:
    for lighting in KINDS["lighting"]:
        images = shown(
            "background", background, lighting=lighting, texture="plain", companion="none"
        )
        corners = images[:, [3, 3, -4, -4], [3, -4, 3, -4]].mean(axis=1)
        (brightness, _, _), tint = _render.LIGHTING[lighting]
        full = np.array(_render.BACKGROUND_RGB[background]) * brightness * np.array(tint)
        assert np.all(corners <= full + 1)
        assert np.all(corners >= 0.94 * full - 1)


def test_colour_fills_only_the_object() -> None:
    fixed = {"lighting": "noon", "companion": NOTHING}
    red, blue = shown("colour", "red", **fixed), shown("colour", "blue", **fixed)
    changed = (red != blue).any(axis=-1)
    share = changed.mean(axis=(1, 2))
    assert 0.03 < share.min() < share.max() < 0.4
    assert not changed[:, [0, 0, -1, -1], [0, -1, 0, -1]].any()
    full = np.array(_render.COLOUR_RGB["red"])
    brightest = red[changed].max(axis=0)
    assert np.all(np.abs(brightest - full) < 0.08 * full + 2)


def test_background_changes_only_the_background() -> None:
    fixed = {"texture": "plain", "companion": NOTHING}
    snow, brick = shown("background", "snow", **fixed), shown("background", "brick", **fixed)
    red, blue = shown("colour", "red", **fixed), shown("colour", "blue", **fixed)
    changed, inside = (snow != brick).any(-1), (red != blue).any(-1)
    assert not (changed & inside).any()
    assert 0.5 < changed.mean() < 0.95


@pytest.mark.parametrize("texture", sorted({*KINDS["texture"]} - {"plain"}))
def test_texture_adds_the_second_colour(texture: str) -> None:
    fixed = {"background": "snow", "lighting": "noon", "companion": NOTHING}
    plain, textured = shown("texture", "plain", **fixed), shown("texture", texture, **fixed)
    second = (textured < plain - 20).any(-1).mean(axis=(1, 2))
    assert np.all((second > 0.1) & (second < 0.6))


@pytest.mark.parametrize("companion", sorted({*KINDS["companion"]} - {NOTHING}))
def test_companion_is_in_one_corner(companion: str) -> None:
    fixed = {"background": "meadow", "texture": "plain"}
    empty, full = shown("companion", NOTHING, **fixed), shown("companion", companion, **fixed)
    corners = set()
    for image in (empty != full).any(-1):
        rows, columns = np.nonzero(image)
        assert 30 < rows.size < 500
        for places in (rows, columns):
            assert places.max() < 42 or places.min() >= 42
        corners.add((rows[0] < 42, columns[0] < 42))
    assert len(corners) == 4


def test_companions_look_different() -> None:
    seen = [shown("companion", companion, background="ocean") for companion in KINDS["companion"]]
    for i, first in enumerate(seen):
        for second in seen[:i]:
            assert np.all((np.abs(first - second).max(axis=-1) > 60).sum(axis=(1, 2)) >= 12)


def test_lighting_comes_from_its_side() -> None:
    images = {word: shown("lighting", word, companion=NOTHING) for word in KINDS["lighting"]}
    left_less_right = {
        word: (image[:, :, :8].mean(axis=(1, 2, 3)) - image[:, :, -8:].mean(axis=(1, 2, 3)))
        for word, image in images.items()
    }
    assert left_less_right["dawn"].min() > 0 > left_less_right["dusk"].max()
    middle = {word: image.mean() for word, image in images.items()}
    assert middle["midnight"] < 0.85 * middle["dawn"] < 0.85 * middle["noon"]


def test_contours_are_far_from_one_another() -> None:
    contours = draw_contours(0, 100)
    assert contours.max() <= 1 + 1e-9
    assert contours.min() > 0.25
    distance = np.sqrt(np.square(contours[:, None] - contours[None]).mean(axis=2))
    assert distance[~np.eye(100, dtype=bool)].min() > 0.06
    assert not np.array_equal(contours, draw_contours(1, 100))


def test_golden_image(data: Planted) -> None:
    index = data.keys.index("class_017/0042")
    assert data.metadata["caption"][index] == GOLDEN_CAPTION
    blocks = data.images([index], 84)[0].reshape(4, 21, 4, 21, 3).mean(axis=(1, 3))
    assert np.allclose(blocks[..., 1], GOLDEN_GREEN, atol=0.5)


GOLDEN_CAPTION = "A black shape beside a star on a dotted brick background at dusk."
GOLDEN_GREEN = [
    [42.22, 50.32, 58.81, 76.52],
    [51.07, 55.85, 69.02, 67.07],
    [54.71, 21.38, 72.03, 64.27],
    [41.61, 66.41, 65.84, 66.73],
]


def test_an_image_with_one_attribute_changed_keeps_all_else() -> None:
    data = Planted(n_per_class=3, size=16)
    own = np.array(data.metadata["colour"][:9])
    changed = data.changed_images(range(9), "colour", "red", 16)
    same = (changed == data.images(range(9), 16)).all(axis=(1, 2, 3))
    assert np.array_equal(same, own == "red")
    corner = changed[:, 0, 0], data.images(range(9), 16)[:, 0, 0]
    assert np.array_equal(*corner)  # the object's colour does not reach the background
    with pytest.raises(OptionError, match="kind must be one of background, .*, not 'shade'"):
        data.changed_images([0], "shade", "red", 16)
    with pytest.raises(OptionError, match="value must be one of black, .*, not 'snow'"):
        data.changed_images([0], "colour", "snow", 16)


def test_classes_keys_and_splits(data: Planted) -> None:
    assert [len(data.splits[split]) for split in ("train", "val", "test")] == [64, 16, 20]
    assert data.splits["val"][0] == "shape_064"
    assert sum(data.splits.values(), ()) == data.class_names
    assert len(data.keys) == 100 * data.n_per_class
    assert data.labels[data.keys.index("class_017/0042")] == 17
    assert data.pool("test").class_sizes.tolist() == [data.n_per_class] * 20


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("size", 15, "an integer of at least 16"),
        ("n_per_class", 0, "an integer of at least 1"),
        ("n_per_class", 2.5, "an integer of at least 1"),
        ("seed", -1, "an integer of at least 0"),
        ("strength", 1.5, "between 0 and 1"),
        ("strength", float("nan"), "between 0 and 1"),
        ("test_strength", -0.1, "between 0 and 1"),
    ],
)
def test_options_out_of_range(option: str, value: Any, rule: str) -> None:
    with pytest.raises(OptionError, match=f"{option} must be {rule}, not {value}"):
        Planted(**{option: value})


@pytest.mark.parametrize(("strength", "apart"), [(0.2, 0.015), (0.5, 0.015), (0.9, 0.015), (1, 0)])
def test_share_of_the_preferred_value(strength: float, apart: float) -> None:
    data = Planted(strength=strength)
    for kind, values in KINDS.items():
        preferred = np.array(data.preferences[kind])[data.labels]
        expected = strength + (1 - strength) / len(values)
        share = np.mean(preferred == np.array(data.metadata[kind]))
        assert share == pytest.approx(expected, abs=apart)


def test_images_depend_on_the_seed_but_not_on_how_many_there_are() -> None:
    few, many, other = (Planted(n_per_class=n, seed=s) for n, s in ((3, 0), (11, 0), (3, 1)))
    a, b = 42 * 3 + 2, 42 * 11 + 2
    assert few.keys[a] == many.keys[b]
    assert few.metadata["words"][a] == many.metadata["words"][b]
    assert np.array_equal(few.image(a), many.image(b))
    assert few.metadata["words"] != other.metadata["words"]
    assert not np.array_equal(few.image(a), other.image(a))


def test_the_strength_of_the_test_classes_may_differ() -> None:
    weak, strong = Planted(strength=0.2, n_per_class=4), Planted(strength=0.9, n_per_class=4)
    apart = Planted(strength=0.2, test_strength=0.9, n_per_class=4)
    assert apart.fingerprint not in (weak.fingerprint, strong.fingerprint)
    same = Planted(strength=0.2, test_strength=0.2, n_per_class=4)
    assert same.fingerprint == weak.fingerprint
    for split, like in (("train", weak), ("val", weak), ("test", strong)):
        expected, found = like.pool(split), apart.pool(split)
        # What decides a training is that of the training and validation images alone.
        assert found.fingerprint == expected.fingerprint
        indices = apart.split_indices(split)[:3]
        np.testing.assert_array_equal(apart.images(indices, 16), like.images(indices, 16))


def test_strength_changes_attributes_and_never_the_pose() -> None:
    weak, strong = Planted(strength=0.3, n_per_class=20), Planted(strength=0.9, n_per_class=20)
    pairs = zip(weak.metadata["words"], strong.metadata["words"], strict=True)
    same = [i for i, (a, b) in enumerate(pairs) if a == b]
    assert 20 < len(same) < 1000
    assert np.array_equal(weak.images(same[:20], 32), strong.images(same[:20], 32))


def test_fingerprint_changes_with_every_option() -> None:
    options: list[dict[str, Any]] = [{}, {"seed": 1}, {"size": 32}, {"strength": 0.25}]
    prints = [Planted(**{"n_per_class": n, **o}).fingerprint for n in (2, 3) for o in options]
    assert len(set(prints)) == len(prints)
