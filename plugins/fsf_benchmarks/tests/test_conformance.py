"""Every benchmark of this package keeps its contract; the one that begins a new plugin runs."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

import fsf_benchmarks
from fsf_benchmarks import Contexts, FewStab, MetaCoCo, OpenIntervals, PrintedValues
from fsframework.testing import Check, Make, parametrize_with_checks
from tests.conftest import Fsf

SMALL = ("--dataset", "planted", "-o", "dataset.size=16", "-o", "dataset.n_per_class=30")


@parametrize_with_checks(
    [
        Contexts,
        FewStab,
        partial(FewStab, ablation=True, agreement=True, training_shots=True),
        partial(FewStab, unlabelled=True),
        MetaCoCo,
        partial(MetaCoCo, only=("figure-4", "figure-5"), ways=(2, 5)),
        OpenIntervals,
        partial(OpenIntervals, only=("1", "2", "3", "figure-1", "figure-6"), trials=1),
        partial(OpenIntervals, only=("figure-4",), trials=2),
        PrintedValues,
    ]
)
def test_a_plugin_keeps_its_contract(make: Make, check: Check) -> None:
    check(make)


def test_a_new_benchmark_runs(fsf: Fsf) -> None:
    assert fsf("plugins", "new", "benchmark", "by-shot", "--script").returncode == 0
    asked = (
        "benchmark", "by-shot", "--plugin", "by_shot.py", *SMALL[2:], "--method", "ncc",
        "--tasks", "20", "-o", "training.epochs=0", "-o", "image_size=16", "--shot", "1",
        "--shot", "2",
    )  # fmt: skip
    done = fsf(*asked, "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["tables"][0]["rows"]
    assert [int(row["shot"]) for row in rows] == [1, 2]
    assert all(0 <= row["measured"] <= 100 for row in rows)
    assert "2 experiments, 2 of them finished" in fsf(*asked, "--dry-run").stdout


def test_benchmarks_are_listed_and_run_from_python(
    fsf: Fsf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = json.loads(fsf("benchmark", "--json").stdout)
    assert {"contexts", "fewstab", "metacoco", "open-intervals"} <= {b["benchmark"] for b in listed}
    unknown = fsf("benchmark", "fewstap")
    assert unknown.returncode == 2
    assert "did you mean 'fewstab'" in unknown.stderr
    monkeypatch.setenv("FSF_METHOD", "ncc")
    monkeypatch.setenv("FSF_SEED", "3")
    asked = ("-o", "training.epochs=0", "-o", "image_size=16", "--tasks", "20", "--shot", "1")
    told = json.loads(fsf("benchmark", "fewstab", *SMALL, *asked, "--json").stdout)
    (tmp_path / "data.toml").write_text("[dataset]\nsize = 16\nn_per_class = 30\n")
    made = fsf_benchmarks.run_benchmark(
        "fewstab", config=tmp_path / "data.toml", method="ncc", shot=[1], seed=3, tasks=20,
        training={"epochs": 0}, image_size=16, progress=False,
    )  # fmt: skip
    [experiment] = told["experiments"]
    assert experiment["experiment"] == "ncc, conv64f, planted, 1-shot, own words"
    assert [r.fingerprint for r in made.results] == [experiment["fingerprint"]]
    assert [table.to_json() for table in made.tables] == told["tables"]
