"""`fsf compare` on runs and files: every measure and arm, open intervals, forms, refusals."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fsframework as api
from tests.conftest import Fsf

TINY: dict[str, Any] = {
    "dataset": {"name": "planted", "size": 16, "n_per_class": 20}, "shot": 1, "queries": 4,
    "tasks": 30, "image_size": 16, "progress": False,
}  # fmt: skip
UNTRAINED = {"epochs": 0}
TRAINED = {"epochs": 1, "steps": 2, "validation_tasks": 2}
PAIR = ("ncc", "logistic")


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two methods by their names, and of one of them on other tasks."""
    folder = tmp_path_factory.mktemp("compared")
    common = {**TINY, "runs_dir": folder / "runs", "cache_dir": folder / "cache"}
    common["training"] = UNTRAINED
    for name, seed in (("ncc", 0), ("logistic", 0), ("ncc-elsewhere", 1)):
        method = name.partition("-")[0]
        api.run(method=method, name=name, sampler="fewstab", seed=seed, **common)
    return Path(common["runs_dir"])


@pytest.fixture
def own_runs(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands find these runs by name."""
    monkeypatch.setenv("FSF_RUNS", str(runs_dir))


def refused(fsf: Fsf, *arguments: Any) -> str:
    done = fsf(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def measures(fsf: Fsf, *arguments: str) -> dict[str, dict]:
    done = fsf("compare", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return {part["measure"]: part for part in json.loads(done.stdout)["comparisons"]}


@pytest.mark.usefixtures("own_runs")
def test_two_runs_in_every_measure(fsf: Fsf, runs_dir: Path) -> None:
    found = measures(fsf, *PAIR, "--interval", "image-level")
    names = ["acc-random", "acc-biased", "wacc-random", "wacc-biased", "wacc-gap"]
    assert list(found) == names
    runs = {name: api.load_run(name, runs_dir) for name in PAIR}
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
    assert found["wacc-biased"]["values"]["ncc"]["scope"] == "closed"
    # The call gives what the command prints.
    called = api.compare(list(runs.values()), interval="image-level")
    assert called.to_json()["comparisons"] == list(found.values())
    assert list(measures(fsf, *PAIR, "--statistic", "acc", "--statistic", "gap")) == [
        "acc-random", "acc-biased", "wacc-gap",
    ]  # fmt: skip
    unknown = refused(fsf, "compare", *PAIR, "--statistic", "wacc-iid")
    for part in ("--statistic", "'wacc-iid'", "acc-random, acc-biased, acc-drop, acc-gap"):
        assert part in unknown


@pytest.mark.usefixtures("own_runs")
def test_other_tasks_and_runs_without_outcomes_are_refused(
    fsf: Fsf, runs_dir: Path, tmp_path: Path
) -> None:
    names = ("ncc", "ncc-elsewhere")
    other = refused(fsf, "compare", *names)
    for name in names:
        seed = api.load_run(name, runs_dir).record.settings["task_seed"]
        assert f"ncc task seed {seed}" in other, "both are called ncc"
    assert "--by-tasks" in other
    bare = shutil.copytree(runs_dir / "ncc", tmp_path / "ncc")
    for path in bare.glob("outcomes-*"):
        path.unlink()
    assert "no outcomes" in refused(fsf, "compare", bare, "logistic")
    assert "no run 'logistics'" in refused(fsf, "compare", "logistics", "logistic")


def test_threads_are_told_where_a_run_was_trained_and_they_differ(
    fsf: Fsf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(name: str, method: str, training: dict[str, int]) -> None:
        api.run(name=name, method=method, training=training, sampler="random", **TINY)

    run("one", "protonet", TRAINED)
    run("plain", "ncc", UNTRAINED)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    run("two", "matchingnet", TRAINED)
    assert "PyTorch thread" not in fsf("compare", "one", "plain").stdout
    told = fsf("compare", "one", "plain", "two").stdout
    [first] = [line for line in told.splitlines() if "computed with 1 PyTorch thread;" in line]
    assert sorted(first.partition(":")[0].split(", ")) == ["ncc", "protonet"]
    assert "matchingnet: computed with 2 PyTorch threads;" in told
    ranked = fsf("rank", "one", "plain", "two", "--columns", "acc-random", "wacc-random")
    assert "one, plain: computed with 1 PyTorch thread;" in ranked.stdout


def test_a_network_that_nothing_trained_is_named_beside_a_trained_one(fsf: Fsf) -> None:
    for method, training in (("protonet", TRAINED), ("ncc", UNTRAINED), ("logistic", UNTRAINED)):
        api.run(method=method, name=method, training=training, sampler="random", **TINY)
    taught = api.load_run("protonet").folder
    api.run(name="taught", model=taught, sampler="random", **TINY)
    for every in (("compare", "runs"), ("table", "runs")):
        [said] = [line for line in fsf(*every).stdout.splitlines() if "nothing was trained" in line]
        names, _, _ = said.removeprefix("note: ").partition(":")
        assert sorted(names.split(", ")) == ["logistic", "ncc"]
    for alike in (("ncc", "logistic"), ("protonet", "taught")):
        done = fsf("compare", *alike)
        assert (done.returncode, "nothing was trained" in done.stdout) == (0, False), done.stderr


def test_runs_of_several_seeds_are_one_row(fsf: Fsf) -> None:
    small = {"dataset": {"name": "planted", "n_per_class": 12, "size": 16}, "queries": 3}
    common = {**TINY, **small, "way": 3, "tasks": 20, "sampler": "random", "training": UNTRAINED}
    for method, asked in (("ncc", "0-2"), ("protonet", "0,1"), ("logistic", "5")):
        api.run(method=method, seeds=asked, **common)
    seeds = {"ncc": "3", "protonet": "2", "logistic": "1"}
    done = fsf("compare", "runs", "--statistic", "acc", "--explain")
    assert done.returncode == 0, done.stderr
    said, _, full = done.stdout.partition("acc-random on")
    table = [line.split() for line in said.splitlines()]
    assert {cells[0]: cells[1] for cells in table if len(cells) > 4 and cells[3] == "±"} == seeds
    lines = full.splitlines()
    assert lines[1].split()[3:6] == ["between", "seeds", "seeds"]
    assert sorted(line.split()[0] for line in lines[2:5]) == sorted(seeds)
    assert done.stdout.count("crossed-t, paired") == 3, "every pair has a method with several seeds"
    assert "note: logistic: one seed" in done.stdout
    assert "note: protonet: two seeds" in done.stdout
    rows = list(csv.DictReader(fsf("compare", "runs", "--format", "csv").stdout.splitlines()))
    assert {row[one]: row[f"{one}_seeds"] for row in rows for one in ("first", "second")} == seeds
    assert "--interval percentile" in refused(fsf, "compare", "runs", "--interval", "percentile")
    runs = [row["run"] for row in json.loads(fsf("runs", "list", "--json").stdout)]
    columns = ("--columns", "acc-random", "wacc-random")
    heads, row = (line.split() for line in fsf("rank", *runs, *columns).stdout.splitlines()[1:3])
    assert (heads[:2], row[:4]) == (["rows", "seeds"], ["3", "1", "to", "3"])
    (part,) = json.loads(fsf("rank", *runs, *columns, "--json").stdout)["parts"]
    assert sorted(part["n_seeds"]) == [1, 2, 3]


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
    [run] = (tmp_path / "runs").glob("one-open*")
    assert "accuracies" in refused(imported, "run", "--model", run, "--shot", "1")


def test_the_table_says_what_every_interval_is(imported: Fsf) -> None:
    done = imported("compare", "one", "two", "three", "--explain")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("two_% and one are one group with the best Acc, ")
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
    assert "| method | acc-tasks | letter |" in markdown


def test_files_are_compared_only_where_their_tasks_are_said_to_be_equal(
    imported: Fsf, tmp_path: Path
) -> None:
    for name, last in (("p", "6"), ("q", "7")):
        (tmp_path / f"{name}.csv").write_text(f"{name}\n0.5\n0.{last}\n")
    assert "--same-tasks" in refused(imported, "compare", "p.csv", "q.csv")
    done = imported("compare", "mine=p.csv", "q.csv", "--same-tasks", "--pairs")
    assert (done.returncode, "mine − q" in done.stdout) == (0, True)
    assert "closed: tasks share images" in done.stdout
    assert "different tasks" in refused(imported, "compare", "p.csv", "one", "--same-tasks")
    assert "at least two methods" in refused(imported, "compare", "p.csv", "--same-tasks")


def test_by_tasks_compares_what_can_be(imported: Fsf, tmp_path: Path) -> None:
    (tmp_path / "lone.csv").write_text("lone\n0.5\n0.7\n")
    assert imported("import", "accuracies", "lone.csv", "--task-set", "x").returncode == 0
    done = imported("compare", "runs", "--by-tasks", "--baseline", "three", "--explain")
    assert (done.returncode, "2 pairs" in done.stdout) == (0, True)
    everything = imported("compare", "runs", "--by-tasks")
    assert "note: no other method was tested on the tasks of lone" in everything.stdout
    assert "--by-tasks" in refused(imported, "compare", "runs")
