"""A training that is killed and given again ends in the weights of one that was left alone."""

from __future__ import annotations

import dataclasses
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from fsframework.records import RunRecord
from tests.forked import finished, started

COMMON = (
    "--sampler", "random", "-o", "dataset.size=32", "-o", "dataset.n_per_class=40",
    "--shot", "1", "--queries", "5", "--tasks", "10", "-o", "training.validation_tasks=5",
)  # fmt: skip
VIEWS = (
    "--recipe", "quick", "-o", "training.epochs=4", "-o", "training.steps=12",
    "-o", "training.batch_size=16",
)  # fmt: skip
FAMILIES = {
    "relationnet": ("-o", "training.epochs=4", "-o", "training.steps=12"),
    "ata": (
        *("-o", "method.base=gnn", "-o", "method.base.nf=8", "-o", "method.steps=1"),
        *("-o", "training.epochs=4", "-o", "training.steps=6"),
    ),
    "anil": ("-o", "training.epochs=4", "-o", "training.steps=12"),
    # Two stages, the second with a teacher.
    "rfs": ("-o", "training.epochs=2", "-o", "training.steps=12"),
    # Likewise, on images that it turns.
    "skd": (
        "--recipe", "quick-distilled", "-o", "training.epochs=2", "-o", "training.steps=12",
        "-o", "training.batch_size=8",
    ),
    # Two stages, the second on a frozen backbone.
    "mtl": ("-o", "training.epochs=2", "-o", "training.steps=12"),
    # Two stages, with a method in the method.
    "ifsl": (
        "--recipe", "quick-maml", "-o", "training.epochs=2", "-o", "training.steps=12",
        "-o", "method.n_splits=2",
    ),
    # Views of images; a queue that is written over and a momentum copy, memories with clusters.
    "simclr": (*VIEWS, "-o", "method.head=nonlinear"),
    "unisiam": VIEWS,
    "moco": (*VIEWS, "-o", "method.head=nonlinear", "-o", "method.queue=100"),
    "psco": (*VIEWS, "-o", "method.head=nonlinear", "-o", "method.queue=100"),
    "beclr": (
        *VIEWS, "-o", "method.memory=100", "-o", "method.clusters=8", "-o", "method.start=10",
        "-o", "method.mask=0.15", "-o", "method.mask_spread=0.1",
    ),
    "ssfsl:protonet": ("-o", "training.epochs=4", "-o", "training.steps=12"),
}  # fmt: skip
QUICK = ("rfs",)
"""The others are slow; ``test_resumed_methods`` interrupts most of them within one process."""
REMEMBERED = {
    "moco": ("keys.entries", "keys.place", "slow.slow_backbone.", "slow.slow_head."),
    "psco": ("keys.entries", "keys.place", "slow.slow_backbone.", "slow.slow_head."),
    "beclr": ("predicted.", "teacher.slow_backbone.", "teacher.slow_head."),
}
"""What the state has besides weights that a gradient changes."""


def command(method: str, folder: Path) -> list[str]:
    where = ["--runs-dir", str(folder / "runs"), "--cache-dir", str(folder / "cache")]
    return ["run", "--method", method, *COMMON, *FAMILIES[method], *where]


def ran(method: str, folder: Path) -> tuple[RunRecord, dict[str, Tensor]]:
    """Run to the end; return the record and everything that the model saves."""
    done = finished(folder.parent, *command(method, folder))
    assert done.returncode == 0, done.stderr
    [record] = (folder / "runs").glob("*/run.json")
    return RunRecord.load(record.parent), load_file(record.parent / "weights.safetensors")


@pytest.mark.parametrize(
    "method",
    [pytest.param(m, marks=[] if m in QUICK else [pytest.mark.slow]) for m in FAMILIES],
)
def test_killed_and_resumed_it_ends_in_equal_weights(tmp_path: Path, method: str) -> None:
    whole, expected = ran(method, tmp_path / "whole")
    killed = tmp_path / "killed"
    process = started(tmp_path, *command(method, killed))
    # Killed as soon as an epoch has been written down.
    while process.poll() is None and not [*killed.glob("cache/training/*/checkpoint.safetensors")]:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() != 0, "it ended before it could be killed"
    assert not [*killed.glob("cache/training/*/weights.safetensors")]
    resumed, found = ran(method, killed)
    assert found.keys() == expected.keys()
    assert all(torch.equal(value, found[name]) for name, value in expected.items())
    for part in REMEMBERED.get(method, ()):
        assert any(part in name for name in found), part
    assert resumed.digests["weights"] == whole.digests["weights"]
    assert resumed.estimates == whole.estimates
    rows = [
        [dataclasses.replace(row, seconds=0) for row in record.training.history]
        for record in (whole, resumed)
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 4
