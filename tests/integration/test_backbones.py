"""Backbones in runs: against other implementations, under MAML, with weights of files and runs."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import fsframework as fsf_api
from fsf_backbones import ResNet18, ResNet50
from fsf_timm import Timm
from fsframework.interfaces import Backbone, Preprocessing
from tests.conftest import Fsf

pytestmark = pytest.mark.usefixtures("shared_cache")
QUICK = (
    "--dataset", "planted", "-o", "dataset.size=32", "-o", "dataset.n_per_class=20",
    "--sampler", "random", "--shot", "1", "--queries", "3", "--tasks", "20", "--seed", "3",
    "-o", "training.epochs=1", "-o", "training.steps=2", "-o", "training.validation_tasks=4",
)  # fmt: skip
TIMM = ("--backbone", "timm:test_resnet", "-o", "backbone.image_size=32")


@pytest.mark.parametrize(
    ("here", "name"),
    [
        (partial(ResNet18, stem="7x7"), "resnet18.tv_in1k"),
        (ResNet50, "resnet50.tv_in1k"),
    ],
)
def test_residual_networks_equal_those_of_timm(here: Any, name: str) -> None:
    ours, theirs = here().double().eval(), Timm(model=name, weights="none").double().eval()
    for module in ours.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.5, 0.5)
            torch.nn.init.uniform_(module.running_var, 0.5, 2.0)
    # The names are the same too, so that published weights can be used.
    theirs.net.load_state_dict(ours.state_dict())
    images = torch.randn(2, 3, 70, 84, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images))
        torch.testing.assert_close(ours.encode(images), theirs.encode(images))


class Free(Backbone):
    keeps_weights = True
    preprocessing = Preprocessing(size=84)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.adaptive_avg_pool2d(images, 2)


class Bound(Free):
    preprocessing = Preprocessing(size=224, binding=True)


@pytest.mark.parametrize(
    ("backbone", "asked", "size"), [(Free, None, 32), (Bound, None, 224), (Bound, 64, 64)]
)
def test_weights_that_ask_for_a_size_go_before_the_data(
    backbone: type[Backbone], asked: int | None, size: int
) -> None:
    found = fsf_api.run(
        method="ncc", backbone=backbone, image_size=asked, sampler="random", tasks=2, way=2, shot=1,
        queries=1, dataset={"name": "planted", "n_per_class": 2, "size": 32}, progress=False,
    )  # fmt: skip
    assert found.record.data is not None
    assert found.record.data.image_size == size


def weights(path: Path, seed: int) -> Path:
    torch.manual_seed(seed)
    save_file(Timm(model="test_resnet", weights="none").net.state_dict(), path)
    return path


def test_weights_of_a_file_do_not_depend_on_the_seed_and_random_ones_do(tmp_path: Path) -> None:
    def digest(file: Path | str, seed: int) -> str:
        backbone = {"name": "timm:test_resnet", "weights": str(file)}
        return fsf_api.model("protonet", backbone=backbone, seed=seed).network.weights_digest()

    path = weights(tmp_path / "a.safetensors", 7)
    first = digest(path, 0)
    assert digest(path, 1) == first
    assert len({first, digest("none", 0), digest("none", 1)}) == 3


def test_another_file_at_the_same_place_is_another_backbone(tmp_path: Path) -> None:
    path, found = tmp_path / "a.safetensors", []
    for seed in (7, 7, 8):
        backbone = {"name": "timm:test_resnet", "weights": str(weights(path, seed))}
        small = {"sampler": "random", "shot": 1, "queries": 2, "tasks": 2, "progress": False}
        data = {"name": "planted", "size": 32, "n_per_class": 10}
        found.append(fsf_api.run(method="ncc", backbone=backbone, dataset=data, **small))
    assert [run.reused for run in found] == [False, True, False]


def told(done: Any) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.one_in(2)
@pytest.mark.parametrize("method", ["protonet", "maml"])
def test_a_run_needs_neither_file_nor_hub_to_be_used_again(
    fsf: Fsf, tmp_path: Path, method: str
) -> None:
    path = weights(tmp_path / "a.safetensors", 7)
    given = ("--method", method, *TIMM, "-o", f"backbone.weights={path}")
    first = told(fsf("run", *QUICK, *given, "--json"))
    path.unlink()
    again = told(fsf("run", *QUICK[:16], "--model", first["folder"], "--json"))
    assert again["folder"] != first["folder"]
    assert again["estimates"]["acc-random"]["value"] == first["estimates"]["acc-random"]["value"]
    record = json.loads((Path(again["folder"]) / "run.json").read_text())
    assert record["components"]["backbone"]["options"]["weights"] == str(path)


def test_a_run_of_other_options_does_not_fill_the_backbone(fsf: Fsf) -> None:
    first = told(fsf("run", *QUICK, *TIMM, "-o", "backbone.weights=none", "--json"))
    other = ("-o", "backbone.model=test_vit")
    done = fsf("run", *QUICK[:16], "--model", first["folder"], *other)
    assert done.returncode == 2
    assert "do not fit this model" in done.stderr or "lacks" in done.stderr


def test_pretrained_weights_stay_while_a_method_learns(fsf: Fsf, tmp_path: Path) -> None:
    path = weights(tmp_path / "a.safetensors", 7)
    given = (*QUICK, *TIMM, "-o", f"backbone.weights={path}")
    given = (*given, "-o", "backbone.pretrained_on=places365")
    unlearned = fsf("run", *given, "--method", "protonet")
    assert "nothing was trained" in unlearned.stdout, unlearned.stderr
    learned = fsf("run", *given, "--method", "relationnet", "--recipe", "none")
    sentence = "trained: method only; the backbone keeps its weights pretrained on places365, 1 ep"
    assert sentence in learned.stdout, learned.stderr
    tuned = fsf("run", *given, "--method", "protonet", "-o", "backbone.frozen=false")
    sentence = "trained: backbone and method from weights pretrained on places365, 1 epoch"
    assert sentence in tuned.stdout, tuned.stderr
