"""Runs computed with different numbers of threads: their tables say so."""

from __future__ import annotations

import pytest

from tests.conftest import Fsf

SMALL = (
    "--dataset", "planted", "-o", "dataset.size=16", "-o", "dataset.n_per_class=12",
    "--shot", "1", "--queries", "3", "--tasks", "20", "--sampler", "random",
)  # fmt: skip
TRAINED = ("-o", "training.epochs=1", "-o", "training.steps=2", "-o", "training.validation_tasks=2")
WHY = "other numbers of threads train slightly different weights"


def made(fsf: Fsf, name: str, *arguments: str) -> None:
    done = fsf("run", *SMALL, "--name", name, *arguments)
    assert done.returncode == 0, done.stderr


def test_threads_are_told_where_a_run_was_trained_and_they_differ(
    fsf_process: Fsf, fsf: Fsf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made(fsf_process, "one", *TRAINED)
    made(fsf_process, "untrained", "--method", "ncc", "-o", "training.epochs=0")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    made(fsf_process, "two", "--method", "matchingnet", *TRAINED)
    assert WHY not in fsf("compare", "one", "untrained").stdout
    told = fsf("compare", "one", "untrained", "two").stdout
    assert f"protonet, ncc: computed with 1 PyTorch thread; {WHY}" in told
    assert f"matchingnet: computed with 2 PyTorch threads; {WHY}" in told
    ranked = fsf("rank", "one", "untrained", "two", "--columns", "acc-random", "wacc-random")
    assert ranked.returncode == 0, ranked.stderr
    assert f"one, untrained: computed with 1 PyTorch thread; {WHY}" in ranked.stdout
