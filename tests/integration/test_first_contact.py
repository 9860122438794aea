"""The first command on one's own images: an answer, or a sentence with a command that works."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fsframework as api
from fsframework.errors import InfeasibleTask
from tests.conftest import Fsf

UNTRAINED = ("--method", "ncc", "-o", "training.epochs=0")


@pytest.fixture(autouse=True)
def _small_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands be as a user would type them, and end within seconds."""
    (tmp_path / "quick.toml").write_text(
        "tasks = 12\nimage_size = 16\n[training]\nepochs = 1\nsteps = 2\nvalidation_tasks = 4\n"
    )
    monkeypatch.setenv("FSF_CONFIG", str(tmp_path / "quick.toml"))


def images(
    root: Path, sizes: Sequence[int], splits: Sequence[str] = (), words: Sequence[str] = "abcdef"
) -> Path:
    """Write a folder of classes, and a table of words beside it, two words an image."""
    rng, rows = np.random.default_rng(0), []
    for c, size in enumerate(sizes):
        folder = root.joinpath(*splits[c : c + 1], f"class{c:02d}")
        folder.mkdir(parents=True)
        for i in range(size):
            file = folder / f"{i:02d}.png"
            Image.fromarray(rng.integers(0, 256, (12, 12, 3)).astype(np.uint8)).save(file)
            found = {words[i % len(words)], words[(i // 2 + c) % len(words)]}
            rows.append((str(file.relative_to(root)), ";".join(sorted(found))))
    with root.with_suffix(".csv").open("w", newline="") as file:
        csv.writer(file).writerows([("key", "words"), *rows])
    return root


def run(fsf: Fsf, *arguments: str, words: bool = True) -> tuple[int, str, dict[str, object]]:
    attributes = ("--attributes", "images.csv") if words else ()
    done = fsf("run", "--json", "--dataset", "folder:./images", *attributes, *arguments)
    return done.returncode, done.stderr, json.loads(done.stdout) if done.stdout else {}


def shape(found: dict[str, object], arm: str) -> tuple[int, int, int]:
    record = api.load_run(str(found["folder"])).record.arms[arm]
    return record.n_way, record.n_shot, record.n_query


def test_twelve_classes_of_25_images_give_an_answer(fsf: Fsf, tmp_path: Path) -> None:
    """Of 12 classes, 3 are drawn for the split test."""
    images(tmp_path / "images", [25] * 12)
    code, told, found = run(fsf)
    assert code == 0, told
    assert shape(found, "biased") == (3, 5, 15)
    notes = [line for line in told.splitlines() if line.startswith("note: ")]
    assert notes == [
        "note: the split test (3 classes of 25 images, 6 words) does not allow tasks of 5 ways; "
        "the tasks have 3 ways"
    ]
    assert notes[0].removeprefix("note: ") in found["notes"]
    assert "wacc-gap" in found["estimates"]


def test_where_nothing_is_trained_a_small_test_split_gives_way_to_all(
    fsf: Fsf, tmp_path: Path
) -> None:
    images(tmp_path / "images", [25] * 12)
    code, told, found = run(fsf, *UNTRAINED)
    assert code == 0, told
    assert shape(found, "random")[0] == 4, "more than the three classes of the split test"
    assert api.load_run(str(found["folder"])).record.settings["split"] == "all"
    assert "the split test has only 3 classes of 25 images: the tasks use all" in told
    code, told, found = run(fsf, *UNTRAINED, "--split", "test")
    assert shape(found, "random")[0] == 3, "a split that is given stays"


def test_training_follows_too(fsf: Fsf, tmp_path: Path) -> None:
    images(tmp_path / "images", [4] * 12)
    code, told, found = run(fsf, "--shot", "1", "--sampler", "random", words=False)
    assert code == 0, told
    assert shape(found, "random") == (3, 1, 3)
    assert "allows training episodes of 3 ways, 1 shot and 3 queries per class" in told


DATA = {
    "few": ([25] * 4, ()),
    "small": ([5] * 12, ()),
    "pairs": ([2] * 8, ()),
    "unequal": ([3, 5, 8, 12, 20, 30, 40, 60, 9, 7, 25, 25], ()),
    "without test": ([25] * 8, ["train"] * 6 + ["val"] * 2),
    "small test": ([25] * 9, ["train"] * 6 + ["val"] * 2 + ["test"]),
}


@pytest.mark.parametrize(
    ("data", "given", "named"),
    [
        ("few", (), "split 'test' (1 class"),
        ("unequal", ("--way", "9", "--shot", "40"), "9-way tasks need 9 classes"),
        ("without test", (), "no split 'test'"),
        ("small test", ("--split", "test", *UNTRAINED), "split 'test' (1 class"),
        ("words everywhere", (), "split 'test' (3 classes"),
        ("one class", UNTRAINED, "has 1 class"),
        ("one image", UNTRAINED, "1 image"),
    ],
)
def test_what_the_data_do_not_allow_is_refused_with_the_rule(
    fsf: Fsf, tmp_path: Path, data: str, given: tuple[str, ...], named: str
) -> None:
    if data == "words everywhere":
        images(tmp_path / "images", [25] * 12, words=["everywhere"])
    else:
        hopeless = {"one class": ([25], ()), "one image": ([1] * 10, ())}
        images(tmp_path / "images", *{**DATA, **hopeless}[data])
    code, told, _ = run(fsf, *given)
    assert code == 2
    assert named in told.splitlines()[-1]


def test_python_is_told_arguments_and_not_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    images(tmp_path / "images", [25] * 4)
    call = {"dataset": "folder:images", "attributes": "images.csv", "config": "quick.toml"}
    with pytest.raises(InfeasibleTask) as caught:
        api.run(**call, progress=False)
    assert "training={'epochs': 0}" in str(caught.value)
    assert "--" not in str(caught.value)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("data", "words"),
    [("usual", False), ("pairs", False), *((data, True) for data in ("usual", *DATA))],
)
def test_data_check_ends_with_a_command_that_runs_as_it_is(
    fsf: Fsf, tmp_path: Path, data: str, words: bool
) -> None:
    sizes, splits = DATA.get(data, ([25] * 12, ()))
    images(tmp_path / "images", sizes, splits)
    attributes = ("--attributes", "images.csv") if words else ()
    checked = fsf("data", "check", "--dataset", "folder:./images", *attributes)
    assert checked.returncode == 0, checked.stderr
    last = checked.stdout.splitlines()[-1]
    assert last.startswith("use it: fsf run --dataset folder:./images")
    assert ("--detector appearance" in last) is not words
    assert data != "pairs" or "--shot 1" in last
    asks_less = "--shot 1" in last or "training.epochs=0" in last
    assert ("no problem found" in checked.stdout) is not asks_less
    command = shlex.split(last.removeprefix("use it: fsf "))
    done = fsf(*command, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["estimates"]
    [told] = [line for line in checked.stdout.splitlines() if "tasks from the split" in line]
    assert told in done.stderr.splitlines(), "the run draws the tasks that were promised"


@pytest.mark.parametrize("model", [(), ("--method", "ncc", "-o", "training.epochs=0")])
def test_all_commands_name_the_same_tasks(fsf: Fsf, tmp_path: Path, model: tuple[str, ...]) -> None:
    """Trained, the tasks are of the classes under test; else of all, unless these suffice."""
    images(tmp_path / "images", [30] * 9 + [6])
    given = ("--dataset", "folder:./images", "--attributes", "images.csv", *model)
    told = [
        [
            line
            for line in (done.stdout + done.stderr).splitlines()
            if "tasks from the split" in line
        ]
        for done in (
            fsf("run", *given, "--config", "quick.toml"),
            fsf("tasks", "make", "tasks.safetensors", *given),
            fsf("attributes", "stats", *given),
            *([fsf("data", "check", *given)] if model else []),
        )
    ]
    assert all(lines == told[0] for lines in told), told
    assert len(told[0]) == 1


@pytest.mark.parametrize("mark", [", ", "|"])
def test_words_separated_by_other_marks_are_told_about(fsf: Fsf, tmp_path: Path, mark: str) -> None:
    images(tmp_path / "images", [25] * 4)
    table = (tmp_path / "images.csv").read_text().splitlines()
    keys = [line.partition(",")[0] for line in table[1:]]
    rows = [f'{key},"red{mark}{("small", "large")[i % 2]}"' for i, key in enumerate(keys)]
    (tmp_path / "images.csv").write_text("\n".join(["key,words", *rows]))
    done = fsf("data", "check", "--dataset", "folder:./images", "--attributes", "images.csv")
    assert done.returncode == 2
    assert "images.csv" in done.stderr
    assert "red;" in done.stderr


def test_data_check_compares_words_with_images(fsf: Fsf, tmp_path: Path) -> None:
    root = images(tmp_path / "images", [25] * 12)
    table = (tmp_path / "images.csv").read_text()
    (tmp_path / "images.csv").write_text(table.replace("class00/", "klass00/"))
    (root / "class05" / "03.png").write_bytes(b"broken")
    check = ("data", "check", "--dataset", "folder:./images", "--attributes", "images.csv")
    done = fsf(*check)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert "25 keys of the words have no image: 'klass00/00.png', 'klass00/01.png', " in done.stdout
    assert "25 images have no words: 'class00/00.png', 'class00/01.png', " in done.stdout
    assert lines[-1].startswith("use it: fsf run --dataset folder:./images --attributes images.csv")
    assert "--broken skip" in lines[-1]
    found = json.loads(fsf(*check, "--json").stdout)
    assert len(found["words"]["keys_without_image"]) == 25
    assert found["words"]["images_without_words"][0] == "class00/00.png"
    assert "--broken skip" in found["usage"]
    assert fsf(*shlex.split(found["usage"])[1:], "--json").returncode == 0


CHECK = ("data", "check", "--dataset", "folder:./images", "--attributes", "images.csv")
"""The check of data and words that a user's first mistakes meet."""


def test_words_that_name_the_class_are_told_by_check_and_run(fsf: Fsf, tmp_path: Path) -> None:
    images(tmp_path / "images", [25] * 6)
    header, *rows = (tmp_path / "images.csv").read_text().splitlines()
    named = [f"{row};{row.partition('/')[0]}" if i % 25 < 20 else row for i, row in enumerate(rows)]
    (tmp_path / "images.csv").write_text("\n".join([header, *named]))
    notes = json.loads(fsf(*CHECK, "--json", "--skip-images").stdout)["notes"]
    [note] = [note for note in notes if "--drop-class-words" in note]
    assert note.startswith("in 6 of the 6 classes")
    assert "class00" in note
    given = ("--dataset", "folder:./images", "--attributes", "images.csv", "--tasks", "2")
    plain = ("--backbone", "conv64f", "--method", "ncc", "--recipe", "none", "--json")
    run = ("run", *given, *plain, "-o", "training.epochs=0")
    assert note in json.loads(fsf(*run).stdout)["notes"]
    dropped = json.loads(fsf(*run, "--drop-class-words").stdout)["notes"]
    assert not any("--drop-class-words" in note for note in dropped)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda line: line + ",more" if "/" in line else line, "by ';'"),
        (lambda line: line.replace(",", ";"), "separated by commas"),
    ],
)
def test_a_wrong_separator_is_named(
    fsf: Fsf, tmp_path: Path, change: Callable[[str], str], part: str
) -> None:
    images(tmp_path / "images", [25] * 4)
    lines = (tmp_path / "images.csv").read_text().splitlines()
    (tmp_path / "images.csv").write_text("\n".join(map(change, lines)))
    done = fsf(*CHECK)
    assert done.returncode == 2
    assert "images.csv" in done.stderr
    assert part in done.stderr
    assert "captions" not in done.stderr


@pytest.mark.parametrize(
    ("change", "mend"),
    [
        (lambda key: f"photos/{key}", "remove 'photos/' from the keys"),
        (lambda key: key.partition("/")[2], "'class03/00.png', not '00.png'"),
    ],
)
def test_keys_with_another_beginning_are_one_problem_with_its_mend(
    fsf: Fsf, tmp_path: Path, change: Callable[[str], str], mend: str
) -> None:
    images(tmp_path / "images", [25] * 4)
    header, *rows = (tmp_path / "images.csv").read_text().splitlines()
    changed = {change(row.partition(",")[0]): row.partition(",")[2] for row in rows}
    lines = [header, *(f"{key},{words}" for key, words in changed.items())]
    (tmp_path / "images.csv").write_text("\n".join(lines))
    done = fsf(*CHECK)
    assert done.returncode == 1
    assert done.stdout.count("00.png") == 2, "the key and that of its image"
    assert mend in done.stdout


def test_images_without_words_are_counted_once_for_the_split_that_is_used(
    fsf: Fsf, tmp_path: Path
) -> None:
    images(tmp_path / "images", [100] * 12)
    lines = (tmp_path / "images.csv").read_text().splitlines()
    (tmp_path / "images.csv").write_text("\n".join([lines[0], *lines[1::2]]))
    given = ("--dataset", "folder:./images", "--attributes", "images.csv", "--tasks", "2")
    plain = ("--backbone", "conv64f", "--method", "ncc", "--recipe", "none")
    done = fsf("run", *given, *plain, "-o", "training.epochs=0", "--json")
    notes = [note for note in json.loads(done.stdout)["notes"] if "word" in note]
    assert [line for line in done.stderr.splitlines() if "images.csv" in line] == [
        f"note: {note}" for note in notes if "images.csv" in note
    ]
    [note] = [note for note in notes if "lacking every word" in note]
    assert note.startswith("600 of the 1,200 images are not in images.csv")


def test_a_detector_sees_the_images_of_the_split_that_is_used_once(
    fsf: Fsf, tmp_path: Path
) -> None:
    images(tmp_path / "images", [100] * 10)
    given = ("--dataset", "folder:./images", "--detector", "appearance", "--tasks", "2")
    plain = ("--backbone", "conv64f", "--method", "ncc", "--recipe", "none")
    done = fsf("run", *given, *plain, "-o", "training.epochs=0", "--json")
    assert done.returncode == 0, done.stderr
    told = " ".join(line for line in done.stderr.splitlines() if line.startswith("detection: "))
    assert "1,000" in told
    assert "300" not in told, "the words of the split test alone are not needed"
