"""`fsf benchmark contexts`: pairs of tasks, their difference, and what is drawn of them."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import fsframework as fsf_api
from fsframework.errors import InfeasibleTask, OptionError
from tests.conftest import Fsf

TOYS = Path(__file__).with_name("toy_grid.py")
SHARED = Path(__file__).resolve().parents[4] / "shared"
Contexts = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def contexts(fsf: Fsf) -> Contexts:
    def call(*more: str) -> subprocess.CompletedProcess[str]:
        return fsf(
            "benchmark", "contexts", "--plugin", str(TOYS), "--dataset", "toy-contexts",
            "--backbone", "toy-pixels", "--queries", "3", "--tasks", "40", *more,
        )  # fmt: skip

    return call


def ran(done: subprocess.CompletedProcess[str], code: int = 0) -> dict[str, Any]:
    assert done.returncode == code, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


ASKED = {"dataset": ["toy-contexts"], "backbone": ["toy-pixels"], "method": ["toy-near"]}


def experiments(job: Any) -> list[Any]:
    return [(one.experiment, one.resolved) for one in job.listed()]


def test_the_fewest_contexts_that_the_data_allow_are_taken(planned: Any) -> None:
    """A context has six images: one shot and three queries fit into one, five shots need two."""
    found = experiments(planned("contexts", ASKED, queries=3))
    assert [(e.tags["shot"], e.tags["contexts"]) for e, _ in found] == [(1, 1), (5, 2)]
    options = [d.options["sampler"] for _, d in found]
    assert [(o["name"], o["n_shot"], o["n_query"], o["n_contexts"]) for o in options] == [
        ("context", 1, 3, 1), ("context", 5, 3, 2),
    ]  # fmt: skip
    [(only, _)] = experiments(
        planned("contexts", {**ASKED, "shot": [2]}, {"n_contexts": 1}, queries=3)
    )
    assert only.tags["contexts"] == 1


@pytest.mark.parametrize(
    ("chosen", "own", "options", "error", "message"),
    [
        ({"shot": [9]}, {}, {}, InfeasibleTask, "^9-shot, split test: 5-way tasks need 5"),
        ({}, {"n_contexts": 0}, {}, OptionError, "n_contexts must be from 1 to .*, not 0"),
        ({}, {"column": "place"}, {}, OptionError, "needs the metadata column 'place'"),
        ({}, {}, {"sampler": "random"}, OptionError, "^sampler: the benchmark contexts sets this"),
        ({"detector": ["toy-eyes"]}, {}, {}, OptionError, "^detector cannot be chosen .* dataset"),
    ],
)
def test_what_cannot_be_is_told_before_anything_runs(
    chosen: Any, own: Any, options: Any, error: type[Exception], message: str, planned: Any
) -> None:
    with pytest.raises(error, match=message):
        planned("contexts", {**ASKED, **chosen}, own, queries=3, **options).run()


def test_the_embedded_data_set_has_contexts(planned: Any) -> None:
    found = experiments(planned("contexts", {"method": ["protonet"]}))
    assert [d.options["dataset"]["name"] for _, d in found] == ["planted"] * 2
    assert [d.options["sampler"]["column"] for _, d in found] == ["background"] * 2
    assert [e.tags["shot"] for e, _ in found] == [1, 5]


def test_differences_are_paired_beside_accuracies(contexts: Contexts, tmp_path: Path) -> None:
    document = ran(contexts("--method", "toy-near", "--json"))
    assert document["benchmark"] == "contexts"
    rows = document["tables"][0]["rows"]
    assert [row["quantity"] for row in rows] == ["Acc IID", "Acc OOD", "IID − OOD"] * 2
    for shot in (0, 1):
        iid, ood, difference = rows[3 * shot : 3 * shot + 3]
        assert difference["measured"] == pytest.approx(iid["measured"] - ood["measured"])
        assert iid["run"] == ood["run"] == difference["run"]
        outcomes = fsf_api.load_run(iid["run"]).outcomes
        arms = outcomes.arms
        assert np.array_equal(arms["iid"].support, arms["ood"].support)
        values = [
            (outcomes[arm].predictions == np.arange(5)[None, :, None]).mean(axis=(1, 2))
            for arm in ("iid", "ood")
        ]
        paired = values[0] - values[1]
        half = stats.t.ppf(0.975, 39) * stats.sem(paired)
        assert difference["measured_half_width"] == pytest.approx(100 * half, abs=1e-5)
        assert (difference["scope"], difference["paired"], difference["n_tasks"]) == (
            "closed", True, 40,
        )  # fmt: skip
        # The tint weighs as much as the colour of the class: where it changes, so do the answers.
        assert difference["measured_low"] > 0
    again = contexts("--method", "toy-near", "--output", "out.csv", "--figure", "out.svg")
    assert "2 experiments: 0 run now, 2 finished before, 0 failed" in again.stdout
    assert "both tasks of a pair have the same classes and the same support" in again.stdout
    assert "is above 0 in 2 of 2 cases" in again.stdout
    assert again.stdout.startswith("5-way 1-shot: toy-near loses ")
    assert "\nFigure 3. Acc in percent" in again.stdout
    with (tmp_path / "out.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [(r["dataset"], r["column"], r["method"], r["backbone"], r["shot"]) for r in lines] == [
        ("toy-contexts", "context", "toy-near", "toy-pixels", shot) for shot in "111555"
    ]
    drawn = (tmp_path / "out.svg").read_text(encoding="utf-8")
    below = [f"{float(lines[place]['measured']):+.2f} ± " for place in (2, 5)]
    for name in (">IID<", ">OOD<", "toy-near", "Acc in %", *below):
        assert name in drawn


def test_a_run_gives_its_backbone_and_nothing_is_trained(
    contexts: Contexts, fsf: Fsf, tmp_path: Path
) -> None:
    done = fsf(
        "run", "--json", "--plugin", str(TOYS), "--dataset", "toy-contexts", "--method", "protonet",
        "--backbone", "conv64f", "--sampler", "random", "--shot", "1", "--queries", "2", "--tasks",
        "5", "-o", "training.epochs=1", "-o", "training.steps=2", "-o", "image_size=16",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [folder] = (tmp_path / "runs").iterdir()
    asked = (
        "benchmark", "contexts", "--plugin", str(TOYS), "--dataset", "toy-contexts", "--queries",
        "3", "--tasks", "5", "--shot", "1", "--method", "ncc", "--method", "protonet",
    )  # fmt: skip
    document = ran(fsf(*asked, "--model", str(folder), "--json"))
    for cell in document["experiments"]:
        record = fsf_api.load_run(cell["folder"]).record
        assert (record.backbone.name, record.settings["image_size"]) == ("conv64f", 16)
        [stage] = record.stages
        assert stage.options["epochs"] == 0
        own = record.method.name == "protonet"
        assert list(stage.options["init_parts"]) == ([] if own else ["backbone"])
    refused = fsf(*asked, "--model", str(folder), "--backbone", "conv64f")
    assert refused.returncode == 2
    assert "already sets the backbone; leave out --backbone" in refused.stderr
    assert "no run 'nowhere' in" in fsf(*asked, "--model", "nowhere").stderr


@pytest.mark.slow
@pytest.mark.shared_data
def test_a_trained_network_leans_on_textures(fsf: Fsf, tmp_path: Path) -> None:
    """Cue conflict, contexts being textures: IID above OOD, by the whole paired interval."""
    if not SHARED.is_dir():
        pytest.skip("the reference material is not beside the checkout")
    done = fsf(
        "run", "--json", "--method", "baseline", "--backbone", "conv64f", "--sampler", "random",
        "--dataset", f"cifar-fs:{SHARED / 'data/cifar100_small.zip'}", "--shot", "1",
        "--tasks", "5", "-o",
        "image_size=32", "-o", "training.epochs=1", "-o", "training.steps=40", "-o",
        "training.validation_tasks=20", "--device", "cpu",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [model] = (tmp_path / "runs").iterdir()
    asked = (
        "benchmark", "contexts", "--model", str(model), "--queries", "4", "--method", "ncc",
        "--dataset", f"cue-conflict:{SHARED / 'data/cue_conflict_84.zip'}", "--tasks", "150",
        "--device", "cpu", "--json",
    )  # fmt: skip
    document = ran(fsf(*asked))
    differences = [r for r in document["tables"][0]["rows"] if r["quantity"] == "IID − OOD"]
    assert [d["shot"] for d in differences] == [1, 5]
    for difference in differences:
        assert difference["paired"]
        assert difference["scope"] == "closed"
        assert difference["measured_low"] > 10
