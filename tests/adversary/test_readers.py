"""Attacks on every reader of a user's files; see ``watch`` for how they are judged.

Counted are: exceptions that are not sentences of ``fsframework.errors``, ``unexpected``, hangs,
memory beyond a bound, and files read otherwise than they were meant. All must be 0.
"""

from __future__ import annotations

import gzip
import io
import itertools
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
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from fsf_datasets import CsvTable, Declared, Folder
from fsframework.values import AttributeTable
from tests.adversary.readers import READERS, Reader, broken_of, picture, reader_of
from tests.adversary.watch import fault_of
from tests.adversary.world import QUICK, World

each_reader = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)

Content = bytes | Callable[[Path], object]


def put(content: Content, path: Path) -> None:
    """Write a file, or whatever stands in its place."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        content(path)


def sentence_of(read: Callable[[], object], seconds: int = 20) -> str:
    """Return the sentence of a reading that is refused without a fault."""
    fault, sentence = fault_of(read, seconds)
    assert not fault
    assert sentence, "it was read"
    return sentence


# --- what any reader may meet ----------------------------------------------------------------


def _socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is at most 107 bytes long
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(before)


def _link_to_a_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to(path.with_name("pipe"))


def _cycle(path: Path) -> None:
    other = path.with_name(f"other-{path.name}")
    path.symlink_to(other)
    other.symlink_to(path)


def _tebibyte(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


class _Touch:
    """A call that leaves a file behind when it is unpickled in the folder of the test."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("mark"),)


NOT_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "named pipe": (os.mkfifo, "named pipe"),
    "link to a pipe": (_link_to_a_pipe, "named pipe"),
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
"""What stands in the place of a file, and a word of the sentence that says so."""

_CONTENTS = (
    b"", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\n" * 1000, b"[" * 100_000, b"{" * 100_000,
    b'{"a":' * 50_000, b"\x80\x04" + b"]" * 100_000, b"PK\x05\x06" + bytes(18), b"a," * 200_000,
    b'"' * 99_999, b"nan\n" * 50, b"\x89PNG\r\n\x1a\n", bytes(range(256)) * 40, b"PAR1PAR1",
    b"\x93NUMPY\x01\x00\xff\xff", b"a = " + b"[" * 5000, b"a." * 5000 + b"a = 1",
    pickle.dumps({"image_data": _Touch()}, protocol=2), _tebibyte,
)  # fmt: skip
_NAMED = ("image", "pickle", "arrays", "archive")
"""Readers of files that another file or folder names, which may be left out or broken."""
_SEARCHED = ("accuracies", "weights of other libraries")
"""PyTorch searches these for the end of an archive, byte by byte."""


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
        if reader.name.startswith(_NAMED) or (kind == "folder" and "accura" in reader.name):
            continue  # accuracies are read from folders too
        if word not in sentence or str(folder) not in sentence:
            faults.append((kind, sentence))
    assert faults == []


@each_reader
def test_names_that_no_file_can_have(reader: Reader, tmp_path: Path) -> None:
    if reader.name.startswith(_NAMED[:3]) or reader.name in ("record", "split, compressed"):
        pytest.skip("another file of the folder is named")
    places = [tmp_path / f"{name}{reader.file}" for name in ("a\0b", "x" * 300, "\ud800")]
    faults = []
    for path in (*places, tmp_path / ("y/" * 3000) / reader.file):
        fault, sentence = fault_of(lambda p=path: reader.read(p))
        faults += [(path.name, fault)] * (bool(fault) or not sentence)
    assert faults == []


@pytest.mark.one_in(3)
@each_reader
def test_what_is_cut_off_or_something_else(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / reader.file
    reader.write(path)
    sound = path.read_bytes()
    assert fault_of(lambda: reader.read(path)) == ("", "")
    cuts = {*range(0, len(sound), max(1, len(sound) // 12)), len(sound) - 1}
    faults = []
    for content in (*_CONTENTS, *(sound[:kept] for kept in sorted(cuts))):
        if content is _tebibyte and reader.name in _SEARCHED:
            continue
        put(content, path)
        fault, _ = fault_of(lambda: reader.read(path), 30)
        faults += [(content[:20] if isinstance(content, bytes) else content, fault)] * bool(fault)
        path.unlink()
    assert faults == []
    assert not (tmp_path / "mark").exists(), "code in a pickle was run"


def test_pipes_in_a_command(world: World) -> None:
    """The whole command line ends with a sentence, whichever option names the pipe."""
    for option, value in (
        ("--attributes", "pipe.csv"),
        ("--attributes", "pipe.parquet"),
        ("--task-file", "pipe.safetensors"),
        ("--config", "pipe.toml"),
        ("--plugin", "pipe.py"),
        ("--dataset", "csv:pipe.csv"),
        ("--dataset", "folder:pipe.zip"),
        ("--detector", "captions-file:pipe.jsonl"),
    ):
        pipe = world.folder / "here" / value.rpartition(":")[2]
        if not pipe.exists():
            os.mkfifo(pipe)
        small = () if option == "--dataset" else QUICK
        told = world.tell("run", *small, option, value, seconds=30)
        assert (told.code, told.faults()) == (2, []), option
        assert "pipe" in told.err


# --- headers ---------------------------------------------------------------------------------


def _header_of(path: Path) -> dict[str, Any]:
    if path.suffix == ".parquet":
        raw = pq.read_schema(path).metadata[b"fsframework"]
    else:
        with safe_open(path, "np") as file:
            raw = file.metadata()["fsframework"]
    found: dict[str, Any] = json.loads(raw)
    return found


def _set_header(path: Path, text: str) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pq.read_table(path).replace_schema_metadata({"fsframework": text}), path)
    else:
        save_file(load_file(path), path, {"fsframework": text})


_DEPTHS = (100, 500, 900, 1500, 100_000)
"""Some that a parser takes and those who walk the result do not, and some that no parser takes."""
_DEEP = tuple(
    text
    for depth in _DEPTHS
    for text in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth)
)
_NO_HEADERS = ("", "[", "{}", "[]", "7", "NaN", "\xff", '{"what": "outcomes", "what": "outcomes"}')
_WRONG: tuple[Any, ...] = (
    *(None, -1, 1, "x", [], {}, [[1]], True, 1.5, "9" * 5000, [None], [3], {"a": {}}, {"a": 1}),
)
_HARMLESS: dict[str, tuple[Any, ...]] = {
    "digest": (..., *_WRONG),
    "task_digest": ("x", "9" * 5000),
    "n_images": (-1, 1),
    "query_batch": (...,),
    "words": (..., []),
    "provenance": ({},),
    "notes": (..., []),
}
"""Values of fields with which a file is read, ``...`` if the field may be missing. The digest of
tasks is not read back: what it covers is digested again."""


@pytest.mark.parametrize(
    "name", ["tasks", "outcomes", "accuracies of tasks", "pool", "attributes", "weights"]
)
def test_damaged_headers(name: str, tmp_path: Path) -> None:
    reader = reader_of(name)
    path = tmp_path / reader.file
    reader.write(path)
    header = _header_of(path)

    def sentence_with(text: str) -> str:
        _set_header(path, text)
        fault, sentence = fault_of(lambda: reader.read(path))
        assert not fault, text[:200]
        assert str(path) in sentence or not sentence
        return sentence

    for text in _DEEP:
        assert "values are nested more than 64 levels deep" in sentence_with(text)
    if name == "weights":
        return  # what their header says is the writer's
    for text in _NO_HEADERS:
        assert sentence_with(text), text
    for key, sound in header.items():
        without = {k: v for k, v in header.items() if k != key}
        wrong = {json.dumps({**without, key: v}): v for v in _WRONG if v != sound}
        taken = [
            v for text, v in {**wrong, json.dumps(without): ...}.items() if not sentence_with(text)
        ]
        assert all(value in _HARMLESS.get(key, ()) for value in taken), (key, taken)


# --- files made to harm ----------------------------------------------------------------------


def _zip(
    *members: tuple[str, bytes], packed: int = zipfile.ZIP_DEFLATED, **fields: int
) -> Callable[[Path], None]:
    """Return what writes an archive of these files and one more; ``fields`` change the last."""

    def write(path: Path) -> None:
        with warnings.catch_warnings(), zipfile.ZipFile(path, "w", packed) as archive:
            warnings.simplefilter("ignore")
            for name, content in (("b/0.png", picture()), *members):
                archive.writestr(name, content)
        if fields:
            path.write_bytes(_patched(path.read_bytes(), members[-1][0], **fields))

    return write


def _named(*names: str) -> Callable[[Path], None]:
    return _zip(*((name, picture(i)) for i, name in enumerate(names)))


def _image_with(**fields: int) -> Callable[[Path], None]:
    return _zip(("a/1.png", picture(1)), **fields)


def _patched(archive: bytes, name: str, **fields: int) -> bytes:
    """Change fields of a member in the table of contents, and in its own header."""
    raw = bytearray(archive)
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
    return bytes(raw)


def _sharing_bytes(path: Path) -> None:
    """Write a bomb whose files all expand the same bytes."""
    _named(*(f"a/{i}.png" for i in range(20)))(path)
    raw = path.read_bytes()
    start = raw.index(b"a/0.png") - 30
    for i in range(1, 20):
        raw = _patched(raw, f"a/{i}.png", offset=start)
    path.write_bytes(raw)


def _labelled(labels: Any) -> bytes:
    return pickle.dumps({"image_data": np.zeros((4, 6, 6, 3), np.uint8), "labels": labels})


def _shaped(*shape: int, method: int) -> Callable[[Path], None]:
    """Return what writes arrays whose shape is a lie."""

    def write(path: Path) -> None:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        images, labels = io.BytesIO(), io.BytesIO()
        np.lib.format.write_array_header_1_0(images, header)
        np.save(labels, np.zeros(4, np.int64))
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.writestr("images.npy", images.getvalue() + bytes(4 * 6 * 6 * 3))
            archive.writestr("labels.npy", labels.getvalue())

    return write


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


def _columns(**columns: Any) -> Callable[[Path], object]:
    return lambda path: pq.write_table(pa.table({"key": ["a"], "words": [["x"]], **columns}), path)


def _words_twice(path: Path) -> None:
    columns = [pa.array(["a"]), pa.array([["x"]]), pa.array([["y"]])]
    pq.write_table(pa.Table.from_arrays(columns, ["key", "words", "words"]), path)


def _saved(made: Callable[[], Any]) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.save(made(), path)

    return write


def _layout(line: str) -> bytes:
    return f"name = 'd'\ntitle = 'D'\n[[layouts]]\nkind = 'folders'\n{line}\n".encode()


_BAD_TEXT = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.py_buffer(struct.pack("<2i", 0, 2)), pa.py_buffer(b"\xff\xfe")]
)
_PAIRS = b")" + b"2\x86" * 200
"""Steps that make a pair of a pair of a pair ..., with 2**200 leaves."""
_KEY = b"X\x0a\x00\x00\x00image_data"
_MISSING = ("nan", "NaN", "NAN", "-nan", "<NA>", "#N/A", " nan ")
"""What stands for a missing class."""
_NO_LABELS = (
    [0, 1, float("nan"), 1], [0.5, 1, 1, 1], ["a", "nan", "b", "b"], [0, "a", 1, 1], [[0], [1]],
    {0: 1}, 7, "abcd", [None] * 4, np.array([0.5, 1, 1, 1]), np.zeros((4, 1)),
    np.array([np.nan] * 4), [(0,)] * 4, b"abcd",
)  # fmt: skip
_NO_TEMPLATES = (
    "class = '{class:>1000000000}'", "class = '{class!r}'", "class = '{class.__class__}'",
    "class = '{class[0]}'", "class = '{}'", "columns = { x = '{class:{class}}' }",
    "columns = { x = 3 }", "levels = [[]]",
)  # fmt: skip
_NO_ACCURACIES: tuple[Callable[[], Any], ...] = (
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
)
_SHAPES: tuple[tuple[int, ...], ...] = (
    *((10**9, 10**9, 3, 3), (-1, 6, 6, 3), (4, 6, 7, 3), (0,), ()),
)
_LIES = tuple(itertools.product(_SHAPES, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))
_PROGRAM = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n{} loop\n%%EOF\n"
"""Pillow would start Ghostscript, which runs it."""
_PACKED = (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)

HARMFUL: tuple[tuple[Any, ...], ...] = (
    ("archive", "two files in the archive have the name", _named("a/1.png", "a/1.png"),
     _named("a/\u00e9.png", "a/e\u0301.png"), _named("a/1.png", "./a/1.png"),
     _named("a/1.png", "a//1.png")),
    ("archive", "must be relative, without '..'", _named("../a/1.png"), _named("a/../../1.png"),
     _named("/a/1.png"), _named("C:\\a\\1.png"), _named("C:/a/1.png")),
    ("archive", "must be printable", _named("a/\n1.png")),
    ("archive", "encrypted", _image_with(flags=0x1), _image_with(flags=0x41)),
    ("archive", "compressed with method 99, which is not read", _image_with(method=99)),
    ("archive", "compressed with method 6", _image_with(method=6)),
    ("archive", "overlap", _image_with(offset=0), _sharing_bytes),
    ("archive", "more bytes than it declares", _image_with(size=10),
     *(_zip(("a/1.png", bytes(1 << 24)), packed=packed, size=1000) for packed in _PACKED)),
    ("archive", "2,147,483,648 bytes; at most 536,870,912 are read", _image_with(size=2**31)),
    ("archive", "more than 200 times its compressed size", _image_with(size=2**29)),
    ("archive", "checksum", _image_with(crc=7)),
    ("pickle", "this pickle is not read",
     b"\x80\x04}" + _PAIRS + b"K\x01s.",
     b"\x80\x04}(" + _PAIRS + b"K\x01u.",
     b"\x80\x04(" + _PAIRS + b"K\x01d.",
     b"\x80\x04\x8f(" + _PAIRS + b"\x90.",
     b"\x80\x04(" + _PAIRS + b"\x91.",
     b"\x80\x04cbuiltins\nset\n(" + _PAIRS + b"l\x85R.",
     b"\x80\x04cbuiltins\nfrozenset\n(" + _PAIRS + b"l\x85R.",
     b"\x80\x04cbuiltins\ndict\n((" + _PAIRS + b"K\x01tl\x85R.",
     b"\x80\x04ccollections\nOrderedDict\n((" + _PAIRS + b"K\x01tl\x85R.",
     b"\x80\x02}" + _KEY + b"K\x01s" + _PAIRS + b"Q.",
     b"\x80\x02cnumpy\ndtype\n" + _PAIRS + b"\x85R."),
    ("pickle", "",
     b"\x80\x04" + b"]" * 200_000 + b"a" * 199_999 + b".",
     b"\x80\x04" + b")" + b"\x85" * 200_000 + b".",
     b"\x80\x04}" + b"K\x01}" * 100_000 + b"s" * 100_000 + b".",
     b"\x80\x04" + b"(" * 200_000 + b"l" * 200_000 + b".",
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
     _labelled(None), _labelled([10**30, 1, 1, 1])),
    ("pickle", "x.pkl", *map(_labelled, _NO_LABELS)),
    ("arrays", "x.npz", *(_shaped(*shape, method=method) for shape, method in _LIES)),
    ("image", "not a readable image", _png(10_000, 9_000), _png(30_000, 30_000),
     _png(2**31 - 1, 2**31 - 1), _png(0, 5), _png(1, 90_000_000), _PROGRAM),
    ("images in a table", "row 3 has ",
     *(f"path,label\na.png,cat\nb.png,{label}\n".encode() for label in _MISSING)),
    ("split as CSV", "row 3 has a missing class",
     *(f"class,split\na,train\n{label},test\n".encode() for label in _MISSING)),
    ("attributes", "list of strings, not of int64", _columns(words=[[1, 2]])),
    ("attributes", "list of strings, not of double", _columns(words=[[1.5]])),
    ("attributes", "list of strings, not of list", _columns(words=[[[b"x"]]])),
    ("attributes", "list of strings, not of binary", _columns(words=[[b"x"]])),
    ("attributes", "list of strings, not of bool", _columns(words=[[True]])),
    ("attributes", "list of strings, not of struct", _columns(words=[[{"w": "x"}]])),
    ("attributes", "list of strings, not int64", _columns(words=[3])),
    ("attributes", "'key' must contain text, not int64", _columns(key=[1])),
    ("attributes", "row 1 has no key", _columns(key=[None])),
    ("attributes", "'key' must contain text, not binary", _columns(key=[b"\xff"])),
    ("attributes", "'caption' must contain text", _columns(caption=[3]),
     _columns(key=["a", "b"], words=[["x"], ["y"]], caption=[b"x", None])),
    ("attributes", "UTF8", _columns(key=_BAD_TEXT)),
    ("attributes", "'words' twice", _words_twice),
    ("captions", "c.jsonl", b"[" * 100_000, b'{"key": "a", "key": "b", "caption": "c"}',
     b'{"key": "a", "caption": ' + b"1" * 5000 + b"}", b'{"key": "\\ud800", "caption": "c"}',
     b"x" * (1 << 21)),
    ("captions as CSV", "c.csv", b"key,caption\na," + b'"' + b"x" * (1 << 20)),
    ("captions by number", "c.token", b"a#" + b"9" * 5000 + b"\tx"),
    ("captions, compressed", "c.jsonl.gz", b"\x1f\x8b\x08\x00garbage"),
    ("captions, compressed", "expands to more than 200 times its size",
     lambda path: path.write_bytes(gzip.compress((b" " * 999 + b"\n") * (1 << 18)))),
    ("captions, compressed", "more than 1,048,576 characters",
     lambda path: path.write_bytes(gzip.compress(bytes(1 << 24)))),
    ("split", "'train' twice", b'{"train": ["a"], "train": ["b"]}'),
    ("split", "values are nested more than 64 levels deep",
     *(f'{{"test": {text}}}'.encode() for text in _DEEP)),
    ("split, compressed", "s.json.xz",
     lambda path: path.write_bytes(lzma.compress(b"[" + b" " * (1 << 28), preset=0))),
    ("declaration", "d.toml", *map(_layout, _NO_TEMPLATES)),
    ("accuracies", "", *map(_saved, _NO_ACCURACIES)),
)  # fmt: skip
"""Readers, files made for them, and a part of the sentence; empty where they may be read."""


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "part", "content"),
    [
        pytest.param(name, part, content, id=f"{name}: {part} {number}")
        for name, part, *contents in HARMFUL
        for number, content in enumerate(contents)
    ],
)
def test_files_made_to_harm(name: str, part: str, content: Content, tmp_path: Path) -> None:
    reader = reader_of(name)
    path = tmp_path / reader.file
    put(content, path)
    fault, sentence = fault_of(lambda: reader.read(path))
    assert not fault
    if part:
        assert part in sentence
        assert path.name in sentence


# --- folders, patterns and what is sound -----------------------------------------------------


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
    assert data.keys == ("a/1.png", "a/2.png", "a/3.png", "a/4.png", "b/1.png")
    words = ("named pipe", "device", "links")
    for key, word, sentence in zip(data.keys[1:4], words, broken_of(data), strict=True):
        assert key in sentence
        assert word in sentence


def test_folders_full_of_links_to_each_other(tmp_path: Path) -> None:
    root = tmp_path / "images"
    for i in range(12):
        (root / f"f{i}").mkdir(parents=True)
        (root / f"f{i}" / "1.png").write_bytes(picture())
        for j in range(12):
            if i != j:
                (root / f"f{i}" / f"to{j}").symlink_to(root / f"f{j}")
    assert "links lead to this folder" in sentence_of(lambda: Folder(path=root))


def test_names_that_differ_in_case_are_two_classes_but_not_two_tables(tmp_path: Path) -> None:
    """Images are found by their exact name, tables regardless of case."""
    path = tmp_path / "z.zip"
    _named("A/1.png", "a/1.png")(path)
    assert Folder(path=path).class_names == ("A", "a", "b")
    declaration = tmp_path / "d.toml"
    table = '[[layouts]]\nkind = "tables"\ntables = ["train.csv"]\n'
    declaration.write_text(f'name = "d"\ntitle = "D"\n{table}')
    rows = b"filename,label\n0.png,b\n"
    _zip(("train.csv", rows), ("Train.csv", rows))(path)
    wanted = "differs only in case"
    assert wanted in sentence_of(lambda: Declared(declaration=declaration, path=path))


def _images(root: Path, name: str) -> Path:
    for c in "ab":
        (root / c).mkdir(parents=True)
        (root / c / name.format(c)).write_bytes(picture())
    return root


@pytest.mark.one_in(3)
@pytest.mark.parametrize("pattern", ["(?P<x>(a+)+)+$", "(?P<x>(a|a)*)b", "(?P<x>(.*a){25})c"])
def test_a_pattern_that_takes_exponential_time(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsf_datasets._patterns._SECONDS", 1.0)
    root = _images(tmp_path / "images", f"{'a' * 60}!.png")
    sentence = sentence_of(lambda: Folder(path=root, pattern=pattern), 30)
    assert "takes more than 1 s" in sentence
    declaration = tmp_path / "d.toml"
    declaration.write_bytes(_layout(f"pattern = '{pattern}'"))
    read = lambda: Declared(declaration=declaration, path=root)  # noqa: E731
    assert "takes more than 1 s" in sentence_of(read, 30)


@pytest.mark.parametrize(
    "pattern",
    ["(" * 400, "(?P<x>a){99999999999}", "(?P<x>" + "a" * 2000 + ")", "(?P<x>a", "[", "(?P<1>a)",
     "(?:" * 300 + "a" + ")*" * 300, "*", "(?<=a+)(?P<x>b)"],
    ids=range(9),
)  # fmt: skip
def test_patterns_that_are_none(pattern: str, tmp_path: Path) -> None:
    root = _images(tmp_path / "images", "1.png")
    assert "pattern" in sentence_of(lambda: Folder(path=root, pattern=pattern))


def test_a_usual_pattern_is_as_in_python(tmp_path: Path) -> None:
    root = _images(tmp_path / "images", "{}-Müsli2.png")
    data = Folder(path=root, pattern=r"(?<=-)(?P<what>\w+?)(?P<number>\d+)(?P<none>x)?\.png$")
    assert data.metadata == {"what": ("Müsli",) * 2, "number": ("2",) * 2, "none": ("", "")}


def _one_image(folder: Path, content: bytes) -> CsvTable:
    (folder / "i.png").write_bytes(content)
    (folder / "i.csv").write_text("path,label\ni.png,x\n")
    return CsvTable(path=folder / "i.csv")


def test_too_many_pixels_are_no_warning(tmp_path: Path) -> None:
    """In a process of its own, in which pytest makes no error of a warning."""
    _one_image(tmp_path, _png(20_000, 9_000))
    code = (
        "from fsf_datasets import CsvTable\n"
        "from fsframework.errors import DataError\n"
        "try: CsvTable(path='i.csv').image(0)\n"
        "except DataError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "178,956,970 pixels" in done.stdout
    assert done.stderr == ""


def _encoded(image: Image.Image, kind: str, **how: Any) -> bytes:
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
        (_encoded(_FRAMES[0], "GIF", save_all=True, append_images=_FRAMES[1:]), (255, 0, 0)),
        (_encoded(_FRAMES[0], "PNG", save_all=True, append_images=_FRAMES[1:]), (255, 0, 0)),
        (_encoded(_FRAMES[0], "WEBP", save_all=True, append_images=_FRAMES[1:], lossless=True),
         (255, 0, 0)),
        (_encoded(_GREY16, "PNG"), (128, 128, 128)),
        (_encoded(_GREY16, "PPM"), (128, 128, 128)),
        (_encoded(_GREY16, "TIFF"), (128, 128, 128)),
        (_encoded(_PALETTE, "PNG"), (255, 0, 0)),
        (_encoded(_PALETTE, "PNG", transparency=1), (255, 255, 255)),
        (_encoded(_PALETTE, "PNG", transparency=b"\x00\x80"), (255, 127, 127)),
        (_encoded(_PALETTE, "GIF", transparency=1), (255, 255, 255)),
        (_encoded(_FRAMES[0], "PNG", transparency=(255, 0, 0)), (255, 255, 255)),
        (_encoded(Image.new("LA", (4, 4), (0, 0)), "PNG"), (255, 255, 255)),
        (_encoded(Image.new("1", (4, 4), 1), "PNG"), (255, 255, 255)),
        (_encoded(Image.new("L", (4, 4), 7), "BMP"), (7, 7, 7)),
        (_encoded(Image.new("CMYK", (4, 4), (0, 255, 255, 0)), "TIFF"), (255, 0, 0)),
        (_encoded(Image.new("CMYK", (4, 4), (0, 255, 255, 0)), "JPEG", quality=95), (254, 0, 0)),
    ],
    ids=range(16),
)  # fmt: skip
def test_unusual_images_have_the_right_colours(
    content: bytes, colour: tuple[int, int, int], tmp_path: Path
) -> None:
    pixels = _one_image(tmp_path, content).image(0)
    assert pixels.shape == (4, 4, 3)
    assert np.abs(pixels.astype(int) - colour).max() <= 1


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_words_of_every_type_of_text(kind: Any, tmp_path: Path) -> None:
    def typed(*texts: str) -> Any:
        array = pa.array(texts)
        return array.dictionary_encode() if pa.types.is_dictionary(kind) else array.cast(kind)

    path = tmp_path / "key=3" / "a.parquet"
    path.parent.mkdir()  # a folder named like a column adds none
    offsets = pa.array([0, 2, 3], pa.int32())
    words = pa.ListArray.from_arrays(offsets, typed("dog", "sofa", "dog"))
    pq.write_table(pa.table({"key": typed("a", "b"), "words": words}), path)
    table = AttributeTable.load(path)
    assert table.keys == ("a", "b")
    assert [table.words_of(i) for i in range(2)] == [("dog", "sofa"), ("dog",)]
