"""Attacks on every reader of a user's files; see ``watch`` for how they are judged.

Counted are: exceptions that are not sentences of ``fsframework.errors``, ``unexpected``, hangs,
memory beyond a bound, and files read otherwise than they were meant. All must be 0.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import pickle
import socket
import struct
import subprocess
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from fsf_datasets import CsvTable, Declared, Folder
from fsf_datasets._declaration import read_declaration
from fsf_detectors.records import CaptionsFile
from fsf_detectors.selection import SpacySelector
from fsf_statistics.accuracies import Reading, read_accuracies
from fsframework._reading import parse_json, parse_toml
from fsframework.values import AttributeTable, ImagePool, Outcomes, TaskSet
from tests.adversary.readers import READERS, Reader, picture, read_all
from tests.adversary.watch import fault_of
from tests.adversary.world import QUICK, World

each_reader = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)


def sentence_of(read: Callable[[], object], seconds: int = 20) -> str:
    """Return the sentence of a reading that is refused without a fault."""
    fault, sentence = fault_of(read, seconds)
    assert not fault
    assert sentence, "it was read"
    return sentence


# --- what is not a regular file --------------------------------------------------------------


def _socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is at most 107 bytes long
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(before)


def _cycle(path: Path) -> None:
    other = path.with_name(f"other-{path.name}")
    path.symlink_to(other)
    other.symlink_to(path)


NOT_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "named pipe": (os.mkfifo, "named pipe"),
    "link to a pipe": (
        lambda p: (os.mkfifo(p.with_name("pipe")), p.symlink_to(p.with_name("pipe"))),
        "named pipe",
    ),
    "socket": (_socket, "socket"),
    "endless": (lambda p: p.symlink_to("/dev/zero"), "device"),
    "random": (lambda p: p.symlink_to("/dev/urandom"), "device"),
    "nothing": (lambda p: p.symlink_to("/dev/null"), "device"),
    "terminal": (lambda p: p.symlink_to("/dev/tty"), "device"),
    "folder": (Path.mkdir, "folder"),
    "link to itself": (lambda p: p.symlink_to(p), "link"),
    "cycle of links": (_cycle, "link"),
    "dangling link": (lambda p: p.symlink_to(p.with_name("none")), ""),
}


_NAMES_FILES = ("image", "pickle", "arrays", "archive")
"""Readers of files that another file or folder names, which may be left out or broken."""


@each_reader
def test_only_regular_files_are_opened(reader: Reader, tmp_path: Path) -> None:
    faults = []
    for kind, (make, word) in NOT_FILES.items():
        folder = tmp_path / kind
        folder.mkdir()
        path = folder / reader.file
        make(path)
        fault, sentence = fault_of(lambda p=path: reader.read(p), 10)
        if fault:
            faults.append((kind, fault))
        if reader.name.startswith(_NAMES_FILES) or (kind == "folder" and "accura" in reader.name):
            continue  # accuracies are read from folders too
        if word not in sentence or str(folder) not in sentence:
            faults.append((kind, sentence))
    assert faults == []


@each_reader
def test_names_that_no_file_can_have(reader: Reader, tmp_path: Path) -> None:
    if reader.name.startswith(_NAMES_FILES[:3]) or reader.name == "record":
        pytest.skip("another file of the folder is named")
    faults = []
    for name in ("a\0b", "x" * 300, "\ud800"):
        path = tmp_path / f"{name}{reader.file}"
        fault, sentence = fault_of(lambda p=path: reader.read(p))
        faults += [(name, fault)] * (bool(fault) or not sentence)
    deep = tmp_path / ("y/" * 3000) / reader.file
    fault, sentence = fault_of(lambda: reader.read(deep))
    faults += [("deep", fault)] * (bool(fault) or not sentence)
    assert faults == []


@each_reader
def test_a_sparse_file_of_a_tebibyte(reader: Reader, tmp_path: Path) -> None:
    if reader.name in ("accuracies", "weights of timm", "weights of LibFewShot"):
        pytest.skip("PyTorch searches for the end of an archive, byte by byte")
    path = tmp_path / reader.file
    with path.open("wb") as file:
        file.truncate(1 << 40)
    fault, _ = fault_of(lambda: reader.read(path), 30)
    assert not fault


_CONTENTS = (
    b"", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\n" * 1000, b"[" * 100_000, b"{" * 100_000,
    b'{"a":' * 50_000, b"\x80\x04" + b"]" * 100_000, b"PK\x05\x06" + bytes(18), b"a," * 200_000,
    b'"' * 99_999, b"nan\n" * 50, b"\x89PNG\r\n\x1a\n", bytes(range(256)) * 40, b"PAR1PAR1",
    b"\x93NUMPY\x01\x00\xff\xff", b"a = " + b"[" * 5000, b"a." * 5000 + b"a = 1",
)  # fmt: skip


@each_reader
def test_what_is_cut_off_or_something_else(reader: Reader, tmp_path: Path) -> None:
    path = tmp_path / reader.file
    reader.write(path)
    sound = path.read_bytes()
    assert fault_of(lambda: reader.read(path)) == ("", "")
    cuts = {*range(0, len(sound), max(1, len(sound) // 12)), len(sound) - 1}
    faults = []
    for content in (*_CONTENTS, *(sound[:kept] for kept in sorted(cuts))):
        path.write_bytes(content)
        fault, _ = fault_of(lambda: reader.read(path))
        faults += [(content[:20], len(content), fault)] * bool(fault)
    assert faults == []


def test_pipes_in_a_command(world: World) -> None:
    """The whole command line ends with a sentence, whichever option names the pipe."""
    pipe = world.folder / "pipe"
    for ending in (".csv", ".parquet", ".safetensors", ".toml", ".py", ".json", ".jsonl", ".zip"):
        os.mkfifo(pipe.with_suffix(ending))
    for arguments in (
        ("--attributes", f"{pipe}.csv"),
        ("--attributes", f"{pipe}.parquet"),
        ("--task-file", f"{pipe}.safetensors"),
        ("--config", f"{pipe}.toml"),
        ("--plugin", f"{pipe}.py"),
        ("--dataset", f"csv:{pipe}.csv"),
        ("--dataset", f"folder:{pipe}.zip"),
        ("--detector", f"captions-file:{pipe}.jsonl"),
    ):
        small = () if "--dataset" in arguments else QUICK
        told = world.tell("run", *small, *arguments, seconds=30)
        assert told.faults() == []
        assert told.code == 2, arguments
        assert "pipe" in told.err


def test_a_folder_with_pipes_and_cycles_among_its_images(tmp_path: Path) -> None:
    root = tmp_path / "images"
    for c in "ab":
        (root / c).mkdir(parents=True)
        (root / c / "1.png").write_bytes(picture())
    os.mkfifo(root / "a" / "2.png")
    (root / "a" / "3.png").symlink_to("/dev/zero")
    (root / "a" / "4.png").symlink_to("4.png")
    (root / "b" / "again").symlink_to(root)
    (root / "b" / "2.png").mkdir()
    data = Folder(path=root)
    broken = read_all(data)
    assert data.keys == ("a/1.png", "a/2.png", "a/3.png", "a/4.png", "b/1.png")
    assert len(broken) == 3
    for key, sentence in zip(data.keys[1:4], broken, strict=True):
        assert key in sentence
    assert "named pipe" in broken[0]
    assert "device" in broken[1]
    assert "links" in broken[2]


def test_folders_full_of_links_to_each_other(tmp_path: Path) -> None:
    root = tmp_path / "images"
    for i in range(12):
        (root / f"f{i}").mkdir(parents=True)
        (root / f"f{i}" / "1.png").write_bytes(picture())
        for j in range(12):
            if i != j:
                (root / f"f{i}" / f"to{j}").symlink_to(root / f"f{j}")
    assert "links lead to this folder" in sentence_of(lambda: Folder(path=root))


# --- archives --------------------------------------------------------------------------------


def _zip(path: Path, *members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", method) as archive:
        warnings.simplefilter("ignore")
        archive.writestr("b/0.png", picture())
        for name, content in members:
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("a/1.png", "a/1.png"), "two files in the archive have the name 'a/1.png'"),
        (("a/\u00e9.png", "a/e\u0301.png"), "two files in the archive have the name"),
        (("a/1.png", "./a/1.png"), "two files in the archive have the name"),
        (("a/1.png", "a//1.png"), "two files in the archive have the name"),
        (("../a/1.png",), "must be relative, without '..'"),
        (("a/../../1.png",), "must be relative, without '..'"),
        (("/a/1.png",), "must be relative, without '..'"),
        (("C:\\a\\1.png",), "must be relative, without '..'"),
        (("C:/a/1.png",), "must be relative, without '..'"),
        (("a/\n1.png",), "must be printable"),
    ],
)
def test_names_in_an_archive(names: tuple[str, ...], message: str, tmp_path: Path) -> None:
    path = _zip(tmp_path / "z.zip", *((name, picture(i)) for i, name in enumerate(names)))
    assert message in sentence_of(lambda: Folder(path=path))


def test_names_that_differ_in_case_are_two_classes_but_not_two_tables(tmp_path: Path) -> None:
    """Images are found by their exact name, tables regardless of case."""
    path = _zip(tmp_path / "z.zip", ("A/1.png", picture(1)), ("a/1.png", picture(2)))
    assert Folder(path=path).class_names == ("A", "a", "b")
    declaration = tmp_path / "d.toml"
    table = '[[layouts]]\nkind = "tables"\ntables = ["train.csv"]\n'
    declaration.write_text(f'name = "d"\ntitle = "D"\n{table}')
    rows = b"filename,label\n0.png,b\n"
    _zip(path, ("train.csv", rows), ("Train.csv", rows))
    wanted = "differs only in case"
    assert wanted in sentence_of(lambda: Declared(declaration=declaration, path=path))


def _patched(path: Path, name: str, **fields: int) -> None:
    """Change fields of a member in the table of contents, and in its own header."""
    raw = bytearray(path.read_bytes())
    places = {
        "flags": (8, 6, "<H"),
        "method": (10, 8, "<H"),
        "crc": (16, 14, "<I"),
        "packed": (20, 18, "<I"),
        "size": (24, 22, "<I"),
        "offset": (42, None, "<I"),
    }
    encoded = name.encode()
    central = raw.rindex(encoded) - 46
    local = raw.index(encoded) - 30
    for field, value in fields.items():
        in_central, in_local, form = places[field]
        struct.pack_into(form, raw, central + in_central, value)
        if in_local is not None:
            struct.pack_into(form, raw, local + in_local, value)
    path.write_bytes(bytes(raw))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"flags": 0x1}, "encrypted"),
        ({"flags": 0x41}, "encrypted"),
        ({"method": 99}, "compressed with method 99, which is not read"),
        ({"method": 6}, "compressed with method 6"),
        ({"offset": 0}, "overlap"),
    ],
)
def test_archives_that_are_not_read(fields: dict[str, int], message: str, tmp_path: Path) -> None:
    path = _zip(tmp_path / "z.zip", ("a/1.png", picture(1)))
    _patched(path, "a/1.png", **fields)
    assert message in sentence_of(lambda: Folder(path=path))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": 10}, "more bytes than it declares"),
        ({"size": 2**31}, "it has 2,147,483,648 bytes; at most 536,870,912 are read"),
        ({"size": 2**29}, "more than 200 times its compressed size"),
        ({"crc": 7}, "checksum"),
    ],
)
def test_a_member_that_is_not_what_it_declares(
    fields: dict[str, int], message: str, tmp_path: Path
) -> None:
    path = _zip(tmp_path / "z.zip", ("a/1.png", picture(1)))
    _patched(path, "a/1.png", **fields)
    (sentence,) = read_all(Folder(path=path))
    assert message in sentence
    assert "a/1.png" in sentence


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=str
)
def test_a_member_that_holds_more_than_it_declares(method: int, tmp_path: Path) -> None:
    path = _zip(tmp_path / "z.zip", ("a/1.png", bytes(1 << 28)), method=method)
    _patched(path, "a/1.png", size=1000)
    data = Folder(path=path)
    fault, _ = fault_of(lambda: read_all(data), 5)
    assert not fault
    (sentence,) = read_all(data)
    assert "more bytes than it declares" in sentence


def test_files_of_an_archive_that_share_their_bytes(tmp_path: Path) -> None:
    """A bomb whose files all expand the same bytes."""
    path = _zip(tmp_path / "z.zip", *((f"a/{i}.png", picture(i)) for i in range(20)))
    for i in range(1, 20):
        raw = path.read_bytes()
        start = raw.index(b"a/0.png") - 30
        _patched(path, f"a/{i}.png", offset=start)
    assert "overlap" in sentence_of(lambda: Folder(path=path))


# --- pickles ---------------------------------------------------------------------------------

LAYOUT = '[[layouts]]\nkind = "pickles"\nfiles = { train = ["x.pkl"] }\n'


def _pickled(folder: Path, content: bytes) -> Callable[[], object]:
    declaration = folder / "d.toml"
    declaration.write_text(f'name = "d"\ntitle = "D"\n{LAYOUT}')
    (folder / "x.pkl").write_bytes(content)
    return lambda: read_all(Declared(declaration=declaration, path=folder))


_DEEP = b")" + b"2\x86" * 200
"""Steps that make a pair of a pair of a pair ..., with 2**200 leaves."""
_IMAGES = pickle.dumps(np.zeros((4, 6, 6, 3), np.uint8), protocol=2)[2:-1]
_KEY = b"X\x0a\x00\x00\x00image_data"


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04}" + _DEEP + b"K\x01s.",
        b"\x80\x04}(" + _DEEP + b"K\x01u.",
        b"\x80\x04(" + _DEEP + b"K\x01d.",
        b"\x80\x04\x8f(" + _DEEP + b"\x90.",
        b"\x80\x04(" + _DEEP + b"\x91.",
        b"\x80\x04cbuiltins\nset\n(" + _DEEP + b"l\x85R.",
        b"\x80\x04cbuiltins\nfrozenset\n(" + _DEEP + b"l\x85R.",
        b"\x80\x04cbuiltins\ndict\n((" + _DEEP + b"K\x01tl\x85R.",
        b"\x80\x04ccollections\nOrderedDict\n((" + _DEEP + b"K\x01tl\x85R.",
        b"\x80\x02}" + _KEY + b"K\x01s" + _DEEP + b"Q.",
        b"\x80\x02cnumpy\ndtype\n" + _DEEP + b"\x85R.",
    ],
    ids=range(11),
)
def test_tuples_that_take_exponential_time(content: bytes, tmp_path: Path) -> None:
    assert "this pickle is not read" in sentence_of(_pickled(tmp_path, content), 5)


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04" + b"]" * 500_000 + b"a" * 499_999 + b".",
        b"\x80\x04" + b")" + b"\x85" * 500_000 + b".",
        b"\x80\x04}" + b"K\x01}" * 200_000 + b"s" * 200_000 + b".",
        b"\x80\x04" + b"(" * 500_000 + b"l" * 500_000 + b".",
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b"abc.",
        b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b"abc.",
        b"\x80\x04\x96" + struct.pack("<Q", 1 << 62) + b"abc.",
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"abc.",
        b"\x80\x04X" + struct.pack("<I", (1 << 32) - 1) + b"abc.",
        b"\x80\x04B" + struct.pack("<I", (1 << 32) - 1) + b"abc.",
        b"\x80\x02\x8b" + struct.pack("<i", (1 << 31) - 1) + b"abc.",
        b"\x80\x02T" + struct.pack("<i", -5) + b"abc.",
        b"I" + b"9" * 1_000_000 + b"\n.",
        b"\x80\x04cbuiltins\nbytes\nJ\xff\xff\xff\x7f\x85R.",
        b"\x80\x04cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.",
        b"\x80\x04cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85R.",
        b"\x80\x04X" + struct.pack("<I", 1 << 20) + b"a" * (1 << 20) + b"\x940"
        + b"c_codecs\nencode\n(h\x00X\x06\x00\x00\x00latin1tR" * 20_000 + b".",
        b"\x80\x04(" + b"K\x01" * 300_000 + b"l\x940"
        + b"cbuiltins\nlist\nh\x00\x85R" * 20_000 + b".",
        b"\x80\x04\x8b" + struct.pack("<i", 500_000) + b"\x01" * 500_000 + b"\x940}"
        + b"h\x00K\x01s" * 100_000 + b".",
    ],
    ids=range(19),
)  # fmt: skip
def test_pickles_of_absurd_depth_and_size(content: bytes, tmp_path: Path) -> None:
    fault, _ = fault_of(_pickled(tmp_path, content), 20)
    assert not fault


@pytest.mark.parametrize(
    "labels",
    [[0, 1, float("nan"), 1], [0.5, 1, 1, 1], ["a", "nan", "b", "b"], [0, "a", 1, 1], [[0], [1]],
     {0: 1}, 7, None, "abcd", [None] * 4, np.array([0.5, 1, 1, 1]), np.zeros((4, 1)),
     np.array([np.nan] * 4), [(0,)] * 4, b"abcd", [10**30, 1, 1, 1]],
    ids=range(16),
)  # fmt: skip
def test_labels_that_are_no_labels(labels: Any, tmp_path: Path) -> None:
    content = pickle.dumps({"image_data": np.zeros((4, 6, 6, 3), np.uint8), "labels": labels})
    fault, sentence = fault_of(_pickled(tmp_path, content))
    assert not fault
    if labels is not None and not (isinstance(labels, list) and labels[0] == 10**30):
        assert "x.pkl" in sentence


@pytest.mark.parametrize("shape", [(10**9, 10**9, 3, 3), (-1, 6, 6, 3), (4, 6, 7, 3), (0,), ()])
@pytest.mark.parametrize("compressed", [False, True])
def test_arrays_whose_shape_is_a_lie(
    shape: tuple[int, ...], compressed: bool, tmp_path: Path
) -> None:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "|u1", "fortran_order": False, "shape": shape}
    )
    path = tmp_path / "x.npz"
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("images.npy", stream.getvalue() + bytes(4 * 6 * 6 * 3))
        labels = io.BytesIO()
        np.save(labels, np.zeros(4, np.int64))
        archive.writestr("labels.npy", labels.getvalue())
    declaration = tmp_path / "d.toml"
    declaration.write_text(f'name = "d"\ntitle = "D"\n{LAYOUT.replace("x.pkl", "x.npz")}')
    sentence = sentence_of(lambda: read_all(Declared(declaration=declaration, path=tmp_path)))
    assert "x.npz" in sentence


# --- images ----------------------------------------------------------------------------------


def _one_image(folder: Path, content: bytes, name: str = "i.png") -> CsvTable:
    (folder / name).write_bytes(content)
    (folder / "i.csv").write_text(f"path,label\n{name},x\n")
    return CsvTable(path=folder / "i.csv")


def _png(width: int, height: int) -> bytes:
    """Return a PNG file of white pixels, compressed a thousandfold."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + crc

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    packer = zlib.compressobj(9)
    row = bytes(min(width + 1, 10_000))
    pixels = b"".join(packer.compress(row) for _ in range(min(height, 2000))) + packer.flush()
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "size", [(10_000, 9_000), (30_000, 30_000), (2**31 - 1, 2**31 - 1), (0, 5), (1, 90_000_000)]
)
def test_images_of_too_many_pixels_are_broken(size: tuple[int, int], tmp_path: Path) -> None:
    data = _one_image(tmp_path, _png(*size))
    fault, _ = fault_of(lambda: read_all(data), 5)
    assert not fault
    (sentence,) = read_all(data)
    assert "row 2" in sentence
    assert "not a readable image" in sentence


def test_too_many_pixels_are_no_warning(tmp_path: Path) -> None:
    _one_image(tmp_path, _png(10_000, 9_000))
    code = (
        "from fsf_datasets import CsvTable\n"
        "from fsframework.errors import DataError\n"
        "try: CsvTable(path='i.csv').image(0)\n"
        "except DataError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "it has 10,000 x 9,000 pixels; at most 89,478,485 are read" in done.stdout
    assert done.stderr == ""


def test_a_postscript_program_is_no_image(tmp_path: Path) -> None:
    """Pillow would start Ghostscript, which runs it."""
    program = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n{} loop\n%%EOF\n"
    (sentence,) = read_all(_one_image(tmp_path, program))
    assert "not a readable image" in sentence


def _saved(image: Image.Image, kind: str, **how: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **how)
    return stream.getvalue()


_PALETTE = Image.new("P", (4, 4), 1)
_PALETTE.putpalette([0, 0, 0, 255, 0, 0])
_GREY16 = Image.fromarray(np.full((4, 4), 0x8080, np.uint16))
_FRAMES = [Image.new("RGB", (4, 4), c) for c in ("red", "blue")]


@pytest.mark.parametrize(
    ("content", "colour"),
    [
        (_saved(_FRAMES[0], "GIF", save_all=True, append_images=_FRAMES[1:]), (255, 0, 0)),
        (_saved(_FRAMES[0], "PNG", save_all=True, append_images=_FRAMES[1:]), (255, 0, 0)),
        (_saved(_FRAMES[0], "WEBP", save_all=True, append_images=_FRAMES[1:], lossless=True),
         (255, 0, 0)),
        (_saved(_GREY16, "PNG"), (128, 128, 128)),
        (_saved(_GREY16, "PPM"), (128, 128, 128)),
        (_saved(_GREY16, "TIFF"), (128, 128, 128)),
        (_saved(_PALETTE, "PNG"), (255, 0, 0)),
        (_saved(_PALETTE, "PNG", transparency=1), (255, 255, 255)),
        (_saved(_PALETTE, "PNG", transparency=b"\x00\x80"), (255, 127, 127)),
        (_saved(_PALETTE, "GIF", transparency=1), (255, 255, 255)),
        (_saved(Image.new("RGB", (4, 4), "red"), "PNG", transparency=(255, 0, 0)), (255,) * 3),
        (_saved(Image.new("LA", (4, 4), (0, 0)), "PNG"), (255, 255, 255)),
        (_saved(Image.new("1", (4, 4), 1), "PNG"), (255, 255, 255)),
        (_saved(Image.new("L", (4, 4), 7), "BMP"), (7, 7, 7)),
        (_saved(Image.new("CMYK", (4, 4), (0, 255, 255, 0)), "TIFF"), (255, 0, 0)),
        (_saved(Image.new("CMYK", (4, 4), (0, 255, 255, 0)), "JPEG", quality=95), (254, 0, 0)),
    ],
    ids=range(16),
)  # fmt: skip
def test_unusual_images_have_the_right_colours(
    content: bytes, colour: tuple[int, int, int], tmp_path: Path
) -> None:
    pixels = _one_image(tmp_path, content).image(0)
    assert pixels.shape == (4, 4, 3)
    assert np.abs(pixels.astype(int) - colour).max() <= 1


# --- tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["nan", "NaN", "NAN", "-nan", "<NA>", "#N/A", " nan "])
def test_a_missing_label_is_no_class(label: str, tmp_path: Path) -> None:
    path = tmp_path / "i.csv"
    path.write_text(f"path,label\na.png,cat\nb.png,{label}\n")
    sentence = sentence_of(lambda: CsvTable(path=path))
    assert f"{path}: row 3 has {label.strip()!r} for its label, which stands for" in sentence
    split = tmp_path / "s.csv"
    split.write_text(f"class,split\ncat,train\n{label},test\n")
    path.write_text("path,label\na.png,cat\nb.png,nana\n")
    assert "row 3 has a missing class" in sentence_of(lambda: CsvTable(path=path, split=split))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": ["a"], "words": [[1, 2]]}, "list of strings, not of int64"),
        ({"key": ["a"], "words": [[1.5]]}, "list of strings, not of double"),
        ({"key": ["a"], "words": [[[b"x"]]]}, "list of strings, not of list"),
        ({"key": ["a"], "words": [[b"x"]]}, "list of strings, not of binary"),
        ({"key": ["a"], "words": [[True]]}, "list of strings, not of bool"),
        ({"key": ["a"], "words": [[{"w": "x"}]]}, "list of strings, not of struct"),
        ({"key": ["a"], "words": [3]}, "list of strings, not int64"),
        ({"key": [1], "words": [["x"]]}, "'key' must contain text, not int64"),
        ({"key": [None], "words": [["x"]]}, "row 1 has no key"),
        ({"key": [b"\xff"], "words": [["x"]]}, "'key' must contain text, not binary"),
        ({"key": ["a"], "words": [["x"]], "caption": [3]}, "'caption' must contain text"),
        ({"key": ["a", "b"], "words": [["x"], ["y"]], "caption": [b"x", None]}, "'caption' must"),
    ],
)
def test_words_of_the_wrong_type(columns: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path)
    sentence = sentence_of(lambda: AttributeTable.load(path))
    assert message in sentence
    assert str(path) in sentence


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_words_of_every_type_of_text(kind: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    flat = pa.array(["dog", "sofa", "dog"])
    flat = flat.dictionary_encode() if pa.types.is_dictionary(kind) else flat.cast(kind)
    words = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), flat)
    keys = pa.array(["a", "b"])
    keys = keys.dictionary_encode() if pa.types.is_dictionary(kind) else keys.cast(kind)
    pq.write_table(pa.table({"key": keys, "words": words}), path)
    table = AttributeTable.load(path)
    assert [table.words_of(i) for i in range(2)] == [("dog", "sofa"), ("dog",)]


def test_parquet_with_bad_text_or_a_column_twice(tmp_path: Path) -> None:
    # A folder named like a column adds none.
    path = tmp_path / "key=3" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"key": ["a"], "words": [["x"]]}), path)
    assert AttributeTable.load(path).keys == ("a",)
    bad = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(struct.pack("<2i", 0, 2)), pa.py_buffer(b"\xff\xfe")]
    )
    pq.write_table(pa.table({"key": bad, "words": pa.array([["x"]])}), path)
    assert "UTF8" in sentence_of(lambda: AttributeTable.load(path))
    columns = [pa.array(["a"]), pa.array([["x"]]), pa.array([["y"]])]
    pq.write_table(pa.Table.from_arrays(columns, ["key", "words", "words"]), path)
    assert "'words' twice" in sentence_of(lambda: AttributeTable.load(path))


@pytest.mark.parametrize("load", [AttributeTable.load, ImagePool.load, Outcomes.load])
@pytest.mark.parametrize(
    "header",
    ["[" * 100_000, "{}", "[]", "7", "NaN", '{"what": ' + "[" * 500 + "]" * 500 + "}", "\xff",
     '{"what": "outcomes", "schema_version": true}', '{"what": "outcomes", "schema_version": 2}',
     '{"what": "an image pool", "schema_version": 2, "class_names": [1]}',
     '{"what": "an attribute table", "schema_version": 2, "provenance": []}',
     '{"what": "an attribute table", "schema_version": 2, "provenance": {"a": 1}}',
     '{"what": "an attribute table", "schema_version": 2, "provenance": {}, "words": [3]}',
     '{"what": "an attribute table", "schema_version": -1, "provenance": {}}',
     '{"what": "outcomes", "what": "outcomes"}'],
    ids=range(15),
)  # fmt: skip
def test_headers_of_parquet(load: Callable[[Path], Any], header: str, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"key": ["a"], "words": [["x"]], "label": [0], "predictions": [[0]]})
    pq.write_table(table.replace_schema_metadata({"fsframework": header}), path)
    assert str(path) in sentence_of(lambda: load(path))


def test_headers_of_tasks(tmp_path: Path) -> None:
    reader = next(one for one in READERS if one.name == "tasks")
    path = tmp_path / "t.safetensors"
    reader.write(path)
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    outer = json.loads(raw[8 : 8 + size])
    inner = json.loads(outer["__metadata__"]["fsframework"])
    wrong: list[Any] = [None, 1, "x", [], {}, [[1]], True, 1.5, "9" * 5000, [None], {"a": {}}]
    texts = ["[" * 10_000, '{"a":' * 10_000, "", "NaN"]
    for key in inner:
        texts += [json.dumps({**inner, key: value}) for value in wrong if value != inner[key]]
        texts.append(json.dumps({k: v for k, v in inner.items() if k != key}))
    harmless = 0
    for text in texts:
        outer["__metadata__"]["fsframework"] = text
        header = json.dumps(outer).encode()
        path.write_bytes(struct.pack("<Q", len(header)) + header + raw[8 + size :])
        fault, sentence = fault_of(lambda: TaskSet.load(path))
        assert not fault, text[:200]
        harmless += not sentence
    # The digest is not read back: what it covers is digested again. "task" is of this version.
    assert harmless <= len(wrong) + 1


def test_deep_json_and_toml_are_sentences() -> None:
    for text in ("[" * 100_000, '{"a":' * 100_000, "[" * 65 + "]" * 65):
        with pytest.raises(ValueError, match="levels deep|Expecting"):
            parse_json(text)
    assert parse_json("[" * 64 + "]" * 64)
    long = ".".join(["a"] * 100_000) + " = 1"
    for text in ("a = " + "[" * 100_000, long, f"[{long[:-4]}]", "a = " + "{a = " * 100_000):
        with pytest.raises(ValueError, match="levels deep"):
            parse_toml(text)
    dots = 'a = "' + "x." * 50 + '"\n'
    assert parse_toml(dots) == {"a": "x." * 50}
    with pytest.raises(ValueError, match="the key 'train' twice|key 'train'"):
        parse_json('{"train": ["a"], "train": ["b"]}')


# --- captions and words ----------------------------------------------------------------------


def _captions(path: Path) -> Callable[[], object]:
    return CaptionsFile(path=path, selector=SpacySelector()).prepare


def test_a_gzip_bomb_of_captions(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl.gz"
    with gzip.open(path, "wb", 9) as file:
        for _ in range(1 << 18):
            file.write(b" " * 999 + b"\n")
    assert "expands to more than 200 times its size" in sentence_of(_captions(path))
    with gzip.open(path, "wb", 9) as file:
        file.write(bytes(1 << 28))
    assert "more than 1,048,576 characters" in sentence_of(_captions(path))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("c.jsonl", b"[" * 100_000),
        ("c.jsonl", b'{"key": "a", "key": "b", "caption": "c"}'),
        ("c.jsonl", b'{"key": "a", "caption": ' + b"1" * 5000 + b"}"),
        ("c.jsonl", b'{"key": "\\ud800", "caption": "c"}'),
        ("c.jsonl", b"x" * (1 << 21)),
        ("c.csv", b"key,caption\na," + b'"' + b"x" * (1 << 20)),
        ("c.token", b"a#" + b"9" * 5000 + b"\tx"),
        ("c.jsonl.gz", b"\x1f\x8b\x08\x00garbage"),
    ],
    ids=range(8),
)
def test_captions_that_are_refused(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert str(path) in sentence_of(_captions(path))


# --- declarations and patterns ---------------------------------------------------------------


def _images(root: Path) -> Path:
    for c in "ab":
        (root / c).mkdir(parents=True)
        (root / c / f"{'a' * 60}!.png").write_bytes(picture())
    return root


@pytest.mark.parametrize("pattern", ["(?P<x>(a+)+)+$", "(?P<x>(a|a)*)b", "(?P<x>(.*a){25})c"])
def test_a_pattern_that_takes_exponential_time(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsf_datasets._patterns._SECONDS", 1.0)
    root = _images(tmp_path / "images")
    sentence = sentence_of(lambda: Folder(path=root, pattern=pattern), 30)
    assert "takes more than 1 s" in sentence
    declaration = tmp_path / "d.toml"
    layout = f"[[layouts]]\nkind = 'folders'\npattern = '{pattern}'\n"
    declaration.write_text(f"name = 'd'\ntitle = 'D'\n{layout}")
    read = lambda: Declared(declaration=declaration, path=root)  # noqa: E731
    assert "takes more than 1 s" in sentence_of(read, 30)


@pytest.mark.parametrize(
    "pattern",
    ["(" * 400, "(?P<x>a){99999999999}", "(?P<x>" + "a" * 2000 + ")", "(?P<x>a", "[", "(?P<1>a)",
     "(?:" * 300 + "a" + ")*" * 300, "*", "(?<=a+)(?P<x>b)"],
    ids=range(9),
)  # fmt: skip
def test_patterns_that_are_none(pattern: str, tmp_path: Path) -> None:
    root = _images(tmp_path / "images")
    fault, sentence = fault_of(lambda: Folder(path=root, pattern=pattern))
    assert not fault
    assert "pattern" in sentence


def test_a_usual_pattern_is_as_in_python(tmp_path: Path) -> None:
    root = tmp_path / "images"
    for c in "ab":
        (root / c).mkdir(parents=True)
        (root / c / f"{c}-Müsli2.png").write_bytes(picture())
    data = Folder(path=root, pattern=r"(?<=-)(?P<what>\w+?)(?P<number>\d+)(?P<none>x)?\.png$")
    assert data.metadata == {"what": ("Müsli",) * 2, "number": ("2",) * 2, "none": ("", "")}


@pytest.mark.parametrize(
    "layout",
    [
        "class = '{class:>1000000000}'",
        "class = '{class!r}'",
        "class = '{class.__class__}'",
        "class = '{class[0]}'",
        "class = '{}'",
        "columns = { x = '{class:{class}}' }",
        "columns = { x = 3 }",
        "levels = [[]]",
    ],
)
def test_templates_that_are_refused(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "d.toml"
    path.write_text(f"name = 'd'\ntitle = 'D'\n[[layouts]]\nkind = 'folders'\n{layout}\n")
    assert str(path) in sentence_of(lambda: read_declaration(path))


def test_a_bomb_as_the_file_of_a_split(tmp_path: Path) -> None:
    path = tmp_path / "d.toml"
    path.write_text("name = 'd'\ntitle = 'D'\n[splits.x]\nfile = 's.json.xz'\n")
    (tmp_path / "s.json.xz").write_bytes(lzma.compress(b"[" + b" " * (1 << 29)))
    root = _images(tmp_path / "images")
    sentence = sentence_of(lambda: Declared(declaration=path, path=root), 60)
    assert "s.json.xz" in sentence


# --- accuracies ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made",
    [
        lambda: torch.ones(3, dtype=torch.complex64),
        lambda: torch.ones(3).to_sparse(),
        lambda: [0.5],
        lambda: "x",
        lambda: torch.ones(0),
        lambda: torch.ones(3, 3),
        lambda: torch.tensor([float("nan")]),
        lambda: torch.tensor(0.5),
        lambda: {"a": torch.ones(3)},
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
    ],
    ids=range(10),
)
@pytest.mark.filterwarnings("ignore")
def test_tensors_that_are_no_accuracies(made: Callable[[], Any], tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    torch.save(made(), path)
    fault, _ = fault_of(lambda: read_accuracies([path], Reading(task_set="x")))
    assert not fault


def test_nothing_of_a_pickle_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    class Touch:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (mark,)

    for reader in READERS:
        path = tmp_path / reader.file
        path.unlink(missing_ok=True)
        path.write_bytes(pickle.dumps({"image_data": Touch()}, protocol=2))
        fault, _ = fault_of(lambda: reader.read(path))  # noqa: B023
        assert not fault, reader.name
        path.unlink()
        assert not mark.exists(), reader.name
