"""`fsf benchmark fewstab` on instant plugins: the grid, what is shared, what stands beside."""

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

from fsframework.benchmarks import fewstab, fewstab_tables
from fsframework.benchmarks.fewstab import TECHNIQUES, Request, make_grid
from fsframework.benchmarks.published import printed_values
from fsframework.components.registry import Registry
from fsframework.components.resolution import Given
from fsframework.errors import OptionError, PluginError
from fsframework.values import Outcomes
from tests.conftest import Fsf

TOYS = Path(__file__).with_name("toy_grid.py")
METHODS = ("toy-near", "toy-first", "toy-blind")
Grid = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def grid(fsf: Fsf) -> Grid:
    """Run the benchmark with the toys, of which any option may be given anew."""

    def call(
        *more: str, methods: tuple[str, ...] = METHODS, dataset: str = "toy-images"
    ) -> subprocess.CompletedProcess[str]:
        named = [word for method in methods for word in ("--method", method)]
        return fsf(
            "benchmark", "fewstab", "--plugin", str(TOYS), "--dataset", dataset, "--backbone",
            "toy-pixels", "--sampler", "toy-sampler", "--tasks", "12", *named, *more,
        )  # fmt: skip

    return call


def ran(done: subprocess.CompletedProcess[str], code: int = 0) -> dict[str, Any]:
    """The document printed by --json."""
    assert done.returncode == code, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def rows(document: dict[str, Any], table: str, **where: Any) -> list[dict[str, Any]]:
    found = [row for t in document["tables"] if t["table"] == table for row in t["rows"]]
    return [row for row in found if all(row[key] == value for key, value in where.items())]


def planned(**request: Any) -> fewstab.Grid:
    registry = Registry()
    registry.load_file(TOYS)
    tree = {"sampler": Given("toy-sampler", "test"), "tasks": Given(5, "test")}
    request.setdefault("methods", METHODS)
    request.setdefault("datasets", ("toy-images",))
    return make_grid(registry, tree, Request(backbones=("toy-pixels",), **request))


def test_the_grid_is_the_product() -> None:
    made = planned(shots=(1, 3), detectors=("metadata:words", "toy-eyes"))
    assert len(made.cells) == len(made.slots) == 3 * 2 * 2
    names = [cell.name for cell in made.cells]
    assert names[:2] == [
        "toy-near, toy-pixels, toy-images, 1-shot, metadata:words",
        "toy-near, toy-pixels, toy-images, 1-shot, toy-eyes",
    ]
    shots = [cell.experiment.sampler.options["n_shot"] for cell in made.cells]
    assert shots == [1] * 6 + [3] * 6


def test_ablations_are_5_shot_and_share_the_papers_construction() -> None:
    made = planned(ablation=True)
    # Plain cells at 1 and 5 shots; at 5 four more constructions, since SC3 = QC3 = the plain one.
    assert len(made.cells) == 3 * 2 + 3 * 4
    assert len(made.slots) == 3 * 2 + 3 * 6
    slots = {
        s.technique: i for s, i in made.slots.items() if s.method == "toy-near" and s.shot == 5
    }
    assert slots["SC3"] == slots["QC3"] == slots[""]
    assert len(set(slots.values())) == 5
    for technique, number in slots.items():
        options = made.cells[number].experiment.sampler.options
        assert technique == "" or TECHNIQUES[technique].items() <= options.items()
    assert {s.shot for s in planned(ablation=True, shots=(1,)).slots if s.technique} == {1}


def test_equal_requests_are_one_cell() -> None:
    assert len(planned(methods=("toy-near", "toy-near"), shots=(1, 1)).cells) == 1


def test_what_is_left_out_has_the_papers_value() -> None:
    registry = Registry()
    registry.load_file(TOYS)
    tree = {"dataset": {"wordless": Given(True, "test")}}
    made = make_grid(registry, tree, Request(datasets=("cub-200=toy-images",)))
    assert made.datasets[0].label == "CUB-200"
    first = made.cells[0].experiment
    assert (first.backbone.name, first.sampler.name, first.settings.tasks) == (
        "resnet12", "fewstab", 3000,
    )  # fmt: skip
    assert first.detector is not None
    assert first.detector.name == "vit-gpt2"
    assert {slot.shot for slot in made.slots} == {1, 5}
    methods = list(dict.fromkeys(slot.method for slot in made.slots))
    assert {"protonet", "renet"} <= set(methods)
    assert methods == [name for name in fewstab.METHODS if name in methods]


def test_the_embedded_data_set_has_words_and_a_small_backbone() -> None:
    made = make_grid(Registry(), {}, Request(methods=("protonet",)))
    first = made.cells[0].experiment
    assert (first.dataset.name, first.backbone.name, first.detector) == ("planted", "conv64f", None)
    assert first.settings.tasks == 600


def test_options_of_the_tree_take_the_place_of_an_axis() -> None:
    registry = Registry()
    registry.load_file(TOYS)
    tree = {
        "dataset": Given("toy-images", "a file"),
        "method": Given("toy-near", "a file"),
        "backbone": Given("toy-pixels", "a file"),
        "sampler": {"name": Given("toy-sampler", "a file"), "n_shot": Given(3, "a file")},
        "statistics": Given("wacc", "a file"),
    }
    made = make_grid(registry, tree, Request(ablation=True))
    assert len(made.cells) == 5
    assert {s.shot for s in made.slots} == {3}
    assert set(made.cells[0].experiment.statistics) == {"acc", "wacc"}


def test_recipes_set_options_of_some_cells(grid: Grid, tmp_path: Path) -> None:
    (tmp_path / "recipes.toml").write_text(
        """
        [training]
        epochs = 0
        steps = 7
        [[recipes]]
        [recipes.set.training]
        learning_rate = 0.5
        [[recipes]]
        method = "protonet"
        dataset = "miniImageNet"
        shot = 1
        [recipes.set.training]
        learning_rate = 0.25
        steps = 8
        [recipes.set.sampler]
        support = "targeted"
        """
    )
    options = ("--shot", "1", "--shot", "2", "-o", "training.steps=9", "--config", "recipes.toml")
    cells = ran(grid(*options, "--json", methods=("protonet",), dataset="miniImageNet=toy-images"))[
        "cells"
    ]
    resolved = [json.loads((Path(c["folder"]) / "run.json").read_text())["resolved"] for c in cells]
    stages = [r["training"][0] for r in resolved]
    assert [s["learning_rate"] for s in stages] == [0.25, 0.5]
    assert [s["steps"] for s in stages] == [9, 9]
    assert [r["sampler"]["support"] for r in resolved] == ["targeted", "exclusive"]
    assert [r["sampler"]["n_shot"] for r in resolved] == [1, 2]


def test_methods_on_different_tasks_are_not_averaged(grid: Grid, tmp_path: Path) -> None:
    (tmp_path / "recipes.toml").write_text(
        "[[recipes]]\nmethod = 'toy-near'\n[recipes.set]\nseed = 7\n"
    )
    options = ("--shot", "5", "--ablation", "--agreement", "--json", "--config", "recipes.toml")
    document = ran(grid(*options))
    (drop,) = rows(document, "S5", quantity="SC1", contestants=3)
    (rho,) = rows(document, "4")
    for row in (drop, rho):
        assert row["measured"] is None
        assert row["reason"] == "none: the methods were evaluated on different tasks"


def test_outcomes_that_are_gone_are_told(grid: Grid) -> None:
    document = ran(grid("--shot", "1", "--json"))
    (Path(document["cells"][0]["folder"]) / "outcomes-A.parquet").unlink()
    (rho,) = rows(ran(grid("--shot", "1", "--agreement", "--json")), "4")
    assert rho["measured"] is None
    assert rho["reason"].endswith("are gone")


@pytest.mark.parametrize(
    ("recipe", "part"),
    [
        ("recipes = 3", "recipes must be a list of tables"),
        ("[[recipes]]\nmethod = 'toy-near'", "number 1: sets no option"),
        ("[[recipes]]\nway = 5\n[recipes.set]\nseed = 1", "unknown key 'way'"),
        ("[[recipes]]\nmethod = 'protonett'\n[recipes.set]\nseed = 1", "mean 'protonet'"),
        ("[[recipes]]\n[recipes.set.training]\nepoch = 1", "training.epoch"),
    ],
)
def test_a_bad_recipe_is_told(grid: Grid, tmp_path: Path, recipe: str, part: str) -> None:
    (tmp_path / "recipes.toml").write_text(recipe)
    done = grid("--config", "recipes.toml")
    assert done.returncode == 2
    assert part in done.stderr


TYPED = "command line"


@pytest.mark.parametrize(
    ("request_", "tree", "part"),
    [
        ({"datasets": ("MNIST=toy-images",)}, {}, "one of miniImageNet, tieredImageNet, CUB-200"),
        ({"datasets": ("toy-images", "CUB-200=toy-images")}, {}, "there twice"),
        ({"methods": ("toy-neer",)}, {}, "did you mean 'toy-near'"),
        ({}, {"placebo": True}, "placebo has no place in a benchmark"),
        ({}, {"task_file": "x"}, "task_file has no place"),
        ({}, {"sampler": "random"}, "ties no attribute to a class"),
        ({"ablation": True}, {"sampler": "toy-plain"}, "no support and no query"),
        ({}, {"method": {"strength": "9"}}, "unknown option method.strength"),
        ({}, {"sampler": {"name": "toy-sampler", "n_way": "1"}}, "n_way must be at least 2"),
        ({"detectors": ("toy-eyes",)}, {"attributes": "column:words"}, "--attributes"),
        ({}, {"tasks": "0"}, "tasks must be at least 1"),
        ({}, {"seeds": "0"}, "unknown option 'seeds'"),
    ],
)
def test_a_bad_option_is_told(request_: dict[str, Any], tree: dict[str, Any], part: str) -> None:
    registry = Registry()
    registry.load_file(TOYS)
    leaves = {
        k: {a: Given(b, TYPED) for a, b in v.items()} if isinstance(v, dict) else Given(v, TYPED)
        for k, v in {"sampler": "toy-sampler", **tree}.items()
    }
    asked = {"datasets": ("toy-images",), "methods": METHODS, "shots": (1,), **request_}
    with pytest.raises((OptionError, PluginError)) as caught:
        make_grid(registry, leaves, Request(backbones=("toy-pixels",), **asked))
    assert part in str(caught.value)


def test_bad_options_end_before_anything_runs(grid: Grid, tmp_path: Path) -> None:
    for options in (
        ("--output", "tables.xlsx"), ("--shot", "0"), ("--device", "abacus"),
        ("-o", "method.x=1"), ("-o", "nothing"), ("--query-batch", "all"),
    ):  # fmt: skip
        done = grid(*options)
        assert done.returncode == 2, (options, done.stderr)
        assert done.stderr.strip().count("\n") == 0, done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_every_table_from_one_grid(grid: Grid) -> None:
    document = ran(grid("--ablation", "--agreement", "--json"))
    assert [t["table"] for t in document["tables"]] == ["3", "S7", "S8", "S5", "S6", "4", "6"]
    assert len(document["cells"]) == 18
    assert {cell["status"] for cell in document["cells"]} == {"finished"}
    folders = [cell["folder"] for cell in document["cells"]]
    assert len(set(folders)) == 18
    for cell in document["cells"]:
        record = json.loads((Path(cell["folder"]) / "run.json").read_text())
        assert record["fingerprint"] == cell["fingerprint"]
    # Every value is that of its run.
    for row in rows(document, "3") + rows(document, "S7"):
        record = json.loads((Path(row["run"]) / "run.json").read_text())
        name = {"Acc": "acc-R", "wAcc-A": "wacc-A", "wAcc-R": "wacc-R"}[row["quantity"]]
        assert row["measured"] == pytest.approx(100 * record["estimates"][name]["value"], abs=1e-5)
        assert row["measured_half_width"] is not None
        assert record["resolved"]["method"]["name"] == row["method"]
        assert record["resolved"]["sampler"]["n_shot"] == row["shot"]
    # Nothing was printed for data of no label.
    assert {row["printed"] for t in document["tables"] for row in t["rows"]} == {None}


def test_finished_cells_are_taken_as_they_are(grid: Grid) -> None:
    first = ran(grid("--shot", "1", "--json"))
    stamps = {c["folder"]: (Path(c["folder"]) / "run.json").stat().st_mtime_ns
              for c in first["cells"]}  # fmt: skip
    again = grid("--shot", "1", "--json")
    second = ran(again)
    assert [c["reused"] for c in first["cells"]] == [False] * 3
    assert [c["reused"] for c in second["cells"]] == [True] * 3
    assert second["tables"] == first["tables"]
    assert "to do" not in again.stderr
    for folder, stamp in stamps.items():
        assert (Path(folder) / "run.json").stat().st_mtime_ns == stamp


def test_a_run_made_alone_is_a_cell(grid: Grid, fsf: Fsf) -> None:
    done = fsf(
        "run", "--plugin", str(TOYS), "--dataset", "toy-images", "--backbone", "toy-pixels",
        "--sampler", "toy-sampler", "--tasks", "12", "--method", "toy-near", "--shot", "1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    cells = ran(grid("--shot", "1", "--json"))["cells"]
    assert [cell["reused"] for cell in cells] == [True, False, False]


def test_it_goes_on_after_a_kill(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    methods = ("toy-near", "toy-blind", "toy-first")
    monkeypatch.setenv("TOY_KILLS", "1")
    killed = grid("--shot", "1", methods=methods)
    assert killed.returncode == 130
    listed = ran(grid("--shot", "1", "--dry-run", "--json", methods=methods))["cells"]
    assert [cell["run"] is not None for cell in listed] == [True, False, False]
    monkeypatch.delenv("TOY_KILLS")
    cells = ran(grid("--shot", "1", "--json", methods=methods))["cells"]
    assert [cell["reused"] for cell in cells] == [True, False, False]
    assert {cell["status"] for cell in cells} == {"finished"}


def test_a_failing_cell_loses_no_other(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--shot", "1", "--shot", "12", "--agreement", "--ablation", "-o", "seed=3")
    monkeypatch.setenv("TOY_FAILS", "1")
    document = ran(grid(*options, "--json"), code=1)
    reasons = {(row["method"], row["shot"]): row["reason"] for row in rows(document, "3")}
    assert reasons["toy-blind", 1] == "failed: unexpected RuntimeError: the toy was told to fail"
    for method in METHODS:
        assert reasons[method, 12] == "failed: n_shot must be at most 10, not 12"
    assert reasons["toy-near", 1] == reasons["toy-first", 1] == ""
    assert all(row["measured"] is None for row in rows(document, "3", shot=12))
    # Two are too few to be ranked.
    assert [r["reason"] for r in rows(document, "4")] == [
        "none: it takes 3 contestants, here are 2", "none: it takes 3 contestants, here are 0",
    ]  # fmt: skip
    # The average leaves out what failed, and says so.
    (drop,) = rows(document, "S5", quantity="SC1", shot=1, estimator="welch-t", contestants=2)
    assert drop["method"] == "toy-near;toy-first"
    text = grid(*options)
    assert text.returncode == 1
    assert "failed: unexpected RuntimeError: the toy was told to fail" in text.stdout
    assert "average drop (2 methods)" in text.stdout
    monkeypatch.delenv("TOY_FAILS")
    mended = ran(grid("--shot", "1", "--agreement", "-o", "seed=3", "--json"))
    assert [cell["reused"] for cell in mended["cells"]] == [True, True, False]
    assert rows(mended, "4")[0]["measured"] is not None


def test_a_detector_without_its_model_fails_alone(grid: Grid) -> None:
    options = ("--shot", "1", "--detector", "toy-eyes", "--detector", "toy-missing", "--agreement")
    document = ran(grid(*options, "--json"), code=1)
    by_detector = {
        name: rows(document, "S8", attributes=name) for name in ("toy-eyes", "toy-missing")
    }
    assert all(row["measured"] is not None for row in by_detector["toy-eyes"])
    assert {row["reason"] for row in by_detector["toy-missing"]} == {
        "failed: the toy model is in no cache"
    }
    assert rows(document, "6")[0]["reason"] == "none: it takes 3 contestants, here are 0"


def test_printed_values_stand_beside_the_right_cells(
    grid: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        fewstab, "METHODS", {"toy-near": "RENet", "toy-first": "R2D2", "toy-blind": "ANIL"}
    )
    monkeypatch.setattr(
        fewstab_tables, "DETECTORS", {"toy-eyes": "ViT-GPT2", "metadata:words": "BLIP"}
    )
    options = ("--detector", "toy-eyes", "--detector", "metadata:words")
    document = ran(
        grid("--ablation", "--agreement", "--json", *options, dataset="MINIimagenet=toy-images")
    )
    spelt, printed = dict(fewstab.METHODS), printed_values()
    for table in ("3", "S7", "S8", "S5", "S6"):
        for row in rows(document, table, contestants=1):
            key = (table, "miniImageNet", row["shot"], spelt[row["method"]], row["quantity"])
            assert row["printed"] == printed[key].value, key
            assert row["difference"] == pytest.approx(row["measured"] - row["printed"], abs=2e-6)
            if table in ("3", "S7", "S8"):
                halves = row["measured_half_width"], printed[key].half_width
                assert row["printed_half_width"] == halves[1]
                assert row["difference_half_width"] == pytest.approx(np.hypot(*halves), abs=1e-5)
            else:
                assert row["printed_half_width"] is None
    # The average drop of the ten, and that of these three from their printed gaps.
    (drop,) = rows(document, "S5", quantity="SC2", contestants=3)
    assert drop["printed"] == 13.89
    assert drop["from_printed"] == pytest.approx((18.92 + 14.37 + 9.73) / 3, abs=1e-6)
    (rho,) = rows(document, "4", shot=5)
    assert (rho["printed"], rho["from_printed"]) == (0.95, 1.0)
    (rho,) = rows(document, "6", shot=1)
    assert (rho["printed"], rho["from_printed"]) == (0.98, 1.0)
    assert rho["attributes"] == "toy-eyes;metadata:words"
    notes = next(t["notes"] for t in document["tables"] if t["table"] == "3")
    for part in ("fingerprint toy-images-0", "toy-sampler", "12 random", "queries shown by task",
                 "closed", "weights (here untrained)", "backbone (ResNet-12, here toy-pixels)",
                 "attributes (ViT-GPT2's, here toy-eyes)"):  # fmt: skip
        assert any(part in note for note in notes), (part, notes)


def test_no_printed_value_beside_tasks_of_another_shape(grid: Grid) -> None:
    labelled = {"dataset": "miniImageNet=toy-images"}
    options = ("--method", "protonet", "-o", "training.epochs=0", "--shot", "1", "--json")
    same = ran(grid(*options, **labelled))
    other = ran(grid(*options, "-o", "sampler.n_query=10", **labelled))
    assert rows(same, "3", method="protonet", quantity="wAcc-A")[0]["printed"] == 14.03
    assert rows(other, "3", method="protonet", quantity="wAcc-A")[0]["printed"] is None
    # A method that the paper has not measured has nothing to stand beside.
    assert rows(same, "3", method="toy-near")[0]["printed"] is None


def test_the_average_drop_and_its_interval(grid: Grid) -> None:
    document = ran(grid("--shot", "5", "--ablation", "--json"))
    (drop,) = rows(document, "S6", quantity="QC1", contestants=3)
    runs = [row["run"] for row in rows(document, "S6", quantity="QC1", contestants=1)]
    means = {
        kind: np.mean(
            [
                Outcomes.load(Path(run) / f"outcomes-{kind}.parquet").class_accuracy.min(axis=1)
                for run in runs
            ],
            axis=0,
        )
        for kind in "RA"
    }
    assert drop["measured"] == pytest.approx(
        100 * (means["R"].mean() - means["A"].mean()), abs=1e-5
    )
    gaps = [row["measured"] for row in rows(document, "S6", quantity="QC1", contestants=1)]
    assert drop["measured"] == pytest.approx(np.mean(gaps), abs=1e-5)
    welch = stats.ttest_ind(means["R"], means["A"], equal_var=False).confidence_interval(0.95)
    assert [drop["measured_low"], drop["measured_high"]] == pytest.approx(
        [100 * welch.low, 100 * welch.high], abs=1e-5
    )


def test_one_task_leaves_no_interval(grid: Grid) -> None:
    done = grid("--tasks", "1", "--shot", "5", "--ablation")
    assert done.returncode == 0, done.stderr
    assert "(no interval)" in done.stdout
    assert "nan" not in done.stdout


def test_level_and_query_batch_are_told(grid: Grid) -> None:
    done = grid("--shot", "1", "--query-batch", "class", "-o", "level=0.9")
    assert "queries shown by class" in done.stdout
    assert "intervals: 90 %" in done.stdout


@pytest.mark.parametrize("suffix", ["md", "csv", "json", "tex"])
def test_output_beside_what_is_printed(grid: Grid, tmp_path: Path, suffix: str) -> None:
    done = grid("--shot", "1", "--output", f"tables.{suffix}")
    assert done.returncode == 0, done.stderr
    path = tmp_path / f"tables.{suffix}"
    if suffix == "csv":
        with path.open(newline="") as file:
            assert {row["table"] for row in csv.DictReader(file)} == {"3", "S7", "S8"}
    elif suffix == "json":
        assert len(json.loads(path.read_text())["cells"]) == 3
    else:
        values = [line for line in path.read_text().splitlines() if "toy-near" in line]
        assert len(values) == 3


def test_progress_and_listing(grid: Grid, tmp_path: Path) -> None:
    listed = grid("--shot", "1", "--dry-run")
    assert listed.returncode == 0
    assert "3 cells, 0 of them done" in listed.stdout
    assert not (tmp_path / "runs").exists()
    done = grid("--shot", "1")
    assert "cell 2 of 3: toy-first, toy-pixels, toy-images, 1-shot, own words" in done.stderr
    assert "3 cells: 3 run now, 0 finished before, 0 failed" in done.stdout
    assert "3 cells, 3 of them done" in grid("--shot", "1", "--dry-run").stdout
    # Other outcomes are other runs; the level of an interval is not.
    assert "0 of them done" in grid("--shot", "1", "--dry-run", "--seed", "1").stdout
    assert "3 of them done" in grid("--shot", "1", "--dry-run", "-o", "level=0.9").stdout
