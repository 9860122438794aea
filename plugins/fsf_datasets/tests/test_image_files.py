"""Reading images and splitting classes, shared by the folder and the table."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from fsf_datasets import CsvTable, Folder
from fsframework.errors import PluginError
from fsframework.interfaces import DataError, Dataset, OptionError

Images = Callable[..., Path]


def test_transparency_is_blended_with_white_and_exif_orientation_honoured(images: Images) -> None:
    root = images("cat/a.png", "cat/b.png")
    pixels = np.array([[[100, 0, 0, 255], [100, 0, 0, 0], [100, 0, 0, 128]]], np.uint8)
    Image.fromarray(pixels).save(root / "cat" / "a.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees
    Image.fromarray(np.zeros((2, 4, 3), np.uint8)).save(root / "cat" / "b.png", exif=exif)
    data = Folder(path=root)
    assert data.image(0).tolist() == [[[100, 0, 0], [255, 255, 255], [177, 127, 127]]]
    assert data.image(1).shape == (4, 2, 3)


def test_a_file_that_goes_away_or_is_no_image_is_named(images: Images) -> None:
    data = Folder(path=images("cat/a.png", "cat/b.png"))
    (data.path / "cat" / "a.png").write_text("no image")
    with pytest.raises(DataError, match=r"cat/a\.png: not a readable image"):
        data.images([1, 0], 8)
    (data.path / "cat" / "b.png").unlink()
    with pytest.raises(DataError, match=r"cat/b\.png: no such file") as gone:
        data.image(1)
    assert gone.value.reason == "no such file"


def test_images_decoded_by_threads_are_those_of_the_base_class(images: Images) -> None:
    root = images(*(f"cat/{number}.png" for number in range(30)))
    rng = np.random.default_rng(0)
    for file in (root / "cat").iterdir():
        Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8)).save(file)
    data = Folder(path=root)
    order = rng.permutation(30)
    wanted = Dataset.images(data, order, 5, "nearest")
    assert np.array_equal(data.images(order, 5, "nearest"), wanted)
    with pytest.raises(OptionError, match="interpolation must be .* not 'cubist'"):
        data.images([0], 5, "cubist")


RAMP = np.linspace(0, 1, 64).reshape(8, 8)


def encoded(values: Any, kind: str = "TIFF", **options: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(values).save(stream, kind, **options)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "likely"),
    [
        (encoded(RAMP.astype(np.float32)), "0,1"),
        (encoded((RAMP * 4095).astype(np.float32)), "0,4095"),
        (encoded((RAMP * 2 - 1).astype(np.float32)), "-1,1"),
        (encoded((RAMP * 900).astype(np.int32)), "0,900"),
        (encoded((RAMP * 1023).astype(np.uint16)), "0,1023"),
        (encoded((RAMP * 4095).astype(np.uint16), "PNG"), "0,4095"),
    ],
)
def test_values_without_a_known_range_need_one(images: Images, content: bytes, likely: str) -> None:
    root = images("cat/a.tif")
    (root / "cat" / "a.tif").write_bytes(content)
    table = root / "t.csv"
    table.write_text("path,label\ncat/a.tif,cat\n")
    for cls, path in ((Folder, root), (CsvTable, table)):
        with pytest.raises(DataError, match=f"pixel_range={likely}$") as caught:
            cls(path=path).image(0)
        assert "pixel_range" not in caught.value.reason
        low, high = map(float, likely.split(","))
        data = cls(path=path, pixel_range=(low, high))
        assert np.abs(data.image(0)[..., 0] - RAMP * 255).max() <= 1
        assert data.fingerprint != cls(path=path).fingerprint


def netpbm(white: int, channels: int = 1) -> bytes:
    values = np.repeat((RAMP * 4095)[..., None], channels, 2).astype(">u2")
    return b"P%d\n8 8\n%d\n" % (5 if channels == 1 else 6, white) + values.tobytes()


def tiff(values: Any, sample_format: int = 1, *, planes: bool = False) -> bytes:
    """Encode what Pillow does not write: unsigned 32-bit, signed 8-bit and planar TIFF."""
    height, width, channels = values.shape
    raw = (values.transpose(2, 0, 1) if planes else values).tobytes()
    starts = [8 + i * len(raw) // channels for i in range(channels)] if planes else [8]
    tags = {256: [width], 257: [height], 258: [values.itemsize * 8] * channels, 259: [1]}
    tags |= {262: [2 if channels == 3 else 1], 273: starts, 277: [channels], 278: [height]}
    tags |= {279: [len(raw) // len(starts)] * len(starts), 284: [1 + planes]}
    tags[339] = [sample_format] * channels
    entries, extra, end = b"", b"", 8 + len(raw) + 2 + 12 * len(tags) + 4
    for tag, numbers in tags.items():
        value = struct.pack(f"<{len(numbers)}I", *numbers)
        if len(value) > 4:
            extra, value = extra + value, struct.pack("<I", end + len(extra))
        entries += struct.pack("<HHI", tag, 4, len(numbers)) + value
    head = struct.pack("<2sHI", b"II", 42, 8 + len(raw))
    return head + raw + struct.pack("<H", len(tags)) + entries + b"\0" * 4 + extra


@pytest.mark.parametrize(
    ("content", "pixel_range", "refused"),
    [
        (netpbm(4095), None, ""),
        (netpbm(4095), (0, 4095), ""),
        (netpbm(4095, 3), (0, 4095), ""),
        (netpbm(65535), None, "4,095 .*pixel_range=0,4095$"),
        (netpbm(65535), (0, 4095), ""),
        (netpbm(65535, 3), None, r"near 4,095 .*0\.\.4095"),
        (encoded((RAMP * 4095).astype(np.uint16), "JPEG2000"), None, "pixel_range=0,4095$"),
        (tiff((RAMP * 4e9).astype("u4")[..., None]), (0, 4e9), ""),
        (tiff((RAMP * 65535).astype("u2")[..., None].repeat(3, 2)), None, ""),
        (tiff((RAMP * 65535).astype("u2")[..., None].repeat(3, 2), planes=True), None, "planes"),
        (tiff((RAMP * 4095).astype("u2")[..., None].repeat(3, 2)), None, r"0\.\.4095"),
        (tiff((RAMP * 100).astype("i1")[..., None], 2), None, "signed"),
        (b"", None, "empty"),
        (b"<!doctype html>", None, "HTML"),
        (b"version https://git-lfs.github.com/spec/v1", None, "Git LFS"),
        (b"II*\0" + bytes(8), None, "kind of TIFF"),
        (b"\0\0\0\x18ftypheic", None, "HEIC"),
    ],
)
def test_values_are_read_as_their_file_states_or_refused(
    images: Images, content: bytes, pixel_range: tuple[float, float] | None, refused: str
) -> None:
    root = images("cat/a.tif")
    (root / "cat" / "a.tif").write_bytes(content)
    data = Folder(path=root, pixel_range=pixel_range)
    if refused:
        with pytest.raises(DataError, match=refused):
            data.image(0)
    else:
        assert np.abs(data.image(0) - RAMP[..., None] * 255).max() <= 1


def test_unusual_transparency(images: Images) -> None:
    root = images("cat/a.png", "cat/b.png")
    grey = Image.fromarray((RAMP * 65535).astype(np.uint16))
    grey.save(root / "cat" / "a.png", transparency=0)
    assert Folder(path=root).image(0)[0, 0].tolist() == [255] * 3
    pixels = b"\x1e\x1e\xc8\0" * 16  # a fourth byte that is 0 everywhere is not transparency
    masks = struct.pack("<4I", 0xFF0000, 0xFF00, 0xFF, 0xFF000000) + b"BGRs" + bytes(48)
    header = struct.pack("<IiiHHIIiiII", 108, 4, 4, 1, 32, 3, len(pixels), 0, 0, 0, 0) + masks
    size = struct.pack("<IHHI", 122 + len(pixels), 0, 0, 122)
    (root / "cat" / "b.png").write_bytes(b"BM" + size + header + pixels)
    assert Folder(path=root).image(1)[0, 0].tolist() == [200, 30, 30]


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_pictures_of_108_megapixels_are_read_and_larger_ones_named(images: Images) -> None:
    root = images("cat/a.jpg", "cat/b.png")
    Image.new("L", (12_000, 9_000), 90).save(root / "cat" / "a.jpg", "JPEG")
    Image.new("1", (20_000, 10_000)).save(root / "cat" / "b.png")
    data = Folder(path=root)
    assert data.scaled_images([0], 8).mean() == 90
    with pytest.raises(DataError, match="178,956,970 pixels"):
        data.image(1)


def test_16_bits_have_one_scale_for_all_images(images: Images) -> None:
    root = images("cat/a.png", "cat/b.png")
    for name, top in (("a", 65535), ("b", 20_000)):
        Image.fromarray((RAMP * top).astype(np.uint16)).save(root / "cat" / f"{name}.png")
    assert [Folder(path=root).image(i).max() for i in range(2)] == [255, 78]
    with pytest.raises(OptionError, match="pixel_range must be two numbers"):
        Folder(path=root, pixel_range=(1, 1))


@pytest.mark.parametrize("kind", [np.float32, np.uint16])
def test_a_data_set_must_return_8_bits(kind: type[Any]) -> None:
    class Mine(Dataset):
        keys, fingerprint = ("a",), "mine"

        def image(self, index: int) -> Any:
            return np.ones((8, 8, 3), kind)

    with pytest.raises(PluginError, match=f"{kind.__name__}.*uint8"):
        Mine().images([0], 8)


def test_a_sound_png_with_long_texts_is_read(images: Images) -> None:
    root = images("cat/a.png")
    texts = PngImagePlugin.PngInfo()
    texts.add_text("comment", "x" * 3_000_000, zip=True)
    Image.new("RGB", (4, 4), (9, 8, 7)).save(root / "cat" / "a.png", pnginfo=texts)
    limit = PngImagePlugin.MAX_TEXT_CHUNK
    assert Folder(path=root).image(0)[0, 0].tolist() == [9, 8, 7]
    assert limit == PngImagePlugin.MAX_TEXT_CHUNK


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.JPE", "JPEG"), ("a.jfif", "JPEG"), ("a.TIF", "TIFF"), ("a.jp2", "JPEG2000"),
     ("a.pgm", "PPM"), ("a.dib", "DIB"), ("a.jpg", "MPO")],
)  # fmt: skip
def test_endings_of_the_formats_that_pillow_reads(images: Images, name: str, kind: str) -> None:
    root = images("cat/b.png")
    Image.new("RGB", (4, 4), (90, 90, 90)).save(root / "cat" / name, kind)
    data = Folder(path=root)
    assert data.keys[0] == f"cat/{name}"
    assert np.abs(data.image(0).astype(int) - 90).max() <= 1


# --- splits -----------------------------------------------------------------------------------


@pytest.fixture
def animals(images: Images) -> Path:
    return images(*(f"{name}/1.png" for name in ("ant", "bee", "cat", "dog", "elk")))


def test_drawn_splits_cover_every_class_and_follow_the_seed(images: Images) -> None:
    root = images(*(f"class{i}/1.png" for i in range(100)))
    data = Folder(path=root)
    assert [len(data.splits[part]) for part in ("train", "val", "test")] == [64, 16, 20]
    assert sorted(sum(data.splits.values(), ())) == sorted(data.class_names)
    for part in data.splits.values():
        assert list(part) == [name for name in data.class_names if name in part]
    assert Folder(path=root, split_seed=1).splits != data.splits
    every = Folder(path=root, split_fractions=(0, 0, 1))
    assert every.splits == {"test": every.class_names}
    with pytest.raises(DataError, match="no split 'train'"):
        every.pool("train")


@pytest.mark.parametrize(
    "options",
    [
        {"split_fractions": (0.5, 0.5)},
        {"split_fractions": (0.5, 0.5, 0.5)},
        {"split_fractions": (1.5, -0.5, 0)},
        {"split_fractions": (float("nan"), 0.5, 0.5)},
        {"split_seed": -1},
    ],
)
def test_split_options_out_of_range(animals: Path, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(options))} must be .*, not "):
        Folder(path=animals, **options)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.json", json.dumps({"train": ["dog", "ant"], "validation": ["bee"], "test": ["elk"]})),
        ("s.csv", "class,split\nant,train\nbee,valid\n\nant,train\nelk,test\ndog,train\n"),
        ("s.csv", "label,split\nelk,test\ndog,train\nant,train\nbee,val\n"),
        ("s.csv", "Class,SPLIT\nelk,Test\ndog,Training\nant,train\nbee,VAL\n"),
        ("s.json", json.dumps({"Train": ["dog ", "ant"], "Val": ["bee"], "TESTING": ["elk"]})),
    ],
)
def test_split_files(animals: Path, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    data = Folder(path=animals, split=tmp_path / name)
    assert data.splits == {"train": ("ant", "dog"), "val": ("bee",), "test": ("elk",)}
    assert data.pool("train").class_names == ("ant", "dog")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.json", None, r"s\.json: cannot be read"),
        ("s.txt", "", r"s\.txt: .* must end in \.json or \.csv"),
        ("s.json", "{", r"s\.json: not JSON"),
        ("s.json", "[]", r'must contain \{"train"'),
        ("s.json", '{"train": "ant"}', "'train' must be a list of class names"),
        ("s.json", '{"train": [1]}', "'train' must be a list of class names"),
        ("s.json", '{"train": ["ant", "b", "c", "d", "e", "f"]}', "'b', 'c', 'd' and 2 more"),
        ("s.json", '{"train": ["ant"], "test": ["ant"]}', "'ant' is in .* 'train' and 'test'"),
        ("s.csv", "class,split\nant,train\nant,test\n", "'ant' is in the splits"),
        ("s.csv", "name,split\nant,train\n", "row 1 must name a column class or label"),
        ("s.csv", "class,part\nant,train\n", "it lacks split: class, part"),
        ("s.csv", "class,split\nant,train\nbee,\n", "row 3 has no split"),
    ],
)
def test_wrong_split_files(
    animals: Path, tmp_path: Path, name: str, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        Folder(path=animals, split=tmp_path / name)
