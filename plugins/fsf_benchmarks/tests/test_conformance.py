"""Every benchmark of this package keeps its contract, and so does the example of the docs."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest

import fsf_benchmarks
from fsf_benchmarks import Contexts, FewStab, MetaCoCo, OpenIntervals, PrintedValues
from fsframework.testing import Check, Make, parametrize_with_checks
from tests.conftest import Fsf

DOCS = Path(__file__).parents[3] / "docs" / "extend" / "benchmark.md"
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


@pytest.fixture
def example(tmp_path: Path) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "shots.py").write_text(code, encoding="utf-8")
    return "shots.py"


def test_the_example_of_the_docs_runs(fsf: Fsf, example: str, tmp_path: Path) -> None:
    asked = (
        "benchmark", "shots", "--plugin", example, *SMALL[2:], "--method", "ncc", "--tasks", "20",
        "-o", "training.epochs=0", "-o", "image_size=16", "--shot", "1", "--shot", "2",
    )  # fmt: skip
    done = fsf(*asked, "--json", "--figure", "shots.png")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [row["shot"] for row in document["tables"][0]["rows"]] == [1, 2]
    assert all(0 <= row["measured"] <= 100 for row in document["tables"][0]["rows"])
    assert document["figures"][0]["panels"][0]["series"][0]["name"] == "ncc"
    assert (tmp_path / "shots.png").stat().st_size > 1000
    assert "2 experiments, 2 of them finished" in fsf(*asked, "--dry-run").stdout
    refused = fsf(*asked, "--figure", "shots.png")
    assert "shots.png exists; give --force to replace it" in refused.stderr
    checked = fsf("plugins", "check", "shots", "--plugin", example)
    assert checked.returncode == 0, checked.stdout


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
