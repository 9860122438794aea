"""`--tasks all` as a user gives it."""

from __future__ import annotations

import json
from pathlib import Path

from fsframework.values import TaskSet
from tests.conftest import Fsf

# Nothing is learnt: nearest centres on the features of a network as it was born.
QUICK = (
    "--method", "ncc", "--dataset", "planted", "-o", "dataset.size=32",
    "-o", "dataset.n_per_class=40", "--shot", "1", "-o", "training.epochs=0",
)  # fmt: skip


def test_all_tasks_and_their_interval_is_open(fsf: Fsf) -> None:
    done = fsf("run", *QUICK, "--sampler", "depleting", "--tasks", "all", "--queries", "7")
    assert done.returncode == 0, done.stderr
    assert "open: no image recurs between tasks" in done.stdout
    assert (
        "19 depleting tasks use 760 images, each once; 40 of the 800 are left over" in done.stdout
    )
    permuted = fsf(
        "run", *QUICK, "--sampler", "depleting", "--tasks", "all", "--queries", "7", "--placebo"
    )
    assert permuted.returncode == 0, permuted.stderr
    assert "each once" not in permuted.stdout
    refused = fsf("run", *QUICK, "--sampler", "depleting", "--queries", "7")
    assert refused.returncode == 2
    assert "ask for at most that many or for all" in refused.stderr
    assert fsf("run", *QUICK, "--tasks", "some").returncode == 2


def test_a_task_file_tells_how_many_tasks_and_what_is_left(fsf: Fsf, tmp_path: Path) -> None:
    args = ("--dataset", "planted", "-o", "dataset.n_per_class=40", "--sampler", "depleting")
    done = fsf("tasks", "make", "all.safetensors", *args, "--tasks", "all", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["scope"] == "open"
    assert told["distinct_images"] == told["tasks"] * 5 * 20
    assert told["distinct_images"] + told["images_left_over"] == 20 * 40
    assert len(TaskSet.load(tmp_path / "all.safetensors")) == told["tasks"]
