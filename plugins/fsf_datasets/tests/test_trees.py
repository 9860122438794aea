"""Folders and zip archives, read in the same way."""

from __future__ import annotations

import copy
import io
import os
import unicodedata
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from fsf_datasets import CsvTable, Folder
from fsframework.interfaces import DataError


def png(value: int = 7) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (5, 4), (value, value, value)).save(stream, "png")
    return stream.getvalue()


def archive(file: Path, content: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(file, "w", method) as opened:
        for name, data in content.items():
            opened.writestr(name, data)
    return file


def test_a_folder_data_set_from_an_archive(tmp_path: Path) -> None:
    content = {f"data/{c}/{i}.png": png(i) for c in ("cat10", "cat2") for i in (1, 10, 2)}
    names = ("__MACOSX/data/cat2/._1.png", "data/.DS_Store", "data/cat2/.hidden.png", "data/x.txt")
    extra = {**dict.fromkeys(names, b"x"), "data/empty/": b""}
    file = archive(tmp_path / "data.zip", {**content, **extra})
    data = Folder(path=file)
    with zipfile.ZipFile(file) as opened:
        opened.extractall(tmp_path / "out")
    unpacked = Folder(path=tmp_path / "out")
    assert data.class_names == ("cat2", "cat10")
    assert data.keys == tuple(k for k in unpacked.keys if "MACOSX" not in k)
    assert data.image(1).tolist() == [[[2] * 3] * 5] * 4
    assert data.problems() == ["no image in 'data/empty'"]
    assert Folder(path=file).fingerprint == data.fingerprint
    archive(file, {**content, "data/cat2/1.png": png(99)})
    assert Folder(path=file).fingerprint != data.fingerprint


def test_a_table_of_images_in_an_archive(tmp_path: Path) -> None:
    file = archive(tmp_path / "images.zip", {"a/1.png": png(1)})
    table = tmp_path / "images.csv"
    table.write_text("path,label\na/1.png,cat\na/2.png,dog\n")
    data = CsvTable(path=table, root=file)
    assert data.image(0)[0, 0, 0] == 1
    with pytest.raises(DataError, match=r"row 3: .*images\.zip: a/2\.png: no such file"):
        data.image(1)
    assert data.fingerprint == CsvTable(path=table, root=file).fingerprint


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def test_every_compression_from_many_threads(
    method: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSF_WORKERS", "8")
    content = {f"c/{i:02}.png": png(i) for i in range(60)}
    data = Folder(path=archive(tmp_path / "x.zip", content, method))
    for one in (data, copy.deepcopy(data)):  # copied in the same way as to another process
        assert one.images(range(60), 2)[:, 0, 0, 0].tolist() == list(range(60))


def test_a_file_is_read_completely_if_the_system_returns_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux returns at most 2 GiB less one page at a time."""
    file = archive(tmp_path / "a.zip", {"c/x.png": png(9)}, zipfile.ZIP_STORED)
    file.write_bytes(b"#!/bin/sh\n" + file.read_bytes())  # an archive may begin with other bytes
    given = os.pread
    monkeypatch.setattr(os, "pread", lambda file, count, at: given(file, min(count, 7), at))
    assert Folder(path=file).image(0).tolist() == [[[9] * 3] * 5] * 4


def test_names_that_macos_writes(tmp_path: Path) -> None:
    written = unicodedata.normalize("NFD", "Käse")
    file = archive(tmp_path / "x.zip", {f"{written}/1.png": png()})
    raw = file.read_bytes()
    # Clear bit 11, which marks names as UTF-8, in both headers.
    for header in (b"PK\x03\x04\x14\x00", b"PK\x01\x02\x14\x03\x14\x00"):
        raw = raw.replace(header + b"\x00\x08", header + b"\x00\x00")
    file.write_bytes(raw)
    with zipfile.ZipFile(file) as opened:
        assert not opened.infolist()[0].flag_bits & 0x800
    assert Folder(path=file).class_names == ("Käse",)


class _Unflagged(zipfile.ZipInfo):
    """A member whose name is not marked as UTF-8."""

    def _encodeFilenameFlags(self) -> tuple[bytes, int]:  # noqa: N802
        return self.filename.encode("cp437"), 0


def test_names_that_windows_writes(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as opened:
        for name in ("猫", "狗", "鸟"):
            member = _Unflagged("x")
            member.filename = f"{name}\\1.png".encode("gbk").decode("cp437")
            opened.writestr(member, png())
    data = Folder(path=tmp_path / "x.zip")
    assert len(data.class_names) == 3
    assert [key.rpartition("/")[2] for key in data.keys] == ["1.png"] * 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((f"x.{kind}", "unpack this archive first") for kind in ("tar.gz", "tgz", "TAR")),
        ("x.txt", r"x\.txt: must be a folder or a \.zip archive"),
        ("x.zip", r"x\.zip: not a complete zip archive"),
    ],
)
def test_files_that_are_neither_folder_nor_archive(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(DataError, match=message):
        Folder(path=tmp_path / name)
