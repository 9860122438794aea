"""What needs no cluster: options, and a machine without Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsf_slurm import SlurmLauncher
from fsf_slurm._jobs import JobArray
from fsf_slurm._launcher import minutes_of
from fsframework.errors import FsfError, OptionError


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
    ("option", "value"),
    [
        *(("workers", 0), ("gpus", -1), ("cpus", 0), ("requeues", -1)),
        *(("partition", ""), ("memory", "8 GB"), ("account", "a b"), ("qos", "a\n")),
        *(("sbatch", (text,)) for text in ("time=5", "--mem=5G", "array=0-9")),
        *(("sbatch", (text,)) for text in ("two words", "a=1\n#SBATCH --b")),
    ],
)
def test_options_that_are_refused(option, value) -> None:
    with pytest.raises(OptionError, match=f"^{option} must "):
        SlurmLauncher(**{option: value})


def test_machine_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FsfError, match="command sbatch of Slurm is not found on PATH"):
        next(SlurmLauncher().map(str, [1], name="x", logs=tmp_path))
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
        next(SlurmLauncher().map(str, [1], name="x", logs=logs))
    assert not isinstance(caught.value, OptionError)
    assert list(logs.iterdir()) == []


class Row:
    """A job that submitit has submitted."""

    def __init__(self, folder: Path) -> None:
        self.job_id = "17_0"
        self.paths = self
        self.result_pickle = folder / "result.pkl"


def test_controller_may_be_away_for_some_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake(tmp_path / "bin", monkeypatch)
    now = [1000.0]
    monkeypatch.setattr("fsf_slurm._jobs.time.monotonic", lambda: now[0])
    array = JobArray([Row(tmp_path)], tmp_path)
    for now[0] in (1000.0, 1300.0, 1599.0):
        assert array._rows() is None
    now[0] = 1600.0
    with pytest.raises(FsfError, match="Slurm has not answered for 10 minutes: no"):
        array._rows()


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("17_0|FAILED|node1|NonZeroExitCode", "Slurm reports FAILED (NonZeroExitCode)"),
        ("17_0|CANCELLED||None", "Slurm reports CANCELLED"),
        ("17_0|OUT_OF_MEMORY||None", "Slurm reports OUT_OF_MEMORY"),
        ("17_0|NODE_FAIL||Priority", "Slurm reports NODE_FAIL"),
        ("", "Slurm no longer knows its job, which has left no result"),
    ],
)
def test_jobs_that_end_without_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, reason: str
) -> None:
    _fake(tmp_path / "bin", monkeypatch, squeue=0)
    (tmp_path / "bin" / "squeue").write_text(f"#!/bin/sh\necho '{told}'\n".replace("echo ''\n", ""))
    [(place, end)] = JobArray([Row(tmp_path)], tmp_path).results()
    assert (place, end.reason) == (0, reason)


def test_folder_of_logs_that_slurm_would_misread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake(tmp_path / "bin", monkeypatch)
    logs = tmp_path / "100%j"
    logs.mkdir()
    with pytest.raises(FsfError, match="Slurm cannot write logs to a path that contains '%'"):
        next(SlurmLauncher().map(str, [1], name="x", logs=logs))
