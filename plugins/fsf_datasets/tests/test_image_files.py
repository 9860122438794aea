"""Reading images and splitting classes, shared by the folder and the table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fsf_datasets import Folder
from fsf_datasets._splits import SplitOptions
from fsframework.interfaces import DataError, Dataset, OptionError

Write = Callable[..., Path]
FRACTIONS = (0.64, 0.16, 0.2)


def only(root: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return Folder(path=root).image(0)


def save(root: Path, image: Image.Image, name: str = "a.png", **options: Any) -> Path:
    (root / "cat").mkdir()
    image.save(root / "cat" / name, **options)
    return root


def test_one_bit(tmp_path: Path) -> None:
    bits = Image.fromarray(np.array([[0, 255], [255, 0]], np.uint8)).convert("1")
    image = only(save(tmp_path, bits))
    assert image.shape == (2, 2, 3)
    assert image[..., 0].tolist() == [[0, 255], [255, 0]]


def test_palette(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([200, 10, 20, 1, 2, 3])
    image.putpixel((1, 0), 1)
    assert only(save(tmp_path, image)).tolist() == [[[200, 10, 20], [1, 2, 3]]]


def test_transparent_pixels_are_blended_with_white(tmp_path: Path) -> None:
    pixels = np.array([[[100, 0, 0, 255], [100, 0, 0, 0], [100, 0, 0, 128]]], np.uint8)
    image = only(save(tmp_path, Image.fromarray(pixels)))
    assert image.tolist() == [[[100, 0, 0], [255, 255, 255], [177, 127, 127]]]


def test_palette_with_transparency(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([200, 10, 20, 1, 2, 3])
    image.putpixel((1, 0), 1)
    root = save(tmp_path, image, transparency=bytes([0, 255]))
    assert only(root).tolist() == [[[255, 255, 255], [1, 2, 3]]]


def test_sixteen_bit_grey_is_scaled(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[0, 257, 128 * 257, 65535]], np.uint16))
    assert only(save(tmp_path, image))[0, :, 1].tolist() == [0, 1, 128, 255]


def test_cmyk_jpeg(tmp_path: Path) -> None:
    image = only(save(tmp_path, Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "a.jpg"))
    assert image.shape == (8, 8, 3)
    assert image[0, 0, 0] > 200 > 60 > image[0, 0, 1:].max()


def test_exif_orientation_is_honoured(tmp_path: Path) -> None:
    image = Image.fromarray(np.zeros((2, 4, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees
    assert only(save(tmp_path, image, exif=exif)).shape == (4, 2, 3)


def test_first_frame_of_an_animation(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (2, 2), colour) for colour in ("red", "blue")]
    root = save(tmp_path, frames[0], "a.gif", save_all=True, append_images=frames[1:])
    assert only(root)[0, 0].tolist() == [255, 0, 0]


def test_truncated_and_foreign_files_are_named(tmp_path: Path, write: Write) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    save(tmp_path, Image.fromarray(noise), "b.png")
    whole = (tmp_path / "cat" / "b.png").read_bytes()
    (tmp_path / "cat" / "a.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "cat" / "c.jpg").write_text("no image")
    data = Folder(path=tmp_path)
    for index, name in ((0, "a.png"), (2, "c.jpg")):
        with pytest.raises(DataError, match=rf"cat/{name}: not a readable image"):
            data.image(index)
    with pytest.raises(DataError, match=r"cat/a\.png: not a readable image"):
        data.images([1, 0], 8)
    (tmp_path / "cat" / "b.png").unlink()
    with pytest.raises(DataError, match=r"cat/b\.png: no such file") as gone:
        data.image(1)
    assert gone.value.reason == "no such file"


def test_many_images_are_resized_in_order(tmp_path: Path, write: Write) -> None:
    for number in range(30):
        write(tmp_path / "cat" / f"{number}.png", (number, 2 * number, 3 * number))
    data = Folder(path=tmp_path)
    order = np.random.default_rng(0).permutation(30)
    images = data.images(order, 5, "nearest")
    assert images.shape == (30, 5, 5, 3)
    assert images[:, 0, 0, 0].tolist() == order.tolist()
    assert np.array_equal(images, Dataset.images(data, order, 5, "nearest"))
    with pytest.raises(OptionError, match="interpolation must be one of nearest, .* not 'cubist'"):
        data.images([0], 5, "cubist")


# --- splits -----------------------------------------------------------------------------------


@pytest.fixture
def animals(tmp_path: Path, write: Write) -> Path:
    for name in ("ant", "bee", "cat", "dog", "elk"):
        write(tmp_path / "images" / name / "1.png")
    return tmp_path / "images"


def test_drawn_splits_cover_every_class() -> None:
    names = [f"class{i}" for i in range(100)]
    options = SplitOptions(None, FRACTIONS, 0)
    splits = options.splits(names, None, Path("data"))
    assert [len(part) for part in splits.values()] == [64, 16, 20]
    assert sorted(sum(splits.values(), ())) == sorted(names)
    assert list(splits["test"]) == [name for name in names if name in splits["test"]]
    shuffled = options.splits(names[::-1], None, Path("data"))
    assert {split: set(part) for split, part in shuffled.items()} == {
        split: set(part) for split, part in splits.items()
    }
    assert SplitOptions(None, FRACTIONS, 1).splits(names, None, Path("data")) != splits


def test_a_share_of_zero_makes_no_split(animals: Path) -> None:
    data = Folder(path=animals, split_fractions=(0, 0, 1))
    assert data.splits == {"test": data.class_names}
    with pytest.raises(DataError, match="the data set has no split 'train'; its splits are"):
        data.pool("train")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split_fractions": (0.5, 0.5)}, r"whose sum is 1, not \(0.5, 0.5\)"),
        ({"split_fractions": (0.5, 0.5, 0.5)}, "split_fractions must be three numbers"),
        ({"split_fractions": (1.5, -0.5, 0)}, "split_fractions must be three numbers"),
        ({"split_fractions": (float("nan"), 0.5, 0.5)}, "split_fractions must be three numbers"),
        ({"split_seed": -1}, "split_seed must be at least 0, not -1"),
    ],
)
def test_split_options_out_of_range(animals: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Folder(path=animals, **options)


def test_split_file_json(animals: Path, tmp_path: Path) -> None:
    file = tmp_path / "split.json"
    file.write_text(json.dumps({"train": ["dog", "ant"], "validation": ["bee"], "test": ["elk"]}))
    data = Folder(path=animals, split=file)
    assert data.splits == {"train": ("ant", "dog"), "val": ("bee",), "test": ("elk",)}
    assert data.pool("train").class_names == ("ant", "dog")


@pytest.mark.parametrize("column", ["class", "label"])
def test_split_file_csv(animals: Path, tmp_path: Path, column: str) -> None:
    file = tmp_path / "split.csv"
    file.write_text(f"{column},split\nant,train\nbee,valid\n\nant,train\nelk,test\n")
    data = Folder(path=animals, split=file)
    assert data.splits == {"train": ("ant",), "val": ("bee",), "test": ("elk",)}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.txt", "", r"s\.txt: the name of a split file must end in \.json or \.csv"),
        ("s.json", "{", r"s\.json: not JSON"),
        ("s.json", "[]", r'must contain \{"train"'),
        ("s.json", '{"train": "ant"}', "the split 'train' must be a list of class names"),
        ("s.json", '{"train": [1]}', "the split 'train' must be a list of class names"),
        (
            "s.json",
            '{"train": ["ant", "b", "c", "d", "e", "f"]}',
            "the split 'train' names classes that are not in .*images: 'b', 'c', 'd' and 2 more",
        ),
        (
            "s.json",
            '{"train": ["ant"], "test": ["ant"]}',
            "the class 'ant' is in the splits 'train' and 'test'",
        ),
        ("s.csv", "class,split\nant,train\nant,test\n", "the class 'ant' is in the splits"),
        ("s.csv", "name,split\nant,train\n", "row 1 must name a column class or label"),
        ("s.csv", "class,part\nant,train\n", "it lacks split: class, part"),
        ("s.csv", "class,split\nant,train\nbee,\n", "row 3 has no split"),
    ],
)
def test_wrong_split_files(
    animals: Path, tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        Folder(path=animals, split=tmp_path / name)


def test_missing_split_file(animals: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.json: cannot be read \(No such file"):
        Folder(path=animals, split=tmp_path / "gone.json")
