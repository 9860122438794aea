"""`fsf pretrain`: images without labels, the same weights as a run, and what it refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

import fsframework as fsf_api
from fsf_self_supervised import pretrain

STEPS = ("-o", "training.epochs=2", "-o", "training.steps=3", "-o", "training.batch_size=8",
         "-o", "training.validation_tasks=0")  # fmt: skip
UNLABELLED = ("--dataset", "folder:photos", "-o", "dataset.labels=none")
PRETRAIN = ("pretrain", "--plugin", "mine.py", "--method", "symmetric", *UNLABELLED, *STEPS)
TASKS = ("--sampler", "random", "--shot", "1", "--queries", "2", "--tasks", "20")
RUN = ("run", "--method", "ncc", *TASKS, "-o", "training.epochs=0", "--json")
LABELLED = ("--dataset", "folder:labelled")
MINE = '''
import torch
from fsframework.interfaces import FewShotMethod, ViewMaker, Views


class Mirrored(ViewMaker):
    """An image and its mirror image."""

    n_views = n_kinds = 2

    def make(self, images):
        numbers = torch.arange(2, device=images.device)
        return Views(torch.stack([images, images.flip(-1)], 1), numbers.expand(len(images), -1))


class Symmetric(FewShotMethod):
    """Learns without labels to see an image and its mirror image alike."""

    learns_from = "views"
    uses_labels = False
    trains_on_images = True
    weightless = True
    usual_components = {"views": "mirrored"}

    def __init__(self, *, views: ViewMaker) -> None:
        super().__init__()
        self.views = views

    def build(self, item_shape, n_base_classes, backbone):
        self.backbone = backbone

    def loss(self, batch):
        left, right = (self.backbone.encode(batch.views[:, i]) for i in range(2))
        return (left - right).square().mean() - 0.01 * left.std(0).mean()

    def scores(self, support, query):
        return -torch.cdist(query, support.mean(dim=2))
'''


def photo(path: Path, rng: np.random.Generator) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(0, 256, (24, 24, 3), dtype=np.uint8)).save(path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twenty-four images in no particular folders, and five labelled classes beside them."""
    rng = np.random.default_rng(0)
    for number in range(24):
        photo(tmp_path / "photos" / ("." if number % 2 else "sub") / f"{number}.png", rng)
    for number in range(30):
        photo(tmp_path / "labelled" / "abcde"[number % 5] / f"{number}.png", rng)
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def told(done: Any) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_unlabelled_images_give_a_backbone_for_another_method(photos: Path, fsf) -> None:
    planned = told(fsf(*PRETRAIN, "--dry-run", "--json"))
    assert planned["resolved"]["method"]["name"] == "symmetric"
    assert planned["origins"]["method"]["name"] == "command line"
    made = told(fsf(*PRETRAIN, "--json"))
    assert (made["n_images"], made["epochs"], made["reused"]) == (24, 2, False)
    weights = load_file(photos / "backbone.safetensors")
    assert all(name.startswith("backbone.") for name in weights)

    again = fsf(*PRETRAIN)
    assert again.returncode == 2
    assert "backbone.safetensors exists" in again.stderr
    assert "--force" in again.stderr
    again = fsf(*PRETRAIN, "--force")
    assert "24 images, 2 epochs" in again.stdout
    assert "an equal training was in the cache" in again.stdout

    plain, trained = (
        told(fsf(*RUN, *LABELLED, *more)) for more in ((), ("--init-from", "backbone.safetensors"))
    )
    kept = load_file(Path(photos, trained["folder"]) / "weights.safetensors")
    assert all(np.array_equal(kept[name], value) for name, value in weights.items())
    assert trained["estimates"] != plain["estimates"]


def test_a_file_says_what_its_weights_have_seen(photos: Path, fsf) -> None:
    def record(run: Any) -> Any:
        return json.loads((photos / run["folder"] / "run.json").read_text())

    (photos / "photos" / "torn.png").write_bytes(b"no image")
    command = (*PRETRAIN, "--broken", "skip", "--image-size", "16")
    done = fsf(*command)
    assert done.returncode == 0, done.stderr
    assert "1 of 25 images cannot be read" in done.stderr
    assert "24 images" in done.stdout

    run = (*RUN, *LABELLED, "--init-from")
    found = record(told(fsf(*run, "backbone.safetensors")))
    assert found["cautions"] == []
    assert found["settings"]["image_size"] == found["data"]["image_size"] == 16
    assert found["origins"]["image_size"] == "backbone.safetensors"
    assert [one["place"] for one in found["data"]["trained_on"]] == [str(photos / "photos")]

    same = [part.replace("photos", "labelled") for part in command]
    fsf(*same, "--output", "same.safetensors")
    [caution] = record(told(fsf(*run, "same.safetensors")))["cautions"]
    assert caution.startswith("possible contamination: the weights were trained on 'labelled' with")

    os.mkfifo(photos / "pipe")
    done = fsf(*run, "pipe")
    assert done.returncode == 2
    assert "pipe: it is a named pipe" in done.stderr
    done = fsf(*run, "backbone.safetensors", "--backbone", "conv32f")
    assert done.returncode == 2
    assert "--backbone conv64f" in done.stderr


def test_it_trains_as_a_run_does(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos)
    common = {
        "method": "baseline", "dataset": {"name": "planted", "n_per_class": 8, "size": 16},
        "recipe": "none", "training": {"epochs": 1, "steps": 2, "validation_tasks": 0},
        "progress": False,
    }  # fmt: skip
    made = pretrain("weights.safetensors", **common)
    assert repr(made) == "<Pretrained weights.safetensors: 1 epoch on 512 images>"
    assert not made.reused
    run = fsf_api.run(sampler="random", tasks=5, way=2, shot=1, queries=2, **common)
    whole = load_file(run.folder / "weights.safetensors")
    for name, value in load_file("weights.safetensors").items():
        assert np.array_equal(whole[name], value), name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--method", "ncc", "--recipe", "none"), "nothing to train: ncc learns nothing"),
        (("--method", "protonet"), "ProtoNet learns from labels, but the images of the split"),
        (("--output", "no/where.safetensors"), "the folder no does not exist"),
        (("--output", "weights.pt"), "weights.pt must end in .safetensors"),
    ],
)
def test_what_it_refuses(photos: Path, fsf, options: tuple[str, ...], message: str) -> None:
    done = fsf("pretrain", *UNLABELLED, "--method", "protonet", *options)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (photos / "backbone.safetensors").exists()


def test_no_tasks_are_drawn_from_images_without_labels(photos: Path, fsf) -> None:
    symmetric = ("--plugin", "mine.py", "--method", "symmetric", *TASKS)
    done = fsf("run", *symmetric, *UNLABELLED)
    assert done.returncode == 2
    assert "no image of folder has a label" in done.stderr

    (photos / "photos").rename(photos / "train")
    (photos / "labelled").rename(photos / "test")
    run = ("run", *symmetric, "--dataset", "folder:.", "-o", "dataset.labels=none", *STEPS)
    done = fsf(*run)
    assert done.returncode == 0, done.stderr
    for split in ("train", "all"):
        done = fsf(*run, "--split", split)
        assert done.returncode == 2
        assert "the images of the split train have no labels" in done.stderr
