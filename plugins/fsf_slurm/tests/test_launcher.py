"""What needs no cluster: options, and a machine without Slurm."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fsf_slurm import SlurmLauncher
from fsf_slurm._queue import Queue, Row
from fsf_slurm._time import minutes_of
from fsf_slurm._workers import SlurmWorker, SlurmWorkers
from fsframework.errors import FsfError, OptionError
from fsframework.interfaces import Work


@pytest.mark.parametrize(
    ("time", "minutes"),
    [
        (90, 90),
        ("90", 90),
        ("0:30", 1),
        ("2:00:00", 120),
        ("2-0", 2880),
        ("1-02:30", 1590),
        ("1-00:00:01", 1441),
    ],
)
def test_time_in_the_forms_of_slurm(time: int | str, minutes: int) -> None:
    assert minutes_of(time) == minutes


@pytest.mark.parametrize("time", [0, -5, "0:00", "1 hour", "1-", "1:2:3:4", "", "１０"])
def test_no_time(time: int | str) -> None:
    with pytest.raises(OptionError, match="time must be at least 1 minute"):
        SlurmLauncher(time=time)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers must be at least 1, not 0"),
        ({"gpus": -1}, "gpus must be at least 0, not -1"),
        ({"cpus": 0}, "cpus must be at least 1, not 0"),
        ({"requeues": -1}, "requeues must be at least 0, not -1"),
        ({"partition": ""}, "partition must be a name without spaces, not ''"),
        ({"memory": "8 GB"}, "memory must be a number with K, M, G or T, not '8 GB'"),
        ({"sbatch": ("time=5",)}, "sbatch must not set time: that is the option time"),
        ({"sbatch": ("--mem=5G",)}, "sbatch must not set mem: that is the option memory"),
        ({"sbatch": ("array=0-9",)}, "sbatch must not set array: the workers need it as it is"),
        ({"sbatch": ("two words",)}, "sbatch must be NAME=VALUE or NAME, not 'two words'"),
        ({"sbatch": ("a=1\n#SBATCH --b",)}, "sbatch must be NAME=VALUE or NAME"),
    ],
)
def test_options_that_are_refused(options, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        SlurmLauncher(**options)


def test_machine_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FsfError, match="command sbatch of Slurm is not found on PATH"):
        SlurmLauncher().start(Work("x", (sys.executable,), 1, tmp_path))
    assert list(tmp_path.iterdir()) == []


def _fake(folder: Path, monkeypatch: pytest.MonkeyPatch, **codes: int) -> None:
    """Put commands on PATH that fail with a message, or succeed without one."""
    folder.mkdir()
    for name in ("sbatch", "srun", "squeue", "scancel", "scontrol"):
        command = folder / name
        command.write_text(
            f"#!/bin/sh\necho '{name}: error: no one is there' >&2\nexit {codes.get(name, 1)}\n"
        )
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_controller_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake(tmp_path / "bin", monkeypatch)
    logs = tmp_path / "logs"
    logs.mkdir()
    with pytest.raises(FsfError, match="Slurm cannot be reached: no one is there") as caught:
        SlurmLauncher().start(Work("x", (sys.executable,), 1, logs))
    assert not isinstance(caught.value, OptionError)
    assert list(logs.iterdir()) == []


def test_controller_may_be_away_for_some_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake(tmp_path / "bin", monkeypatch)
    now = [1000.0]
    monkeypatch.setattr("fsf_slurm._queue.time.monotonic", lambda: now[0])
    queue = Queue("17")
    for now[0] in (1000.0, 1300.0, 1599.0):
        queue.look(wait=True)
        assert not queue.known
    now[0] = 1600.0
    with pytest.raises(FsfError, match="Slurm has not answered for 10 minutes: no"):
        queue.look(wait=True)


def test_one_question_for_the_whole_array_every_three_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake(tmp_path / "bin", monkeypatch)
    asked = tmp_path / "asked"
    (tmp_path / "bin" / "squeue").write_text(
        f'#!/bin/sh\necho "$*" >> {asked}\n'
        "echo '17_0|RUNNING|node[1-2]|None'\necho '17_1|PENDING||QOSMaxJobsPerUserLimit'\n"
    )
    now = [1000.0]
    monkeypatch.setattr("fsf_slurm._queue.time.monotonic", lambda: now[0])
    queue = Queue("17")
    while not queue.known:
        queue.look()
    for now[0] in (1000.0, 1001.5, 1002.9):
        queue.look()
    (question,) = asked.read_text().splitlines()
    assert question.endswith("--jobs 17")
    assert queue.rows == {
        "17_0": Row("RUNNING", "node[1-2]", ""),
        "17_1": Row("PENDING", "", "QOSMaxJobsPerUserLimit"),
    }
    now[0] = 1003.0
    while asked.read_text().splitlines() != [question, question]:
        queue.look()
    queue.look(wait=True)


@pytest.mark.parametrize(
    ("state", "left", "status", "reason"),
    [
        ("PENDING", None, "waiting", ""),
        ("REQUEUED", None, "waiting", ""),
        ("SUSPENDED", None, "waiting", ""),
        ("CONFIGURING", None, "running", ""),
        ("RUNNING", None, "running", ""),
        ("COMPLETING", "exited with 3", "running", ""),
        ("PENDING", "", "waiting", ""),  # requeued as it ended: it starts again, and ends at once
        ("COMPLETED", None, "ended", ""),
        ("FAILED", "exited with 3", "failed", "exited with 3"),
        ("FAILED", None, "failed", "Slurm reports FAILED (NonZeroExitCode)"),
        ("CANCELLED", None, "failed", "Slurm reports CANCELLED"),
        ("OUT_OF_MEMORY", "killed by SIGKILL", "failed", "Slurm reports OUT_OF_MEMORY"),
        ("NODE_FAIL", None, "failed", "Slurm reports NODE_FAIL"),
        ("TIMEOUT", None, "failed", "Slurm reports TIMEOUT"),
        ("PREEMPTED", None, "failed", "Slurm reports PREEMPTED"),
        (None, "", "ended", ""),
        (None, "exited with 3", "failed", "exited with 3"),
        (None, None, "failed", "Slurm no longer knows its job, which has left no result"),
    ],
)
def test_states_of_slurm(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: str | None,
    left: str | None,
    status: str,
    reason: str,
) -> None:
    outcome = tmp_path / "outcome.json"
    if left is not None:
        outcome.write_text(json.dumps({"reason": left}))
    workers = SlurmWorkers("17", [SlurmWorker("17", tmp_path / "log", outcome)], tmp_path)
    row = {} if state is None else {"17": Row(state, "", "NonZeroExitCode")}

    def look(queue: Queue, *, wait: bool = False) -> None:
        queue.known, queue.rows = True, row

    monkeypatch.setattr(Queue, "look", look)
    (told,) = workers.states()
    assert (told.name, told.status, told.reason) == ("job 17", status, reason)
    assert tmp_path.exists() == (status in ("waiting", "running"))


def test_folder_of_logs_that_slurm_would_misread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake(tmp_path / "bin", monkeypatch)
    logs = tmp_path / "100%j"
    logs.mkdir()
    with pytest.raises(FsfError, match="Slurm cannot write logs to a path that contains '%'"):
        SlurmLauncher().start(Work("x", (sys.executable,), 1, logs))
