from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fsf_datasets import CsvTable
from fsframework.interfaces import DataError

Write = Callable[..., Path]


@pytest.fixture
def table(tmp_path: Path) -> Callable[[str], Path]:
    def write_table(text: str) -> Path:
        file = tmp_path / "images.csv"
        file.write_text(text, encoding="utf-8")
        return file

    return write_table


def test_columns_become_labels_splits_and_metadata(table: Callable[[str], Path]) -> None:
    file = table(
        "\ufeffpath, label ,split,words,site\n"
        "b/1.png,dog,train,grass;sky,north\n"
        '"a,2.png", cat ,valid,"sofa; ""new""",\n'
        "\n"
        "./b//3.png,dog,train,,south\n"
        "4.png,elk,,snow,\n"
    )
    data = CsvTable(path=file)
    assert data.keys == ("b/1.png", "a,2.png", "b/3.png", "4.png")
    assert data.class_names == ("cat", "dog", "elk")
    assert data.labels.tolist() == [1, 0, 1, 2]
    assert data.splits == {"train": ("dog",), "val": ("cat",)}
    assert data.metadata == {
        "words": ("grass;sky", 'sofa; "new"', "", "snow"),
        "site": ("north", "", "south", ""),
    }


def test_other_split_names_are_kept(table: Callable[[str], Path]) -> None:
    data = CsvTable(path=table("path,label,split\n1.png,a,base\n2.png,b,novel\n"))
    assert data.splits == {"base": ("a",), "novel": ("b",)}


def test_without_a_split_column_classes_are_drawn(table: Callable[[str], Path]) -> None:
    rows = "".join(f"{i}.png,class{i % 10}\n" for i in range(20))
    data = CsvTable(path=table("path,label\n" + rows), split_seed=3)
    assert [len(data.splits[split]) for split in ("train", "val", "test")] == [6, 1, 3]
    other = CsvTable(path=data.path, split_seed=4)
    assert other.splits != data.splits
    assert other.fingerprint != data.fingerprint


def test_a_split_file_overrides_the_column(table: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "split.csv").write_text("class,split\na,test\n")
    file = table("path,label,split\n1.png,a,train\n2.png,a,test\n")
    assert CsvTable(path=file, split=tmp_path / "split.csv").splits == {"test": ("a",)}


def test_images_are_read_only_on_request(
    table: Callable[[str], Path], write: Write, tmp_path: Path
) -> None:
    data = CsvTable(path=table("path,label\n\nhere.png,a\ngone.png,b\n"))
    write(tmp_path / "here.png", (1, 2, 3))
    assert data.image(0)[0, 0].tolist() == [1, 2, 3]
    with pytest.raises(DataError, match=r"images\.csv, row 4: .*gone\.png: no such file"):
        data.image(1)
    (tmp_path / "gone.png").write_text("no image")
    with pytest.raises(DataError, match=r"images\.csv, row 4: .*gone\.png: not a readable image"):
        data.images([0, 1], 4)


def test_root_is_where_paths_begin(
    table: Callable[[str], Path], write: Write, tmp_path: Path
) -> None:
    write(tmp_path / "store" / "1.png")
    data = CsvTable(path=table("path,label\n1.png,a\n"), root=tmp_path / "store")
    assert data.image(0).shape == (6, 8, 3)


def test_fingerprint_notes_missing_and_changed_images(
    table: Callable[[str], Path], write: Write, tmp_path: Path
) -> None:
    file = table("path,label\n1.png,a\n2.png,a\n")
    missing = CsvTable(path=file).fingerprint
    assert CsvTable(path=file).fingerprint == missing
    image = write(tmp_path / "1.png")
    os.utime(image, ns=(0, 1_000_000_000))
    there = CsvTable(path=file).fingerprint
    os.utime(image, ns=(0, 1_000_000_001))
    assert len({missing, there, CsvTable(path=file).fingerprint}) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "row 1 must name the columns path and label.*lacks path and label: an empty row"),
        ("path,class\n1.png,a\n", "it lacks label: path, class"),
        ("path;label\n1.png;a\n", "separated by commas; it lacks path and label: path;label"),
        ("path,label,path\n", "row 1 names the column 'path' twice"),
        ("path,label,\n1.png,a,x\n", "column 3 has no name in row 1"),
        ("path,label\n", "has no rows below its header"),
        ("path,label\n1.png,a\n2.png,\n,b\n", "row 3 has no label; row 4 has no path"),
        ("path,label,site\n,,x\n", "row 2 has no path and no label"),
        ("path,label\n1.png,a\n2.png,NaN\n", "row 3 has 'NaN' for its label, which stands for a"),
        ("path,label\n1.png,a\n<NA>,b\n", "row 3 has '<NA>' for its path, which stands for a"),
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
    ],
)
def test_wrong_tables(table: Callable[[str], Path], text: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        CsvTable(path=table(text))
    assert "images.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_many_faults_are_counted(table: Callable[[str], Path]) -> None:
    with pytest.raises(DataError, match="row 4 has no label and 6 more$"):
        CsvTable(path=table("path,label\n" + "".join(f"{i}.png,\n" for i in range(9))))


def test_rows_with_line_breaks_count_once(table: Callable[[str], Path]) -> None:
    with pytest.raises(DataError, match="row 3 has no label"):
        CsvTable(path=table('path,label,note\n1.png,a,"two\nlines"\n2.png,,x\n'))


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.csv: cannot be read \(No such file"):
        CsvTable(path=tmp_path / "gone.csv")
    (tmp_path / "latin.csv").write_bytes(b"path,label\n1.png,K\xe4se\n")
    with pytest.raises(DataError, match=r"latin\.csv: .*is not UTF-8 text"):
        CsvTable(path=tmp_path / "latin.csv")
