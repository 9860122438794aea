"""Published data sets and a user's own declaration, from files to numbers by the commands."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import Fsf
from tests.toys import image_folder

QUICK = (
    "--method", "ncc", "--sampler", "random", "--way", "2", "--shot", "1", "--queries", "2",
    "--tasks", "5", "--image-size", "32", "-o", "training.epochs=0", "--json",
)  # fmt: skip


def picture(seed: int, side: int = 20) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8)


def miniimagenet(root: Path) -> Path:
    root.mkdir()
    synsets = {"train": ("n01532829", "n01558993"), "test": ("n01930112", "n01981276")}
    for split, (first, second) in synsets.items():
        rows = {first: [0, 1, 2, 3], second: [4, 5, 6, 7]}
        content = {"image_data": np.stack([picture(i, 84) for i in range(8)]), "class_dict": rows}
        file = root / f"mini-imagenet-cache-{split}.pkl"
        file.write_bytes(pickle.dumps(content, protocol=2))
    return root


def eurosat_zip(root: Path) -> Path:
    image_folder(root / "EuroSAT" / "2750", ["Forest", "River"])
    file = root / "EuroSAT.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for path in sorted((root / "EuroSAT").rglob("*.png")):
            archive.write(path, path.relative_to(root))
    return file


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "make"), [("miniimagenet", miniimagenet), ("eurosat", eurosat_zip)]
)
def test_a_miniature_is_checked_and_measured(
    name: str, make: Any, fsf: Fsf, tmp_path: Path
) -> None:
    data = f"{name}:{make(tmp_path / 'data')}"
    report = json.loads(fsf("data", "check", "--dataset", data, "--json").stdout)
    assert any("published" in problem for problem in report["problems"])
    done = fsf("run", "--dataset", data, *QUICK)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["estimates"]["acc-random"]["n_tasks"] == 5


OWN = """
name = "my-birds"
title = "Birds of my garden"
licence = "CC-BY-4.0"

[[layouts]]
kind = "folders"
levels = ["class", "context"]

[splits.seasons]
train = { robin = 4, wren = 8 }
test = ["finch", "tit"]
"""


def test_a_users_own_declaration(fsf: Fsf, tmp_path: Path) -> None:
    (tmp_path / "birds.toml").write_text(OWN)
    names = [f"{bird}/{where}" for bird in ("Robin", "Wren", "Finch") for where in ("snow", "sun")]
    image_folder(tmp_path / "images", [*names, "tit/snow", "tit/sun"])
    data = ("--dataset", "declared:birds.toml", "-o", "dataset.path=images")
    report = json.loads(fsf("data", "check", *data, "--json").stdout)
    assert report["problems"] == [
        "split train: 16 images of 2 classes, published 12 of 2",
        "1 class with other numbers of images: 'robin' 8 (published 4)",
    ]
    done = fsf("run", *data, "--attributes", "column:context", *QUICK)
    assert done.returncode == 0, done.stderr
    (tmp_path / "birds.toml").write_text(OWN + 'colour = "red"\n')
    wrong = fsf("run", *data, *QUICK)
    assert wrong.returncode == 2
    assert "birds.toml: splits.seasons: colour is unknown; known: train" in wrong.stderr
