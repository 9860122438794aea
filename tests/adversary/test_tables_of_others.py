"""Tables that people and other programs write: Unicode forms, missing values, lists, separators."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsframework as fsf
from fsframework.engine.names import told_names
from fsframework.engine.options import Settings
from fsframework.errors import DataError
from fsframework.values import AttributeTable, ImagePool, WordReader
from tests.conftest import Fsf
from tests.toys import image_folder

CLASSES = ("Café", "naïf", "brûlé")


def decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


def write_words(path: Path, rows: dict[str, str]) -> Path:
    path.write_text("\n".join(["key,words", *(f'{k},"{v}"' for k, v in rows.items())]))
    return path


@pytest.fixture
def images(tmp_path: Path) -> dict[str, Any]:
    return {"name": "folder", "path": image_folder(tmp_path / "images", CLASSES)}


@pytest.mark.parametrize("form", ["csv", "parquet", "captions", "metadata"])
def test_keys_and_words_are_joined_in_one_unicode_form(
    tmp_path: Path, images: dict[str, Any], form: str
) -> None:
    keys = [f"{name}/{i}.png" for name in CLASSES for i in range(4)]
    words = ["crème", "grass"] * 6
    mixed = [decomposed(key) if i % 3 else key for i, key in enumerate(keys)]
    spelt = [decomposed(word) if i % 4 else word for i, word in enumerate(words)]
    source: dict[str, Any] = {"attributes": tmp_path / "w.csv"}
    if form == "csv":
        write_words(tmp_path / "w.csv", dict(zip(mixed, spelt, strict=True)))
    elif form == "parquet":
        source = {"attributes": tmp_path / "w.parquet"}
        table = pa.table({"key": mixed, "words": [[word] for word in spelt]})
        pq.write_table(table, tmp_path / "w.parquet")
    elif form == "captions":
        rows = [f"{key}#0\t{word}" for key, word in zip(mixed, spelt, strict=True)]
        (tmp_path / "c.token").write_text("\n".join(rows))
        detector = {"name": "captions-file", "path": tmp_path / "c.token", "selector": "tags"}
        source = {"detector": detector, "progress": False}
    else:
        rows = [
            f"images/{key},{key.split('/')[0]},{word}"
            for key, word in zip(mixed, spelt, strict=True)
        ]
        header = f"path,label,{decomposed('décor')}"
        (tmp_path / "t.csv").write_text("\n".join([header, *rows]))
        images = {"name": "csv", "path": tmp_path / "t.csv"}
        source = {"attributes": "column:décor"}
    pool = fsf.pool(images, split="all", drop_words=["CRÈME"], **source)
    assert pool.class_names == tuple(sorted(CLASSES))
    assert pool.attributes is not None
    assert pool.attributes.words == ("grass",)
    assert int(pool.attributes.words_per_image().sum()) == 6
    assert fsf.dataset(images).image(11).shape == (16, 16, 3)


def test_identity_is_that_of_the_composed_form(images: dict[str, Any]) -> None:
    plain = ImagePool(["é", "b"], [0, 1], ("ü", "v"), {"ö": ("ä", "x")})
    apart = ImagePool(*([decomposed("é"), "b"], [0, 1], (decomposed("ü"), "v")),
                      {decomposed("ö"): (decomposed("ä"), "x")})  # fmt: skip
    assert plain.fingerprint == apart.fingerprint
    assert apart.keys[0] == "é"


@pytest.mark.parametrize("what", ["keys", "class_names", "metadata", "table"])
def test_two_names_that_differ_in_their_form_only_are_named(what: str) -> None:
    both = ["é", decomposed("é")]
    values = {"keys": ["a", "b"], "labels": [0, 1], "class_names": ("c", "d"), what: both}
    if what == "metadata":
        values[what] = dict.fromkeys(both, ("x", "y"))
    with pytest.raises(DataError, match=r"'\\xe9'.*'e\\u0301'"):  # noqa: PT012
        if what == "table":
            AttributeTable.from_words(both, [["x"], ["y"]])
        else:
            ImagePool(**values)


def test_names_of_classes_in_a_file_are_found_in_either_form(tmp_path: Path) -> None:
    rows = [f"{decomposed(name)},{name.upper()}" for name in CLASSES]
    (tmp_path / "names.csv").write_text("\n".join(["class,name", *rows]))
    pool = ImagePool("abc", np.arange(3), CLASSES)
    names = told_names(pool, Settings(class_names=str(tmp_path / "names.csv")), pool.class_names)
    assert names == ("CAFÉ", "NAÏF", "BRÛLÉ")


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("Grass; grass ;SKY", ["grass", "grass", "sky"]),
        *((cell, ["grass", "stop sign"]) for cell in (
            "['grass', 'stop sign']",
            '["grass", "stop sign"]',
            "['grass' 'stop sign']",
            "('grass', 'stop sign')",
            "[grass, stop sign]",
            "{grass,\"stop sign\"}",
            "array(['grass', 'stop sign'], dtype='<U9')",
            "[np.str_('grass'), np.str_('stop sign')]",
            "'grass'; “stop sign”",
            *('c("grass", "stop sign")', 'list("grass","stop sign")', ' "grass;stop sign"'),
            *("grass\tstop sign", "grass\nstop sign", "grass；stop sign"),
            "gra\u200bss;stop sign\0",
            *("grass;&#115;top sign", "grass;\\N;stop sign;#N/A N/A"),
            "grass;character(0);stop sign",
            "['grass', None, nan, 'stop sign']",
        )),
        (r'["caf\u00e9", "man\'s"]'.replace("\\'", "'"), ["café", "man's"]),
        ("frozenset({'sea'})", ["sea"]),
        *((cell, []) for cell in (
            "", "NA", "nan", "NaN", "null", "None", "N/A", "<NA>", "#N/A", "-", "[]", "set()",
            "[None]",
        )),
        ("'NA'", ["na"]),
        ("t-shirt; (blue) car", ["t-shirt", "(blue) car"]),
        ("['Portland, OR']", ["portland, or"]),
    ],
)  # fmt: skip
def test_words_are_read_as_programs_write_them(cell: str, words: list[str]) -> None:
    assert WordReader().words(cell) == words
    lists = WordReader().lists(pa.array([cell])).to_pylist()
    assert [word for word in lists[0] if word] == words


def test_what_is_not_taken_as_written_is_said(fsf: Fsf, tmp_path: Path) -> None:
    image_folder(tmp_path / "images", "abc", each=4)
    cells = ["NA", "Grass", "grass", "sky"]
    write_words(tmp_path / "w.csv", {f"{c}/{i}.png": cells[i] for c in "abc" for i in range(4)})
    shape = ("--way", "2", "--shot", "1", "--queries", "1", "--tasks", "2", "--sampler", "random")
    data = ("--dataset", "folder:images", "--split", "all", "--attributes", "w.csv")
    done = fsf("tasks", "make", "t.safetensors", *shape, *data)
    assert done.returncode == 0, done.stderr
    assert "3 cells have 'NA'" in done.stderr
    assert "'Grass'" in done.stderr


@pytest.mark.parametrize(
    "cell",
    [
        *(
            "grass (0.93)",
            "grass 0.93",
            "grass:0.9",
            "grass=0.9",
            "grass:noun",
            "1. grass",
            "- grass",
        ),
        *("(grass)", '="grass;sky"', "'grass;sky", '[{"label": "grass"}]', "…"),
    ],
)
def test_what_is_no_word_is_refused(cell: str) -> None:
    with pytest.raises(DataError, match="cell"):
        WordReader().lists(pa.array([cell]))
    assert WordReader().words(f"'{cell}'" if ";" not in cell else "'grass'")


def test_items_of_lists_may_be_several_words() -> None:
    cells = pa.array([["grass;sky"], ["sea"]])
    assert WordReader().lists(cells).to_pylist() == [["grass", "sky"], ["sea"]]


@pytest.mark.parametrize(
    ("cells", "advice"),
    [
        (["grass, sea", "sand, sky"], "'grass;sea'"),
        (["grass", "grass, sea"], "'grass;sea'"),
        (["grass;sky", "sea", "grass, sea"], "'grass;sea'"),
        (["grass|sea", "sand|sky"], "'grass;sea'"),
        (['{""grass"": 0.9}', "sea"], "';'"),
    ],
)
def test_other_separators_are_refused_with_advice_that_works(
    tmp_path: Path, cells: list[str], advice: str
) -> None:
    path = write_words(tmp_path / "w.csv", {str(i): cell for i, cell in enumerate(cells)})
    with pytest.raises(DataError, match=advice):
        fsf.attributes(path)
    followed = {str(i): cell.replace(", ", ";").replace("|", ";") for i, cell in enumerate(cells)}
    if "0.9" not in cells[0]:
        words = fsf.attributes(write_words(path, followed)).words
        assert not any(mark in word for word in words for mark in ",|;")


def test_a_word_with_a_comma_stands_in_quotes(tmp_path: Path) -> None:
    path = write_words(tmp_path / "w.csv", {"a": "'Portland, OR'", "b": "'Salem, OR'"})
    assert fsf.attributes(path).words == ("portland, or", "salem, or")
