from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsf_datasets import Folder
from fsframework.interfaces import DataError, OptionError

Images = Callable[..., Path]
LEVELS = ("crow/winter/1.png", "crow/spring/2.png", "crow/3.png", "owl/winter/at night/4.png")


@pytest.mark.parametrize(
    ("files", "options", "classes"),
    [
        (("b/2.png", "a10/x.PNG", "a2/y.JpEg", "a2/.z.png", ".git/z.png"), {}, ("a2", "a10", "b")),
        (("o/G/a/1.png", "o/G/b/1.png", "o/L/a/1.png"), {}, ("G/a", "G/b", "L/a")),
        (("pets/cat/1.png", "pets/cat/2.png"), {}, ("cat",)),
        (("o/Käse/日本.png",), {}, ("Käse",)),
        (LEVELS, {"levels": 1}, ("crow", "owl")),
        (LEVELS, {"levels": 2}, ("crow", "crow/spring", "crow/winter", "owl/winter")),
    ],
)
def test_classes_are_folders_in_natural_order(
    images: Images, files: tuple[str, ...], options: dict[str, Any], classes: tuple[str, ...]
) -> None:
    root = images(*(unicodedata.normalize("NFD", file) for file in files))
    (root / "notes.txt").write_text("no image")
    data = Folder(path=str(root), **options)  # type: ignore[arg-type]
    assert data.class_names == classes
    assert set(data.keys) == {f for f in files if "/." not in f and not f.startswith(".")}
    for key, label in zip(data.keys, data.labels, strict=True):
        parts = data.class_names[label].split("/")
        assert parts == [part for part in key.split("/") if part in parts]
    assert data.image(0).tolist() == [[[10, 20, 30]] * 8] * 6


def test_levels_below_classes_are_their_contexts(images: Images) -> None:
    data = Folder(path=images(*LEVELS), levels=1)
    assert dict(zip(data.keys, data.metadata["context"], strict=True)) == {
        "crow/3.png": "",
        "crow/spring/2.png": "spring",
        "crow/winter/1.png": "winter",
        "owl/winter/at night/4.png": "winter/at night",
    }
    assert data.problems() == []
    with pytest.raises(OptionError, match="levels must be at least 1, not 0"):
        Folder(path=data.path, levels=0)


def test_a_stray_nested_folder_is_a_problem(images: Images) -> None:
    data = Folder(path=images("crow/1.png", "owl/2.png", "owl/extra/deep/3.png"))
    assert data.class_names == ("crow", "owl", "owl/extra/deep")
    (problem,) = data.problems()
    assert "'owl/extra/deep'; levels=1" in problem


def test_folders_named_as_splits(images: Images, tmp_path: Path) -> None:
    names = ("train/crow/winter/1.png", "valid/elk/x/1.png", "test/owl/spring/2.png")
    data = Folder(path=images(*(f"data/{name}" for name in names)), levels=1)
    assert data.splits == {"test": ("owl",), "train": ("crow",), "val": ("elk",)}
    assert data.keys[data.split_indices("val")[0]] == "data/valid/elk/x/1.png"
    assert sorted(data.metadata["context"]) == ["spring", "winter", "x"]
    root = images("data/test/crow/1.png") / "data"
    with pytest.raises(DataError, match="'crow' is in the splits 'test' and 'train'"):
        Folder(path=root, levels=1)
    split = tmp_path / "split.json"
    split.write_text('{"test": ["train/crow", "test/crow"]}')  # makes them ordinary folders
    assert Folder(path=root, split=split, levels=2).splits == {"test": ("test/crow", "train/crow")}


@pytest.mark.parametrize(
    ("files", "options", "splits"),
    [
        ("Train/a Test/b", {}, {"train": ("a",), "test": ("b",)}),
        ("o/TRAINING/a o/Testing/b o/Validation/c", {},
         {"train": ("a",), "test": ("b",), "val": ("c",)}),
        ("train/x bus/x car/x", {"levels": 1}, None),
        ("test cat", {}, None),
        ("a/train a/test b/train b/test", {"levels": 1}, None),
        ("Train/a Test/a", {}, "'a' is in"),
        ("Train/a Test/b extra/c", {}, "Test.*Train"),
        ("train/a holdout/b", {}, "train"),
        ("train/a val", {}, "train.*val"),
        ("train Test bus", {}, "Test.*train"),
        ("a/train a/test b/train b/test", {}, "in 'a'.*'test', 'train'.*levels=1"),
        ("data/Train/a data/Test/b c", {}, "in 'data'"),
        ("Train/a Test/b extra/c", {"labels": "none"}, "Test/b"),
        ("cat/train cat/test", {"labels": "none"}, "cat/test"),
        ("train bus", {"labels": "none"}, {"train": ("(no label)",)}),
        ("o/Train/a o/Test/b", {"labels": "none"}, {"train": ("(no label)",), "test": ("b",)}),
    ],
)  # fmt: skip
def test_folders_named_as_splits_are_splits_or_refused(
    images: Images, files: str, options: dict[str, Any], splits: Any
) -> None:
    root = images(*(f"{folder}/1.png" for folder in files.split()))
    if isinstance(splits, str):
        with pytest.raises(DataError, match=splits):
            Folder(path=root, **options)
        return
    data = Folder(path=root, **options)
    if splits is None:  # they are classes
        assert set(data.class_names) == {folder.split("/")[0] for folder in files.split()}
    else:
        assert data.splits == splits


def test_names_that_differ_only_in_unicode_form(images: Images) -> None:
    root = images(*(unicodedata.normalize(form, "Käse") + "/1.png" for form in ("NFC", "NFD")))
    if len(list(root.iterdir())) == 1:
        pytest.skip("this file system stores one form only")
    with pytest.raises(DataError, match="same name in another Unicode form"):
        Folder(path=root)


def test_names_that_are_not_unicode(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/a/\xff.png")).write_bytes(b"")
    except OSError:
        pytest.skip("this file system does not allow the name")
    with pytest.raises(DataError, match="must be printable Unicode"):
        Folder(path=tmp_path)


LEFT = (
    *(
        "Icon\r",
        "a/Icon\r",
        "a/._1.png",
        "a/.DS_Store",
        "a/Thumbs.db",
        "a/desktop.ini",
        "a/~$1.png",
    ),
    *("a/@eaDir/1.png/SYNOPHOTO_THUMB_M.png", "#recycle/1.png", "$RECYCLE.BIN/b/1.png"),
    *("@SynoDrive/1.png", "$WinREAgent/1.png", "Backups.backupdb/1.png", "My.lrdata/1.png"),
    *("lost+found/1.png", "__MACOSX/a/1.png", "a/.ipynb_checkpoints/1.png", "a/no image\n"),
)


@pytest.mark.parametrize("packed", [False, True])
def test_what_systems_leave_in_folders_is_ignored(images: Images, packed: bool) -> None:
    root = images("a/1.png", "b/1.png", "c/photo 3\u202fPM.png", "c/2.png")
    for name in LEFT:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    for name in ("1.heic", "2.HEIC", "3.psd", "4.jpg?w=100"):
        (root / "b" / name).write_bytes(b"")
    path = root
    if packed:
        path = root.with_suffix(".zip")
        with zipfile.ZipFile(path, "w") as archive:
            for file in root.rglob("*"):
                if file.is_file():
                    archive.write(file, file.relative_to(root))
    data = Folder(path=path)
    assert data.keys == ("a/1.png", "b/1.png", "c/2.png", "c/photo 3\u202fPM.png")
    (problem,) = data.problems()
    assert "4 images" in problem
    assert "2 .heic" in problem


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("a/.IMG_1.jpg.icloud", "d/.IMG_2.jpg.icloud"), "2 images.*2 .icloud"),
        (("a/1", "b/IMG_2"), "2 images.*2 without an extension"),
        (("a/2.jpg.part", "a/3.jpg.crdownload", "a/x.png.", "a/4.png.bak"), "4 images"),
        (("d.zip", "a/x.npy", "e.tar.gz"), r"1 \.zip"),
        ((".net/1.png", ".net/2.png"), r"2 images.*2 in \.net"),
        (("Recycler/1.png",), "1 image .*1 in Recycler"),
        (("@home/1.png",), "1 image .*1 in @home"),
        (("a/README", "a/1.jpg.xmp", "a/notes.txt"), ""),
    ],
)
def test_what_is_left_out_beside_classes_is_counted(
    images: Images, packed: bool, names: tuple[str, ...], message: str
) -> None:
    root = images("a/1.png", "b/1.png", "c/1.png")
    for name in names:
        (root / name).parent.mkdir(exist_ok=True)
        content = b"no image" if "README" in name else (root / "a/1.png").read_bytes()
        (root / name).write_bytes(content)
    path = Path(shutil.make_archive(str(root), "zip", root)) if packed else root
    data = Folder(path=path)
    assert data.class_names == ("a", "b", "c")
    problems = [problem for problem in data.problems() if "left out" in problem]
    assert len(problems) == bool(message)
    assert re.search(message, "".join(problems))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("a/l\nn.png",), r"l\\nn\.png': file names must be printable"),
        (("nan/1.png", "b/1.png"), "class 'nan' stands for a missing value"),
        (("Ka\u0308se/1.png", "K\u00e4se/2.png"), "another Unicode form"),
    ],
)
def test_names_that_no_class_can_have(images: Images, names: tuple[str, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Folder(path=images(*names))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("mini-imagenet-cache-train.pkl", "miniimagenet:"),
        ("train_images_png.pkl", "tieredimagenet:"),
        ("FC100_train.pickle", "fc100:"),
        ("base.json", "csv:base.json"),
        ("photo.heic", "1 with .heic"),
    ],
)
def test_a_folder_without_images_says_who_reads_its_files(root: Path, name: str, part: str) -> None:
    root.mkdir()
    (root / name).write_bytes(b"")
    with pytest.raises(DataError, match=part):
        Folder(path=root)


def test_a_class_named_as_a_split_is_a_class(images: Images) -> None:
    names = ("bus", "car", "train", "bicycle", "tram", "boat")
    assert "train" in Folder(path=images(*(f"{n}/1.png" for n in names))).class_names


def test_nothing_depends_on_the_order_of_a_set(images: Images) -> None:
    """Python orders sets of strings differently in every process."""
    keys = ("val/owl", "train/cat", "train/dog", "test/cow", "test/hen", "val/ant")
    root = images(*(f"{key}/1.png" for key in keys))
    code = (
        "import sys; from fsf_datasets import Folder, Planted; data = Folder(path=sys.argv[1]);"
        "print(data.fingerprint, list(data.splits), data.class_names);"
        "from fsframework.values import digest_of; data = Planted(n_per_class=2);"
        "print(data.fingerprint, digest_of(data.keys, *data.metadata.values()),"
        "      digest_of(data.images(range(0, 200, 9), 32)))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code, str(root)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "012"
    }
    assert len(said) == 1, said


def test_pattern_makes_columns(images: Images) -> None:
    root = images("cat/cat1-oven2.png", "cat/cat2-clock1.png", "dog/dog7-oven1.png")
    data = Folder(path=root, pattern=r"(?P<number>\d+)-(?P<texture>[a-z]+)\d|(?P<never>x{9})")
    assert data.metadata == {
        "number": ("1", "2", "7"),
        "texture": ("oven", "clock", "oven"),
        "never": ("", "", ""),
    }


@pytest.mark.parametrize(
    ("pattern", "error", "message"),
    [
        ("(?P<word>oven)", DataError, r"'c/0\.png', 'c/1\.png', 'c/2\.png' and 2 more"),
        ("(", OptionError, "must be a regular expression"),
        ("(a)", OptionError, r"must have a named group.*not '\(a\)'"),
    ],
)
def test_wrong_patterns(images: Images, pattern: str, error: type[Exception], message: str) -> None:
    root = images(*(f"c/{number}.png" for number in range(5)))
    with pytest.raises(error, match=message):
        Folder(path=root, pattern=pattern)


def test_folders_without_images(images: Images, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, message in (
        (tmp_path / "empty", "contains no images"),
        (tmp_path / "gone", "gone: no such folder"),
        (images("loose.png"), r"must be in the folder of its class, unlike 'loose\.png'"),
    ):
        with pytest.raises(DataError, match=message):
            Folder(path=path)


def test_linked_folders_are_followed(images: Images, tmp_path: Path) -> None:
    root = images("dog/1.png", "away/1.png")
    (root / "away").rename(tmp_path / "elsewhere")
    (root / "cat").symlink_to(tmp_path / "elsewhere")
    assert Folder(path=root).keys == ("cat/1.png", "dog/1.png")


def test_fingerprint_follows_files_labels_and_splits(images: Images) -> None:
    root = images(*(f"{name}/1.png" for name in ("ant", "bee", "cat")))
    file = root / "cat" / "1.png"
    os.utime(file, ns=(0, 1_000_000_000))
    found = [Folder(path=root), Folder(path=root, split_fractions=(0, 0, 1))]
    assert Folder(path=root).fingerprint == found[0].fingerprint
    os.utime(file, ns=(0, 1_000_000_001))
    found.append(Folder(path=root))
    file.rename(file.with_name("2.png"))
    found.append(Folder(path=root))
    assert len({data.fingerprint for data in found}) == 4


# --- training images whose folders mean nothing -------------------------------------------------


def test_images_without_labels_are_for_training(images: Images) -> None:
    data = Folder(path=images("1.png", "b/2.png", "a/deep/3.png"), labels="none")
    assert data.unlabelled == {"train"}
    assert data.splits == {"train": ("(no label)",)}
    assert set(data.keys) == {"1.png", "b/2.png", "a/deep/3.png"}
    assert data.labels.tolist() == [0, 0, 0]
    pool = data.pool("train")
    assert (pool.labelled, pool.n_classes, len(pool)) == (False, 0, 3)
    assert data.problems() == []


def test_without_labels_those_under_test_keep_their_classes(images: Images, tmp_path: Path) -> None:
    keys = ("train/x/1.png", "train/y/2.png", "test/crow/3.png", "valid/owl/at night/4.png")
    root = images(*keys)
    data, labelled = Folder(path=root, labels="none"), Folder(path=root)
    assert data.splits["train"] == ("(no label)",)
    assert (data.splits["test"], data.splits["val"]) == (("crow",), ("owl/at night",))
    assert data.pool("train").keys == keys[:2]
    assert data.pool("test").labelled
    assert data.pool("test").class_names == ("crow",)
    contexts = Folder(path=root, labels="none", levels=1).metadata["context"]
    assert dict(zip(data.keys, contexts, strict=True))[keys[3]] == "at night"
    assert labelled.unlabelled == frozenset()
    assert labelled.fingerprint != data.fingerprint
    assert labelled.pixels_fingerprint == data.pixels_fingerprint
    assert data.labels_from == "none"
    with pytest.raises(DataError, match=r"unlike 'test/2.png'"):
        Folder(path=images("test/2.png"), labels="none")
    with pytest.raises(OptionError, match="labels=none"):
        Folder(path=root, labels="none", split=tmp_path / "split.json")


# --- real data --------------------------------------------------------------------------------


@pytest.mark.shared_data
def test_cue_conflict(shared: Path) -> None:
    data = Folder(
        path=shared / "data" / "cue_conflict_84.zip", pattern=r"-(?P<texture>[a-z]+)\d+\.png$"
    )
    assert len(data.keys) == 1280
    assert len(data.class_names) == 16
    cells = Counter(zip(data.labels.tolist(), data.metadata["texture"], strict=True))
    assert {texture for _, texture in cells} == set(data.class_names)
    same = sum(cells[label, name] for label, name in enumerate(data.class_names))
    assert (same, max(cells.values())) == (80, 5)
    assert data.images(np.arange(0, 1280, 64), 84).shape == (20, 84, 84, 3)
    assert [len(data.splits[split]) for split in ("train", "val", "test")] == [10, 2, 4]
