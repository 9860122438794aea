"""`fsf compare` on runs and files: every measure and arm, open intervals, forms, refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import fsframework as fsf_api
from fsframework.records import find_run
from tests.conftest import Fsf

TINY = (
    "--dataset", "planted", "-o", "dataset.size=16", "-o", "dataset.n_per_class=20",
    "--shot", "1", "--queries", "4", "--tasks", "30",
)  # fmt: skip
UNTRAINED = ("-o", "training.epochs=0")
TRAINED = ("-o", "training.epochs=1", "-o", "training.steps=2", "-o", "training.validation_tasks=2")


def made(fsf: Fsf, *arguments: str) -> None:
    done = fsf("run", *TINY, *arguments, "--json")
    assert done.returncode == 0, done.stderr


def refused(fsf: Fsf, *arguments: str) -> str:
    done = fsf(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def measures(fsf: Fsf, *arguments: str) -> dict[str, dict]:
    done = fsf("compare", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return {part["measure"]: part for part in json.loads(done.stdout)["comparisons"]}


@pytest.fixture
def two(fsf: Fsf) -> Fsf:
    for method in ("ncc", "logistic"):
        made(fsf, "--method", method, *UNTRAINED)
    return fsf


def test_two_runs_in_every_measure(two: Fsf, tmp_path: Path) -> None:
    found = measures(two, "ncc", "logistic", "--interval", "image-level")
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
    opened = found["acc-random"]["pairs"][0]["difference"]
    assert (opened["scope"], opened["estimator"]) == ("open", "image-level")
    closed = fsf_api.compare(list(runs.values()), "acc")["acc-random"].pairs[0].difference
    assert opened["value"] == pytest.approx(closed.value)
    assert opened["high"] - opened["low"] > closed.high - closed.low
    assert found["wacc-biased"]["values"]["ncc"]["scope"] == "closed"
    # The call gives what the command prints.
    called = fsf_api.compare(list(runs.values()), interval="image-level")
    assert called.to_json()["comparisons"] == list(found.values())


def test_arms_of_contexts_are_compared_as_pairs(fsf: Fsf, tmp_path: Path) -> None:
    for method in ("ncc", "logistic"):
        made(fsf, "--method", method, *UNTRAINED, "--sampler", "context", "--way", "2",
             "-o", "sampler.column=background")  # fmt: skip
    found = measures(fsf, "ncc", "logistic", "--statistic", "acc", "--statistic", "gap")
    assert list(found) == ["acc-iid", "acc-ood", "wacc-gap"]
    difference = found["wacc-gap"]["pairs"][0]["difference"]
    assert (difference["estimator"], difference["n_tasks"]) == ("student-t", 30)
    gaps = []
    for name in ("ncc", "logistic"):
        outcomes = fsf_api.load_run(name, tmp_path / "runs").outcomes
        worst = {arm: o.class_accuracy.min(axis=1) for arm, o in outcomes.items()}
        gaps.append(worst["iid"] - worst["ood"])
    assert difference["value"] == pytest.approx(float((gaps[0] - gaps[1]).mean()))
    unknown = refused(fsf, "compare", "ncc", "logistic", "--statistic", "wacc-biased")
    for part in ("--statistic", "'wacc-biased'", "acc-iid, acc-ood, acc-gap"):
        assert part in unknown


def test_other_tasks_and_runs_without_outcomes_are_refused(two: Fsf, tmp_path: Path) -> None:
    made(two, "--method", "ncc", *UNTRAINED, "--seed", "1")
    names = sorted(p.name for p in (tmp_path / "runs").glob("ncc*"))
    other = refused(two, "compare", *names)
    for name in names:
        assert f"ncc conv64f {name[-8:]}" in other, "both are called ncc"
    assert "--by-tasks" in other
    for path in (tmp_path / "runs" / names[0]).glob("outcomes-*"):
        path.unlink()
    assert "no outcomes" in refused(two, "compare", names[0], "logistic")
    assert "no run 'logistics'" in refused(two, "compare", "logistics", "logistic")


def test_threads_are_told_where_a_run_was_trained_and_they_differ(
    fsf_process: Fsf, fsf: Fsf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made(fsf_process, "--name", "one", *TRAINED, "--sampler", "random")
    made(fsf_process, "--name", "plain", "--method", "ncc", *UNTRAINED, "--sampler", "random")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    trained = ("--method", "matchingnet", *TRAINED, "--sampler", "random")
    made(fsf_process, "--name", "two", *trained)
    assert "PyTorch thread" not in fsf("compare", "one", "plain").stdout
    told = fsf("compare", "one", "plain", "two").stdout
    [first] = [line for line in told.splitlines() if "computed with 1 PyTorch thread;" in line]
    assert sorted(first.partition(":")[0].split(", ")) == ["ncc", "protonet"]
    assert "matchingnet: computed with 2 PyTorch threads;" in told
    ranked = fsf("rank", "one", "plain", "two", "--columns", "acc-random", "wacc-random")
    assert "one, plain: computed with 1 PyTorch thread;" in ranked.stdout


@pytest.fixture
def imported(fsf: Fsf, tmp_path: Path) -> Fsf:
    rng = np.random.default_rng(0)
    values = rng.binomial(75, rng.beta(7, 3, 40)[:, None], (40, 3)) / 75 * [1, 1, 0.8]
    rows = "\n".join(",".join(map(str, row)) for row in values)
    (tmp_path / "open.csv").write_text("one,two_%,three\n" + rows + "\n")
    assert fsf("import", "accuracies", "open.csv", "--scope", "open").returncode == 0
    more = "\n".join(rows.splitlines()[::-1] * 4)
    (tmp_path / "closed.csv").write_text("one,two_%,three\n" + more + "\n")
    return fsf


def test_accuracies_are_no_model(imported: Fsf, tmp_path: Path) -> None:
    run = find_run("one-open", tmp_path / "runs")
    assert "holds accuracies" in refused(imported, "run", "--model", str(run), *TINY)


def test_the_table_says_what_every_interval_is(imported: Fsf) -> None:
    done = imported("compare", "one", "two", "three", "--explain")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("two_% has the best Acc, ")
    with_interval = [line for line in done.stdout.splitlines() if "95 % open, student-t" in line]
    assert len(with_interval) == 6
    assert all(line.rstrip().endswith("not known") for line in with_interval)
    assert "3 pairs: " in done.stdout
    assert "note: without wacc-tasks" in done.stdout
    assert "3 pairs" not in imported("compare", "one", "two", "three").stdout


def test_closed_stands_beside_open(imported: Fsf) -> None:
    beside = ("compare", "one", "two", "three", "--beside")
    assert "--beside" in refused(imported, "compare", "one", "three", "--beside", "closed.csv")
    assert "--beside" in refused(imported, *beside, "open.csv", "--scope", "open")
    done = imported(*beside, "closed.csv")
    assert done.returncode == 0, done.stderr
    assert "95 % closed, student-t" in done.stdout
    matrix = done.stdout.partition("who is higher")[2].splitlines()[2:5]
    assert all("·" not in line for line in matrix)


def test_other_forms(imported: Fsf) -> None:
    latex, text, markdown = (
        imported("compare", "one", "two", "--format", form).stdout
        for form in ("latex", "csv", "markdown")
    )
    assert r"two\_\%" in latex
    assert latex.count(r"\toprule") == latex.count(r"\bottomrule") == latex.count(r"\end{table}")
    assert not {"−", "±"} & set(latex)
    [row] = csv.DictReader(text.splitlines())
    assert (row["first"], row["second"], row["scope"]) == ("one", "two_%", "open")
    assert float(row["low"]) < float(row["difference"]) < float(row["high"])
    assert "| method | acc-tasks | group |" in markdown


def test_files_are_compared_only_where_their_tasks_are_said_to_be_equal(
    imported: Fsf, tmp_path: Path
) -> None:
    for name, last in (("p", "6"), ("q", "7")):
        (tmp_path / f"{name}.csv").write_text(f"{name}\n0.5\n0.{last}\n")
    assert "--same-tasks" in refused(imported, "compare", "p.csv", "q.csv")
    done = imported("compare", "mine=p.csv", "q.csv", "--same-tasks", "--pairs")
    assert (done.returncode, "mine − q" in done.stdout) == (0, True)
    assert "closed: images recur" in done.stdout
    assert "different tasks" in refused(imported, "compare", "p.csv", "one", "--same-tasks")
    assert "at least two methods" in refused(imported, "compare", "p.csv", "--same-tasks")


def test_by_tasks_compares_what_can_be(imported: Fsf, tmp_path: Path) -> None:
    (tmp_path / "lone.csv").write_text("lone\n0.5\n0.7\n")
    assert imported("import", "accuracies", "lone.csv", "--task-set", "x").returncode == 0
    done = imported("compare", "runs", "--by-tasks", "--baseline", "three", "--explain")
    assert (done.returncode, "2 pairs" in done.stdout) == (0, True)
    everything = imported("compare", "runs", "--by-tasks")
    assert "note: no other method has the tasks of lone" in everything.stdout
    assert "--by-tasks" in refused(imported, "compare", "runs")
