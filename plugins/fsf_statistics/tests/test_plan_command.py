"""`fsf plan` as a user gives it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fsf_statistics
from fsframework.records import RunRecord
from tests.conftest import Fsf

# Nothing is learnt: nearest centres on the features of a network as it was born.
QUICK = (
    "--dataset", "planted", "-o", "dataset.size=32", "-o", "dataset.n_per_class=40",
    "--shot", "1", "-o", "training.epochs=0", "--json",
)  # fmt: skip
PILOT = ("--sampler", "random", "--tasks", "60", "--queries", "20")


def ran(fsf: Fsf, *arguments: str) -> Path:
    done = fsf("run", *QUICK, *arguments)
    assert done.returncode == 0, done.stderr
    return Path(json.loads(done.stdout)["folder"])


def planned(fsf: Fsf, *arguments: str) -> str:
    done = fsf("plan", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def pilot(fsf: Fsf) -> Path:
    return ran(fsf, "--method", "ncc", *PILOT)


def test_a_plan_from_a_pilot(fsf: Fsf, pilot: Path, tmp_path: Path) -> None:
    figure = ("--figure", "queries.svg")
    text = planned(fsf, str(pilot), "--difference", "2", "--correlation", "0.6", *figure)
    for part in ("60 random tasks, 5-way 1-shot", "20 classes of 40 images", "tasks to show 2"):
        assert part in text, part
    assert "queries per class" in (tmp_path / "queries.svg").read_text(encoding="utf-8")
    assert "queries.svg exists" in fsf("plan", str(pilot), *figure).stderr
    told = json.loads(planned(fsf, pilot.name[:9], "--json"))
    assert told["pilot"]["best_low"] <= told["pilot"]["best"]
    by_query = {row["n_query"]: row for row in told["rows"]}
    assert by_query[told["n_query"]]["half_width"] > 0
    least = min(told["curve"], key=lambda point: point["variance"])["n_query"]
    assert abs(least - told["n_query"]) <= 3
    plan = fsf_statistics.plan_queries(pilot)
    assert plan.arguments == told["arguments"]
    assert plan.command in text
    chosen = ran(fsf, "--method", "ncc", *plan.command.split())
    arm = RunRecord.load(chosen).arms["depleting"]
    assert (arm.n_query, arm.n_tasks >= 10) == (plan.n_query, True)


def test_two_pilots_plan_for_their_difference(fsf: Fsf, pilot: Path) -> None:
    other = ran(fsf, "--method", "logistic", *PILOT)
    assert "for differences between the two methods" in planned(fsf, str(pilot), str(other))
    elsewhere = ran(fsf, "--method", "logistic", *PILOT, "--seed", "1")
    refused = fsf("plan", str(pilot), str(elsewhere))
    assert (refused.returncode, "different tasks" in refused.stderr) == (2, True)


def test_class_sizes_alone(fsf: Fsf) -> None:
    sizes = ("--class-sizes", "600x20")
    text = planned(fsf, *sizes, "--shot", "1", "--choose", "by-what-is-left")
    assert "1,200 5-way 1-shot tasks of 1 query per class" in text
    assumed = planned(fsf, *sizes, "--task-sd", "10", "--json")
    assert json.loads(assumed)["rows"][0]["unpaired"] > 0


def test_what_cannot_be_planned(fsf: Fsf, pilot: Path, tmp_path: Path) -> None:
    # Accuracies of whole tasks tell nothing of the noise within them.
    (tmp_path / "other.csv").write_text("other\n0.5\n0.7\n0.6\n")
    assert fsf("import", "accuracies", "other.csv", "--task-set", "x").returncode == 0
    for arguments, part in (
        ((), "--class-sizes"),
        ((str(pilot), "--shot", "5"), "shot 1"),
        ((str(pilot), "--arm", "biased"), "'biased'"),
        ((str(pilot), "--task-sd", "9"), "RUN"),
        ((str(pilot), "--level", "2"), "--level"),
        (("--class-sizes", "5x2"), "5-way 5-shot"),
        (("--class-sizes", "600x20", "--figure", "other.svg"), "pilot RUN"),
        (("nowhere",), "'nowhere'"),
        (("other",), "accuracies of whole tasks"),
    ):
        done = fsf("plan", *arguments)
        assert done.returncode == 2, arguments
        assert part in done.stderr, done.stderr
