"""The weights of relation networks that their authors published, and what they give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fsf_importing.relationnet import RelationNet
from fsframework.testing import parametrize_with_checks

ROOT = Path(__file__).resolve().parents[3]
SHARED = ROOT.parent / "shared"
WEIGHTS = SHARED / "golden" / "relationnet_omniglot"
OMNIGLOT = SHARED / "data" / "omniglot.zip"
ENCODER, RELATION = (
    f"omniglot_{part}_5way_1shot.pkl" for part in ("feature_encoder", "relation_network")
)


@parametrize_with_checks([RelationNet])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def test_weights_are_those_of_the_files(tmp_path: Path) -> None:
    RelationNet().example(tmp_path)
    read = RelationNet().read(tmp_path)
    encoder, relation = (
        torch.load(tmp_path / name, weights_only=True) for name in (ENCODER, RELATION)
    )
    assert len(read.weights) == len(encoder) + len(relation) + 6
    first = read.weights["backbone.blocks.0.conv.weight"]
    # Grey images have three equal channels.
    torch.testing.assert_close(first.sum(dim=1, keepdim=True), encoder["layer1.0.weight"])
    same = read.weights["backbone.blocks.3.norm.running_var"]
    assert torch.equal(same, encoder["layer4.1.running_var"])
    assert torch.equal(read.weights["method.relate.weight"], relation["fc2.weight"])
    assert read.method_options == {"batch_norm": "batch"}
    running = RelationNet(batch_norm="running").read(tmp_path)
    assert running.method_options == {"batch_norm": "running"}


def altered(name: str, **changes: Any) -> Any:
    """Return what writes a file anew, with weights changed, added, or removed by ``None``."""

    def write(folder: Path) -> None:
        state = torch.load(folder / name, weights_only=True) | changes
        torch.save({k: v for k, v in state.items() if v is not None}, folder / name)

    return write


def cut_short(folder: Path) -> None:
    path = folder / RELATION
    path.write_bytes(path.read_bytes()[:5000])


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda folder: (folder / ENCODER).unlink(), "feature_encoder_5way_1shot.pkl"),
        (lambda folder: (folder / f"mini_{ENCODER}").touch(), f"mini_{ENCODER}"),
        (cut_short, RELATION),
        (altered(RELATION, **{"fc1.weight": torch.zeros(8, 576)}), "fc1.weight"),
        (altered(ENCODER, **{"layer1.0.weight": torch.zeros(64, 3, 3, 3)}), "layer1.0.weight"),
        (altered(ENCODER, **{"layer2.1.bias": None}), "layer2.1.bias"),
        (altered(ENCODER, **{"layer5.0.bias": torch.zeros(64)}), "layer5.0.bias"),
    ],
    ids=["missing", "two", "truncated", "shape", "colours", "weight-missing", "left-over"],
)
def test_bad_files_are_named_in_one_sentence(
    fsf: Any, tmp_path: Path, damage: Any, named: str
) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    RelationNet().example(folder)
    damage(folder)
    done = fsf("import", "relationnet", folder)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert named in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_shape_that_is_not_there_is_named(fsf: Any, tmp_path: Path) -> None:
    RelationNet().example(tmp_path)
    done = fsf("import", "relationnet", tmp_path, "-o", "importer.n_way=20")
    assert done.returncode == 2
    assert "importer.n_way" in done.stderr


def accuracy(fsf: Any, tmp_path: Path, way: int, shot: int, queries: int, mode: str) -> Any:
    """Return the estimate on 100 tasks of 100 characters in four rotations."""
    declared = (ROOT / "benchmarks" / "datasets" / "omniglot_lanczos.toml").read_text()
    smaller = tmp_path / "omniglot.toml"
    smaller.write_text(declared.replace("[0, 0, 6492]", "[6092, 0, 400]"))
    options = [f"importer.n_way={way}", f"importer.n_shot={shot}", f"importer.batch_norm={mode}"]
    given = [part for option in options for part in ("-o", option)]
    done = fsf("import", "relationnet", WEIGHTS, *given, "--json")
    assert done.returncode == 0, done.stderr
    done = fsf(
        *("run", "--model", json.loads(done.stdout)["folder"], "--sampler", "random", "--json"),
        *("--dataset", f"declared:{smaller}", "-o", f"dataset.path={OMNIGLOT}"),
        *("--shot", shot, "--queries", queries, "--tasks", 100, "-o", f"sampler.n_way={way}"),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["estimates"]["acc-random"]


PUBLISHED = [
    ((5, 1, 19), (99.61, 0.16)),
    pytest.param((5, 5, 15), (99.81, 0.09), marks=pytest.mark.slow),
    pytest.param((20, 1, 5), (98.05, 0.34), marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.skipif(not WEIGHTS.is_dir(), reason=f"the published weights are not at {WEIGHTS}")
@pytest.mark.parametrize(("shape", "figure"), PUBLISHED)
def test_published_figures_are_reached(
    fsf: Any, tmp_path: Path, shape: tuple[int, int, int], figure: tuple[float, float]
) -> None:
    found = accuracy(fsf, tmp_path, *shape, mode="batch")
    value, half = 100 * found["value"], 100 * (found["high"] - found["low"]) / 2
    assert abs(value - figure[0]) <= half + figure[1]


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.skipif(not WEIGHTS.is_dir(), reason=f"the published weights are not at {WEIGHTS}")
def test_statistics_of_the_last_training_task_are_no_match(fsf: Any, tmp_path: Path) -> None:
    assert accuracy(fsf, tmp_path, 5, 1, 19, mode="running")["value"] < 0.96
