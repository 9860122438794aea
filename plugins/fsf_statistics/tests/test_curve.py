"""`fsf runs curve`: the course of a training."""

from __future__ import annotations

import json

from tests.conftest import Fsf

RUN = (
    "run", "--json", "--method", "protonet", "--sampler", "random", "--way", "2", "--shot", "1",
    "--queries", "2", "--tasks", "5", "--image-size", "16", "-o", "training.steps=2",
    "-o", "training.validation_tasks=2", "-o", "dataset.n_per_class=8", "-o", "dataset.size=16",
)  # fmt: skip


def test_the_curve_of_a_training_is_shown(fsf: Fsf) -> None:
    assert fsf(*RUN, "-o", "training.epochs=2", "--name", "trained").returncode == 0
    assert fsf(*RUN, "-o", "training.epochs=0", "--name", "plain").returncode == 0
    rows = json.loads(fsf("runs", "curve", "trained", "--json").stdout)
    assert [row["epoch"] for row in rows] == [0, 1]
    drawn = fsf("runs", "curve", "trained").stdout.splitlines()
    [loss] = [line for line in drawn if line.startswith("loss")]
    losses = [row["loss"] for row in rows]
    assert loss.split()[1] == f"{losses[0]:.3f}"
    assert loss.split()[3:] == [f"{n:.3f}" for n in (losses[-1], min(losses), max(losses))]
    assert drawn[-1] == "2 epochs from left to right"
    done = fsf("runs", "curve", "plain")
    assert done.returncode == 2
    assert "nothing was trained in this run" in done.stderr
