"""`fsf predict`: from a trained run to the classes of a user's own files."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fsframework
from tests.conftest import Fsf

DATA = {"size": 24, "n_per_class": 24}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("trained")
    run = fsframework.run(
        method="protonet", sampler="random", way=5, shot=1, tasks=4, recipe="none",
        training={"epochs": 2, "steps": 40}, dataset={"name": "planted", **DATA}, progress=False,
        runs_dir=folder / "runs", cache_dir=folder / "cache",
    )  # fmt: skip
    return str(run.folder)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten images of each of four test classes for support, ten for queries."""
    folder = tmp_path_factory.mktemp("pictures")
    data = fsframework.dataset("planted", **DATA)
    pool, indices = data.pool("test"), data.split_indices("test")
    pixels = data.images(indices, 24)
    for label in range(4):
        for place, i in enumerate(pool.members(label)[:20]):
            part = folder / ("few" if place < 10 else "new") / f"shape{label}"
            part.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels[i]).save(part / f"{place}.png")
    return folder


@pytest.fixture
def pictures(drawn: Path, tmp_path: Path) -> Path:
    shutil.copytree(drawn, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_a_trained_run_knows_new_classes(
    fsf: Fsf, trained: str, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSF_RUNS", str(Path(trained).parent))
    # A run may be named by the beginning of its name.
    named = Path(trained).name[:-3]
    done = fsf("predict", "new", "--support", "few", "--model", named, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["method"], found["shot"], found["image_size"]) == ("protonet", 10, 24)
    right = [row["class"] == Path(row["file"]).parent.name for row in found["predictions"]]
    # Of 40 at a chance of a quarter each, 19 or more are right once in a thousand.
    assert sum(right) >= 19, sum(right)
    assert found["notes"] == []
    assert (found["run"], found["seed"]) == (trained, 0)
    sums = [sum(row["scores"].values()) for row in found["predictions"]]
    assert sums == pytest.approx([1] * 40, abs=1e-12), "scores are not rounded"


def test_what_is_printed_and_written(fsf: Fsf, pictures: Path) -> None:
    call = ("predict", "new/shape0/1*.png", "new/shape1/10.png", "--support", "few")
    done = fsf(*call, "--output", "found.csv", "--method", "ncc")
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["file", "class", "shape0", "shape1", "shape2", "shape3"]
    assert len([row for row in rows if row.startswith("new/")]) == 11
    assert "not calibrated" in done.stdout
    assert "note: conv64f has random weights" in done.stdout
    with (pictures / "found.csv").open() as file:
        written = list(csv.DictReader(file))
    assert len(written) == 11
    total = sum(float(written[0][f"shape{i}"]) for i in range(4))
    assert total == pytest.approx(1, abs=1e-12), "scores are not rounded"
    assert {row["class"] for row in written} <= {f"shape{i}" for i in range(4)}
    (pictures / "found.json").touch()
    again = fsf(*call, "--output", "found.json", "--method", "ncc", "--force")
    assert again.returncode == 0, again.stderr
    document = json.loads((pictures / "found.json").read_text())
    scores = document["predictions"][0]["scores"]
    assert scores["shape0"] == float(written[0]["shape0"])
    assert document["predictions"][0]["class"] == written[0]["class"]
    assert (document["run"], document["seed"]) == (None, 0)
    (pictures / "new/shape1/10.png").rename(pictures / "=1+1.png")
    assert fsf("predict", "=1+1.png", *call[3:], "--output", "formula.csv").returncode == 0
    with (pictures / "formula.csv").open() as file:
        assert [row["file"] for row in csv.DictReader(file)] == ["'=1+1.png"]


def test_many_classes_show_the_likeliest(fsf: Fsf, tmp_path: Path) -> None:
    for c in range(9):
        (tmp_path / f"few/kind{c}").mkdir(parents=True)
        colour = np.full((20, 20, 3), 28 * c, dtype=np.uint8)
        Image.fromarray(colour).save(tmp_path / f"few/kind{c}/x.png")
    done = fsf("predict", "few/kind8", "--support", "few")
    assert done.stdout.splitlines()[0].split() == ["file", "class", "score", "next"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("new", "--support", "nowhere"), "--support nowhere"),
        (("--support", "few"), "images"),
        (("broken.png", "--support", "few"), "broken.png: not a readable image"),
        (("new", "--support", "few", "--output", "x.txt"), ".csv or .json"),
        (("new", "--support", "few", "--output", "old.csv"), "--force"),
        (("new", "--support", "few", "--output", "no/x.csv"), "folder no"),
        (("new", "--support", "few", "--model", "runs/none"), "runs/none"),
        (("new", "--support", "few", "--model", "other"), "no run 'other'"),
        (("new", "--support", "few", "-o", "tasks=3"), "tasks"),
        (("new", "--support", "few", "--method", "nonsense"), "unknown method"),
        (("new", "--support", "few", "--image-size", "2"), "--image-size"),
    ],
)
def test_bad_input_is_one_line(
    fsf: Fsf, pictures: Path, arguments: tuple[str, ...], part: str
) -> None:
    (pictures / "broken.png").write_bytes(b"none")
    (pictures / "old.csv").touch()
    done = fsf("predict", *arguments)
    assert done.returncode == 2, done.stdout
    (line,) = [one for one in done.stderr.splitlines() if one.startswith("fsf: ")]
    assert part in line
    assert done.stdout == ""
