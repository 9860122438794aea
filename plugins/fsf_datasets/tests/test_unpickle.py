"""The unpickler that allows only arrays and plain containers."""

from __future__ import annotations

import collections
import io
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsf_datasets._unpickle import Extent, StoredArray, read_pickle
from fsframework.interfaces import DataError


def read(content: bytes, leave: bool = False) -> Any:
    return read_pickle(io.BytesIO(content), "x.pkl", leave=leave)


def reader(content: bytes) -> Callable[[int, int], bytes]:
    return lambda start, size: content[start : start + size]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("leave", [False, True])
def test_arrays_of_every_protocol(protocol: int, leave: bool) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "images": rng.integers(0, 256, (40, 30, 20, 3), np.uint8),
        "small": np.arange(5, dtype=">i4"),
        "fortran": np.asfortranarray(rng.random((6, 70))),
        "scalar": np.float64(0.5),
        "empty": np.zeros((0, 3), np.int64),
    }
    many = [rng.integers(0, 256, 300 + i, np.uint8) for i in range(9)]
    plain = {"a": [1, 2.5, None, True], "b": ("x", b"y", {"z"}), "c": frozenset([3]), 5: 10**30}
    content = pickle.dumps([arrays, many, plain], protocol=protocol)
    found, found_many, found_plain = read(content, leave)
    whole = reader(content)
    assert found.pop("scalar") == arrays.pop("scalar")
    for name, array in arrays.items():
        assert found[name].numpy(whole).dtype == array.dtype
        assert np.array_equal(found[name].numpy(whole), array), name
    for stored, array in zip(found_many, many, strict=True):
        assert np.array_equal(stored.numpy(whole), array)
    assert found_plain == plain
    assert isinstance(found["images"].data, Extent) == (leave and protocol >= 3)


def test_arrays_of_python_2() -> None:
    # Written by Python 2's cPickle, protocol 2: strings are bytes, and so are pixels.
    pixels = np.arange(256 * 3, dtype=np.uint32).astype(np.uint8)
    short = b"U" + bytes([2]) + b"u1"
    content = (
        b"\x80\x02}q\x00U\x0aimage_dataq\x01"
        b"cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03"
        b"K\x00\x85q\x04U\x01bq\x05\x87q\x06Rq\x07(K\x01M" + struct.pack("<H", 256) + b"K\x03\x86"
        b"cnumpy\ndtype\nq\x08" + short + b"K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89T" + struct.pack("<i", 768) + pixels.tobytes() + b"tbs."
    )
    for leave in (False, True):
        found = read(content, leave)["image_data"]
        assert isinstance(found, StoredArray)
        assert np.array_equal(found.numpy(reader(content)), pixels.reshape(256, 3))


class _Command:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch hacked",)


class _Own:
    pass


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (_Command(), r"posix\.system|nt\.system"),
        (_Own(), r"_Own|copyreg\._reconstructor|copy_reg\._reconstructor"),
        (slice(1), r"slice"),
        (np.random.default_rng(0).bit_generator, r"numpy\.random"),
        (np.ma.masked_array([1]), r"numpy\.ma"),
        (collections.Counter("a"), r"collections\.Counter"),
        (eval, r"eval"),
    ],
    ids=["command", "own-class", "slice", "generator", "masked-array", "counter", "built-in"],
)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_anything_else_is_refused_by_name(
    value: Any, named: str, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        DataError, match=rf"x\.pkl: this pickle is not read: it asks for .*({named})"
    ):
        read(pickle.dumps({"data": value}, protocol=protocol))
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cbuiltins\ndict\n(dS'a'\nI1\nsb.",  # attributes of the class dict
        b"\x80\x02]q\x00}q\x01b.",  # attributes of a list
        b"cnumpy\ndtype\n(S'V8'\ntR.",
        b"cnumpy\ndtype\n(S'M8[ns]'\ntR.",
        b"\x80\x02P1\n.",
        b"\x80\x02K\x01Q.",
        b"\x80\x02\x82\x01.",
        b"cbuiltins\nbytes\n(I99999999999999\ntR.",
    ],
)
def test_tricks_are_refused(content: bytes) -> None:
    with pytest.raises(DataError, match=r"^x\.pkl: "):
        read(content)
