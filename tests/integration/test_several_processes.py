"""Training by processes that torchrun starts: equal weights, and what happens if one dies."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fsframework.records import RunRecord
from tests import train_together
from tests.forked import finished
from tests.train_together import FAMILIES, SLOW, USUAL, model_of

OPTIONS = (
    "--method", "protonet", "--sampler", "random", "--shot", "1", "--queries", "5",
    "--tasks", "5", "--device", "cpu",
    "-o", "dataset.size=16", "-o", "dataset.n_per_class=24",
    "-o", "training.validation_tasks=4", "-o", "training.epochs=4", "-o", "training.steps=12",
    "-o", "training.tasks_per_step=3", "-o", "training.optimizer=sgd",
    "-o", "training.learning_rate=0.01",
)  # fmt: skip
ENDED = "fsf: another process of this job has ended"


def torchrun(n_processes: int, *command: str) -> list[str]:
    """Return the command that starts a module by torchrun."""
    launcher = (sys.executable, "-m", "torch.distributed.run")
    return [*launcher, "--nproc-per-node", str(n_processes), "-m", *command]


def run(folder: Path, *more: str) -> list[str]:
    """Return the words of ``fsf run`` after ``-m``."""
    places = ("--runs-dir", str(folder / "runs"), "--cache-dir", str(folder / "cache"))
    return ["fsframework", "run", *OPTIONS, *places, *more]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def ended(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment(), timeout=120
    )


def said(stderr: str) -> list[str]:
    """Return what our processes said in one sentence each, without torchrun's own report."""
    return [line for line in stderr.splitlines() if line.startswith("fsf: ")]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, ...]], list[Path]]:
    """Return what trains families by one process and by two, and gives the folders of weights."""

    @functools.cache
    def train(families: tuple[str, ...]) -> list[Path]:
        one, two = folders = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
        train_together.main(one, families)
        done = ended(torchrun(2, "tests.train_together", str(two), *families))
        assert done.returncode == 0, done.stderr
        return folders

    return train


@pytest.mark.parametrize(
    "family", [*USUAL, *(pytest.param(f, marks=pytest.mark.slow) for f in SLOW)]
)
def test_two_processes_end_in_the_weights_of_one(
    trained: Callable[[tuple[str, ...]], list[Path]], family: str
) -> None:
    folders = trained(SLOW if family in SLOW else USUAL)
    one, two = (load_file(folder / f"{family}.safetensors") for folder in folders)
    untrained = model_of(FAMILIES[family][0])(0).state_dict()
    trainable = [name for name in one if one[name].is_floating_point()]
    assert {one[name].dtype for name in trainable} == {torch.float64}
    assert max((one[name] - untrained[name]).abs().max() for name in trainable) > 1e-2
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=0, atol=1e-5, msg=name)


def processes_below(parent: int) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the processes that a process has started, and their environments."""
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        try:
            raw = Path(f"/proc/{child}/environ").read_bytes().decode()
        except OSError:
            continue  # it has just ended
        yield int(child), dict(item.split("=", 1) for item in raw.split("\0") if "=" in item)


def kill_when_trained_for_an_epoch(command: list[str], folder: Path, rank: int) -> tuple[int, str]:
    """Run a command until there is a checkpoint, kill one of its processes, and return its end."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment()
    )
    while process.poll() is None and not [*folder.glob("cache/training/*/checkpoint.digest")]:
        time.sleep(0.01)
    [victim] = [pid for pid, told in processes_below(process.pid) if told.get("RANK") == str(rank)]
    os.kill(victim, signal.SIGKILL)
    _, stderr = process.communicate(timeout=60)
    return process.returncode, stderr


@pytest.mark.parametrize("rank", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_one_dies_and_the_training_resumes_with_another_number_of_processes(
    tmp_path: Path, rank: int
) -> None:
    killed = tmp_path / "killed"
    code, stderr = kill_when_trained_for_an_epoch(torchrun(2, *run(killed)), killed, rank)
    assert code != 0
    [sentence] = said(stderr)
    assert sentence.startswith(ENDED)
    assert not [*killed.glob("cache/training/*/weights.safetensors")]
    assert not [*killed.glob("**/outcomes-*.parquet")]
    # The same groups, all in one process; resumed, and in one go.
    for folder in (killed, tmp_path / "whole"):
        _, *words = run(folder, "-o", "training.groups=2")
        done = finished(tmp_path, *words)
        assert done.returncode == 0, done.stderr
        assert ("resuming after" in done.stderr) == (folder == killed)
    [resumed] = (killed / "runs").iterdir()
    [whole] = (tmp_path / "whole" / "runs").iterdir()
    assert resumed.name == whole.name
    found, expected = (load_file(run / "weights.safetensors") for run in (resumed, whole))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-4, msg=name)
    assert not [*killed.glob("**/.*.tmp")]
    assert RunRecord.load(resumed).status == "finished"


@pytest.mark.slow
def test_a_finished_run_is_reported_once(tmp_path: Path) -> None:
    first, second = (ended(torchrun(2, *run(tmp_path))) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0)
    assert first.stdout == second.stdout
    assert first.stdout.count("protonet with conv64f") == 1
    assert second.stderr.count("nothing to do: this run is already finished") == 1
    [record] = (tmp_path / "runs").glob("*/run.json")
    assert RunRecord.load(record.parent).stages[0].origins["groups"] == "torchrun"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("run", "--method", "protonets"), 2, "protonets"),
        (("run", "-o", "training.groups=2", "-o", "training.tasks_per_step=1"), 2, "room for 1"),
        (("runs", "list"), 2, "is work for one process"),
        (("run", "--dry-run"), 0, ""),
    ],
)
def test_what_all_processes_find_is_said_once(
    tmp_path: Path, words: tuple[str, ...], code: int, expected: str
) -> None:
    folders = ("--runs-dir", str(tmp_path), "--cache-dir", str(tmp_path))
    given = (*words, *folders) if words[0] == "run" else words
    done = ended(torchrun(2, "fsframework", *given))
    assert bool(done.returncode) == bool(code)
    # The other one ends with the same code, unless torchrun is quicker to terminate it.
    assert done.stderr.count(f"exitcode  : {code} ") in ((1, 2) if code else (0,))
    assert len(said(done.stderr)) == (1 if code else 0)
    assert expected in "".join(said(done.stderr))
    assert done.stdout.count("training.tasks_per_step") == (0 if code else 1)
