"""Backbones in runs: against other implementations, under MAML, with weights of files and runs."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from fsf_backbones import ResNet18, ResNet50
from fsf_timm import Timm
from fsframework.components.registry import Registry
from fsframework.components.resolution import Component, resolve_component
from fsframework.interfaces import Dataset, Preprocessing
from fsframework.pipeline.cache.images import image_size
from fsframework.pipeline.learning.model import build_model
from tests.conftest import Fsf

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


def test_maml_adapts_conv32f(fsf: Fsf) -> None:
    options = ("-o", "method.test_steps=2", "-o", "method.train_steps=1")
    done = fsf("run", *QUICK, "--method", "maml", "--backbone", "conv32f", *options, "--json")
    assert done.returncode == 0, done.stderr
    accuracy = json.loads(done.stdout)["estimates"]["acc-random"]
    assert 0.2 <= accuracy["value"] <= 1


class _Sized(Dataset):
    native_size = 32

    def __init__(self) -> None: ...

    def image(self, index: int) -> Any: ...


def test_weights_that_ask_for_a_size_go_before_the_data() -> None:
    data, free, bound = _Sized(), Preprocessing(size=84), Preprocessing(size=224, binding=True)
    assert image_size(data, free, None) == 32
    assert image_size(data, bound, None) == 224
    assert image_size(data, bound, 64) == 64
    data.native_size = None
    assert image_size(data, free, None) == 84


def weights(path: Path, seed: int) -> Path:
    torch.manual_seed(seed)
    save_file(Timm(model="test_resnet", weights="none").net.state_dict(), path)
    return path


def timm(path: Path) -> Component:
    tree = {"name": "timm:test_resnet", "weights": str(path), "image_size": 32}
    return resolve_component(Registry(), "backbone", tree)


def test_another_file_at_the_same_place_is_another_backbone(tmp_path: Path) -> None:
    path = weights(tmp_path / "a.safetensors", 7)
    method = resolve_component(Registry(), "method", "protonet")
    first = timm(path).fingerprint
    digest = build_model(timm(path), method, 32, 0, 0).weights_digest()
    assert timm(path).fingerprint == first
    weights(path, 8)
    second = timm(path).fingerprint
    assert build_model(timm(path), method, 32, 0, 0).weights_digest() != digest
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.move(path, folder / "model.safetensors")
    # Where there is no such file it is told when the weights are asked for.
    assert len({first, second, timm(folder).fingerprint, timm(path).fingerprint}) == 4


def test_random_weights_depend_on_the_seed_and_pretrained_ones_do_not(tmp_path: Path) -> None:
    method = resolve_component(Registry(), "method", "protonet")
    read = timm(weights(tmp_path / "a.safetensors", 7))
    drawn = resolve_component(
        Registry(), "backbone", {"name": "timm:test_resnet", "weights": "none"}
    )

    def digest(backbone: Component, seed: int, pretrained: bool) -> str:
        made = build_model(backbone, method, 32, 0, seed, pretrained=pretrained)
        return made.weights_digest()

    assert digest(read, 0, True) == digest(read, 1, True) != digest(read, 0, False)
    assert digest(drawn, 0, True) == digest(drawn, 0, False) != digest(drawn, 1, True)


def told(done: Any) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


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


def test_what_is_wrong_is_said_in_one_line(fsf: Fsf, tmp_path: Path) -> None:
    for backbone, options, sentence in (
        ("timm:resnet19", (), "timm has no model 'resnet19'; did you mean"),
        ("timm", (), "backbone 'timm' needs the option backbone.model (a text); write NAME:MODEL"),
        ("timm:test_resnet", ("-o", "backbone.weights=absent.pth"), "no such file or folder"),
        ("resnet18:x", (), "backbone 'resnet18' takes no argument after the colon"),
        ("resnet10", ("-o", "backbone.stem=9x9"), "backbone.stem must be one of 7x7, 3x3"),
    ):
        done = fsf("run", *QUICK, "--backbone", backbone, *options)
        assert done.returncode == 2, done.stderr
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr
    assert not list((tmp_path / "runs").glob("*/run.json"))


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
