"""Files of the published FewSTAB code and tasks of other tools, written here as it writes them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from fsframework.values import AttributeTable, TaskSet
from tests.conftest import Fsf
from tests.toys import image_folder

CLASSES = ("n01", "n02", "n03")
FOLDER = ("--dataset", "folder:images")
EACH = 8


@pytest.fixture
def names(tmp_path: Path) -> list[str]:
    """Write images whose file names are unique, and LibFewShot's list of them."""
    root = image_folder(tmp_path / "images", CLASSES, each=EACH)
    found = []
    for name in CLASSES:
        for i in range(EACH):
            (root / name / f"{i}.png").rename(root / name / f"{name}{i}.png")
            found.append(f"{name}{i}.png")
    rows = [f"{name},{name[:3]}" for name in found]
    (tmp_path / "test.csv").write_text("\n".join(["filename,label", *rows]) + "\n")
    return found


def test_attributes_of_a_pickle_are_words(fsf: Fsf, tmp_path: Path, names: list[str]) -> None:
    attributes = ["dog:noun", "black:adj", "stop sign:noun"]
    classes = {
        label: (
            np.array([[i % 2, 1, 0] for i in range(EACH)], float),
            attributes,
            [name for name in names if name.startswith(label)],
            list(range(k * EACH, (k + 1) * EACH)),
        )
        for k, label in enumerate(CLASSES)
    }
    (tmp_path / "a.pickle").write_bytes(pickle.dumps(classes))
    refused = fsf("attributes", "stats", *FOLDER, "--attributes", "a.pickle")
    assert refused.returncode == 2
    assert "fsf attributes import a.pickle words.parquet" in refused.stderr
    done = fsf("attributes", "import", "a.pickle", "w.parquet", *FOLDER)
    assert done.returncode == 0, done.stderr
    table = AttributeTable.load(tmp_path / "w.parquet")
    assert table.words == ("black", "dog")
    assert table.aligned(["n02/n021.png"]).words_of(0) == ("black", "dog")
    assert len(table) == EACH * len(CLASSES)


class Harmful:
    def __reduce__(self) -> tuple[object, ...]:
        return (exec, ("open('harmed', 'w')",))


def test_a_pickle_is_not_executed(fsf: Fsf, tmp_path: Path, names: list[str]) -> None:
    (tmp_path / "a.pickle").write_bytes(pickle.dumps({"n01": Harmful()}))
    torch.save([Harmful()], tmp_path / "t.pt")
    (tmp_path / "b.pickle").write_bytes(pickle.dumps({"n01": "no matrix"}))
    for file in ("a.pickle", "b.pickle"):
        assert fsf("attributes", "import", file, "w.parquet", *FOLDER).returncode == 2
    done = fsf("tasks", "import", "t.pt", "t.st", "--images", "test.csv", *FOLDER)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "could run code" in done.stderr
    assert not (tmp_path / "harmed").exists()
    assert not (tmp_path / "t.st").exists()


def test_task_files_are_read_and_run(fsf: Fsf, tmp_path: Path, names: list[str]) -> None:
    words = np.array(["dog:noun", "black:adj", "sign:noun"])
    rng = np.random.default_rng(0)
    tasks = []
    for _ in range(20):
        ways = [rng.choice(EACH, 4, replace=False) + k * EACH for k in rng.permutation(3)]
        tasks.append((torch.tensor(np.array(ways)), [words] * 3))
    torch.save(tasks, tmp_path / "spurious_test.pt")
    given = ("tasks", "import", "spurious_test.pt", "t.st", *FOLDER)
    assert "--images" in fsf(*given).stderr
    for shape in ([], ["--shot", "1", "--queries", "15"], ["--shot", "4"], ["--queries", "5"]):
        done = fsf(*given, "--images", "test.csv", *shape)
        assert done.returncode == 2
        assert "4 images per class" in done.stderr
    done = fsf(*given, "--images", "test.csv", "--shot", "1", "--queries", "3")
    assert done.returncode == 0, done.stderr
    read = TaskSet.load(tmp_path / "t.st")
    assert (len(read), read.n_way, read.n_shot, read.n_query, read.arm) == (20, 3, 1, 3, "biased")
    assert [read.words[a] for a in read.attribute[0]] == ["dog", "black", "sign"]

    assert fsf("tasks", "export", "t.st", "t.jsonl", *FOLDER, "--split", "all").returncode == 0
    line = json.loads((tmp_path / "t.jsonl").read_text().splitlines()[0])
    assert line["support"][0] == [f"{n[:3]}/{n}" for n in [names[int(tasks[0][0][0][0])]]]
    assert fsf("tasks", "import", "t.jsonl", "u.st", *FOLDER).returncode == 0
    again = TaskSet.load(tmp_path / "u.st")
    assert (again.digest, again.words) == (read.digest, read.words)

    run = ("run", "--method", "ncc", "--task-file", "t.st", "--image-size", "32", "--json")
    done = fsf(*run, *FOLDER, "-o", "training.epochs=0")
    assert done.returncode == 0, done.stderr


def test_captions_without_header_are_matched_by_name(
    fsf: Fsf, tmp_path: Path, names: list[str]
) -> None:
    rows = [f"{name},a dog, on grass,{name[:3]}" for name in names]
    (tmp_path / "test_captions.csv").write_text("\n".join(rows) + "\n")
    detector = ("--detector", "captions-file:test_captions.csv", "-o", "detector.selector=tags")
    done = fsf("attributes", "extract", "w.parquet", *detector, *FOLDER)
    assert done.returncode == 0, done.stderr
    table = AttributeTable.load(tmp_path / "w.parquet")
    assert table.words == ("a dog", "on grass")
    assert int((table.words_per_image() == 2).sum()) == len(names)


@pytest.mark.parametrize(
    ("change", "listed", "part"),
    [
        (lambda rows: rows - 24, None, "t.pt, task 0: refers to image -"),
        (lambda rows: rows + 20, None, "test.csv has 24"),
        (lambda rows: rows > 3, None, "not a task file"),
        (lambda rows: rows.float(), None, "not a task file"),
        (lambda rows: rows, "image.name", "test.csv: no image of the data is called 'x0.png'"),
        (lambda rows: rows, "", "test.csv: no image of the data is called 'x0'"),
    ],
)
def test_task_files_that_do_not_fit(
    fsf: Fsf, tmp_path: Path, names: list[str], change, listed: str | None, part: str
) -> None:
    rows = torch.arange(24).reshape(3, 8)[:, :4]
    torch.save([(change(rows), [["dog:noun"] * 3])], tmp_path / "t.pt")
    if listed is not None:
        suffix = ".png" if listed else ""
        lines = [f"x{i}{suffix},n01" for i in range(24)]
        (tmp_path / "test.csv").write_text("\n".join([*filter(None, [listed]), *lines]))
    done = fsf("tasks", "import", "t.pt", "t.st", *FOLDER, "--images", "test.csv", "--shot", "1")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert part in done.stderr
    assert not (tmp_path / "t.st").exists()


@pytest.mark.parametrize(
    ("root", "classes", "part"),
    [
        ("{c}/", None, None),
        ("", ["n01", "n02", "n03"], None),
        ("images/{c}/", None, None),
        ("/x/y/{c}/", None, None),
        ("f/", None, "'f/n010.png'"),
        ("f/{c}/g/", None, "'f/n01/g/n010.png'"),
        ("{c}/", ["n02", "n01", "n03"], "t.jsonl: task 0: classes"),
    ],
)
def test_lines_of_tasks_name_images_and_their_classes(
    fsf: Fsf, tmp_path: Path, names: list[str], root: str, classes: list[str] | None, part: str
) -> None:
    keys = [[root.format(c=c) + f"{c}{i}.png" for i in range(4)] for c in CLASSES]
    task = {"support": [row[:1] for row in keys], "query": [row[1:] for row in keys]}
    task |= {"classes": classes} if classes else {}
    (tmp_path / "t.jsonl").write_text(json.dumps(task))
    done = fsf("tasks", "import", "t.jsonl", "t.st", *FOLDER)
    assert done.returncode == (2 if part else 0), done.stderr
    assert (part or "") in done.stderr
    assert done.stderr.count("t.jsonl") == bool(part)
    if not part:
        assert TaskSet.load(tmp_path / "t.st").support[:, :, 0].tolist() == [[0, 8, 16]]
