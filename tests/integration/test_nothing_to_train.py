"""A backbone that keeps its weights under a method that has none: nothing is trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fsframework as fsf_
from fsf_timm import Timm
from fsframework.interfaces import FewShotMethod
from fsframework.records import RunRecord
from tests.conftest import Fsf
from tests.toys import image_folder

FROZEN = (
    *("--backbone", "timm:resnet10t", "-o", "backbone.weights=none", "-o", "backbone.frozen=true"),
    *("--image-size", "32"),
)
ONLY_TEST = ("-o", "dataset.split_fractions=0,0,1")
SMALL = ("--sampler", "random", "--way", "3", "--shot", "1", "--queries", "2", "--tasks", "5")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return image_folder(tmp_path / "images", [f"colour{i}" for i in range(6)], side=32)


@pytest.mark.parametrize("method", ["ncc", "protonet"])
def test_no_training_split_is_asked_for(fsf: Fsf, images: Path, method: str) -> None:
    data = ("--dataset", f"folder:{images}", *ONLY_TEST)
    done = fsf("run", *data, "--method", method, *FROZEN, *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    record = RunRecord.load(Path(json.loads(done.stdout)["folder"]))
    assert record.training.history == ()
    assert record.settings["recipe"] is None
    [stage] = record.stages
    assert (stage.options["epochs"], stage.origins["epochs"]) == (0, "nothing to train")
    assert record.estimates["acc-random"].value > 1 / 3


def test_what_has_weights_to_train_still_needs_the_split(fsf: Fsf, images: Path) -> None:
    data = ("--dataset", f"folder:{images}", *ONLY_TEST)
    for own in (("--method", "r2d2"), ("--method", "protonet", "-o", "backbone.frozen=false")):
        done = fsf("run", *data, *FROZEN, *SMALL, *own)
        assert done.returncode == 2
        assert "must be trained, but the data set folder has no split 'train'" in done.stderr


def test_the_record_says_where_pretrained_weights_came_from(
    fsf: Fsf, images: Path, tmp_path: Path
) -> None:
    torch.save(Timm(model="resnet10t", weights="none").net.state_dict(), tmp_path / "net.pth")
    given = ("--backbone", "timm:resnet10t", "-o", f"backbone.weights={tmp_path / 'net.pth'}")
    data = ("--dataset", f"folder:{images}", *ONLY_TEST, "--image-size", "32")
    run = ("run", *data, *SMALL, "--json")
    done = fsf(*run, "--method", "ncc", *given)
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)
    expected = {"file": str(tmp_path / "net.pth"), "licence": "unknown"}
    assert RunRecord.load(Path(first["folder"])).data.weights_from == expected
    note = f"the backbone's pretrained weights: file {tmp_path / 'net.pth'}, licence unknown"
    assert note in first["notes"]
    again = fsf(*run, "--model", first["folder"], "-o", "seed=1")
    assert again.returncode == 0, again.stderr
    assert note in json.loads(again.stdout)["notes"], "a run of its model knows it too"


class Undeclared(FewShotMethod):
    """Has no weights, and does not say so."""

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        return -torch.cdist(query, support.mean(dim=2))


class Declared(Undeclared):
    weightless = True


def test_a_method_that_does_not_declare_it_is_told_to(images: Path) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(2))

    def notes(method: type[FewShotMethod]) -> str:
        given = {"sampler": "random", "shot": 1, "queries": 2, "tasks": 5, "progress": False}
        run = fsf_.run(method=method, backbone=module, dataset=f"folder:{images}", **given)
        return "\n".join(run.record.notes)

    declare = "declare weightless = True in undeclared to let the tasks use all images"
    assert declare in notes(Undeclared)
    assert "declare" not in notes(Declared)


def test_options_of_a_training_that_trains_nothing_make_no_other_run(images: Path) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(2))

    def run(backbone: nn.Module | str, **more: object) -> fsf_.Run:
        given = {"sampler": "random", "shot": 1, "queries": 2, "tasks": 5, "progress": False}
        data = {"dataset": f"folder:{images}", "split": "all", "image_size": 32}
        return fsf_.run(method="ncc", backbone=backbone, **data, **given, **more)

    first = run(module)
    for more in ({"training": {"epochs": 0}}, {"training": {"steps": 3}}, {"recipe": "quick"}):
        assert run(module, **more).record.fingerprint == first.record.fingerprint
    untrained = [
        run("conv32f", training={"epochs": 0, "learning_rate": rate}).record for rate in (0.1, 0.2)
    ]
    assert untrained[0].fingerprint == untrained[1].fingerprint
    assert untrained[0].settings["recipe"] is None
