"""`fsf compare` on runs of our own: every measure, open intervals over images, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.records import RunRecord, find_run
from fsframework.statistics.estimation import paired_difference
from fsframework.values import Outcomes
from tests.conftest import Fsf

QUICK = (
    "--dataset", "planted", "-o", "dataset.size=32", "-o", "dataset.n_per_class=30",
    "--shot", "1", "--query", "5", "--tasks", "40",
    "-o", "training.epochs=1", "-o", "training.steps=4", "-o", "training.validation_tasks=5",
)  # fmt: skip


@pytest.fixture
def two(fsf: Fsf) -> Fsf:
    for method in ("ncc", "logistic"):
        done = fsf("run", "--method", method, *QUICK)
        assert done.returncode == 0, done.stderr
    return fsf


def test_two_runs_in_every_measure(two: Fsf, tmp_path: Path) -> None:
    done = two("compare", "ncc", "logistic", "--interval", "image-level", "--json")
    assert done.returncode == 0, done.stderr
    found = {c["measure"]: c for c in json.loads(done.stdout)["comparisons"]}
    assert list(found) == ["acc-R", "wacc-R", "wacc-A", "wacc-gap"]
    folders = [find_run(name, tmp_path / "runs") for name in ("ncc", "logistic")]
    for label, folder in zip(("ncc", "logistic"), folders, strict=True):
        record = RunRecord.load(folder)
        for name, comparison in found.items():
            # What the run said of itself: closed, by Student or Welch.
            own = comparison["other_kind"].get(label, comparison["values"][label])
            said = record.estimates[name].to_json()
            for key in ("value", "low", "high", "n_tasks", "n_images"):
                assert own[key] == pytest.approx(said[key]), (name, key)
            assert (own["kind"], own["estimator"]) == (said["kind"], said["estimator"])
    (pair,) = found["acc-R"]["pairs"]
    opened = pair["difference"]
    assert (opened["kind"], opened["estimator"]) == ("open", "image-level")
    outcomes = [Outcomes.load(folder / "outcomes-R.parquet") for folder in folders]
    accuracy = resolve_component(Registry(), "statistic", "acc").create()
    closed = paired_difference("acc-R", accuracy, *outcomes)
    assert opened["value"] == pytest.approx(closed.value)
    assert opened["high"] - opened["low"] > closed.high - closed.low
    assert found["wacc-A"]["values"]["ncc"]["kind"] == "closed"
    assert "attribute-biased tasks choose their images" in found["wacc-A"]["notes"][-1]


def test_other_tasks_and_runs_without_outcomes_are_refused(two: Fsf, tmp_path: Path) -> None:
    assert two("run", "--method", "ncc", *QUICK, "--seed", "1").returncode == 0
    names = sorted(p.name for p in (tmp_path / "runs").glob("ncc*"))
    other = two("compare", *names)
    assert other.returncode == 2
    assert "drawn with another seed, sampler or from other images" in other.stderr
    pair = other.stderr.removeprefix("fsf: ").partition(" were evaluated")[0].split(" and ")
    assert sorted(pair) == names, "both are called ncc"
    assert other.stdout == ""
    for path in (tmp_path / "runs" / names[0]).glob("outcomes-*"):
        path.unlink()
    gone = two("compare", names[0], "logistic")
    assert (gone.returncode, "has no outcomes to compare" in gone.stderr) == (2, True)
    absent = two("compare", "logistics", "logistic")
    assert (absent.returncode, "did you mean 'logistic-planted" in absent.stderr) == (2, False)
    assert "no run 'logistics'" in absent.stderr


def test_accuracies_are_no_model(fsf: Fsf, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("a,b\n0.5,0.6\n0.6,0.8\n")
    assert fsf("import", "accuracies", "table.csv").returncode == 0
    listed = fsf("runs", "list").stdout
    assert "table, 2" in listed
    assert fsf("runs", "show", "a-table").stdout.startswith("accuracies of a on 2 tasks 'table'")
    refused = fsf("run", "--model", str(find_run("a-table", tmp_path / "runs")), *QUICK)
    assert refused.returncode == 2
    assert "holds accuracies made elsewhere, and no model" in refused.stderr
