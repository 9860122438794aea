"""Processes of this machine: their number, their variables, and what replaces a killed one."""

import json
import os
import subprocess
import sys
import time

import pytest
import torch

from fsframework.errors import OptionError
from fsframework.interfaces import Work
from fsframework.launchers import local
from fsframework.launchers.local import Local
from fsframework.testing import parametrize_with_checks


class Several(Local):
    """Two processes of one thread on any machine."""

    def __init__(self, *, processes: int = 2, threads: int = 1):
        super().__init__(processes=processes, threads=threads)


@parametrize_with_checks([Several])
def test_conformance(make, check, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "GRACE", 1.0)
    check(make)


def run(launcher, folder, code, n_items=8, environment=()):
    """Run a command to its end, and return the states and what it has printed, by name."""
    work = Work("test", (sys.executable, "-S", "-c", code), n_items, folder, dict(environment))
    workers = launcher.start(work)
    end = time.monotonic() + 60
    while any(state.status == "running" for state in workers.states()):
        assert time.monotonic() < end
        time.sleep(0.02)
    workers.stop()
    states = workers.states()
    return states, {state.name: state.log.read_text() for state in states}


VARIABLES = "import json, os; print(json.dumps(dict(os.environ)))"


def variables(launcher, folder, name, **given):
    _, printed = run(launcher, folder, VARIABLES, **given)
    return [json.loads(text).get(name) for text in printed.values()]


@pytest.fixture
def machine(monkeypatch):
    """Return a function that changes the number of cores, and which GPUs there are."""

    def change(cores, gpus=()):
        monkeypatch.setattr(local, "_cores", lambda: cores)
        monkeypatch.setattr(local, "_gpus", lambda: list(gpus))

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return change


def test_a_process_for_each_core_and_a_core_for_each_process(machine, tmp_path):
    machine(cores=3)
    assert variables(Local(), tmp_path, "OMP_NUM_THREADS") == ["1", "1", "1"]
    assert variables(Local(), tmp_path, "CUDA_VISIBLE_DEVICES") == [None] * 3


def test_the_cores_are_divided(machine, tmp_path):
    machine(cores=7)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        assert variables(Local(processes=2), tmp_path, name) == ["3", "3"]
    assert variables(Local(processes=9), tmp_path, "OMP_NUM_THREADS") == ["1"] * 8
    assert variables(Local(), tmp_path, "OMP_NUM_THREADS", n_items=1) == ["7"]
    assert variables(Local(threads=5), tmp_path, "OMP_NUM_THREADS", n_items=2) == ["5", "5"]


def test_the_variables_of_the_work_precede(machine, tmp_path):
    machine(cores=1, gpus=["0"])
    given = {"OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": ""}
    for name, value in given.items():
        assert variables(Local(), tmp_path, name, environment=given) == [value]


def test_a_process_for_each_gpu(machine, tmp_path):
    machine(cores=8, gpus=["0", "1"])
    assert variables(Local(), tmp_path, "CUDA_VISIBLE_DEVICES") == ["0", "1"]
    assert variables(Local(), tmp_path, "OMP_NUM_THREADS") == ["4", "4"]


def test_gpus_are_shared_in_turn(machine, tmp_path):
    machine(cores=8, gpus=["3", "GPU-5f"])
    found = variables(Local(processes=3), tmp_path, "CUDA_VISIBLE_DEVICES")
    assert found == ["3", "GPU-5f", "3"]


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
def test_the_gpus_are_those_that_are_visible(visible, count, expected, monkeypatch):
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert local._gpus() == expected


def test_a_killed_process_is_replaced(tmp_path):
    code = f"""
import os
try:
    os.close(os.open({str(tmp_path / "first")!r}, os.O_CREAT | os.O_EXCL))
    os.kill(os.getpid(), 9)
except FileExistsError:
    print("done")
"""
    states, printed = run(Local(processes=1), tmp_path, code)
    assert [(state.name, state.status, state.reason) for state in states] == [
        ("process 1", "failed", "killed by SIGKILL (perhaps out of memory)"),
        ("process 2", "ended", ""),
    ]
    assert list(printed.values()) == ["", "done\n"]
    assert {state.place for state in states} == {os.uname().nodename}


def test_a_process_is_replaced_three_times(tmp_path):
    code = "import os; os.kill(os.getpid(), 9)"
    states, _ = run(Local(processes=2), tmp_path, code)
    assert [state.status for state in states] == ["failed"] * 8
    assert len({state.name for state in states}) == len({state.log for state in states}) == 8


def test_a_process_that_fails_is_not_replaced(tmp_path):
    states, _ = run(Local(processes=1), tmp_path, "raise SystemExit(2)")
    assert [state.reason for state in states] == ["exit status 2"]


@pytest.mark.parametrize("option", ["processes", "threads"])
def test_options_have_bounds(option):
    with pytest.raises(OptionError, match=f"^{option} must be at least 1, not 0$"):
        Local(**{option: 0})


def test_each_worker_has_a_log_of_its_own(tmp_path):
    for _ in range(2):
        run(Local(processes=2), tmp_path, "print('here')")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["here\n"] * 4


def test_torch_is_not_imported_before_the_start():
    code = (
        "import sys; from fsframework.launchers.local import Local; Local(processes=2)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
