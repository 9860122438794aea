"""Processes of this machine: their number, their variables, and what replaces a killed one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fsf_tools import local
from fsf_tools.local import Local
from fsframework.errors import OptionError
from fsframework.interfaces import WorkerDied
from fsframework.testing import parametrize_with_checks


class Several(Local):
    """Two processes of one thread on any machine."""

    def __init__(self, *, processes: int = 2, threads: int = 1):
        super().__init__(processes=processes, threads=threads)


@parametrize_with_checks([Several])
def test_conformance(
    make: Any, check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "GRACE", 1.0)
    check(make)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that changes the number of cores, and which GPUs there are."""

    def change(cores: int, gpus: tuple[str, ...] = ()) -> None:
        monkeypatch.setattr(local, "_cores", lambda: cores)
        monkeypatch.setattr(local, "_gpus", lambda: list(gpus))

    for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    return change


def variables(launcher: Local, name: str, n_items: int = 8) -> list[str | None]:
    return [one.get(name) for one in launcher._variables(n_items)]


def test_the_cores_are_divided(machine: Any) -> None:
    machine(cores=7)
    assert variables(Local(), "CUDA_VISIBLE_DEVICES") == [None] * 7
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        assert variables(Local(processes=2), name) == ["3", "3"]
    assert variables(Local(processes=9), "OMP_NUM_THREADS") == ["1"] * 8
    assert variables(Local(), "OMP_NUM_THREADS", n_items=1) == ["7"]
    assert variables(Local(threads=5), "OMP_NUM_THREADS", n_items=2) == ["5", "5"]


def test_gpus_are_shared_in_turn(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(cores=8, gpus=("3", "GPU-5f"))
    assert variables(Local(), "CUDA_VISIBLE_DEVICES") == ["3", "GPU-5f"]
    found = variables(Local(processes=3), "CUDA_VISIBLE_DEVICES")
    assert found == ["3", "GPU-5f", "3"]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert variables(Local(), "OMP_NUM_THREADS") == [None, None]  # it stays as it is


def environment(name: str) -> tuple[int, str | None]:
    return os.getpid(), os.environ.get(name)


def test_processes_get_their_variables_and_several_items(machine: Any, tmp_path: Path) -> None:
    machine(cores=4, gpus=("5", "7"))
    found = Local().map(environment, ["CUDA_VISIBLE_DEVICES"] * 6, name="t", logs=tmp_path)
    told = {result for _, result in found}
    assert {gpu for _, gpu in told} == {"5", "7"}
    assert len(told) == 2, "each process has its own GPU, and takes several items"
    assert os.environ.get("CUDA_VISIBLE_DEVICES") is None


@pytest.mark.parametrize(
    ("visible", "count", "expected"),
    [
        (None, 2, ["0", "1"]),
        (None, 0, []),
        ("3, GPU-5f", 2, ["3", "GPU-5f"]),
        ("2,-1,0", 1, ["2"]),  # PyTorch stops at the first that is none
        ("", 0, []),
    ],
)
def test_the_gpus_are_those_that_are_visible(
    visible: str | None, count: int, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert local._gpus() == expected


def die_of(status: int) -> int:
    if status < 0:
        os.kill(os.getpid(), -status)
    if status:
        os._exit(status)
    return status


@pytest.mark.slow
def test_the_reason_of_a_death_is_told(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    found = dict(Local(processes=1).map(die_of, [-9, 3, 0], name="t", logs=logs))
    assert found.pop(2) == 0
    assert [end.reason for end in found.values()] == [
        "killed by SIGKILL (perhaps out of memory)",
        "exit status 3",
    ]
    assert {end.place for end in found.values()} == {os.uname().nodename}
    assert all(isinstance(end, WorkerDied) for end in found.values())
    assert [*logs.iterdir()] == [], "a log without output is removed"


@pytest.mark.parametrize("option", ["processes", "threads"])
def test_options_have_bounds(option: str) -> None:
    with pytest.raises(OptionError, match=f"^{option} must be at least 1"):
        Local(**{option: 0})


OWNER = """
import sys, pathlib
from fsf_tools.local import Local
from fsframework.testing.launcher import persist
list(Local(processes=1).map(persist, sys.argv[1:], name="t", logs=pathlib.Path(sys.argv[1])))
"""


def test_processes_end_with_a_killed_owner_whose_script_has_no_main(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(OWNER.replace("import persist", "import be_interrupted as persist"))
    owner = subprocess.Popen([sys.executable, str(script), str(tmp_path)])
    until(lambda: any(tmp_path.glob("began-*")))
    owner.kill()
    owner.wait()
    until(lambda: any(tmp_path.glob("cleaned-*")))


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
