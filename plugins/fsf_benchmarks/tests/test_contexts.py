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
from PIL import Image
from scipy import stats

from fsframework.benchmarks.contexts import Request, make_grid
from fsframework.components.registry import Registry
from fsframework.components.resolution import Given, resolve_component
from fsframework.errors import DataError, InfeasibleTask, OptionError
from fsframework.pipeline.charts import steps_between
from fsframework.pipeline.run import load_outcomes
from fsframework.statistics.estimation import paired_by_support
from fsframework.values import ImagePool, Outcomes, TaskSet
from tests.conftest import Fsf

TOYS = Path(__file__).with_name("toy_grid.py")
SHARED = Path(__file__).resolve().parents[3] / "shared"
Contexts = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def contexts(fsf: Fsf) -> Contexts:
    def call(*more: str) -> subprocess.CompletedProcess[str]:
        return fsf(
            "benchmark", "contexts", "--plugin", str(TOYS), "--dataset", "toy-contexts",
            "--backbone", "toy-pixels", "--query", "3", "--tasks", "40", *more,
        )  # fmt: skip

    return call


def ran(done: subprocess.CompletedProcess[str], code: int = 0) -> dict[str, Any]:
    assert done.returncode == code, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def planned(**request: Any) -> Any:
    registry = Registry()
    registry.load_file(TOYS)
    tree = {"sampler": {"n_query": Given(3, "test")}}
    return make_grid(
        registry,
        tree,
        Request(dataset="toy-contexts", backbone="toy-pixels", methods=("toy-near",), **request),
    )


def test_the_fewest_contexts_that_the_data_allow_are_taken() -> None:
    """A context has six images: one shot and three queries fit into one, five shots need two."""
    grid = planned()
    assert grid.contexts == {1: 1, 5: 2}
    assert [s.kind for s in grid.slots] == ["iid", "ood", "iid", "ood"]
    options = [cell.experiment.sampler.options for cell in grid.cells]
    assert [(o["n_shot"], o["kind"], o["n_contexts"]) for o in options] == [
        (1, "iid", 1), (1, "ood", 1), (5, "iid", 2), (5, "ood", 2),
    ]  # fmt: skip
    assert planned(contexts=1, shots=(2,)).contexts == {2: 1}


def test_what_the_data_do_not_allow_is_told_before_anything_runs() -> None:
    with pytest.raises(InfeasibleTask, match="^9-shot, split test: n_way = 5 classes are needed"):
        planned(shots=(9,))
    with pytest.raises(OptionError, match="n_contexts must be from 1 to n_shot = 1.*, not 0"):
        planned(contexts=0)
    with pytest.raises(InfeasibleTask, match="needs the metadata column 'place'"):
        planned(column="place")
    with pytest.raises(OptionError, match="draws its tasks with the sampler context"):
        make_grid(Registry(), {"sampler": Given("random", "test")}, Request())


def test_the_embedded_data_set_has_contexts() -> None:
    grid = make_grid(Registry(), {}, Request(methods=("protonet",)))
    assert (grid.dataset, grid.column) == ("planted", "background")
    assert set(grid.contexts) == {1, 5}


def test_differences_are_paired_and_beside_the_accuracies(
    contexts: Contexts, tmp_path: Path
) -> None:
    document = ran(contexts("--method", "toy-near", "--json"))
    assert document["benchmark"] == "contexts"
    rows = document["tables"][0]["rows"]
    assert [row["quantity"] for row in rows] == ["Acc IID", "Acc OOD", "IID − OOD"] * 2
    for shot in (0, 1):
        iid, ood, difference = rows[3 * shot : 3 * shot + 3]
        assert difference["measured"] == pytest.approx(iid["measured"] - ood["measured"])
        loaded = [load_outcomes(Path(row["run"])) for row in (iid, ood)]
        one, other = (tasks["R"] for tasks, _ in loaded)
        assert np.array_equal(one.support, other.support)
        values = [
            (o["R"].predictions == np.arange(5)[None, :, None]).mean(axis=(1, 2)) for _, o in loaded
        ]
        paired = values[0] - values[1]
        half = stats.t.ppf(0.975, 39) * stats.sem(paired)
        assert difference["measured_half_width"] == pytest.approx(100 * half, abs=1e-5)
        assert (difference["kind"], difference["paired"], difference["n_tasks"]) == (
            "closed", True, 40,
        )  # fmt: skip
        # The tint weighs as much as the colour of the class: where it changes, so do the answers.
        assert difference["measured_low"] > 0
    assert [d["shot"] for d in document["differences"]] == [1, 5]
    again = contexts("--method", "toy-near", "--output", "out.csv", "--figure", "out.png")
    assert "4 cells: 0 run now, 4 finished before, 0 failed" in again.stdout
    assert "both tasks of a pair have the same classes and the same support" in again.stdout
    assert "IID above OOD with the whole interval in 2 of 2 cases" in again.stdout
    assert again.stdout.startswith("Figure 3. Acc in percent")
    with (tmp_path / "out.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [(r["dataset"], r["column"], r["method"], r["backbone"], r["shot"]) for r in lines] == [
        ("toy-contexts", "context", "toy-near", "toy-pixels", shot) for shot in "111555"
    ]
    for iid, ood, difference in (lines[:3], lines[3:]):
        assert (difference["run"], difference["minus_run"]) == (iid["run"], ood["run"])
        assert iid["minus_run"] == ood["minus_run"] == ""
    with Image.open(tmp_path / "out.png") as picture:
        colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 20) or ()}
    assert {(0, 114, 178), (213, 94, 0)} <= colours  # both kinds of bars


def test_a_cell_that_fails_leaves_the_others(
    contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_FAILS", "1")
    done = contexts("--method", "toy-near", "--method", "toy-blind", "--shot", "1")
    assert done.returncode == 1
    assert "failed: unexpected RuntimeError: the toy was told to fail" in done.stdout
    assert "4 cells: 2 run now, 0 finished before, 2 failed" in done.stdout


@pytest.mark.parametrize("name", ["out.jpg", "nowhere/out.png"])
def test_a_figure_that_cannot_be_written_is_told_at_once(contexts: Contexts, name: str) -> None:
    done = contexts("--method", "toy-near", "--figure", name)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_cells_are_listed(contexts: Contexts) -> None:
    document = ran(contexts("--method", "toy-near", "--dry-run", "--json"))
    assert (document["benchmark"], len(document["cells"])) == ("contexts", 4)


def tasks_of(pool: ImagePool, support: list[list[int]], query: list[list[int]]) -> TaskSet:
    return TaskSet.of(
        pool,
        np.array([[0, 1]] * len(support)),
        np.array(support)[:, :, None],
        np.array(query)[:, :, None],
        sampler="by hand",
        options={},
        seed=0,
    )


def test_pairs_are_open_only_if_no_image_stands_in_two_of_them() -> None:
    pool = ImagePool(tuple("abcdefghijkl"), np.repeat([0, 1], 6), ("cat", "dog"))
    support = [[0, 6], [3, 9]]
    first = tasks_of(pool, support, [[1, 7], [4, 10]])
    second = tasks_of(pool, support, [[2, 8], [5, 11]])
    recurring = tasks_of(pool, support, [[2, 8], [1, 11]])
    statistic = resolve_component(Registry(), "statistic", "acc").create()

    def answered(tasks: TaskSet, predictions: list[list[int]]) -> tuple[TaskSet, Outcomes]:
        outcomes = Outcomes(
            np.array(predictions)[:, :, None], tasks.digest, tasks.n_images, tasks.reuses_images
        )
        return tasks, outcomes

    right, half = [[0, 1], [0, 1]], [[0, 0], [0, 1]]
    found = paired_by_support("x", statistic, answered(first, right), answered(second, half))
    assert (found.kind, found.n_images, found.paired) == ("open", 12, True)
    assert found.value == pytest.approx(0.25)
    assert found.low == pytest.approx(0.25 - stats.t.ppf(0.975, 1) * 0.25)
    # Each set by itself shares no image; image 1 is a query of pair 0 and, otherwise, of pair 1.
    closed = paired_by_support("x", statistic, answered(first, right), answered(recurring, half))
    assert (closed.kind, closed.n_images) == ("closed", 11)
    other = tasks_of(pool, [[3, 9], [0, 6]], [[1, 7], [4, 10]])
    with pytest.raises(DataError, match="not the same classes and support"):
        paired_by_support("x", statistic, answered(first, right), answered(other, right))
    # The same numbers, but they stand for other images.
    elsewhere = ImagePool(tuple("ABCDEFGHIJKL"), np.repeat([0, 1], 6), ("cat", "dog"))
    there = tasks_of(elsewhere, support, [[2, 8], [5, 11]])
    with pytest.raises(DataError, match="of different images: the digests of their keys are"):
        paired_by_support("x", statistic, answered(first, right), answered(there, right))


def test_steps_are_round() -> None:
    assert steps_between(0, 1, 4) == [0, 0.5, 1]
    assert steps_between(-3.2, 7.1, 6) == [-2, 0, 2, 4, 6]


def test_a_run_gives_its_backbone_and_nothing_is_trained(
    contexts: Contexts, fsf: Fsf, tmp_path: Path
) -> None:
    done = fsf(
        "run", "--plugin", str(TOYS), "--dataset", "toy-contexts", "--method", "protonet",
        "--backbone", "conv64f", "--sampler", "random", "--shot", "1", "--query", "2", "--tasks",
        "5", "-o", "training.epochs=1", "-o", "training.steps=2", "-o", "image_size=16",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [folder] = (tmp_path / "runs").iterdir()
    asked = (
        "benchmark", "contexts", "--plugin", str(TOYS), "--dataset", "toy-contexts", "--query",
        "3", "--tasks", "5", "--shot", "1", "--method", "ncc", "--method", "protonet",
    )  # fmt: skip
    document = ran(fsf(*asked, "--model", str(folder), "--json"))
    for cell in document["cells"]:
        record = json.loads((Path(cell["folder"]) / "run.json").read_text())
        resolved = record["resolved"]
        assert (resolved["backbone"]["name"], resolved["image_size"]) == ("conv64f", 16)
        assert resolved["training"][0]["epochs"] == 0
        own = resolved["method"]["name"] == "protonet"
        assert resolved["training"][0]["init_parts"] == ([] if own else ["backbone"])
    refused = fsf(*asked, "--model", str(folder), "--backbone", "conv64f")
    assert refused.returncode == 2
    assert "says which backbone to use; name no other" in refused.stderr
    assert "nowhere: holds no run" in fsf(*asked, "--model", "nowhere").stderr


@pytest.mark.shared_data
def test_a_trained_network_leans_on_textures(fsf: Fsf, tmp_path: Path) -> None:
    """Cue conflict, contexts being textures: IID above OOD, by the whole paired interval."""
    if not SHARED.is_dir():
        pytest.skip("the reference material is not beside the checkout")
    done = fsf(
        "run", "--method", "baseline", "--backbone", "conv64f", "--sampler", "random", "--dataset",
        f"cifar-fs:{SHARED / 'data/cifar100_small.zip'}", "--shot", "1", "--tasks", "5", "-o",
        "image_size=32", "-o", "training.epochs=1", "-o", "training.steps=40", "-o",
        "training.validation_tasks=20", "--device", "cpu",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [model] = (tmp_path / "runs").iterdir()
    document = ran(
        fsf(
            "benchmark",
            "contexts",
            "--model",
            str(model),
            "--dataset",
            f"cue-conflict:{SHARED / 'data/cue_conflict_84.zip'}",
            "-o",
            "dataset.split=all",
            "--query",
            "4",
            "--method",
            "ncc",
            "--tasks",
            "150",
            "--device",
            "cpu",
            "--json",
        )
    )
    assert [d["shot"] for d in document["differences"]] == [1, 5]
    for difference in document["differences"]:
        assert difference["paired"]
        assert difference["kind"] == "closed"
        assert difference["low"] > 0.1
