"""`fsf plan`, `--queries auto` and `--tasks all` as a user gives them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fsframework.records import RunRecord
from fsframework.values import AccuracyOutcomes, TaskSet
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
    done = fsf("run", *QUICK, "--sampler", "random", "--tasks", "60", "--query", "20", "--json")
    assert done.returncode == 0, done.stderr
    return run_folder(done.stdout)


def test_all_tasks_and_their_interval_is_open(fsf: Fsf) -> None:
    done = fsf("run", *QUICK, "--sampler", "depleting", "--tasks", "all", "--query", "7")
    assert done.returncode == 0, done.stderr
    assert "95 % open, student-t" in done.stdout
    assert "images, none twice;" in done.stdout
    assert "left over" in done.stdout
    refused = fsf("run", *QUICK, "--sampler", "depleting", "--query", "7")
    assert refused.returncode == 2
    assert "ask for at most that many or for all" in refused.stderr
    assert fsf("run", *QUICK, "--tasks", "some").returncode == 2


def test_a_task_file_tells_how_many_tasks_and_what_is_left(fsf: Fsf, tmp_path: Path) -> None:
    args = ("--dataset", "planted", "-o", "dataset.n_per_class=40", "--sampler", "depleting")
    done = fsf("tasks", "make", "all.safetensors", *args, "--tasks", "all", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["interval_kind"] == "open"
    assert told["distinct_images"] == told["tasks"] * 5 * 20
    assert told["distinct_images"] + told["images_left_over"] == 20 * 40
    assert len(TaskSet.load(tmp_path / "all.safetensors")) == told["tasks"]


def test_a_plan_from_a_pilot(fsf: Fsf, pilot: Path) -> None:
    done = fsf("plan", str(pilot), "--difference", "2", "--correlation", "0.6")
    assert done.returncode == 0, done.stderr
    for part in (
        "pilot: ncc with conv64f, 60 random tasks, 5-way 1-shot, 20 queries a class",
        "data: 20 classes of 40 images, 800 in all",
        "queries a class for accuracy, 95 % interval",
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


def test_two_pilots_plan_for_their_difference(fsf: Fsf, pilot: Path) -> None:
    other = [part if part != "ncc" else "logistic" for part in QUICK]
    more = ("--sampler", "random", "--tasks", "60", "--query", "20", "--json")
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
    assert "1 query a class, as the paper found best at 1 shots" in done.stdout
    assert "1,200 5-way 1-shot tasks of 1 query a class without replacement; 0 of 12,000" in (
        done.stdout
    )
    assumed = fsf("plan", "--class-sizes", "600x20", "--task-sd", "10", "--json")
    assert json.loads(assumed.stdout)["rows"][0]["unpaired"] > 0


def test_what_cannot_be_planned(fsf: Fsf, pilot: Path) -> None:
    for arguments, message in (
        (("plan",), "name a pilot RUN, --dataset or --class-sizes"),
        (("plan", str(pilot), "--shot", "5"), "the pilot's tasks are of shot 1"),
        (("plan", str(pilot), "--kind", "A"), "has no A tasks, only R"),
        (("plan", str(pilot), "--task-sd", "9"), "stands for a pilot"),
        (("plan", str(pilot), "--level", "2"), "level must lie between 0 and 1, not 2"),
        (("plan", "--class-sizes", "5x2"), "do not yield two 5-way 5-shot tasks"),
        (("plan", "nowhere"), "no run 'nowhere'"),
    ):
        done = fsf(*arguments)
        assert done.returncode == 2, arguments
        assert message in done.stderr, done.stderr
    # Accuracies of whole tasks tell nothing of the noise within them.
    digest = TaskSet.load(pilot / "tasks-R.safetensors").digest
    AccuracyOutcomes(np.full(60, 0.5), digest, 0, True).save(pilot / "outcomes-R.parquet")
    done = fsf("plan", str(pilot))
    assert done.returncode == 2
    assert "holds accuracies of whole tasks made elsewhere" in done.stderr


def test_queries_auto(fsf: Fsf, tmp_path: Path) -> None:
    auto = (*QUICK, "--queries", "auto", "-o", "pilot_tasks=60")
    done = fsf("run", *auto, "--sampler", "depleting", "--json")
    assert done.returncode == 0, done.stderr
    record = RunRecord.load(run_folder(done.stdout))
    (pilot,) = (tmp_path / "runs").glob("ncc-planted-random-*")
    note = next(n for n in record.notes if n.startswith("queries planned"))
    assert pilot.name in note
    assert "Q* = " in note
    chosen = record.resolved["sampler"]["n_query"]
    assert chosen == record.tasks["R"]["query"]
    assert record.origins["sampler"]["n_query"] == f"pilot {pilot.name}"
    assert f"advised: {chosen} quer" in note
    assert record.tasks["R"]["count"] >= 10
    again = fsf("run", *auto, "--sampler", "depleting")
    assert "nothing to do" in again.stderr
    for arguments, message in (
        (("--sampler", "fewstab"), "give --sampler depleting"),
        (("--sampler", "depleting", "--query", "3"), "are both given"),
    ):
        refused = fsf("run", *auto, *arguments)
        assert refused.returncode == 2
        assert message in refused.stderr
