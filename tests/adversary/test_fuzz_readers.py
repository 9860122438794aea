"""Fuzzing of every reader: damaged and generated files give a value, a broken image or a sentence.

The short runs are the same every time. ``FSF_FUZZ_SECONDS=600 pytest -m slow`` on this file looks
for new failures for so many seconds per reader, with other random numbers each time; what it finds
becomes an example below.
"""

from __future__ import annotations

import json
import os
import secrets
import struct
import time
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.adversary.readers import READERS, Reader
from tests.adversary.watch import fault_of

_SECONDS = float(os.environ.get("FSF_FUZZ_SECONDS", "60"))

# A plugin is a program, which may do anything.
_READERS = [reader for reader in READERS if reader.name != "plugin"]
each_reader = pytest.mark.parametrize("reader", _READERS, ids=lambda reader: reader.name)

_SHORT = settings(
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
_LONG = settings(_SHORT, max_examples=400, derandomize=False)

Change = tuple[str, float, bytes]

_BYTES = st.one_of(
    st.binary(min_size=1, max_size=8),
    st.sampled_from(
        [b"\0" * 8, b"\xff" * 8, b"\xff\xff\xff\x7f", b"\0\0\0\x80", struct.pack("<q", 1 << 40),
         b"[" * 200, b'{"a":' * 200, b"9" * 5000, b"nan", b'"', b",", b"\n", b"\r", b"\t", b";",
         b"null", b"-1", b"1e999", b"true", b"\xed\xa0\x80", b"\xc3\xa9", b"..", b"/", b"(", b")",
         b"2\x86" * 60, b"(lp0\n", b"R.", b"\x85R", b"ccopyreg\n_reconstructor\n"]
    ),
)  # fmt: skip
_CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["overwrite", "insert", "delete", "repeat", "flip", "truncate"]),
        st.floats(0, 1, exclude_max=True),
        _BYTES,
    ),
    min_size=1,
    max_size=6,
)


def _changed(content: bytes, changes: list[Change]) -> bytes:
    """Return the content with changes, each at a place given as a fraction of its length."""
    raw = bytearray(content)
    for how, place, new in changes:
        at = int(place * (len(raw) + 1))
        if how == "overwrite":
            raw[at : at + len(new)] = new
        elif how == "insert":
            raw[at:at] = new
        elif how == "delete":
            del raw[at : at + 8 * len(new)]
        elif how == "repeat":
            raw[at:at] = raw[at : at + 64 * len(new)]
        elif how == "flip" and at < len(raw):
            raw[at] ^= 1 << (new[0] % 8)
        elif how == "truncate":
            del raw[at:]
    return bytes(raw)


def _check(judge: Any, inputs: st.SearchStrategy[Any], examples: int, *, long: bool) -> None:
    """Judge inputs: a few, the same every time, or new ones until the time is over."""
    test = given(inputs)(judge)
    if not long:
        settings(_SHORT, max_examples=examples)(test)()
        return
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        hypothesis.seed(secrets.randbits(64))(_LONG(test))()


short_and_long = pytest.mark.parametrize(
    "long", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["short", "long"]
)


@pytest.mark.one_in(3)
@short_and_long
@each_reader
def test_damaged_files(reader: Reader, long: bool, tmp_path: Path) -> None:
    path = tmp_path / reader.file
    reader.write(path)
    sound = path.read_bytes()

    def judge(changes: list[Change]) -> None:
        path.write_bytes(_changed(sound, changes))
        fault, _ = fault_of(lambda: reader.read(path))
        assert not fault

    _check(judge, _CHANGES, 25, long=long)


# --- generated files -------------------------------------------------------------------------

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=12,
)
_STEP = st.one_of(
    st.sampled_from(
        [b"]", b"}", b")", b"(", b"\x8f", b"0", b"1", b"2", b"a", b"e", b"s", b"u", b"d", b"l",
         b"t", b"\x85", b"\x86", b"\x87", b"\x90", b"\x91", b"R", b"b", b"o", b"\x81", b"\x92",
         b"\x93", b"\x94", b"N", b"\x88", b"\x89", b"Q", b"P1\n", b"h\0", b"q\0", b"g0\n", b"p0\n",
         b"\x97", b"\x98", b"\x82\x01", b"cnumpy\nndarray\n", b"cnumpy\ndtype\n",
         b"cnumpy._core.multiarray\n_reconstruct\n", b"cnumpy._core.multiarray\nscalar\n",
         b"cnumpy._core.numeric\n_frombuffer\n", b"cbuiltins\nset\n", b"cbuiltins\ndict\n",
         b"cbuiltins\nlist\n", b"cbuiltins\ntuple\n", b"cbuiltins\nbytes\n", b"cos\nsystem\n",
         b"ccollections\nOrderedDict\n", b"ccollections\ndefaultdict\n", b"c_codecs\nencode\n",
         b"ibuiltins\nlist\n", b"X\x0a\0\0\0image_data", b"X\x06\0\0\0labels", b"U\x02u1",
         b"X\x0a\0\0\0class_dict", b"X\x06\0\0\0latin1", b"G\x7f\xf8\0\0\0\0\0\0"]
    ),
    st.integers(0, 255).map(lambda n: b"K" + bytes([n])),
    st.integers(-(1 << 31), (1 << 31) - 1).map(lambda n: b"J" + struct.pack("<i", n)),
    st.binary(max_size=300).map(lambda b: b"B" + struct.pack("<I", len(b)) + b),
    st.text(max_size=9).map(lambda t: b"X" + struct.pack("<I", len(t.encode())) + t.encode()),
)  # fmt: skip
_CELL = st.sampled_from(
    ["", "key", "caption", "words", "path", "label", "split", "train", "nan", "a.png", "a;b",
     "../x", "\0", '"', "'", ",", "\n", "\u2028", "\ud7ff", "1_0", "1e999", "-0", "task", "0.5"]
) | st.text(max_size=12)  # fmt: skip
_NAMES = st.sampled_from(
    ["name", "title", "layouts", "kind", "levels", "class", "pattern", "columns", "splits", "train",
     "files", "pixels", "size", "draw", "rotations", "counts", "native_size", "tables", "x"]
)  # fmt: skip


def _toml(value: Any) -> str:
    """Return a value as TOML; whatever TOML does not have becomes a text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (int, float)):
        return str(value)
    return '"' + "".join(c for c in str(value) if c.isalnum() or c in "{}() ") + '"'


_TOML = st.recursive(
    st.booleans()
    | st.integers(-5, 400)
    | st.floats()
    | st.sampled_from(["folders", "tables", "pickles", "{class}", "{x}", "(a)", "box", "train"])
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=20,
)
_DOCUMENT = st.dictionaries(_NAMES, _TOML, max_size=6).map(
    lambda d: "\n".join(f"{k} = {_toml(v)}" for k, v in {"name": "x", "title": "X", **d}.items())
)
_ROWS = st.lists(st.lists(_CELL, max_size=5), max_size=6).map(
    lambda rows: "\n".join(",".join(row) for row in rows)
)


def _of(name: str) -> Reader:
    return next(reader for reader in READERS if reader.name == name)


GENERATED: dict[str, tuple[Reader, st.SearchStrategy[bytes]]] = {
    "pickle": (
        _of("pickle"),
        st.lists(_STEP, max_size=40).map(lambda steps: b"\x80\x04" + b"".join(steps) + b"."),
    ),
    "pickle of images": (
        _of("pickle"),
        st.lists(_STEP, max_size=20).map(
            lambda steps: b"\x80\x04}(X\x0a\0\0\0image_data" + b"".join(steps) + b"u."
        ),
    ),
    "declaration": (_of("declaration"), _DOCUMENT.map(lambda text: text.encode())),
    "split": (_of("split"), _JSON.map(lambda v: _json(v))),
    "record": (_of("record"), _JSON.map(lambda v: _json(v))),
    "captions": (
        _of("captions"),
        st.lists(_JSON.map(lambda v: _json({"key": "a", "caption": v}))).map(b"\n".join),
    ),
    **{
        name: (_of(name), _ROWS.map(lambda text: text.encode("utf-8", "surrogatepass")))
        for name in (
            "captions as CSV",
            "images in a table",
            "attributes as CSV",
            "split as CSV",
            "accuracies as CSV",
            "columns to rank",
            "captions by number",
        )
    },
}


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.one_in(3)
@short_and_long
@pytest.mark.parametrize("name", GENERATED)
def test_generated_files(name: str, long: bool, tmp_path: Path) -> None:
    reader, strategy = GENERATED[name]

    def judge(content: bytes) -> None:
        (tmp_path / reader.file).write_bytes(content)
        fault, _ = fault_of(lambda: reader.read(tmp_path / reader.file))
        assert not fault

    _check(judge, strategy, 60, long=long)


FOUND: tuple[tuple[str, bytes], ...] = (
    ("attributes as CSV", b"key,words\na.png,dog\xc2"),
    ("accuracies as CSV", b"task,a\n0,0.5\xc2"),
    ("configuration of LibFewShot", b"way_num: \xc2"),
    ("images in a table", b"path,label\na.png,\xe2\x82"),
    ("pickle", b"\x80\x02X\x01\0\0\0\xc2."),
    ("weights of other libraries", b"\x80\x04" + b"]" * 99),
)
"""Readers and files that failed once."""


@pytest.mark.parametrize(("name", "content"), FOUND)
def test_what_failed_once(name: str, content: bytes, tmp_path: Path) -> None:
    reader = _of(name)
    (tmp_path / reader.file).write_bytes(content)
    fault, _ = fault_of(lambda: reader.read(tmp_path / reader.file))
    assert not fault
