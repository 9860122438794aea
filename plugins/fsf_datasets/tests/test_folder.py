from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fsf_datasets import Folder
from fsframework.interfaces import DataError, OptionError

Write = Callable[..., Path]


def test_classes_are_folders_in_natural_order(tmp_path: Path, write: Write) -> None:
    for key in ("b/2.png", "b/10.png", "a10/x.PNG", "a2/y.JpEg", "a2/.hidden.png", ".git/z.png"):
        write(tmp_path / key)
    (tmp_path / "b" / "notes.txt").write_text("no image")
    data = Folder(path=tmp_path)
    assert data.keys == ("a2/y.JpEg", "a10/x.PNG", "b/2.png", "b/10.png")
    assert data.class_names == ("a2", "a10", "b")
    assert data.labels.tolist() == [0, 1, 2, 2]
    assert data.metadata == {}
    assert data.image(1).tolist() == [[[10, 20, 30]] * 8] * 6


def test_a_path_may_be_a_string(tmp_path: Path, write: Write) -> None:
    write(tmp_path / "a" / "1.png")
    data = Folder(path=str(tmp_path))  # type: ignore[arg-type]
    assert data.path == tmp_path


def test_nested_classes_lose_the_folders_common_to_all(tmp_path: Path, write: Write) -> None:
    for key in ("Greek/alpha", "Greek/beta", "Latin/alpha"):
        write(tmp_path / "omniglot" / key / "1.png")
    data = Folder(path=tmp_path)
    assert data.class_names == ("Greek/alpha", "Greek/beta", "Latin/alpha")
    assert data.keys[0] == "omniglot/Greek/alpha/1.png"


def test_levels_separate_classes_from_contexts(tmp_path: Path, write: Write) -> None:
    for key in ("crow/winter/1", "crow/spring/2", "crow/3", "owl/winter/at night/4"):
        write(tmp_path / f"{key}.png")
    data = Folder(path=tmp_path, levels=1)
    assert data.class_names == ("crow", "owl")
    found = dict(zip(data.keys, data.metadata["context"], strict=True))
    assert found == {
        "crow/3.png": "",
        "crow/spring/2.png": "spring",
        "crow/winter/1.png": "winter",
        "owl/winter/at night/4.png": "winter/at night",
    }
    assert data.problems() == []
    assert Folder(path=tmp_path, levels=2).class_names == (
        "crow", "crow/spring", "crow/winter", "owl/winter",
    )  # fmt: skip
    with pytest.raises(OptionError, match="levels must be at least 1, not 0"):
        Folder(path=tmp_path, levels=0)


def test_levels_are_counted_below_splits(tmp_path: Path, write: Write) -> None:
    for key in ("train/crow/winter/1", "test/owl/spring/2", "test/owl/winter/3"):
        write(tmp_path / f"{key}.png")
    data = Folder(path=tmp_path, levels=1)
    assert data.splits == {"train": ("crow",), "test": ("owl",)}
    assert sorted(data.metadata["context"]) == ["spring", "winter", "winter"]


def test_a_stray_nested_folder_is_a_problem(tmp_path: Path, write: Write) -> None:
    for key in ("crow/1", "owl/2", "owl/extra/deep/3"):
        write(tmp_path / f"{key}.png")
    data = Folder(path=tmp_path)
    assert data.class_names == ("crow", "owl", "owl/extra/deep")
    assert data.problems() == [
        "separate classes because they are nested deeper than others: 'owl/extra/deep'; levels=1 "
        "merges them into the folder above"
    ]


def test_a_single_class_keeps_its_name(tmp_path: Path, write: Write) -> None:
    write(tmp_path / "pets" / "cat" / "1.png")
    write(tmp_path / "pets" / "cat" / "2.png")
    assert Folder(path=tmp_path).class_names == ("cat",)


def test_names_beyond_ascii_have_one_form(tmp_path: Path, write: Write) -> None:
    decomposed = unicodedata.normalize("NFD", "Käse")
    write(tmp_path / decomposed / "日本.png")
    data = Folder(path=tmp_path)
    assert data.keys == ("Käse/日本.png",)
    assert data.image(0).shape == (6, 8, 3)


def test_names_that_differ_only_in_unicode_form(tmp_path: Path, write: Write) -> None:
    for form in ("NFC", "NFD"):
        write(tmp_path / unicodedata.normalize(form, "Käse") / "1.png")
    if len(list(tmp_path.iterdir())) == 1:
        pytest.skip("this file system stores one form only")
    with pytest.raises(DataError, match="another file has the same name in another Unicode form"):
        Folder(path=tmp_path)


def test_names_that_are_not_unicode(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/a/\xff.png")).write_bytes(b"")
    except OSError:
        pytest.skip("this file system does not allow the name")
    with pytest.raises(DataError, match="must be printable Unicode"):
        Folder(path=tmp_path)


def test_folders_named_as_splits(tmp_path: Path, write: Write) -> None:
    for key in ("train/cat", "train/dog", "valid/elk", "test/ant"):
        write(tmp_path / "data" / key / "1.png")
    data = Folder(path=tmp_path)
    assert data.class_names == ("ant", "cat", "dog", "elk")
    assert data.splits == {"test": ("ant",), "train": ("cat", "dog"), "val": ("elk",)}
    assert data.keys[data.split_indices("val")[0]] == "data/valid/elk/1.png"


def test_folders_named_as_splits_must_not_share_a_class(tmp_path: Path, write: Write) -> None:
    for key in ("train/cat", "test/cat"):
        write(tmp_path / key / "1.png")
    with pytest.raises(DataError, match="the class 'cat' is in the splits 'test' and 'train'"):
        Folder(path=tmp_path)


def test_nothing_depends_on_the_order_of_a_set(tmp_path: Path, write: Write) -> None:
    """Python orders sets of strings differently in every process."""
    for key in ("val/owl", "train/cat", "train/dog", "test/cow", "test/hen", "val/ant"):
        write(tmp_path / key / "1.png")
    code = (
        "import sys; from fsf_datasets import Folder; data = Folder(path=sys.argv[1]);"
        "print(data.fingerprint, list(data.splits), data.class_names)"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "01234567"
    }
    assert len(said) == 1, said


def test_a_split_file_makes_split_folders_ordinary(tmp_path: Path, write: Write) -> None:
    for key in ("train/cat", "test/cat"):
        write(tmp_path / "images" / key / "1.png")
    (tmp_path / "split.json").write_text('{"test": ["train/cat", "test/cat"]}')
    data = Folder(path=tmp_path / "images", split=tmp_path / "split.json")
    assert data.splits == {"test": ("test/cat", "train/cat")}


def test_pattern_makes_columns(tmp_path: Path, write: Write) -> None:
    for key in ("cat/cat1-oven2.png", "cat/cat2-clock1.png", "dog/dog7-oven1.png"):
        write(tmp_path / key)
    data = Folder(path=tmp_path, pattern=r"(?P<number>\d+)-(?P<texture>[a-z]+)\d|(?P<never>x{9})")
    assert data.metadata == {
        "number": ("1", "2", "7"),
        "texture": ("oven", "clock", "oven"),
        "never": ("", "", ""),
    }


def test_pattern_without_match_names_the_files(tmp_path: Path, write: Write) -> None:
    for number in range(5):
        write(tmp_path / "cat" / f"{number}.png")
    with pytest.raises(
        DataError, match=r"does not match 'cat/0\.png', 'cat/1\.png', 'cat/2\.png' and 2 more"
    ):
        Folder(path=tmp_path, pattern="(?P<word>oven)")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [("(", "must be a regular expression"), ("(a)", r"must have a named group.*not '\(a\)'")],
)
def test_wrong_patterns(tmp_path: Path, pattern: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Folder(path=tmp_path, pattern=pattern)


def test_folders_without_images(tmp_path: Path, write: Write) -> None:
    with pytest.raises(DataError, match="contains no images"):
        Folder(path=tmp_path)
    with pytest.raises(DataError, match="gone: no such folder"):
        Folder(path=tmp_path / "gone")
    write(tmp_path / "loose.png")
    with pytest.raises(DataError, match=r"must be in the folder of its class, unlike 'loose\.png'"):
        Folder(path=tmp_path)


def test_linked_folders_are_followed_but_not_in_circles(tmp_path: Path, write: Write) -> None:
    write(tmp_path / "elsewhere" / "1.png")
    write(tmp_path / "root" / "dog" / "1.png")
    (tmp_path / "root" / "cat").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "root" / "dog" / "back").symlink_to(tmp_path / "root")
    assert Folder(path=tmp_path / "root").keys == ("cat/1.png", "dog/1.png")


def test_fingerprint_follows_files_labels_and_splits(tmp_path: Path, write: Write) -> None:
    for name in ("ant", "bee", "cat"):
        file = write(tmp_path / name / "1.png")
        os.utime(file, ns=(0, 1_000_000_000))
    first = Folder(path=tmp_path).fingerprint
    assert Folder(path=tmp_path).fingerprint == first
    assert Folder(path=tmp_path, split_fractions=(0, 0, 1)).fingerprint != first
    os.utime(file, ns=(0, 1_000_000_001))
    changed = Folder(path=tmp_path).fingerprint
    assert changed != first
    file.rename(file.with_name("2.png"))
    assert Folder(path=tmp_path).fingerprint not in (first, changed)


# --- real data --------------------------------------------------------------------------------


@pytest.mark.shared_data
def test_cue_conflict(shared: Path) -> None:
    data = Folder(
        path=shared / "data" / "cue_conflict_84.zip", pattern=r"-(?P<texture>[a-z]+)\d+\.png$"
    )
    assert len(data.keys) == 1280
    assert len(data.class_names) == 16
    textures = Counter(data.metadata["texture"])
    assert set(textures) == set(data.class_names)
    same = sum(
        data.class_names[label] == texture
        for label, texture in zip(data.labels, data.metadata["texture"], strict=True)
    )
    cells = Counter(zip(data.labels.tolist(), data.metadata["texture"], strict=True))
    assert (same, max(cells.values())) == (80, 5)
    assert data.images(np.arange(0, 1280, 64), 84).shape == (20, 84, 84, 3)
    assert [len(data.splits[split]) for split in ("train", "val", "test")] == [10, 2, 4]


@pytest.mark.shared_data
def test_omniglot(shared: Path) -> None:
    data = Folder(path=shared / "data" / "omniglot.zip")
    assert len(data.class_names) == 1623
    assert set(np.bincount(data.labels)) == {20}
    assert data.class_names[0] == "images_background/Alphabet_of_the_Magi/character01"
    image = data.image(0)
    assert image.shape == (105, 105, 3)
    assert set(np.unique(image)) == {0, 255}


@pytest.mark.shared_data
def test_cifar_fs(shared: Path, tmp_path: Path) -> None:
    published = {
        split: [name for _, name in json.loads((file).read_text())]
        for split in ("train", "val", "test")
        for file in [shared / "data" / "splits" / "cifar_fs" / f"{split}.json"]
    }
    (tmp_path / "split.json").write_text(json.dumps(published))
    data = Folder(path=shared / "data" / "cifar100_small.zip", split=tmp_path / "split.json")
    assert [len(data.splits[split]) for split in ("train", "val", "test")] == [64, 16, 20]
    assert data.pool("test").class_sizes.tolist() == [60] * 20


class TestWithoutLabels:
    """Training images whose folders mean nothing."""

    def test_all_images_are_for_training(self, tmp_path: Path, write: Write) -> None:
        for key in ("1.png", "b/2.png", "a/deep/3.png"):
            write(tmp_path / key)
        data = Folder(path=tmp_path, labels="none")
        assert data.unlabelled == {"train"}
        assert data.splits == {"train": ("(no label)",)}
        assert set(data.keys) == {"1.png", "b/2.png", "a/deep/3.png"}
        assert data.labels.tolist() == [0, 0, 0]
        pool = data.pool("train")
        assert (pool.labelled, pool.n_classes, len(pool)) == (False, 0, 3)
        assert data.problems() == []

    def test_images_under_test_keep_their_classes(self, tmp_path: Path, write: Write) -> None:
        for key in ("train/1.png", "train/x/2.png", "test/crow/3.png", "valid/owl/at night/4.png"):
            write(tmp_path / key)
        data = Folder(path=tmp_path, labels="none")
        assert data.splits["train"] == ("(no label)",)
        assert (data.splits["test"], data.splits["val"]) == (("crow",), ("owl/at night",))
        assert data.pool("train").keys == ("train/1.png", "train/x/2.png")
        assert data.pool("test").labelled
        assert data.pool("test").class_names == ("crow",)
        contexts = Folder(path=tmp_path, labels="none", levels=1).metadata["context"]
        assert dict(zip(data.keys, contexts, strict=True))["valid/owl/at night/4.png"] == "at night"

    def test_the_option_is_part_of_the_data(self, tmp_path: Path, write: Write) -> None:
        for key in ("train/a/1.png", "test/b/2.png"):
            write(tmp_path / key)
        with_labels, without = (
            Folder(path=tmp_path, labels=labels)  # type: ignore[arg-type]
            for labels in ("folders", "none")
        )
        assert with_labels.unlabelled == frozenset()
        assert with_labels.fingerprint != without.fingerprint
        assert with_labels.pixels_fingerprint == without.pixels_fingerprint
        assert without.labels_from == "none"

    def test_images_under_test_need_a_class(self, tmp_path: Path, write: Write) -> None:
        for key in ("train/1.png", "test/2.png"):
            write(tmp_path / key)
        with pytest.raises(DataError, match=r"unlike 'test/2.png'; only those of train need none"):
            Folder(path=tmp_path, labels="none")

    def test_a_split_file_does_not_go_with_it(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match="with labels=none leave it out"):
            Folder(path=tmp_path, labels="none", split=tmp_path / "split.json")
