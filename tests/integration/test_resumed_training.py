"""A training that is killed and given again ends in the weights of one that was left alone."""

from __future__ import annotations

import dataclasses
import signal
import time
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from fsframework.records import RunRecord
from tests.forked import finished, started

# Two stages, the second with a teacher; test_resumed_methods interrupts others in one process.
RUN = (
    "run", "--method", "rfs", "-o", "training.epochs=2", "-o", "training.steps=12",
    "--sampler", "random", "-o", "dataset.size=32", "-o", "dataset.n_per_class=40",
    "--shot", "1", "--queries", "5", "--tasks", "10", "-o", "training.validation_tasks=5",
)  # fmt: skip


def command(folder: Path) -> list[str]:
    return [*RUN, "--runs-dir", str(folder / "runs"), "--cache-dir", str(folder / "cache")]


def ran(folder: Path) -> tuple[RunRecord, dict[str, Tensor]]:
    """Run to the end; return the record and everything that the model saves."""
    done = finished(folder.parent, *command(folder))
    assert done.returncode == 0, done.stderr
    [record] = (folder / "runs").glob("*/run.json")
    return RunRecord.load(record.parent), load_file(record.parent / "weights.safetensors")


def test_killed_and_resumed_it_ends_in_equal_weights(tmp_path: Path) -> None:
    whole, expected = ran(tmp_path / "whole")
    killed = tmp_path / "killed"
    process = started(tmp_path, *command(killed))
    # Killed as soon as an epoch has been written down.
    while process.poll() is None and not [*killed.glob("cache/training/*/checkpoint.safetensors")]:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() != 0, "it ended before it could be killed"
    assert not [*killed.glob("cache/training/*/weights.safetensors")]
    resumed, found = ran(killed)
    assert found.keys() == expected.keys()
    assert all(torch.equal(value, found[name]) for name, value in expected.items())
    assert resumed.digests["weights"] == whole.digests["weights"]
    assert resumed.estimates == whole.estimates
    rows = [
        [dataclasses.replace(row, seconds=0) for row in record.training.history]
        for record in (whole, resumed)
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 4
