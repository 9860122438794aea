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
    "--method", "ncc", "--dataset", "planted", "-o", "dataset.size=32",
    "-o", "dataset.n_per_class=40", "--shot", "1", "-o", "training.epochs=0",
)  # fmt: skip


def run_folder(done: str) -> Path:
    return Path(json.loads(done)["folder"])


@pytest.fixture
def pilot(fsf: Fsf) -> Path:
    done = fsf("run", *QUICK, "--sampler", "random", "--tasks", "60", "--queries", "20", "--json")
    assert done.returncode == 0, done.stderr
    return run_folder(done.stdout)


def test_a_plan_from_a_pilot(fsf: Fsf, pilot: Path) -> None:
    done = fsf("plan", str(pilot), "--difference", "2", "--correlation", "0.6")
    assert done.returncode == 0, done.stderr
    for part in (
        "pilot: ncc with conv64f, 60 random tasks, 5-way 1-shot, 20 queries per class",
        "data: 20 classes of 40 images, 800 in all",
        "queries per class for accuracy, 95 % interval",
        "advised: ",
        "5-way 1-shot tasks of ",
        "paired difference",
        "tasks to show 2 unpaired",
        "standard error of the mean accuracy",
    ):
        assert part in done.stdout, part
    told = json.loads(fsf("plan", pilot.name[:9], "--json").stdout)
    assert told["pilot"]["best_low"] <= told["pilot"]["best"]
    by_query = {row["n_query"]: row for row in told["rows"]}
    assert by_query[told["n_query"]]["half_width"] > 0
    least = min(told["curve"], key=lambda point: point["variance"])["n_query"]
    assert abs(least - told["n_query"]) <= 3
    plan = fsf_statistics.plan_queries(pilot)
    assert plan.arguments == told["arguments"]
    assert plan.command in done.stdout
    chosen = fsf("run", *QUICK, *plan.command.split(), "--json")
    assert chosen.returncode == 0, chosen.stderr
    arm = RunRecord.load(run_folder(chosen.stdout)).arms["depleting"]
    assert (arm.n_query, arm.n_tasks >= 10) == (plan.n_query, True)


def test_the_curve_of_a_plan_is_drawn(fsf: Fsf, pilot: Path, tmp_path: Path) -> None:
    done = fsf("plan", str(pilot), "--figure", "queries.svg")
    assert done.returncode == 0, done.stderr
    assert "queries per class" in (tmp_path / "queries.svg").read_text(encoding="utf-8")
    again = fsf("plan", str(pilot), "--figure", "queries.svg")
    assert "queries.svg exists" in again.stderr
    unknown = fsf("plan", "--class-sizes", "600x20", "--figure", "other.svg")
    assert unknown.returncode == 2
    assert "without a pilot RUN the variance is unknown" in unknown.stderr


def test_two_pilots_plan_for_their_difference(fsf: Fsf, pilot: Path) -> None:
    other = [part if part != "ncc" else "logistic" for part in QUICK]
    more = ("--sampler", "random", "--tasks", "60", "--queries", "20", "--json")
    done = fsf("run", *other, *more)
    assert done.returncode == 0, done.stderr
    planned = fsf("plan", str(pilot), str(run_folder(done.stdout)))
    assert planned.returncode == 0, planned.stderr
    assert "correlation of the two methods' accuracies on the pilot's tasks: 0." in planned.stdout
    assert "for differences between the two methods" in planned.stdout
    elsewhere = fsf("run", *other, *more, "--seed", "1")
    refused = fsf("plan", str(pilot), str(run_folder(elsewhere.stdout)))
    assert refused.returncode == 2
    assert "two pilots on different tasks cannot be paired" in refused.stderr


def test_class_sizes_alone(fsf: Fsf) -> None:
    done = fsf("plan", "--class-sizes", "600x20", "--shot", "1", "--choose", "by-what-is-left")
    assert done.returncode == 0, done.stderr
    assert "1 query per class, as the paper found best at 1 shots" in done.stdout
    assert "1,200 5-way 1-shot tasks of 1 query per class without replacement; 0 of 12,000" in (
        done.stdout
    )
    assumed = fsf("plan", "--class-sizes", "600x20", "--task-sd", "10", "--json")
    assert json.loads(assumed.stdout)["rows"][0]["unpaired"] > 0


def test_what_cannot_be_planned(fsf: Fsf, pilot: Path, tmp_path: Path) -> None:
    for arguments, message in (
        (("plan",), "name a pilot RUN, --dataset or --class-sizes"),
        (("plan", str(pilot), "--shot", "5"), "the pilot's tasks have shot 1"),
        (("plan", str(pilot), "--arm", "biased"), "has no arm 'biased', only random"),
        (("plan", str(pilot), "--task-sd", "9"), "replaces RUN"),
        (("plan", str(pilot), "--level", "2"), "--level must lie between 0 and 1, not 2"),
        (("plan", "--class-sizes", "5x2"), "do not yield two 5-way 5-shot tasks"),
        (("plan", "nowhere"), "no run 'nowhere'"),
    ):
        done = fsf(*arguments)
        assert done.returncode == 2, arguments
        assert message in done.stderr, done.stderr
    # Accuracies of whole tasks tell nothing of the noise within them.
    (tmp_path / "other.csv").write_text("other\n0.5\n0.7\n0.6\n")
    assert fsf("import", "accuracies", "other.csv", "--task-set", "x").returncode == 0
    done = fsf("plan", "other")
    assert done.returncode == 2
    assert "holds accuracies of whole tasks measured elsewhere" in done.stderr
