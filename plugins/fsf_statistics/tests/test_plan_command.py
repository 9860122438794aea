"""`fsf plan` as a user gives it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fsf_statistics
import fsframework as api
from fsframework.errors import OptionError
from tests.conftest import Fsf

# Nothing is learnt: nearest centres on the features of a network as it was born.
QUICK: dict[str, Any] = {
    "dataset": {"name": "planted", "size": 32, "n_per_class": 40}, "shot": 1,
    "training": {"epochs": 0}, "sampler": "random", "tasks": 60, "queries": 20, "progress": False,
    "image_size": 32,
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[api.Run]:
    """A pilot, one of another method on its tasks, and one on other tasks."""
    folder = tmp_path_factory.mktemp("pilots")
    where = {"runs_dir": folder / "runs", "cache_dir": folder / "cache"}
    asked = (("ncc", 0), ("logistic", 0), ("logistic", 1))
    return [api.run(method=method, seed=seed, **QUICK, **where) for method, seed in asked]


def planned(fsf: Fsf, *arguments: Any) -> str:
    done = fsf("plan", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_plan_from_a_pilot(fsf: Fsf, runs: list[api.Run], tmp_path: Path) -> None:
    pilot = runs[0].folder
    figure = ("--figure", "queries.svg")
    text = planned(fsf, pilot, "--difference", "2", "--correlation", "0.6", *figure)
    for part in ("60 random tasks, 5-way 1-shot", "20 classes of 40 images", "tasks to show 2"):
        assert part in text, part
    assert "queries per class" in (tmp_path / "queries.svg").read_text(encoding="utf-8")
    assert "queries.svg exists" in fsf("plan", pilot, *figure).stderr
    told = json.loads(planned(fsf, pilot.name[:9], "--runs-dir", pilot.parent, "--json"))
    assert told["pilot"]["best_low"] <= told["pilot"]["best"]
    by_query = {row["n_query"]: row for row in told["rows"]}
    assert by_query[told["n_query"]]["half_width"] > 0
    least = min(told["curve"], key=lambda point: point["variance"])["n_query"]
    assert abs(least - told["n_query"]) <= 3
    plan = fsf_statistics.plan_queries(pilot)
    assert plan.arguments == told["arguments"]
    assert plan.command in text
    again = ("--dataset", "planted", "-o", "dataset.size=32", "-o", "dataset.n_per_class=40")
    untrained = ("--method", "ncc", "--shot", "1", "-o", "training.epochs=0", "--image-size", "32")
    done = fsf("run", "--json", *again, *untrained, *plan.command.split())
    arm = api.load_run(json.loads(done.stdout)["folder"]).record.arms["depleting"]
    assert (arm.n_query, arm.n_tasks >= 10) == (plan.n_query, True)


def test_two_pilots_plan_for_their_difference(fsf: Fsf, runs: list[api.Run]) -> None:
    pilot, other, elsewhere = (run.folder for run in runs)
    assert "for differences between the two methods" in planned(fsf, pilot, other)
    refused = fsf("plan", pilot, elsewhere)
    assert (refused.returncode, "different tasks" in refused.stderr) == (2, True)


def test_class_sizes_alone(fsf: Fsf) -> None:
    sizes = ("--class-sizes", "600x20")
    text = planned(fsf, *sizes, "--shot", "1", "--choose", "by-what-is-left")
    assert "1,200 5-way 1-shot tasks of 1 query per class" in text
    assumed = ("--class-sizes", "600x5, 450", "--task-sd", "10", "--json")
    told = json.loads(planned(fsf, *assumed))
    assert told["class_sizes"] == [600] * 5 + [450]
    assert told["rows"][0]["unpaired"] > 0


def test_what_cannot_be_planned(fsf: Fsf, runs: list[api.Run], tmp_path: Path) -> None:
    # Accuracies of whole tasks tell nothing of the noise within them.
    (tmp_path / "other.csv").write_text("other\n0.5\n0.7\n0.6\n")
    assert fsf("import", "accuracies", "other.csv", "--task-set", "x").returncode == 0
    pilot, large = runs[0].folder, ("--class-sizes", "600x20")
    for arguments, part in (
        ((), "--class-sizes"),
        ((pilot, "--shot", "5"), "shot 1"),
        ((pilot, "--arm", "biased"), "'biased'"),
        ((pilot, "--task-sd", "9"), "RUN"),
        ((pilot, "--level", "2"), "--level"),
        (("--class-sizes", "5x2"), "5-way 5-shot"),
        (("--class-sizes", "11x5"), "5-way 5-shot"),
        *((("--class-sizes", wrong), "class sizes") for wrong in ("6oo", "600x", "-3", "")),
        ((*large, "--way", "1"), "at least 2 ways"),
        ((*large, "--least-tasks", "1"), "--least-tasks"),
        ((*large, "--correlation", "2"), "--correlation"),
        ((*large, "--choose", "all"), "by-what-is-left"),
        ((*large, "--figure", "other.svg"), "pilot RUN"),
        (("nowhere",), "'nowhere'"),
        (("other",), "accuracies of whole tasks"),
    ):
        done = fsf("plan", *arguments)
        assert done.returncode == 2, arguments
        assert part in done.stderr, done.stderr
    with pytest.raises(OptionError, match="choose must be one of uniform"):
        fsf_statistics.plan_queries(pilot, choose="all")  # type: ignore[arg-type]
