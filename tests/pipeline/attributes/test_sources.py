"""Attributes from CSV, Parquet and metadata columns, and what is said of broken ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fsframework.errors import DataError, OptionError
from fsframework.pipeline.attributes.sources import attach_attributes, read_attributes
from fsframework.values import AttributeTable, ImagePool


@pytest.fixture
def pool() -> ImagePool:
    metadata = {"texture": ("oven", "dog;cat", ""), "words": ("a", "b; a", "")}
    return ImagePool(("x.png", "ÿ.png", "z.png"), np.array([0, 0, 1]), ("k", "l"), metadata)


def words(pool: ImagePool) -> list[tuple[str, ...]]:
    assert pool.attributes is not None
    return [pool.attributes.words_of(i) for i in range(len(pool))]


def test_the_words_column_is_the_default(pool: ImagePool) -> None:
    assert words(attach_attributes(pool, None)) == [("a",), ("a", "b"), ()]


def test_a_metadata_column_by_name(pool: ImagePool) -> None:
    assert words(attach_attributes(pool, "column:texture")) == [("oven",), ("cat", "dog"), ()]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_in_any_order_with_keys_of_other_images(
    pool: ImagePool, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"words.{suffix}"
    if suffix == "csv":
        path.write_text("words,key\nred ;;green,ÿ.png\nblue,other.png\nred,x.png\n", "utf-8-sig")
    else:
        keys = ("ÿ.png", "other.png", "x.png")
        AttributeTable.from_words(keys, [{"red", "green"}, {"blue"}, {"red"}]).save(path)
    assert words(attach_attributes(pool, str(path))) == [("red",), ("green", "red"), ()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("key\nx.png\n", "row 1 lacks the column words"),
        ("a,b\n1,2\n", "row 1 lacks the column key and words"),
        ("", "row 1 lacks the column key and words"),
        ("key,words\nx.png,a\nx.png,b\n", r"rows 2 and 3 have the same key 'x\.png'"),
        ("key,words\nx.png,a\n,b\n", "row 3 has no key"),
        ("key,words\nx.png\n", "row 2 does not have as many cells as row 1"),
        ("key,words\nx.png,a,b\n", "row 2 does not have as many cells as row 1"),
        ("key,words\nother.png,a\n", "none of the attribute table's 1 keys belongs to an image"),
        ("key,words\nx.png,\n", "no image has any attribute"),
    ],
)
def test_a_broken_csv_names_its_row(
    pool: ImagePool, tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "words.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        attach_attributes(pool, str(path))


def test_sources_that_are_not_there(pool: ImagePool, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such column \(did you mean 'texture'\?\)"):
        attach_attributes(pool, "column:textur")
    with pytest.raises(DataError, match="no such file"):
        attach_attributes(pool, str(tmp_path / "no.csv"))
    with pytest.raises(DataError, match="no such file"):
        attach_attributes(pool, str(tmp_path / "no.parquet"))
    with pytest.raises(OptionError, match=r"must end in \.csv or \.parquet"):
        read_attributes(tmp_path / "words.txt")
    bare = ImagePool(("x",), np.array([0]), ("k",))
    with pytest.raises(DataError, match="has no attributes; detect them with detector="):
        attach_attributes(bare, None)


def test_binary_rubbish_is_not_a_table(pool: ImagePool, tmp_path: Path) -> None:
    for name in ("words.csv", "words.parquet"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00rubbish")
        with pytest.raises(DataError, match="is not UTF-8 text|not a Parquet file"):
            attach_attributes(pool, str(tmp_path / name))
