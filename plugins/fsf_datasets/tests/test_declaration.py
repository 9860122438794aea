"""Declarations: what they may contain, and a user's own."""

from __future__ import annotations

import json
import lzma
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fsf_datasets import Declared, declared
from fsf_datasets._declaration import read_declaration
from fsf_datasets.published import declaration_files
from fsframework.components.conversion import parameters
from fsframework.interfaces import DataError
from fsframework.testing import check_component

LEAST = 'name = "mine"\ntitle = "Mine"\n'


def write(folder: Path, text: str) -> Path:
    file = folder / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return file


def save(file: Path, value: int = 9, size: tuple[int, int] = (8, 6)) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, 0, 0)).save(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "not TOML"),
        ('title = "x"', "name is missing; it must be a name of lower-case letters"),
        ('name = "No Good"\ntitle = "x"', "name must be a name of lower-case .*not 'No Good'"),
        ('name = "x"', "title is missing; it must be a string"),
        (LEAST + 'licens = "MIT"', r"licens is unknown \(did you mean licence\?\); known: name, "),
        (LEAST + "licence = 3", "licence must be a string, not 3"),
        (LEAST + 'images_from = "imagenet-1k"', "images_from must be a list of strings, not 'imag"),
        (LEAST + "native_size = 0", "native_size must be an integer of at least 1, not 0"),
        (LEAST + "[pixels]\nsize = true", r"pixels\.size must be an integer .*not True"),
        (LEAST + '[pixels]\ncolour = "no"', r"pixels\.colour is unknown"),
        (
            LEAST + '[pixels]\ninterpolation = "best"',
            r"interpolation must be nearest, box,.*'best'",
        ),
        (LEAST + "layouts = []", r"layouts must be a list of tables, not \[\]"),
        (
            LEAST + '[[layouts]]\nkind = "tar"',
            "layouts 1: kind must be folders, tables, pickles or",
        ),
        (LEAST + '[[layouts]]\nkind = "tables"', "layouts 1: tables is missing"),
        (LEAST + '[[layouts]]\nkind = "folders"\ntables = ["a"]', "layouts 1: tables is unknown"),
        (
            LEAST + '[[layouts]]\nkind = "folders"\n[[layouts]]\nkind = "folders"',
            "layouts has 'folders' twice",
        ),
        (
            LEAST + '[[layouts]]\nkind = "folders"\nclass = "{species}"',
            r"layouts 1: class contains \{species\}; allowed in braces: class",
        ),
        (
            LEAST + '[[layouts]]\nkind = "folders"\nclass = "same"',
            "layouts 1: class must contain a level in braces, not 'same'",
        ),
        (
            LEAST + '[[layouts]]\nkind = "folders"\npattern = "("',
            "layouts 1: pattern must be a regular expression",
        ),
        (
            LEAST + '[[layouts]]\nkind = "pickles"\nfiles = { base = ["a"] }',
            r"layouts 1: files\.base must be one file",
        ),
        (LEAST + "[splits]\nx = 3", r"splits\.x must be a table, not 3"),
        (LEAST + "[splits.x]", r"splits\.x must have exactly one of: classes under train"),
        (LEAST + '[splits.x]\ntest = ["a"]\ndraw = [0, 0, 1]', r"splits\.x must have exactly one"),
        (LEAST + "[splits.x]\ndraw = [1, 2]", "draw must be three numbers of classes"),
        (LEAST + '[splits.x]\ntest = "a"', "test must be a list of classes or a table of their"),
        (LEAST + '[splits.x]\ntrain = ["a"]\ntest = ["a"]', "the class 'a' is in 'train' and"),
        (LEAST + '[splits.x]\ntest = ["a"]\nrotations = [45]', "rotations must be a list of 0, 90"),
        (
            LEAST + '[splits.x]\ntest = ["a"]\ncounts = { test = 3 }',
            r"counts\.test must be \[classes, images\] for train, val, test or all, not 3",
        ),
    ],
)
def test_wrong_declarations_name_file_and_key(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"mine\.toml: .*{message}") as caught:
        read_declaration(write(tmp_path, text))
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
def test_wrong_split_files(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    file = write(tmp_path, LEAST + f'[splits.x]\nfile = "{name}"')
    save(tmp_path / "images" / "cat" / "1.png")
    with pytest.raises(DataError, match=rf"{name}: {message}"):
        Declared(declaration=file, path=tmp_path / "images")


def test_the_minimal_declaration_means_a_folder_per_class(tmp_path: Path) -> None:
    for c in range(10):
        save(tmp_path / "images" / f"c{c}" / "1.png")
    data = Declared(declaration=write(tmp_path, LEAST), path=tmp_path / "images")
    assert [len(names) for names in data.splits.values()] == [6, 1, 3]
    assert data.problems() == []
    assert data.about is not None
    assert data.about.licence == "unknown"
    for c, split in enumerate(("train", "valid", "test")):
        save(tmp_path / "laid" / split / f"c{c}" / "1.png")
    laid = Declared(declaration=tmp_path / "mine.toml", path=tmp_path / "laid")
    assert laid.splits == {"train": ("c0",), "val": ("c1",), "test": ("c2",)}


def test_levels_patterns_and_columns(tmp_path: Path) -> None:
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
    root = tmp_path / "images"
    for place in ("north/rosa/CANINA/1999_1.png", "south/Rosa/Gallica/2001_1.png"):
        save(root / place, 200)
    data = Declared(declaration=file, path=root)
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


def test_a_compressed_split_file_next_to_the_declaration(tmp_path: Path) -> None:
    raw = json.dumps({"train": ["a"], "valid": {"b": 2}}).encode()
    (tmp_path / "s.json.xz").write_bytes(lzma.compress(raw))
    file = write(tmp_path, LEAST + '[splits.x]\nfile = "s.json.xz"')
    for name in ("a/1.png", "b/1.png", "b/2.png"):
        save(tmp_path / "images" / name)
    data = Declared(declaration=file, path=tmp_path / "images")
    assert data.splits == {"train": ("a",), "val": ("b",)}
    assert data.problems() == []


def test_a_class_for_an_entry_point_of_another_package(tmp_path: Path) -> None:
    cls = declared(write(tmp_path, LEAST + 'summary = "My own images."\nlicence = "MIT"'))
    assert cls.__module__ == __name__
    assert cls.__name__ == "Mine"
    assert (cls.__doc__ or "").splitlines()[0] == "My own images."
    assert list(parameters(cls)) == ["path", "split", "split_file"]
    assert cls.argument == "path"
    assert cls.about is not None
    assert cls.about.licence == "MIT"
    save(tmp_path / "images" / "cat" / "1.png")
    data = cls(path=tmp_path / "images")  # type: ignore[call-arg]
    assert data.class_names == ("cat",)


def test_the_contract_is_kept(tmp_path: Path) -> None:
    for name in ("a/1.png", "b/1.png", "b/2.png"):
        save(tmp_path / "images" / name)
    file = write(tmp_path, LEAST)
    make = partial(Declared, declaration=file, path=tmp_path / "images")
    results = check_component(make, "dataset")
    assert [f"{r.name}: {r.message}" for r in results if not r.passed] == []


def test_fingerprints_follow_files_splits_and_pixels(tmp_path: Path) -> None:
    for name in ("a/1.png", "b/1.png"):
        save(tmp_path / "images" / name)
    texts = [
        LEAST + '[splits.x]\ntrain = ["a"]\ntest = ["b"]',
        LEAST + '[splits.x]\ntrain = ["b"]\ntest = ["a"]',
        LEAST + '[splits.x]\ntrain = ["a"]\ntest = ["b"]\n[pixels]\ninvert = true',
    ]

    def fingerprint(text: str) -> str:
        return Declared(declaration=write(tmp_path, text), path=tmp_path / "images").fingerprint

    found = [fingerprint(text) for text in texts]
    assert len(set(found)) == 3
    assert fingerprint(texts[0]) == found[0]
    save(tmp_path / "images" / "b" / "1.png", 10, (9, 9))
    assert fingerprint(texts[0]) != found[0]


def test_images_at_a_size_of_scaled_decoding(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    file = tmp_path / "images" / "a" / "1.jpg"
    file.parent.mkdir(parents=True)
    Image.fromarray(values).resize((400, 400)).save(file, quality=95)
    declaration = write(tmp_path, LEAST + "[pixels]\nsize = 100")
    data = Declared(declaration=declaration, path=tmp_path / "images")
    exact, scaled = data.images([0], 20), data.scaled_images([0], 20)
    assert np.abs(exact.astype(int) - scaled).mean() < 8


# --- the page on data sets ----------------------------------------------------------------------

PAGE = Path(__file__).parents[3] / "docs" / "datasets.md"


def test_the_declaration_of_the_page_is_complete_and_works(tmp_path: Path) -> None:
    block = PAGE.read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0]
    file = write(tmp_path, block)
    found = read_declaration(file)
    for c, name in enumerate(found.classes):
        for i in range(40):
            season = ("spring", "summer", "autumn", "winter")[i % 4]
            save(tmp_path / "birds" / name.title() / season / f"{i}_canon{c}.jpg", c, (4, 4))
    data = Declared(declaration=file, path=tmp_path)
    assert data.problems() == []
    assert len(data.keys) == 480
    assert set(data.metadata) == {"context", "season", "camera"}
    assert data.metadata["context"] == data.metadata["season"]
    assert {split: len(names) for split, names in data.splits.items()} == {
        "train": 6,
        "val": 2,
        "test": 4,
    }


def test_the_page_lists_every_data_set_as_it_is_declared() -> None:
    rows = {
        row.split(" | ")[0].strip("|` "): row
        for row in PAGE.read_text(encoding="utf-8").splitlines()
        if row.startswith("| `") and row.count(" | ") == 6
    }
    for file in declaration_files().values():
        found = read_declaration(file)
        cells = rows[found.name].strip("| ").split(" | ")
        (split, *_) = found.splits.values()
        whole = sum(images for _, images in split.counts.values())
        classes = {part: n for part, (n, _) in split.counts.items()}
        if split.draw is not None:
            classes = dict(zip(("train", "val", "test"), split.draw, strict=True))
        shown = [f"{classes[p]:,}" if classes.get(p) else "–" for p in ("train", "val", "test")]
        assert cells == [
            f"`{found.name}`",
            f"[{found.title}]({found.source})",
            found.licence,
            " / ".join(shown),
            f"{whole:,}",
            ", ".join(layout.name for layout in found.layouts),
            ", ".join(f"`{name}`" for name in found.splits),
        ]


@pytest.mark.parametrize(
    "text",
    [
        LEAST + "zzz = 1",
        LEAST + "[pixels]\nzzz = 1",
        LEAST + '[[layouts]]\nkind = "folders"\nzzz = 1',
        LEAST + '[[layouts]]\nkind = "tables"\ntables = ["a.csv"]\nzzz = 1',
        LEAST + '[[layouts]]\nkind = "pickles"\nfiles = { test = ["a.pkl"] }\nzzz = 1',
        LEAST + '[splits.x]\ntest = ["a"]\nzzz = 1',
    ],
)
def test_the_page_names_every_key(text: str, tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    with pytest.raises(DataError, match="zzz is unknown; known: ") as caught:
        read_declaration(write(tmp_path, text))
    for key in str(caught.value).rpartition("known: ")[2].split(", "):
        assert f"`{key}`" in page or f"[{key}" in page, key
