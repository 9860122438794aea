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

import fsframework as fsf_api
from fsf_benchmarks import (
    _fewstab,
    _fewstab_agreement,
    _fewstab_tables,
    _fewstab_unlabelled,
    run_benchmark,
)
from fsf_benchmarks._fewstab import TECHNIQUES
from fsf_benchmarks._published import DATASETS, printed_values
from fsf_benchmarks.interfaces import BenchmarkResults, ExperimentResult
from fsframework.errors import OptionError, PluginError
from tests.conftest import Fsf

TOYS = Path(__file__).with_name("toy_grid.py")
METHODS = ("toy-near", "toy-first", "toy-blind")
ABLATION = ("-o", "benchmark.ablation=true")
AGREEMENT = ("-o", "benchmark.agreement=true")
TOY = {"dataset": ["toy-images"], "backbone": ["toy-pixels"], "method": METHODS}
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every table at once: the toys stand for methods and detectors of the paper."""
    folder = tmp_path_factory.mktemp("whole")
    methods = {"toy-near": "RENet", "toy-first": "R2D2", "toy-blind": "ANIL"}
    detectors = {"toy-eyes": "ViT-GPT2", "metadata:words": "BLIP"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_fewstab, "METHODS", methods)
        for module in (_fewstab_tables, _fewstab_agreement):
            patch.setattr(module, "DETECTORS", detectors)
        found = run_benchmark(
            "fewstab", benchmark_options={"ablation": True, "agreement": True}, plugins=[TOYS],
            dataset=["MINIimagenet=toy-images"], backbone=["toy-pixels"], method=METHODS,
            detector=list(detectors), sampler="toy-sampler", tasks=12, progress=False,
            runs_dir=folder / "runs", cache_dir=folder / "cache",
        )  # fmt: skip
    return {**found.to_json(), "spelt": methods}


def ran(done: subprocess.CompletedProcess[str], code: int = 0) -> dict[str, Any]:
    """The document printed by --json."""
    assert done.returncode == code, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def rows(document: dict[str, Any], table: str, **where: Any) -> list[dict[str, Any]]:
    found = [row for t in document["tables"] if t["table"] == f"Table {table}" for row in t["rows"]]
    return [row for row in found if all(row[key] == value for key, value in where.items())]


def described(job: Any) -> list[Any]:
    return list(job.benchmark.experiments(job.selection))


def options_of(job: Any) -> list[Any]:
    """The options of each experiment, equal ones once."""
    return [one.resolved.options for one in job.listed()]


def test_the_experiments_are_the_product(planned: Any) -> None:
    chosen = {**TOY, "shot": [1, 3], "detector": ["metadata:words", "toy-eyes"]}
    job = planned("fewstab", chosen, sampler="toy-sampler", tasks=5)
    names = [one.name for one in described(job)]
    assert len(names) == len(job.listed()) == 3 * 2 * 2
    assert names[:2] == [
        "toy-near, toy-pixels, toy-images, 1-shot, metadata:words",
        "toy-near, toy-pixels, toy-images, 1-shot, toy-eyes",
    ]
    assert [o["sampler"]["n_shot"] for o in options_of(job)] == [1] * 6 + [3] * 6
    twice = {**TOY, "method": ["toy-near", "toy-near"], "shot": [1, 1]}
    assert len(options_of(planned("fewstab", twice, sampler="toy-sampler"))) == 1


def test_ablations_are_5_shot_and_share_the_papers_construction(planned: Any) -> None:
    job = planned("fewstab", TOY, {"ablation": True}, sampler="toy-sampler", tasks=5)
    # Plain ones at 1 and 5 shots; at 5 four more constructions, since SC3 = QC3 = the plain one.
    assert len(options_of(job)) == 3 * 2 + 3 * 4
    assert len(described(job)) == 3 * 2 + 3 * 6
    for one in described(job):
        sampler = job.planned([one])[0].resolved.options["sampler"]
        assert TECHNIQUES.get(one.tags["technique"], {}).items() <= sampler.items()
    only = planned("fewstab", {**TOY, "shot": [1]}, {"ablation": True}, sampler="toy-sampler")
    assert {e.tags["shot"] for e in described(only) if e.tags["technique"]} == {1}


def test_the_models_of_figure_6_are_those_of_the_tables(planned: Any) -> None:
    own = {"training_shots": True}
    job = planned("fewstab", {"method": ["protonet", "rfs"]}, own)
    assert [(e.tags["method"], e.tags["trained_at"]) for e in described(job)[4:]] == [
        ("protonet", 1), ("rfs", 1), ("protonet", 5), ("rfs", 5),
    ]  # fmt: skip
    assert len(options_of(job)) == 4
    # Tests on tasks of other shots need no other training, and the user's shots are tested.
    other = planned("fewstab", {"method": ["protonet"], "shot": [10]}, own)
    assert [o["sampler"]["n_shot"] for o in options_of(other)] == [10, 1, 5]
    # Of the paper's methods, those that train on episodes.
    trained = {
        e.tags["method"] for e in described(planned("fewstab", None, own)) if e.tags["trained_at"]
    }
    assert trained == set(_fewstab.METHODS) - {"baseline-plus-plus", "rfs"}


@pytest.mark.parametrize("label", DATASETS)
def test_every_printed_cell_has_a_recipe(planned: Any, label: str) -> None:
    chosen = {"dataset": [f"{label}=toy-images"]}
    job = planned("fewstab", chosen, recipe="fewstab", sampler="toy-sampler", tasks=5)
    experiments = described(job)
    assert {(e.tags["method"], e.tags["shot"]) for e in experiments} == {
        (method, shot) for method in _fewstab.METHODS for shot in (1, 5)
    }
    for one in job.planned(experiments):
        assert one.resolved.options["recipe"] == f"fewstab:{label}"
        assert one.resolved.options["backbone"]["name"] == "resnet12"
    job = planned("fewstab", {**chosen, "method": ["protonet"]}, recipe="none", tasks=5)
    assert {o["recipe"] for o in options_of(job)} == {None}


def test_every_cell_of_table_s10_has_a_recipe(planned: Any) -> None:
    chosen = {"dataset": ["miniImageNet=toy-images"]}
    job = planned("fewstab", chosen, {"ifsl": True}, recipe="fewstab", sampler="toy-sampler")
    experiments = described(job)
    assert [(e.tags["shot"], e.tags["base"], e.tags["method"]) for e in experiments] == [
        (shot, base, method)
        for shot in (1, 5)
        for base in ("maml", "matchingnet", "sib", "mtl")
        for method in (base, f"ifsl:{base}")
    ]
    for experiment, one in zip(experiments, job.planned(experiments), strict=True):
        options = one.resolved.options
        assert options["recipe"] == "fewstab:miniImageNet"
        assert options["backbone"]["name"] == "resnet10"
        pretraining, episodes = options["training"]
        assert (pretraining["epochs"], pretraining["freeze"]) == (90, [])
        assert episodes["freeze"] == ["backbone"]
        inner = options["method"].get("base", options["method"])
        assert inner["name"] == experiment.tags["base"]


def test_table_s10_is_measured_on_the_same_tasks(tmp_path: Path) -> None:
    config = tmp_path / "splits.toml"
    config.write_text(
        '[[overrides]]\nmethod = "ifsl:toy-near"\n[overrides.set.method]\nn_splits = 3\n'
    )
    found = run_benchmark(
        "fewstab", benchmark_options={"ifsl": True}, method=["toy-near"], tasks=8, shot=[1],
        dataset=["toy-images"], backbone=["toy-pixels"], sampler="toy-sampler", config=config,
        plugins=[TOYS], recipe="none", training={"epochs": 1, "steps": 2, "validation_tasks": 0},
        runs_dir=tmp_path, progress=False,
    )  # fmt: skip
    [table] = found.tables
    assert (table.name, table.columns) == ("Table S10", ("wAcc-A",))
    assert [entry.row for entry in table.entries] == [
        ("1", "toy-near", part) for part in ("base", "+ IFSL", "IFSL − base")
    ]
    base, ifsl = (
        100 * result.outcomes()["biased"].class_accuracy.min(axis=1) for result in found.results
    )
    assert len(base) == 8
    measured = [entry.measured for entry in table.entries if entry.measured is not None]
    means = [base.mean(), ifsl.mean(), (ifsl - base).mean()]
    assert [one.value for one in measured] == pytest.approx(means)
    bounds = stats.ttest_1samp(ifsl - base, 0).confidence_interval(0.95)
    assert [measured[2].low, measured[2].high] == pytest.approx([bounds.low, bounds.high])
    assert not any(entry.printed for entry in table.entries)


def test_table_s10_shows_the_printed_values_beside(planned: Any) -> None:
    """A failed experiment has its reason, and the printed values stand all the same."""
    job = planned("fewstab", {"dataset": ["miniImageNet=toy-images"]}, {"ifsl": True})
    experiments = [e for e in described(job) if e.tags["shot"] == 5][:2]
    options = {
        "sampler": {"name": "fewstab", "n_way": 5, "n_query": 15}, "tasks": 3000, "task_seed": 0,
        "query_batch": "class", "level": 0.95, "recipe": "fewstab",
    }  # fmt: skip
    results = [
        ExperimentResult(description=e, reason="no time", options=options) for e in experiments
    ]
    [table] = job.benchmark.tables(BenchmarkResults(job.selection, results))
    printed = [entry.printed.text() for entry in table.entries if entry.printed]
    assert printed == ["28.70 ± 0.69", "29.82 ± 0.76", "1.12 ± 1.03"]
    assert {entry.reason for entry in table.entries} == {"failed: no time"}


@pytest.mark.slow
def test_figure_6_on_the_embedded_data_set(tmp_path: Path) -> None:
    found = run_benchmark(
        "fewstab", benchmark_options={"training_shots": True}, method=["protonet"], tasks=8,
        dataset={"size": 16, "n_per_class": 60}, image_size=16, runs_dir=tmp_path, progress=False,
        training={"epochs": 1, "steps": 2, "validation_tasks": 0}, shot=[1, 10],
    )  # fmt: skip
    table = found.tables[-1]
    assert (table.name, table.columns) == ("Figure 6", ("1-shot", "10-shot"))
    entries = {(entry.row[0], entry.column): entry for entry in table.entries}
    for shot in (1, 10):
        few, many = (
            next(r for r in found.results if _is_test(r, trained, shot)).outcomes()["biased"]
            for trained in (1, 5)
        )
        worst = many.class_accuracy.min(axis=1) - few.class_accuracy.min(axis=1)
        bounds = stats.ttest_1samp(100 * worst, 0).confidence_interval(0.95)
        measured = entries["ProtoNet", f"{shot}-shot"].measured
        assert measured is not None
        assert measured.value == pytest.approx(100 * worst.mean())
        assert [measured.low, measured.high] == pytest.approx([bounds.low, bounds.high])
        assert entries["ProtoNet", f"{shot}-shot"].printed is None
    [figure] = found.figures
    [panel] = figure.panels
    assert [series.name for series in panel.series] == ["1-shot tasks", "10-shot tasks"]


def _is_test(result: Any, trained: int, shot: int) -> bool:
    """Whether a result is ProtoNet's on tasks of a shot, with the model trained at another."""
    assert result.options["training"][0]["epochs"] in (0, 1)
    if result.tags["method"] != "protonet" or result.tags["shot"] != shot:
        return False
    return bool(result.trained if shot == trained else result.tags["trained_at"] == trained)


def test_figure_6_says_why_a_value_is_missing(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_FAILS", "1")
    options = ("-o", "benchmark.training_shots=true", "--shot", "1", "--json")
    document = ran(grid(*options, methods=("toy-near", "toy-blind")), code=1)
    assert document["tables"][-1]["table"] == "Figure 6"
    first, second = (row["reason"] for row in document["tables"][-1]["rows"])
    assert first == "none: the method does not train"
    assert second.startswith("failed: method 'toy-blind': ")
    assert "raised RuntimeError: the toy was told to fail" in second


def test_what_is_left_out_has_the_papers_value(planned: Any) -> None:
    chosen = {"dataset": ["cub-200=toy-images"]}
    job = planned("fewstab", chosen, dataset={"wordless": True}, training={"epochs": 0})
    found = described(job)
    assert found[0].tags["label"] == "CUB-200"
    first = job.planned([found[0]])[0].resolved.options
    names = [first[role]["name"] for role in ("backbone", "sampler", "detector")]
    assert (*names, first["tasks"]) == ("resnet12", "fewstab", "vit-gpt2", 3000)
    assert {one.tags["shot"] for one in found} == {1, 5}
    methods = list(dict.fromkeys(one.tags["method"] for one in found))
    assert methods == [name for name in _fewstab.METHODS if name in methods]
    assert {"protonet", "renet"} <= set(methods)
    embedded = options_of(planned("fewstab", {"method": ["protonet"]}))[0]
    names = [embedded[role]["name"] for role in ("dataset", "backbone")]
    assert (*names, embedded["tasks"]) == ("planted", "conv64f", 600)
    assert "detector" not in embedded


def test_options_of_all_experiments_take_the_place_of_an_axis(planned: Any) -> None:
    job = planned(
        "fewstab", own={"ablation": True}, dataset="toy-images", method="toy-near",
        backbone="toy-pixels", sampler={"name": "toy-sampler", "n_shot": 3},
    )  # fmt: skip
    assert len(options_of(job)) == 5
    assert {one.tags["shot"] for one in described(job)} == {3}
    job = planned("fewstab", TOY, sampler="toy-sampler", attributes="column:words")
    assert {one.tags["words"] for one in described(job)} == {"words of column:words"}
    assert {o["attributes"] for o in options_of(job)} == {"column:words"}


def test_overrides_set_options_of_some_experiments(grid: Grid, tmp_path: Path) -> None:
    (tmp_path / "overrides.toml").write_text(
        """
        [training]
        epochs = 0
        steps = 7
        [[overrides]]
        [overrides.set.training]
        learning_rate = 0.5
        [[overrides]]
        method = "protonet"
        dataset = "miniImageNet"
        shot = 1
        [overrides.set.training]
        learning_rate = 0.25
        steps = 8
        [overrides.set.sampler]
        support = "targeted"
        """
    )
    options = ("--shot", "1", "--shot", "2", "-o", "training.steps=9", "--config", "overrides.toml")
    cells = ran(grid(*options, "--json", methods=("protonet",), dataset="miniImageNet=toy-images"))[
        "experiments"
    ]
    records = [fsf_api.load_run(c["folder"]).record for c in cells]
    stages = [r.stages[0].options for r in records]
    samplers = [r.components["sampler"].options for r in records]
    assert [s["learning_rate"] for s in stages] == [0.25, 0.5]
    assert [s["steps"] for s in stages] == [9, 9]
    assert [s["support"] for s in samplers] == ["targeted", "exclusive"]
    assert [s["n_shot"] for s in samplers] == [1, 2]


@pytest.mark.slow
def test_methods_on_different_tasks_are_not_averaged(grid: Grid, tmp_path: Path) -> None:
    (tmp_path / "overrides.toml").write_text(
        "[[overrides]]\nmethod = 'toy-near'\n[overrides.set]\nseed = 7\n"
    )
    options = ("--shot", "5", *ABLATION, *AGREEMENT, "--json", "--config", "overrides.toml")
    document = ran(grid(*options))
    (drop,) = rows(document, "S5", quantity="SC1", methods=3)
    (rho,) = rows(document, "4")
    for row in (drop, rho):
        assert row["measured"] is None
        assert row["reason"] == "none: the methods were evaluated on different tasks"


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("overrides = 3", "overrides must be a list of tables"),
        ("[[overrides]]\nmethod = 'toy-near'", "options below set"),
        ("[[overrides]]\nway = 5\n[overrides.set]\nseed = 1", "unknown key 'way'"),
        ("[[overrides]]\nmethod = 'protonett'\n[overrides.set]\nseed = 1", "mean 'protonet'"),
        ("[[overrides]]\n[overrides.set.training]\nepoch = 1", "training.epoch"),
    ],
)
def test_a_bad_override_is_told(grid: Grid, tmp_path: Path, override: str, part: str) -> None:
    (tmp_path / "overrides.toml").write_text(override)
    done = grid("--config", "overrides.toml")
    assert done.returncode == 2
    assert part in done.stderr


@pytest.mark.parametrize(
    ("chosen", "own", "options", "part"),
    [
        ({"dataset": ["MNIST=toy-images"]}, {}, {}, "one of miniImageNet, tieredImageNet, CUB-200"),
        ({"dataset": ["toy-images", "CUB-200=toy-images"]}, {}, {}, "given twice"),
        ({"method": ["toy-neer"]}, {}, {}, "did you mean 'toy-near'"),
        ({"model": ["somewhere"]}, {}, {}, "model cannot be chosen in the benchmark fewstab"),
        ({}, {}, {"placebo": True}, "placebo: the benchmark fewstab sets this itself"),
        ({}, {}, {"task_file": "x"}, "task_file: the benchmark fewstab sets this itself"),
        ({}, {}, {"sampler": "random"}, "its arms are random, but the benchmark fewstab needs"),
        ({}, {"ablation": True}, {"sampler": "toy-plain"}, "sampler.support"),
        ({"detector": ["toy-eyes"]}, {}, {"attributes": "column:words"}, "either read from column"),
        ({}, {"ifsl": True, "ablation": True}, {}, "ifsl makes Table S10 and no other"),
        ({}, {"ifsl": True, "agreement": True}, {}, "ifsl makes Table S10 and no other"),
        ({}, {"counts": True, "settings": True}, {}, "counts makes Tables 2 and S1 and no other"),
        ({}, {"ifsl": True, "training_shots": True}, {}, "ifsl makes Table S10 and no other"),
    ],
)
def test_what_cannot_be_asked_for_is_told(
    planned: Any, chosen: dict[str, Any], own: Any, options: dict[str, Any], part: str
) -> None:
    options = {"sampler": "toy-sampler", **options}
    with pytest.raises((OptionError, PluginError)) as caught:
        planned("fewstab", {**TOY, "shot": [1], **chosen}, own, **options).run()
    assert part in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        ("--output", "tables.xlsx"), ("--figure", "out.jpg"), ("--figure", "nowhere/out.png"),
        ("--shot", "0"), ("--device", "abacus"), ("-o", "nothing"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_bad_options_end_before_any_run(
    grid: Grid, tmp_path: Path, options: tuple[str, ...]
) -> None:
    done = grid(*options)
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip().count("\n") == 0, done.stderr
    assert not (tmp_path / "runs").exists()


def test_every_table_from_one_grid(whole: dict[str, Any]) -> None:
    names = [t["table"].removeprefix("Table ") for t in whole["tables"]]
    assert names == ["3", "S7", "S8", "S5", "S6", "4", "6", "S11"]
    assert len(whole["experiments"]) == 3 * 2 * 2 + 3 * 4
    assert {cell["status"] for cell in whole["experiments"]} == {"finished"}
    # By words of either detector the toy sampler draws the same tasks, but each names its own.
    assert len({cell["folder"] for cell in whole["experiments"]}) == 3 * 2 * 2 + 3 * 4
    # Every value is that of its run.
    for row in rows(whole, "3") + rows(whole, "S7"):
        record = json.loads((Path(row["run"]) / "run.json").read_text())
        arms = {"Acc": "acc-random", "wAcc-A": "wacc-biased", "wAcc-R": "wacc-random"}
        name = arms[row["quantity"]]
        assert row["measured"] == pytest.approx(100 * record["estimates"][name]["value"], abs=1e-5)
        # Tasks that all have one value, as of these few, give no interval.
        bounded = record["estimates"][name]["low"] is not None
        assert (row["measured_half_width"] is not None) == bounded
        assert record["components"]["method"]["name"] == row["method"]
        assert record["components"]["sampler"]["options"]["n_shot"] == row["shot"]
    head = whole["headline"]
    gaps = [row for row in head["rows"] if row["row"] == "RENet, 5-shot, toy-eyes"]
    estimates = {run["experiment"]: run["estimates"] for run in whole["experiments"]}
    own = estimates["RENet, toy-pixels, miniImageNet, 5-shot, toy-eyes"]
    assert gaps[-1]["measured"] == pytest.approx(100 * own["wacc-gap"]["value"])
    told = " ".join(head["sentences"])
    averages = [row for row in rows(whole, "S5") if row["methods"] == 3]
    drops = ", ".join(f"{row['measured']:.1f} ({row['technique']})" for row in averages)
    assert f"By construction of the support, 5-shot, the average gap is {drops}" in told
    (agreement,) = rows(whole, "4", shot=5)
    rho = agreement["measured"]
    # Three methods say nothing about others.
    assert (agreement["measured_low"], agreement["measured_high"]) == (-1, 1)
    assert f"Ranks by wAcc-A and by wAcc-R have the correlation {rho:.2f}" in told
    # The average drop and its interval, worked out anew from the outcomes.
    (drop,) = rows(whole, "S6", quantity="QC1", methods=3)
    of_one = rows(whole, "S6", quantity="QC1", methods=1)
    outcomes = [fsf_api.load_run(row["run"]).outcomes for row in of_one]
    means = [
        100 * np.mean([one[arm].class_accuracy.min(axis=1) for one in outcomes], axis=0)
        for arm in ("random", "biased")
    ]
    assert drop["measured"] == pytest.approx(means[0].mean() - means[1].mean(), abs=1e-5)
    assert drop["measured"] == pytest.approx(np.mean([r["measured"] for r in of_one]), abs=1e-5)
    welch = stats.ttest_ind(*means, equal_var=False).confidence_interval(0.95)
    bounds = [drop["measured_low"], drop["measured_high"]]
    assert bounds == pytest.approx([welch.low, welch.high], abs=1e-5)


def test_table_s11_is_counted_on_the_images(whole: dict[str, Any]) -> None:
    """Eq. 9 by hand: ``dark`` or ``bright`` by the toy, one word or two by the metadata."""
    found = rows(whole, "S11", quantity="detection accuracy")
    [folder, *_] = [c["folder"] for c in whole["experiments"] if "toy-eyes" in c["experiment"]]
    pool = fsf_api.load_run(folder).pool
    seen = [set(pool.attributes.words_of(i)) for i in range(len(pool))]
    given = [set(text.split(";")) for text in pool.metadata["words"]]
    by_toy = np.mean([len(a & b) / len(b) for a, b in zip(seen, given, strict=True)])
    by_data = np.mean([len(a & b) / len(a) for a, b in zip(seen, given, strict=True)])
    assert [row["measured"] for row in found] == pytest.approx(
        [100 * by_toy, 100 * by_data], abs=0.006
    )
    ranks = {r["quantity"]: r["measured"] for r in rows(whole, "S11") if "rho" in r["quantity"]}
    plain = {f"rho, {r['shot']}-shot": r["measured"] for r in rows(whole, "6")}
    assert ranks == plain


def test_methods_without_labels_are_beside_table_s9(
    planned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Printed values are those of miniImageNet, for words of either detector."""
    job = planned("fewstab", {"dataset": ["miniImageNet=toy-images"]}, {"unlabelled": True})
    assert {(e.tags["method"], e.tags["backbone"], e.tags["shot"]) for e in described(job)} == {
        (method, backbone, shot)
        for method, backbone in (
            ("unisiam", "resnet18"), ("psco", "conv64f"), ("beclr", "resnet18"),
        )
        for shot in (1, 5)
    }  # fmt: skip
    monkeypatch.setattr(_fewstab, "UNLABELLED", {"toy-near": ("BECLR", "toy-pixels")})
    monkeypatch.setattr(_fewstab_unlabelled, "UNLABELLED", _fewstab.UNLABELLED)
    monkeypatch.setattr(_fewstab_unlabelled, "DETECTORS", {"toy-eyes": "BLIP"})
    asked = {"dataset": ["miniImageNet=toy-images"], "detector": ["metadata:words", "toy-eyes"]}
    found = planned("fewstab", asked, {"unlabelled": True}, sampler="toy-sampler", tasks=9).run()
    [table] = found.tables
    printed = {
        (e.row[:2], e.column): e.printed.text() for e in table.entries if e.printed is not None
    }
    assert printed == {
        (("1", "BECLR"), "wAcc-R"): "35.57 ± 0.80", (("1", "BECLR"), "wAcc-A (BLIP)"):
        "22.42 ± 0.82", (("5", "BECLR"), "wAcc-R"): "55.20 ± 0.49",
        (("5", "BECLR"), "wAcc-A (BLIP)"): "33.42 ± 0.68",
    }  # fmt: skip


def test_words_and_images_are_counted_untrained(grid: Grid) -> None:
    """Tables 2 and S1 of 15 classes of 30 images, of which six are for the test."""
    done = grid("-o", "benchmark.counts=true", "--json", methods=("toy-near",))
    words, splits = ran(done)["tables"]
    assert [row["measured"] for row in words["rows"]] == [3, 3]
    assert [row["measured"] for row in splits["rows"]] == [6, 180, 0.2, 3, 90, 0.1, 6, 180, 0.2]
    assert "Table 2" in grid("-o", "benchmark.counts=true", methods=("toy-near",)).stdout


def test_recipes_are_the_printed_ones(fsf: Fsf, tmp_path: Path) -> None:
    """Tables S2 to S4: every cell that is printed is what the recipe does."""
    done = fsf("benchmark", "fewstab", "-o", "benchmark.settings=true", "--json")
    assert done.returncode == 0, done.stderr
    tables = json.loads(done.stdout)["tables"]
    assert [table["table"] for table in tables] == ["Table S2", "Table S3", "Table S4"]
    assert not (tmp_path / "runs").exists()
    for table in tables:
        assert len(table["rows"]) == 4 * (8 * 2 + 2)
        assert all(row["measured"] == row["printed"] for row in table["rows"])
        assert table["notes"][-1].endswith(": none")


def test_gaps_and_accuracies_are_drawn(grid: Grid, tmp_path: Path) -> None:
    document = ran(grid("--json", "--figure", "all.svg"))
    gaps, scatter = document["figures"]
    assert [series["name"] for series in gaps["panels"][0]["series"]] == ["1-shot", "5-shot"]
    estimates = [run["estimates"] for run in document["experiments"]]
    drawn = [p["y"] for s in gaps["panels"][0]["series"] for p in s["points"]]
    measured = [100 * one["wacc-gap"]["value"] for one in estimates]
    assert drawn == pytest.approx(measured, abs=1e-5)
    points = [(p["x"], p["y"]) for panel in scatter["panels"] for p in panel["series"][0]["points"]]
    assert points == [
        pytest.approx((100 * e["acc-random"]["value"], 100 * e["wacc-biased"]["value"]), abs=1e-5)
        for e in estimates
    ]
    assert (tmp_path / "all-figure-4.svg").exists()
    assert (tmp_path / "all-figure-s1.svg").exists()


def test_finished_cells_are_listed_and_taken(grid: Grid, fsf: Fsf, tmp_path: Path) -> None:
    def listed(*more: str) -> str:
        return grid("--shot", "1", "--dry-run", *more).stdout

    assert "3 experiments, 0 of them finished" in listed()
    assert not (tmp_path / "runs").exists()
    done = fsf(
        "run", "--json", "--plugin", str(TOYS), "--dataset", "toy-images", "--backbone",
        "toy-pixels", "--sampler", "toy-sampler", "--tasks", "12", "--method", "toy-near",
        "--shot", "1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first = grid("--shot", "1", "--json", "--output", "tables.csv")
    assert "2 of 2: " in first.stderr or "2 of 3: toy-first" in first.stderr
    cells = ran(first)["experiments"]
    assert [cell["reused"] for cell in cells] == [True, False, False]  # a run made alone is a cell
    with (tmp_path / "tables.csv").open(newline="") as file:
        assert {r["table"] for r in csv.DictReader(file)} == {
            f"Table {t}" for t in ("3", "S7", "S8")
        }
    records = [Path(cell["folder"]) / "run.json" for cell in cells]
    stamps = [record.stat().st_mtime_ns for record in records]
    again = grid("--shot", "1", "--json")
    assert [cell["reused"] for cell in ran(again)["experiments"]] == [True] * 3
    assert ran(again)["tables"] == ran(first)["tables"]
    assert [record.stat().st_mtime_ns for record in records] == stamps
    # Nothing was printed for data of no label.
    assert {row["printed"] for t in ran(again)["tables"] for row in t["rows"]} == {None}
    assert "3 experiments: 0 run now, 3 finished before, 0 failed" in grid("--shot", "1").stdout
    assert "3 experiments, 3 of them finished" in listed()
    # Other outcomes are other runs; the level of an interval is not.
    assert "0 of them finished" in listed("--seed", "1")
    assert "3 of them finished" in listed("-o", "level=0.9")
    # Outcomes that are gone are made again.
    agreement = rows(ran(grid("--shot", "1", *AGREEMENT, "--json")), "4")
    (Path(cells[0]["folder"]) / "outcomes-biased.parquet").unlink()
    assert rows(ran(grid("--shot", "1", *AGREEMENT, "--json")), "4") == agreement
    assert (Path(cells[0]["folder"]) / "outcomes-biased.parquet").exists()


def test_it_goes_on_after_a_kill(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    methods = ("toy-near", "toy-blind", "toy-first")
    monkeypatch.setenv("TOY_KILLS", "1")
    killed = grid("--shot", "1", methods=methods)
    assert killed.returncode == 130, killed.stderr
    listed = ran(grid("--shot", "1", "--dry-run", "--json", methods=methods))["experiments"]
    assert [cell["run"] is not None for cell in listed] == [True, False, False]
    monkeypatch.delenv("TOY_KILLS")
    cells = ran(grid("--shot", "1", "--json", methods=methods))["experiments"]
    assert [cell["reused"] for cell in cells] == [True, False, False]
    assert {cell["status"] for cell in cells} == {"finished"}


@pytest.mark.slow
def test_a_failing_experiment_loses_no_other(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--shot", "1", "--shot", "12", *AGREEMENT, *ABLATION, "-o", "seed=3")
    monkeypatch.setenv("TOY_FAILS", "1")
    document = ran(grid(*options, "--json"), code=1)
    reasons = {(row["method"], row["shot"]): row["reason"] for row in rows(document, "3")}
    assert "raised RuntimeError: the toy was told to fail" in reasons["toy-blind", 1]
    for method in METHODS:
        assert "at most 10 shots, not 12" in reasons[method, 12]
    assert reasons["toy-near", 1] == reasons["toy-first", 1] == ""
    assert all(row["measured"] is None for row in rows(document, "3", shot=12))
    # Two are too few to be ranked.
    assert [r["reason"] for r in rows(document, "4")] == [
        "none: needs 3 methods, 2 finished", "none: needs 3 methods, 0 finished",
    ]  # fmt: skip
    # The average leaves out what failed, and says so.
    (drop,) = rows(document, "S5", quantity="SC1", shot=1, estimator="welch-t", methods=2)
    assert drop["method"] == "toy-near;toy-first"
    text = grid(*options)
    assert text.returncode == 1
    assert "raised RuntimeError: the toy was told to fail" in text.stdout
    answer, _, tables = text.stdout.partition("\nTable 3.")  # the answer comes first
    assert "toy-first is near guessing" in answer
    assert ["method", "shot", "Acc-R", "Acc", "gap", "wAcc-R", "wAcc-A", "drop", "gap"] in map(
        str.split, answer.split("\n")
    )
    assert "\n–: toy-blind, 1-shot" in answer
    assert "average drop (2 methods)" in tables
    monkeypatch.delenv("TOY_FAILS")
    mended = ran(grid("--shot", "1", *AGREEMENT, "-o", "seed=3", "--json"))
    assert [cell["reused"] for cell in mended["experiments"]] == [True, True, False]
    assert rows(mended, "4")[0]["measured"] is not None


def test_a_detector_without_its_model_fails_alone(grid: Grid) -> None:
    options = ("--shot", "1", "--detector", "toy-eyes", "--detector", "toy-missing", *AGREEMENT)
    document = ran(grid(*options, "--json"), code=1)
    by_detector = {
        name: rows(document, "S8", attributes=name) for name in ("toy-eyes", "toy-missing")
    }
    assert all(row["measured"] is not None for row in by_detector["toy-eyes"])
    assert {row["reason"] for row in by_detector["toy-missing"]} == {
        "failed: the toy model is in no cache"
    }
    assert rows(document, "6")[0]["reason"] == "none: needs 3 methods, 0 finished"


def test_printed_values_stand_beside_cells(whole: dict[str, Any]) -> None:
    printed = printed_values()
    for table in ("3", "S7", "S8", "S5", "S6"):
        for row in rows(whole, table, methods=1):
            method = whole["spelt"][row["method"]]
            key = (table, "miniImageNet", row["shot"], method, row["quantity"])
            assert row["printed"] == printed[key].value, key
            assert row["difference"] == pytest.approx(row["measured"] - row["printed"], abs=2e-6)
            if table in ("3", "S7", "S8"):
                halves = row["measured_half_width"], printed[key].half_width
                assert row["printed_half_width"] == halves[1]
                # Without an interval, a value counts as exact.
                wide = np.hypot(*(half or 0.0 for half in halves))
                assert row["difference_half_width"] == pytest.approx(wide, abs=1e-5)
            else:
                assert row["printed_half_width"] is None
    # The average drop of the ten, and that of these three from their printed gaps.
    (drop,) = rows(whole, "S5", quantity="SC2", methods=3)
    assert drop["printed"] == 13.89
    assert drop["from_printed"] == pytest.approx((18.92 + 14.37 + 9.73) / 3, abs=1e-6)
    (rho,) = rows(whole, "4", shot=5)
    assert (rho["printed"], rho["from_printed"]) == (0.95, 1.0)
    (rho,) = rows(whole, "6", shot=1)
    assert (rho["printed"], rho["from_printed"]) == (0.98, 1.0)
    assert rho["attributes"] == "toy-eyes;metadata:words"
    notes = next(t["notes"] for t in whole["tables"] if t["table"] == "Table 3")
    for part in ("fingerprint toy-images-0", "toy-sampler", "12 random", "queries shown by task",
                 "closed", "weights (here untrained)", "backbone (ResNet-12, here toy-pixels)",
                 "attributes (ViT-GPT2's, here toy-eyes)"):  # fmt: skip
        assert any(part in note for note in notes), (part, notes)


def test_no_printed_value_beside_tasks_of_another_shape(grid: Grid) -> None:
    asked = ("--method", "protonet", "-o", "training.epochs=0", "-o", "image_size=16", "--shot")
    labelled = {"dataset": "miniImageNet=toy-images", "methods": METHODS[:1]}
    same = ran(grid(*asked, "1", "--json", **labelled))
    other = ran(grid(*asked, "1", "-o", "sampler.n_query=10", "--json", **labelled))
    assert rows(same, "3", method="protonet", quantity="wAcc-A")[0]["printed"] == 14.03
    assert rows(other, "3", method="protonet", quantity="wAcc-A")[0]["printed"] is None
    # A method that the paper has not measured has nothing to stand beside.
    assert rows(same, "3", method="toy-near")[0]["printed"] is None


def test_one_task_leaves_no_interval(grid: Grid) -> None:
    asked = ("--tasks", "1", "--shot", "5", "--query-batch", "class", "-o", "level=0.9", *ABLATION)
    done = grid(*asked, methods=METHODS[:1])
    assert done.returncode == 0, done.stderr
    assert "(no interval)" in done.stdout
    assert "nan" not in done.stdout
    assert "queries shown by class" in done.stdout
    assert "intervals: 90 %" in done.stdout


def test_experiments_are_joined_over_training_seeds(grid: Grid) -> None:
    asked = ("--shot", "1", "--seeds", "0-1")
    listed = grid(*asked, "--dry-run", methods=METHODS[:1])
    assert "2 experiments, 0 of them finished" in listed.stdout
    [found] = ran(grid(*asked, "--json", methods=METHODS[:1]))["experiments"]
    assert found["estimates"]["wacc-gap"]["n_seeds"] == 2
    refused = grid("--seeds", "0-1", "-o", "benchmark.agreement=true")
    assert refused.returncode == 2
    assert "--seeds: the benchmark fewstab with these options needs the answers" in refused.stderr
