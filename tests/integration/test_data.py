"""`fsf data`: what a user adds, sees in the lists, and can name ever after."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

import fsframework._files as files
from fsf_tools import add_dataset, datasets, remove_dataset
from fsframework.errors import DataError, FsfError, PluginError
from tests.conftest import Fsf
from tests.toy_published import write_toy
from tests.toys import image_folder

BIRDS = {"kind0": "001.Black_footed_Albatross", "kind1": "002.Laysan_Albatross"}


def images(root: Path, classes: int = 10, each: int = 4) -> Path:
    return image_folder(root, [f"kind{c}" for c in range(classes)], each, 12)


def listed(fsf: Fsf, *options: str) -> dict[str, Any]:
    rows = json.loads(fsf("data", "list", "--json", *options).stdout)
    return {row["name"]: row for row in rows}


def test_a_folder_of_one_s_own_gets_a_name(fsf: Fsf, tmp_path: Path) -> None:
    images(tmp_path / "pictures")
    done = fsf(
        "data", "add", "folder", "pictures", "--as", "birds", "-o", "pattern=(?P<number>[0-9])"
    )
    assert done.returncode == 0, done.stderr
    assert "fsf run --dataset birds --detector appearance" in done.stdout
    assert "published" not in done.stdout
    resolved = json.loads(fsf("run", "--dataset", "birds", "--dry-run", "--json").stdout)
    assert resolved["resolved"]["dataset"]["path"] == str(tmp_path / "pictures"), "from anywhere"
    assert resolved["resolved"]["dataset"]["pattern"] == "(?P<number>[0-9])"
    assert resolved["origins"]["dataset"]["pattern"] == "fsf data add"
    rows = listed(fsf)
    assert rows["birds"]["state"] == "added"
    assert rows["birds"]["added"]["counts"]["test"] == [3, 12]
    assert rows["planted"]["state"] == "nothing to add"
    assert "words, caption, background" in fsf("data", "show", "planted").stdout
    again = fsf("data", "add", "folder", "pictures", "--as", "birds")
    assert "birds was added before" in again.stdout
    assert "pattern" not in (tmp_path / "added/datasets.json").read_text()
    gone = fsf("data", "remove", "birds")
    assert gone.returncode == 0
    assert (tmp_path / "pictures/kind0/0.png").exists()
    assert fsf("run", "--dataset", "birds", "--dry-run").returncode == 2


def test_equal_images_and_files_that_are_not_read_are_counted(fsf: Fsf, tmp_path: Path) -> None:
    folder = images(tmp_path / "pictures", classes=3)
    again = (folder / "kind0" / "0.png").read_bytes()
    (folder / "kind0" / "copy.png").write_bytes(again)
    for name in ("kind1/other.png", "kind2/other.png"):
        (folder / name).write_bytes((folder / "kind1" / "1.png").read_bytes())
    (folder / "kind2" / "1.heic").write_bytes(again)
    done = fsf("data", "check", "--dataset", "folder:pictures", "--json")
    found = json.loads(done.stdout)
    assert (found["equal_in_class"], found["equal_across_classes"]) == (2, 3)
    assert any("'kind0/copy.png'" in n or "'kind0/0.png'" in n for n in found["notes"])
    assert any("1 .heic" in problem for problem in found["problems"])
    ran = fsf(
        *("run", "--dataset", "folder:pictures", "--method", "ncc", "--sampler", "random"),
        *("--way", "2", "--shot", "1", "--queries", "2", "--tasks", "2"),
        *("-o", "training.epochs=0", "--json"),
    )
    assert any("1 .heic" in note for note in json.loads(ran.stdout)["notes"]), ran.stderr


def test_class_names_that_look_alike_are_noted(fsf: Fsf, tmp_path: Path) -> None:
    folder = images(tmp_path / "pictures", classes=4)
    for name, alike in (("kind1", "KIND0"), ("kind3", "kind\u200b2")):
        (folder / name).rename(folder / alike)
    done = fsf("data", "check", "--dataset", "folder:pictures", "--skip-images", "--json")
    found = json.loads(done.stdout)
    [note] = [note for note in found["notes"] if "letter case" in note]
    assert "'KIND0' and 'kind0'" in note
    assert "kind\\u200b2" in note
    assert not any("letter case" in problem for problem in found["problems"])
    ran = fsf(
        *("run", "--dataset", "folder:pictures", "--method", "ncc", "--sampler", "random"),
        *("--way", "2", "--shot", "1", "--queries", "2", "--tasks", "2", "--split", "all"),
        *("-o", "training.epochs=0", "--json"),
    )
    assert any("'KIND0'" in note for note in json.loads(ran.stdout)["notes"]), ran.stderr


def test_classes_of_one_repeated_image_are_named(fsf: Fsf, tmp_path: Path) -> None:
    folder = images(tmp_path / "pictures", classes=3)
    for path in sorted((folder / "kind1").iterdir()):
        path.write_bytes((folder / "kind1" / "0.png").read_bytes())
    named = "1 class consists of one repeated image: 'kind1'"
    done = fsf("data", "check", "--dataset", "folder:pictures")
    assert named in done.stdout + done.stderr
    ran = fsf(
        *("run", "--dataset", "folder:pictures", "--method", "ncc", "--sampler", "random", "--way"),
        *(
            "2",
            "--shot",
            "1",
            "--queries",
            "2",
            "--tasks",
            "2",
            "-o",
            "training.epochs=0",
            "--json",
        ),
    )
    assert ran.returncode == 0, ran.stderr
    assert named in json.loads(ran.stdout)["notes"]


def test_every_way_to_name_a_data_set_knows_it(
    fsf: Fsf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsf("data", "add", "folder", str(images(tmp_path / "pictures")), "--as", "birds")
    (tmp_path / "exp.toml").write_text('dataset = "birds"\n')
    for options in (("--config", "exp.toml"), ("-o", "dataset=birds")):
        done = fsf("run", *options, "--dry-run")
        assert str(tmp_path / "pictures") in done.stdout, done.stderr
    monkeypatch.setenv("FSF_DATASET", "birds")
    assert str(tmp_path / "pictures") in fsf("run", "--dry-run").stdout
    assert "(kind0)" in fsf("data", "check").stdout
    tasks = ("--sampler", "random", "--way", "2", "--shot", "1", "--queries", "1", "--tasks", "3")
    assert fsf("tasks", "make", "t.safetensors", *tasks).returncode == 0


def test_published_data_are_compared(fsf: Fsf, tmp_path: Path) -> None:
    plugin, place = write_toy(tmp_path)
    with_toy = ("--plugin", str(plugin))
    refused = fsf("data", "add", "toy-set", str(tmp_path / "nothing"), *with_toy)
    assert refused.returncode == 2
    assert not (tmp_path / "added/datasets.json").exists(), "nothing is kept"
    done = fsf("data", "add", "toy-set", str(place), *with_toy)
    assert "complete: its counts are those published" in done.stdout
    assert "licence: CC0" in done.stdout
    done = fsf("data", "add", "toy-set", str(place), "-o", "per_class=15", *with_toy)
    assert done.returncode == 0, "data that lack some can be used"
    assert "split test: 6 classes and 90 images, published are 6 and 120" in done.stdout
    assert f"added, 2 problems  {place}" in fsf("data", "list", *with_toy).stdout
    rows = listed(fsf, *with_toy)
    assert rows["toy-set"]["published"] == {"classes": 12, "images": 240}
    assert rows["toy-set"]["found"] == {"classes": 12, "images": 180}
    (line,) = [x for x in fsf("data", "list", *with_toy).stdout.splitlines() if "Toy Set" in x]
    assert "180" in line, "what is there, not what is published"
    shown = fsf("data", "show", "toy-set", *with_toy).stdout
    for part in ("example.org/toy", "Toy et al. 2020", "└── c00/", "imagenet-1k", "per_class"):
        assert part in shown


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("folder", "pictures", "--as", "csv"), "'csv' is the name of a data set"),
        (("folder", "pictures", "--as", "My Birds"), "lower-case"),
        (("planted", "pictures"), "nothing to add"),
        (("foldr", "pictures", "--as", "b"), "did you mean 'folder'"),
        (("folder", "nowhere", "--as", "b"), "no such folder"),
        (("folder", "pictures", "--as", "b", "-o", "pattern"), "KEY=VALUE"),
        (("folder", "pictures", "--as", "b", "-o", "patern=x"), "did you mean 'pattern'"),
        (("folder", "pictures", "--as", "b", "-o", "path=x"), "leave it out"),
        (("nowhere.toml", "pictures"), "no such file"),
        (("elsewhere/set.toml", "pictures"), "../split.json"),
    ],
)
def test_what_cannot_be_added(
    fsf: Fsf, tmp_path: Path, arguments: tuple[str, ...], part: str
) -> None:
    images(tmp_path / "pictures", 2)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/set.toml").write_text(
        declare(tmp_path, "kind0", "kind1").read_text().replace("split.json", "../split.json")
    )
    done = fsf("data", "add", *arguments)
    assert done.returncode == 2
    assert part in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "added/datasets.json").exists()


def test_a_declaration_outlives_its_original(fsf: Fsf, tmp_path: Path) -> None:
    """The file and what it names are copied; its own name is usable."""
    images(tmp_path / "pictures", 2, 5)
    declare(tmp_path, "kind0", "kind1")
    done = fsf("data", "add", "mine/set.toml", "pictures")
    assert done.returncode == 0, done.stderr
    assert "5 images of 1 class, published 4" in done.stdout
    for file in (tmp_path / "mine").iterdir():
        file.unlink()
    done = fsf("data", "check", "--dataset", "my-set")
    assert "(kind1)" in done.stdout, done.stderr
    rows = listed(fsf)
    assert rows["my-set"]["about"]["licence"] == "CC0"
    fsf("data", "remove", "my-set")
    assert not (tmp_path / "added/declarations/my-set").exists()


def test_words_need_no_detector(fsf: Fsf, tmp_path: Path) -> None:
    root = images(tmp_path / "pictures")
    rows = [f"{f},{f.parent.name},red" for f in sorted(root.rglob("*.png"))]
    (tmp_path / "mine.csv").write_text("\n".join(["path,label,words", *rows]) + "\n")
    done = fsf("data", "add", "csv", "mine.csv", "--as", "mine")
    assert "use it: fsf run --dataset mine\n" in done.stdout, done.stderr
    assert "use it: fsf run --dataset mine\n" in fsf("data", "show", "mine").stdout


def test_all_published_splits_are_shown(fsf: Fsf, tmp_path: Path) -> None:
    shown = fsf("data", "show", "cub").stdout
    assert "200 bird species" in shown
    assert "note: FewSTAB (Table S1) prints" in shown
    table = shown.partition("published split")[2].splitlines()
    lines = {line.split()[0]: line for line in table if " classes, " in line}
    assert list(lines) == ["fewstab", "feat", "chen", "meta-dataset"]
    assert "130 classes, 7,647 images" in lines["fewstab"]
    assert [name for name, line in lines.items() if "used by default" in line] == ["fewstab"]
    about = json.loads(fsf("data", "show", "cub", "--json").stdout)["about"]
    assert (about["splits"]["chen"]["test"], len(about["notes"])) == ([50, 2953], 1)
    images(tmp_path / "pictures", 2)
    for name in ("kind0", "kind1"):
        (tmp_path / "pictures" / name).rename(tmp_path / "pictures" / BIRDS[name])
    assert fsf("data", "add", "cub", "pictures", "-o", "split=chen").returncode == 0
    shown = fsf("data", "show", "cub").stdout
    (used,) = (x for x in shown.splitlines() if x.rstrip().endswith("used"))
    assert used.startswith("chen ")
    row = json.loads(fsf("data", "show", "cub", "--json").stdout)
    assert row["about"]["counts"]["train"] == [100, 5885], "of the split it was added with"
    assert row["found"] == {"classes": 2, "images": 8}
    assert row["published"] == {"classes": 200, "images": 11788}


def declare(tmp_path: Path, first: str, second: str) -> Path:
    """Write a declaration of two classes and the split file it names."""
    home = tmp_path / "mine"
    home.mkdir(exist_ok=True)
    (home / "split.json").write_text(json.dumps({"train": [first], "test": [second]}))
    (home / "set.toml").write_text(
        'name = "my-set"\ntitle = "My Set"\nlicence = "CC0"\nsource = "mine"\ncitation = "me"\n'
        '[[layouts]]\nname = "folders"\nkind = "folders"\n'
        '[splits.mine]\nsource = "me"\nfile = "split.json"\n'
        "counts = { train = [1, 4], test = [1, 4] }\n"
    )
    return home / "set.toml"


SPLIT = "declarations/my-set/split.json"
KEPT = {"datasets.json", "declarations/my-set/my-set.toml", SPLIT}


def kept(tmp_path: Path) -> dict[str, bytes]:
    folder = tmp_path / "added"
    files = (f for f in folder.rglob("*") if f.is_file() and f.name != "lock")
    return {str(f.relative_to(folder)): f.read_bytes() for f in files}


def test_a_declaration_and_its_entry_change_together_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under one lock: another process sees the former of both, or the new ones."""
    pictures = images(tmp_path / "pictures", 3)
    declaration = declare(tmp_path, "kind0", "kind1")
    add_dataset(str(declaration), pictures)
    before = kept(tmp_path)
    assert set(before) == KEPT
    declare(tmp_path, "kind1", "kind2")
    write, seen = files.atomic_write, []

    def failing(path: Path, data: bytes | str) -> None:
        if path.name == "datasets.json":
            held = (tmp_path / "added/lock").open("w")
            with held, pytest.raises(BlockingIOError):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            seen.append(kept(tmp_path).get(SPLIT, b""))
            raise FsfError("no space left")
        write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr("fsf_tools.data._copies.atomic_write", failing)
        with pytest.raises(FsfError, match="no space left"):
            add_dataset(str(declaration), pictures)
        with pytest.raises(FsfError, match="no space left"):
            remove_dataset("my-set")
    assert [b"kind2" in split for split in seen] == [True, False]
    assert kept(tmp_path) == before
    add_dataset(str(declaration), pictures)
    assert set(kept(tmp_path)) == KEPT
    assert b"kind2" in kept(tmp_path)[SPLIT]
    # From the copy itself, whose own files are read before they are replaced.
    copy = tmp_path / "added/declarations/my-set/my-set.toml"
    now = {name: data for name, data in kept(tmp_path).items() if "declarations" in name}
    add_dataset(str(copy), pictures)
    assert now.items() <= kept(tmp_path).items()
    # A name that then stands for something else leaves no declaration.
    add_dataset("folder", pictures, name="my-set")
    assert set(kept(tmp_path)) == {"datasets.json"}


READER = """
from fsframework.interfaces import Dataset


class {cls}(Dataset):
    \"\"\"Reads declarations too.\"\"\"

    argument = "file"
    location = "where"
    declared_by = "file"

    def image(self, index):
        raise NotImplementedError
"""


@pytest.mark.parametrize(
    ("splits", "told"),
    [
        ("", "no published counts to compare with"),
        ('[splits.mine]\ntrain = ["kind0", "kind1"]\ntest = ["kind2", "kind3"]\n', "complete: "),
    ],
)
def test_only_the_counts_that_are_published_are_compared(
    fsf: Fsf, tmp_path: Path, splits: str, told: str
) -> None:
    images(tmp_path / "pictures", 4)
    (tmp_path / "set.toml").write_text(f'name = "my-set"\ntitle = "My Set"\n{splits}')
    done = fsf("data", "add", "set.toml", "pictures")
    assert told in done.stdout, done.stderr
    assert "problem" not in done.stdout
    assert "0 images" not in done.stdout
    assert ("complete" in fsf("data", "show", "my-set").stdout) is bool(splits)
    for command in ("remove", "show"):
        gone = fsf("data", command, "birdz")
        assert (gone.returncode, "birdz" in gone.stderr) == (2, True)


def test_two_plugins_that_read_declarations_are_an_error(tmp_path: Path) -> None:
    declaration = declare(tmp_path, "kind0", "kind1")
    (tmp_path / "reader.py").write_text(READER.format(cls="Reader"))
    plugins = (tmp_path / "reader.py",)
    with pytest.raises(PluginError, match=r"set\.toml: the plugins declared and reader all read"):
        add_dataset(str(declaration), tmp_path, plugins=plugins)
    [row] = [row for row in datasets(plugins=plugins) if row.name == "reader"]
    assert (row.named, row.state) == ("reader:FILE.toml -o dataset.where=WHERE", "not added")


def test_a_killed_exchange_is_mended(tmp_path: Path) -> None:
    pictures = images(tmp_path / "pictures", 3)
    add_dataset(str(declare(tmp_path, "kind0", "kind1")), pictures)
    copies = tmp_path / "added/declarations/my-set"
    copies.rename(copies.with_name(".my-set.old"))  # killed between both renamings
    (copies.with_name(".my-set.new")).mkdir()
    with pytest.raises(DataError, match="no layout|no such folder"):
        add_dataset(str(tmp_path / "mine/set.toml"), tmp_path / "nowhere")
    add_dataset(str(tmp_path / "mine/set.toml"), pictures)
    assert set(kept(tmp_path)) == KEPT
