"""Jobs on a real Slurm cluster of this machine: preemption, time limits, refusals, the end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fsf_slurm import SlurmLauncher
from fsframework.errors import OptionError
from fsframework.interfaces import WorkerDied
from fsframework.testing.launcher import echo
from tests.slurm_cluster import SlurmCluster

pytestmark = pytest.mark.cluster


def take(folder: str) -> str:
    """Tell that a job has begun; go on when it may hurry."""
    here, me = Path(folder), f"{time.time_ns()}"
    (here / f"begun-{me}").write_text(os.environ["SLURM_JOB_ID"])
    try:
        while not (here / "hurry").exists():
            time.sleep(0.05)
    except SystemExit:
        (here / f"released-{me}").touch()
        raise
    return os.environ["OMP_NUM_THREADS"] + os.environ.get("GREETING", "")


class Job:
    """A map over one item in a thread; its result comes when it may hurry."""

    def __init__(self, launcher: SlurmLauncher, folder: Path) -> None:
        self.folder, self.found = folder, dict[int, Any]()
        (folder / "logs").mkdir(exist_ok=True)
        found = launcher.map(take, [str(folder)], name="toys", logs=folder / "logs")
        self.thread = threading.Thread(target=lambda: self.found.update(found))
        self.thread.start()

    def begun(self, times: int = 1) -> str:
        until(lambda: len([*self.folder.glob("begun-*")]) == times, "the job does not begin")
        return max(self.folder.glob("begun-*")).read_text()

    def released(self) -> None:
        until(lambda: any(self.folder.glob("released-*")), "the job is not interrupted")

    def end(self) -> Any:
        (self.folder / "hurry").touch()
        self.thread.join(90)
        return self.found.get(0)


def until(holds: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def _quick(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("fsf_slurm._jobs._PAUSE", 0.1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    yield
    slurm.clear()


def requeued(slurm: SlurmCluster, job: str) -> None:
    until(lambda: slurm.job_states().get(job) == "PENDING", "the job is not requeued")
    slurm.start_soon(job)


def test_options_reach_the_job(slurm: SlurmCluster, tmp_path: Path) -> None:
    launcher = SlurmLauncher(
        cpus=2,
        memory="300M",
        time="1-01:30:00",
        partition="patient",
        setup=("export GREETING='hello, you'",),
        sbatch=("comment=a word", "nice=3"),
    )
    job = Job(launcher, tmp_path)
    shown = slurm.command("scontrol", "show", "job", job.begun())
    for part in ("JobName=toys", "Partition=patient", "NumCPUs=2", "MinMemoryNode=300M"):
        assert part in shown
    for part in ("TimeLimit=1-01:30:00", "Comment=a word", "Nice=3", "Requeue=1"):
        assert part in shown
    assert job.end() == "2hello, you"
    assert all(path.suffix == ".out" for path in (tmp_path / "logs").iterdir())


@pytest.mark.parametrize("partition", ["low", "patient"])
def test_preempted_job_is_interrupted_and_resumed(
    slurm: SlurmCluster, tmp_path: Path, partition: str
) -> None:
    # In "patient" Slurm says RUNNING during a minute of grace, and counts a job that exits as
    # failed; in "low" there is none.
    job = Job(SlurmLauncher(partition=partition, cpus=4), tmp_path)
    number = job.begun()
    # A job of a partition with a higher tier needs the processors.
    slurm.command("sbatch", "-p", "high", "-c", "4", "-o", "/dev/null", "--wrap", "true")
    job.released()
    requeued(slurm, number)
    job.begun(2)
    assert job.end() == "4"


def test_time_limit_requeues_a_job_until_its_requeues_are_used_up(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    job = Job(SlurmLauncher(time=5, requeues=1), tmp_path)
    number = job.begun()
    # Slurm sends this before a time limit.
    slurm.command("scancel", "--signal=USR2", number)
    job.released()
    requeued(slurm, number)
    assert job.begun(2) == number
    slurm.command("scancel", "--signal=USR2", number)
    job.thread.join(60)
    assert isinstance(job.found[0], WorkerDied)
    assert "timed-out too many times" in job.found[0].reason


def test_closing_ends_running_and_waiting_jobs(slurm: SlurmCluster, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    items = ["", *[str(tmp_path)] * 3]
    launcher = SlurmLauncher(workers=3, cpus=2)  # 4 processors: one waits
    found = launcher.map(first_then_take, items, name="toys", logs=tmp_path / "logs")
    assert next(found) == (0, None)
    until(lambda: len([*tmp_path.glob("begun-*")]) == 2, "two items are not held")
    found.close()  # type: ignore[attr-defined]
    assert len([*tmp_path.glob("released-*")]) == 2
    assert "PENDING" not in slurm.job_states().values()
    assert "RUNNING" not in slurm.job_states().values()


def first_then_take(folder: str) -> None:
    if folder:
        take(folder)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"partition": "nowhere"}, "invalid partition specified: nowhere"),
        ({"memory": "9000G"}, "Memory specification can not be satisfied"),
        ({"gpus": 1}, "Invalid generic resource"),
        ({"sbatch": ("no-such-option=1",)}, "unrecognized option"),
    ],
)
def test_what_slurm_refuses_is_told_in_its_words(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], options: Any, words: str
) -> None:
    with pytest.raises(OptionError, match=f"Slurm refuses the workers: .*{words}"):
        next(SlurmLauncher(**options).map(echo, [1, 2], name="x", logs=tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_jobs_do_not_inherit_the_job_around_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "1")
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "1")  # srun refuses both together
    assert list(SlurmLauncher().map(echo, ["x"], name="x", logs=tmp_path)) == [(0, "x")]
    assert os.environ["SLURM_JOB_ID"] == "1"
