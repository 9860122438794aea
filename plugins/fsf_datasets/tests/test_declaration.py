"""Declarations: what they may contain, and a user's own."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fsf_datasets import Declared, declared
from fsf_datasets._declaration import read_declaration
from fsframework.components.conversion import parameters
from fsframework.interfaces import DataError

Images = Callable[..., Path]
LEAST = 'name = "mine"\ntitle = "Mine"\n'
FOLDERS = '[[layouts]]\nkind = "folders"\n'


def write(folder: Path, text: str) -> Path:
    file = folder / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "not TOML"),
        ('title = "x"', "name is missing"),
        ('name = "No Good"\ntitle = "x"', "name must be .*not 'No Good'"),
        ('name = "x"', "title is missing; it must be a string"),
    ],
)
def test_a_declaration_needs_a_name_and_a_title(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"mine\.toml: .*{message}"):
        read_declaration(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('licens = "MIT"', r"licens is unknown \(did you mean licence\?\)"),
        ("licence = 3", "licence must be a string, not 3"),
        ('images_from = "imagenet-1k"', "images_from must be a list of strings, not 'imag"),
        ("native_size = 0", "native_size must be an integer of at least 1, not 0"),
        ("[pixels]\nsize = true", r"pixels\.size must be an integer .*not True"),
        ('[pixels]\ninterpolation = "best"', r"interpolation must be nearest, box,.*'best'"),
        ("layouts = []", r"layouts must be a list of tables, not \[\]"),
        ('[[layouts]]\nkind = "tar"', "layouts 1: kind must be folders, tables, pickles or"),
        ('[[layouts]]\nkind = "tables"', "layouts 1: tables is missing"),
        (FOLDERS + 'tables = ["a"]', "layouts 1: tables is unknown"),
        (FOLDERS + FOLDERS, "layouts has 'folders' twice"),
        (FOLDERS + 'class = "{species}"', r"1: class contains \{species\}; .*: class"),
        (FOLDERS + 'class = "same"', "1: class must contain a level in braces, not 'same'"),
        (FOLDERS + 'pattern = "("', "1: pattern must be a regular expression"),
        (FOLDERS + "lists = { part = { train = 3 } }", r"lists\.part: train must be a string"),
        (FOLDERS + 'skip = "*.png"', "layouts 1: skip must be a list of strings"),
        (FOLDERS + "merged = true", "layouts 1: merged needs a level or group called context"),
        ('[[layouts]]\nkind = "tables"\ntables = ["a.csv"]\njoin = { x = [] }', r"join\.x must be"),
        ('[[layouts]]\nkind = "pickles"\nfiles = { base = ["a"] }', r"1: files\.base must be one"),
        ("[splits]\nx = 3", r"splits\.x must be a table, not 3"),
        ("[splits.x]", r"splits\.x must have exactly one of: classes under train"),
        ('[splits.x]\ntest = ["a"]\ndraw = [0, 0, 1]', r"splits\.x must have exactly one"),
        ("[splits.x]\ndraw = [1, 2]", "draw must be three numbers of classes"),
        ('[splits.x]\ntest = "a"', "test must be a list of classes or a table"),
        ('[splits.x]\ntrain = ["a"]\ntest = ["a"]', "the class 'a' is in 'train' and"),
        ('[splits.x]\ntest = ["a"]\nrotations = [45]', "rotations must be a list of 0, 90"),
        ('[splits.x]\ntest = ["a"]\nwhere = { part = 1 }', "where must be a table of strings"),
        ('[splits.x]\ntest = ["a"]\ncontexts = { sun = -1 }', "contexts must be a table of num"),
        ('[splits.x]\ntest = ["a"]\ncounts = { test = 3 }', r"counts\.test must be .*, not 3"),
    ],
)
def test_wrong_declarations_name_file_and_key(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"mine\.toml: .*{message}") as caught:
        read_declaration(write(tmp_path, LEAST + text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.json", None, "cannot be read"),
        ("a.json", b"{", "not JSON"),
        ("a.json", b"[]", "must contain"),
        ("a.json", b'{"test": "cat"}', "must contain"),
        ("a.json", b'{"base": ["cat"]}', "must contain only train, val and test, not 'base'"),
        ("a.json", b'{"test": ["cat"], "val": ["cat"]}', "the class 'cat' is in"),
        ("a.json", b'{"test": ["cat"], "files": {"cat": 3}}', "files must contain"),
        ("a.json.xz", b"{}", "not JSON"),
    ],
)
def test_wrong_split_files(
    name: str, content: bytes | None, message: str, tmp_path: Path, images: Images
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    file = write(tmp_path, LEAST + f'[splits.x]\nfile = "{name}"')
    with pytest.raises(DataError, match=rf"{name}: {message}"):
        Declared(declaration=file, path=images("cat/1.png"))


def test_the_minimal_declaration_means_a_folder_per_class(tmp_path: Path, images: Images) -> None:
    file = write(tmp_path, LEAST)
    data = Declared(declaration=file, path=images(*(f"a/c{c}/1.png" for c in range(10))) / "a")
    assert [len(names) for names in data.splits.values()] == [6, 1, 3]
    assert data.problems() == []
    assert data.about is not None
    assert data.about.licence == "unknown"
    root = images("b/train/c0/1.png", "b/valid/c1/1.png", "b/test/c2/1.png") / "b"
    laid = Declared(declaration=file, path=root)
    assert laid.splits == {"train": ("c0",), "val": ("c1",), "test": ("c2",)}


def test_levels_patterns_and_columns(tmp_path: Path, images: Images) -> None:
    file = write(
        tmp_path,
        LEAST
        + """
[pixels]
size = 4
invert = true

[[layouts]]
kind = "folders"
levels = ["site", "genus", "species"]
class = "{genus} {species}"
pattern = '(?P<year>\\d{4})_'
columns = { context = "{site} in {year}" }

[splits.x]
train = { "Rosa canina" = 2 }
test = ["Rosa gallica"]
""",
    )
    places = ("north/rosa/CANINA/1999_1.png", "south/Rosa/Gallica/2001_1.png")
    data = Declared(declaration=file, path=images(*places, colour=(200, 0, 0)))
    assert data.class_names == ("Rosa canina", "Rosa gallica")
    assert data.metadata == {
        "context": ("north in 1999", "south in 2001"),
        "site": ("north", "south"),
        "genus": ("rosa", "Rosa"),
        "species": ("CANINA", "Gallica"),
        "year": ("1999", "2001"),
    }
    assert data.image(0).tolist() == [[[55, 255, 255]] * 4] * 4
    assert data.problems() == [
        "split train: 1 image of 1 class, published 2 of 1",
        "1 class with other numbers of images: 'Rosa canina' 1 (published 2)",
    ]


def test_a_compressed_split_file_next_to_the_declaration(tmp_path: Path, images: Images) -> None:
    raw = json.dumps({"train": ["a"], "valid": {"b": 2}}).encode()
    (tmp_path / "s.json.xz").write_bytes(lzma.compress(raw))
    file = write(tmp_path, LEAST + '[splits.x]\nfile = "s.json.xz"')
    data = Declared(declaration=file, path=images("a/1.png", "b/1.png", "b/2.png"))
    assert data.splits == {"train": ("a",), "val": ("b",)}
    assert data.problems() == []


def test_a_class_for_an_entry_point_of_another_package(tmp_path: Path, images: Images) -> None:
    cls = declared(write(tmp_path, LEAST + 'summary = "My own images."\nlicence = "MIT"'))
    assert (cls.__module__, cls.__name__) == (__name__, "Mine")
    assert (cls.__doc__ or "").splitlines()[0] == "My own images."
    assert list(parameters(cls)) == ["path", "split", "split_file"]
    assert cls.argument == "path"
    assert cls.about is not None
    assert cls.about.licence == "MIT"
    assert cls(path=images("cat/1.png")).class_names == ("cat",)  # type: ignore[call-arg]


def test_fingerprints_follow_files_splits_and_pixels(tmp_path: Path, images: Images) -> None:
    root = images("a/1.png", "b/1.png")
    texts = [
        LEAST + '[splits.x]\ntrain = ["a"]\ntest = ["b"]',
        LEAST + '[splits.x]\ntrain = ["b"]\ntest = ["a"]',
        LEAST + '[splits.x]\ntrain = ["a"]\ntest = ["b"]\n[pixels]\ninvert = true',
    ]

    def fingerprint(text: str) -> str:
        return Declared(declaration=write(tmp_path, text), path=root).fingerprint

    found = [fingerprint(text) for text in texts]
    assert len(set(found)) == 3
    assert fingerprint(texts[0]) == found[0]
    Image.new("RGB", (9, 9)).save(root / "b" / "1.png")
    assert fingerprint(texts[0]) != found[0]


def test_images_at_a_size_of_scaled_decoding(tmp_path: Path, images: Images) -> None:
    values = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    root = images("a/1.jpg")
    Image.fromarray(values).resize((400, 400)).save(root / "a" / "1.jpg", quality=95)
    file = write(tmp_path, LEAST + "[pixels]\nsize = 100")
    data = Declared(declaration=file, path=root)
    exact, scaled = data.images([0], 20), data.scaled_images([0], 20)
    assert np.abs(exact.astype(int) - scaled).mean() < 8


# --- the page on data sets ----------------------------------------------------------------------

PAGE = Path(__file__).parents[1] / "README.md"


def test_the_declaration_of_the_page_is_complete_and_works(tmp_path: Path, images: Images) -> None:
    block = PAGE.read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0]
    file = write(tmp_path, block)
    seasons = ("spring", "summer", "autumn", "winter")
    for c, name in enumerate(read_declaration(file).classes):
        place = f"birds/{name.title()}"
        root = images(*(f"{place}/{seasons[i % 4]}/{i}_canon{c}.jpg" for i in range(40)))
    data = Declared(declaration=file, path=root)
    assert data.problems() == []
    assert len(data.keys) == 480
    assert set(data.metadata) == {"context", "season", "camera"}
    assert data.metadata["context"] == data.metadata["season"]
    counts = {split: len(names) for split, names in data.splits.items()}
    assert counts == {"train": 6, "val": 2, "test": 4}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[pixels]\n",
        FOLDERS,
        '[[layouts]]\nkind = "tables"\ntables = ["a.csv"]\n',
        '[[layouts]]\nkind = "pickles"\nfiles = { test = ["a.pkl"] }\n',
        '[splits.x]\ntest = ["a"]\n',
    ],
)
def test_the_page_names_every_key(text: str, tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    with pytest.raises(DataError, match="zzz is unknown; known: ") as caught:
        read_declaration(write(tmp_path, LEAST + text + "zzz = 1"))
    for key in str(caught.value).rpartition("known: ")[2].split(", "):
        assert f"`{key}`" in page or f"[{key}" in page, key
