"""`fsf compare` and `fsf.compare` on runs: every measure and arm, open intervals, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fsframework as fsf_api
from fsframework.records import find_run
from tests.conftest import Fsf

QUICK = (
    "--dataset", "planted", "-o", "dataset.size=32", "-o", "dataset.n_per_class=30",
    "--shot", "1", "--queries", "5", "--tasks", "40",
    "-o", "training.epochs=1", "-o", "training.steps=4", "-o", "training.validation_tasks=5",
)  # fmt: skip


@pytest.fixture
def two(fsf: Fsf) -> Fsf:
    for method in ("ncc", "logistic"):
        done = fsf("run", "--method", method, *QUICK, "--json")
        assert done.returncode == 0, done.stderr
    return fsf


def test_two_runs_in_every_measure(two: Fsf, tmp_path: Path) -> None:
    done = two("compare", "ncc", "logistic", "--interval", "image-level", "--json")
    assert done.returncode == 0, done.stderr
    found = {c["measure"]: c for c in json.loads(done.stdout)["comparisons"]}
    names = ["acc-random", "acc-biased", "wacc-random", "wacc-biased", "wacc-gap"]
    assert list(found) == names
    runs = {name: fsf_api.load_run(name, tmp_path / "runs") for name in ("ncc", "logistic")}
    for label, run in runs.items():
        for name, comparison in found.items():
            # What the run said of itself: closed, by Student or Welch.
            own = comparison["other_scope"].get(label, comparison["values"][label])
            said = run.estimates[name].to_json()
            for key in ("value", "low", "high", "n_tasks", "n_images"):
                assert own[key] == pytest.approx(said[key]), (name, key)
            for key in ("scope", "estimator", "statistic", "arms"):
                assert own[key] == said[key]
    (pair,) = found["acc-random"]["pairs"]
    opened = pair["difference"]
    assert (opened["scope"], opened["estimator"]) == ("open", "image-level")
    closed = fsf_api.compare(list(runs.values()), "acc")["acc-random"].pairs[0].difference
    assert opened["value"] == pytest.approx(closed.value)
    assert opened["high"] - opened["low"] > closed.high - closed.low
    assert found["wacc-biased"]["values"]["ncc"]["scope"] == "closed"
    assert "does not draw classes and images uniformly" in found["wacc-biased"]["notes"][-1]
    # The call gives what the command prints.
    called = fsf_api.compare(list(runs.values()), interval="image-level")
    assert called.to_json()["comparisons"] == list(found.values())


def test_arms_of_contexts_are_compared_as_pairs(fsf: Fsf, tmp_path: Path) -> None:
    shape = (
        "--sampler",
        "context",
        "-o",
        "sampler.column=background",
        "--way",
        "2",
        "--queries",
        "4",
        "--tasks",
        "30",
    )
    for method in ("ncc", "logistic"):
        done = fsf("run", "--method", method, *QUICK, *shape, "--json")
        assert done.returncode == 0, done.stderr
    done = fsf("compare", "ncc", "logistic", "--statistic", "acc", "--statistic", "gap", "--json")
    assert done.returncode == 0, done.stderr
    found = {c["measure"]: c for c in json.loads(done.stdout)["comparisons"]}
    assert list(found) == ["acc-iid", "acc-ood", "wacc-gap"]
    (pair,) = found["wacc-gap"]["pairs"]
    difference = pair["difference"]
    assert (difference["estimator"], difference["n_tasks"]) == ("student-t", 30)
    gaps = []
    for name in ("ncc", "logistic"):
        outcomes = fsf_api.load_run(name, tmp_path / "runs").outcomes
        worst = {arm: o.class_accuracy.min(axis=1) for arm, o in outcomes.items()}
        gaps.append(worst["iid"] - worst["ood"])
    assert difference["value"] == pytest.approx(float((gaps[0] - gaps[1]).mean()))
    unknown = fsf("compare", "ncc", "logistic", "--statistic", "wacc-biased")
    assert unknown.returncode == 2
    assert "--statistic: no measure is called 'wacc-biased'" in unknown.stderr
    assert "as in acc-iid, acc-ood, acc-gap" in unknown.stderr


def test_other_tasks_and_runs_without_outcomes_are_refused(two: Fsf, tmp_path: Path) -> None:
    assert two("run", "--method", "ncc", *QUICK, "--seed", "1", "--json").returncode == 0
    names = sorted(p.name for p in (tmp_path / "runs").glob("ncc*"))
    other = two("compare", *names)
    assert other.returncode == 2
    for name in names:
        assert f"ncc conv64f {name[-8:]}" in other.stderr, "both are called ncc"
    assert "--by-tasks" in other.stderr
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
    refused = fsf("run", "--model", str(find_run("a-table", tmp_path / "runs")), *QUICK)
    assert refused.returncode == 2
    assert "holds accuracies measured elsewhere, and no model" in refused.stderr
