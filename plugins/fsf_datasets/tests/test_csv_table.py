from __future__ import annotations

import gzip
import json
import os
import shutil
import unicodedata
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
    spelt = read("Path,label,Split,WORDS\n1.png,a,Train,x\n2.png,b,training,\n3.png,c,TEST,\n")
    assert spelt.splits == {"train": ("a", "b"), "test": ("c",)}
    assert [*spelt.metadata] == ["words"]
    with pytest.raises(DataError, match="column split twice"):
        read("path,label,Split,split\n1.png,a,train,test\n")
    drawn = read("path,label\n" + "".join(f"{i}.png,class{i % 10}\n" for i in range(20)))
    assert [len(drawn.splits[split]) for split in ("train", "val", "test")] == [6, 1, 3]
    other = CsvTable(path=drawn.path, split_seed=4)
    assert other.splits != drawn.splits
    assert other.fingerprint != drawn.fingerprint
    (tmp_path / "split.csv").write_text("class,split\na,test\n")
    text = "path,label,split\n1.png,a,train\n2.png,a,test\n"
    assert read(text, split=tmp_path / "split.csv").splits == {"test": ("a",)}


@pytest.mark.parametrize(
    "spelling",
    ["{root}/a/1.png", "b/../a/1.png", "a\\1.png", "file://{root}/a/%31.png", "link/1.png",
     "A/../a/1.png"],
)  # fmt: skip
def test_one_file_in_two_spellings_is_refused(images: Images, root: Path, spelling: str) -> None:
    images("a/1.png", "a/2.png", "b/1.png", "A/1.png")
    (root / "link").symlink_to("a")
    table = root / "t.csv"
    other = spelling.format(root=root)
    table.write_text(f"path,label\na/1.png,x\n./b/../b/1.png,y\n{other},y\n")
    with pytest.raises(DataError, match="rows 2 and 4"):
        CsvTable(path=table)
    if "\\" in spelling:
        shutil.make_archive(str(root), "zip", root)
        with pytest.raises(DataError, match="rows 2 and 4"):
            CsvTable(path=table, root=root.with_suffix(".zip"))
    table.write_text(f"path,label\na/2.png,x\n{other},y\n")
    assert CsvTable(path=table).image(1).shape == (6, 8, 3)


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


@pytest.mark.parametrize(
    "written",
    [
        "im\\{c}\\0.png",
        "C:\\Users\\me\\im\\{c}\\0.png",
        "D:/birds/im/{c}/0.png",
        "\\\\server\\share\\im\\{c}\\0.png",
        "/home/another/im/{c}/0.png",
        "file://{root}/im/{c}/0.png",
        "IM/{c}/0.PNG",
    ],
)
@pytest.mark.parametrize("composed", [False, True])
def test_paths_of_other_systems(
    read: Read, images: Images, root: Path, written: str, composed: bool
) -> None:
    images("im/a/0.png", "im/b/0.png", "im/Mü/0.png")
    names = [unicodedata.normalize("NFC" if composed else "NFD", c) for c in ("a", "b", "Mü")]
    rows = [f"{written.format(c=c, root=root)},{c}\n" for c in names]
    data = read("path,label\n" + "".join(rows))
    assert data.class_names == ("Mü", "a", "b")
    assert data.images(range(3), 4).shape == (3, 4, 4, 3)
    twice = read("path,label\n" + rows[0] + rows[1].replace("b/", "x/"))
    assert twice.fingerprint != data.fingerprint
    if not written.startswith("file:"):
        with pytest.raises(DataError, match="rows 2 and 5; each path must appear once"):
            read("path,label\n" + "".join(rows) + "im/a/0.png,a\n")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("https://example.org/a.png,a", "row 2 has 'https://example.org/a.png'"),
        ("C:\\x\\a.png,a", "row 2 has 'C:.*option root"),
        ("a.png,a\0", "row 2 has 'a.x00' for its label, which has a control character"),
        ('a.png,"a\nb"', "row 2 has .* for its label, which has a control character"),
        ("a\0.png,a", "row 2 has .* for its path, which has a control character"),
        ("a.png,nan", "row 2 has 'nan' for its label, which stands for a missing value"),
        (f"a.png,{'x' * 501}", "row 2 has .* for its label, which has 501 characters"),
    ],
)
def test_paths_and_labels_that_are_none(read: Read, row: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(f"path,label\n{row}\n")


@pytest.mark.parametrize(
    "text",
    [",path,label\n0,im/0.png,a\n1,im/1.png,b\n", "path, label\nim/0.png, a\nim/1.png, b\n",
     "path,label\rim/0.png,a\rim/1.png,b\r", "Filename,Class\nim/0.png,a\nim/1.png,b\n",
     'image,label\n"im/0.png",a\n"im/1.png",b\n'],
)  # fmt: skip
def test_tables_that_other_programs_write(read: Read, images: Images, text: str) -> None:
    images("im/0.png", "im/1.png")
    data = read(text)
    assert (data.class_names, data.metadata) == (("a", "b"), {})
    assert data.images([0, 1], 4).shape == (2, 4, 4, 3)


def test_labels_that_look_like_numbers_or_nothing_are_names(read: Read) -> None:
    labels = ("-1", "001", "1", "1.0", "NA", "None", "null", "x")
    rows = "".join(f"{i}.png,{label}\n" for i, label in enumerate(labels))
    assert read(f"path,label\n{rows}").class_names == labels


def test_a_line_end_in_a_file_name(read: Read, images: Images) -> None:
    images("l\nn.png")
    assert read('path,label\n"l\nn.png",a\n').image(0).shape == (6, 8, 3)


def test_file_lists_of_closer_look(images: Images, root: Path) -> None:
    names = ["a", "b", "c"]
    images(*(f"CUB/{name}/{i}.png" for name in names for i in range(2)))
    for stem, name in zip(("base", "val", "novel"), names, strict=True):
        listed = [f"/home/another/CUB/{name}/{i}.png" for i in range(2)]
        content = {
            "label_names": names,
            "image_names": listed,
            "image_labels": [names.index(name)] * 2,
        }
        (root / f"{stem}.json").write_text(json.dumps(content))
    data = CsvTable(path=root / "base.json")
    assert data.splits == {"train": ("a",), "val": ("b",), "test": ("c",)}
    assert data.images(range(6), 4).shape == (6, 4, 4, 3)
    for content in ("{}", '{"label_names": [], "image_names": ["x"], "image_labels": [0]}'):
        (root / "other.json").write_text(content)
        with pytest.raises(DataError, match=r"other\.json: .*label_names"):
            CsvTable(path=root / "other.json")
    content = {"label_names": ["a", "b", "a"], "image_names": ["x", "y"], "image_labels": [0, 2]}
    (root / "other.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"other\.json: label_names .*'a'"):
        CsvTable(path=root / "other.json")


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes(b"path,label\n1.png,K\xe4se\n")
    (tmp_path / "utf16.csv").write_bytes("path,label\n1.png,a\n".encode("utf-16"))
    (tmp_path / "book.csv").write_bytes(b"PK\3\4")
    (tmp_path / "gz.csv").write_bytes(gzip.compress(b"path,label\n"))
    cell = '"' + "x" * 200_000 + '"'
    (tmp_path / "long.csv").write_text(f"path,label,note\n1.png,a,\n2.png,b,{cell}\n")
    messages = {
        "long": ".*line 3 has a cell",
        "gone": "cannot be read",
        "latin": ".*is not UTF-8 text",
        "utf16": "is UTF-16 text.*CSV in UTF-8",
        "book": "is an Excel workbook",
        "gz": "is compressed",
    }
    for name, message in messages.items():
        with pytest.raises(DataError, match=rf"{name}\.csv: {message}"):
            CsvTable(path=tmp_path / f"{name}.csv")
