from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsf_datasets import CsvTable
from fsframework.interfaces import DataError

Images = Callable[..., Path]
Read = Callable[..., CsvTable]


@pytest.fixture
def read(root: Path) -> Read:
    """Read a table of this text, written next to its images."""

    def read_table(text: str, **options: Any) -> CsvTable:
        root.mkdir(exist_ok=True)
        (root / "images.csv").write_text(text, encoding="utf-8")
        return CsvTable(path=root / "images.csv", **options)

    return read_table


def test_columns_become_labels_splits_and_metadata(read: Read) -> None:
    data = read(
        "\ufeffpath, label ,split,words,site\n"
        "b/1.png,dog,train,grass;sky,north\n"
        '"a,2.png", cat ,valid,"sofa; ""new""",\n'
        "\n"
        "./b//3.png,dog,train,,south\n"
        "4.png,elk,,snow,\n"
    )
    assert data.keys == ("b/1.png", "a,2.png", "b/3.png", "4.png")
    assert data.class_names == ("cat", "dog", "elk")
    assert data.labels.tolist() == [1, 0, 1, 2]
    assert data.splits == {"train": ("dog",), "val": ("cat",)}
    assert data.metadata == {
        "words": ("grass;sky", 'sofa; "new"', "", "snow"),
        "site": ("north", "", "south", ""),
    }


def test_where_splits_come_from(read: Read, tmp_path: Path) -> None:
    named = read("path,label,split\n1.png,a,base\n2.png,b,novel\n")
    assert named.splits == {"base": ("a",), "novel": ("b",)}
    drawn = read("path,label\n" + "".join(f"{i}.png,class{i % 10}\n" for i in range(20)))
    assert [len(drawn.splits[split]) for split in ("train", "val", "test")] == [6, 1, 3]
    other = CsvTable(path=drawn.path, split_seed=4)
    assert other.splits != drawn.splits
    assert other.fingerprint != drawn.fingerprint
    (tmp_path / "split.csv").write_text("class,split\na,test\n")
    text = "path,label,split\n1.png,a,train\n2.png,a,test\n"
    assert read(text, split=tmp_path / "split.csv").splits == {"test": ("a",)}


def test_images_are_read_on_request_from_a_root(read: Read, images: Images, tmp_path: Path) -> None:
    text = "path,label\n\nhere.png,a\ngone.png,b\n"
    data = read(text)
    images("here.png", colour=(1, 2, 3))
    assert data.image(0)[0, 0].tolist() == [1, 2, 3]
    with pytest.raises(DataError, match=r"images\.csv, row 4: .*gone\.png: no such file"):
        data.image(1)
    (data.path.parent / "gone.png").write_text("no image")
    with pytest.raises(DataError, match=r"images\.csv, row 4: .*gone\.png: not a readable image"):
        data.images([0, 1], 4)
    (tmp_path / "images.csv").write_text(text)
    elsewhere = CsvTable(path=tmp_path / "images.csv", root=data.path.parent)
    assert elsewhere.image(0).shape == (6, 8, 3)


def test_fingerprint_notes_missing_and_changed_images(read: Read, images: Images) -> None:
    data = read("path,label\n1.png,a\n2.png,a\n")
    assert CsvTable(path=data.path).fingerprint == data.fingerprint
    seen = {data.fingerprint}
    image = images("1.png") / "1.png"
    for nanoseconds in (0, 1):
        os.utime(image, ns=(0, 1_000_000_000 + nanoseconds))
        seen.add(CsvTable(path=data.path).fingerprint)
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "row 1 must name the columns path and label.*an empty row"),
        ("path,kind\n1.png,a\n", "it lacks label: path, kind"),
        ("file,image,label\n1.png,1,a\n", "it lacks path: file, image, label"),
        ("path;label\n1.png;a\n", "separated by commas; it lacks path and label: path;label"),
        ("path,label,path\n", "row 1 names the column 'path' twice"),
        ("path,label,\n1.png,a,x\n", "column 3 has no name in row 1"),
        ("path,label\n", "has no rows"),
        ("path,label\n1.png,a\n2.png,\n,b\n", "row 3 has no label; row 4 has no path"),
        ("path,label,site\n,,x\n", "row 2 has no path and no label"),
        ("path,label\n1.png,a\n<NA>,b\n", "row 3 has '<NA>' for its path"),
        ("path,label\n1.png,a,b\n", "row 2 has 3 cells but the header has 2"),
        ("path,label\n1.png\n", "row 2 has 1 cells but the header has 2"),
        (
            "path,label\n1.png,a\n2.png,a\n\n./1.png,b\n2.png,a\n",
            r"'1\.png' is in rows 2 and 5; '2\.png' is in rows 3 and 6",
        ),
        (
            "path,label,split\n1.png,a,train\n2.png,b,test\n3.png,a,test\n4.png,b,\n",
            "'a' is in 'train' in row 2 but in 'test' in row 4; 'b' is in 'test' in row 3 but in",
        ),
        ('path,label\n"1.png,a\n', "not a CSV file"),
        ("path,label\n" + "".join(f"{i}.png,\n" for i in range(9)), "row 4 .* and 6 more$"),
        ('path,label,note\n1.png,a,"two\nlines"\n2.png,,x\n', "row 3 has no label"),
    ],
)
def test_wrong_tables(read: Read, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(text)
    assert "images.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes(b"path,label\n1.png,K\xe4se\n")
    for name, message in (("gone", "cannot be read"), ("latin", ".*is not UTF-8 text")):
        with pytest.raises(DataError, match=rf"{name}\.csv: {message}"):
            CsvTable(path=tmp_path / f"{name}.csv")
