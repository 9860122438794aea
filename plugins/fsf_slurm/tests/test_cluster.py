"""Workers on a real Slurm cluster of this machine: preemption, time limits, refusals, the end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fsf_slurm import SlurmLauncher
from fsframework.errors import OptionError
from fsframework.interfaces import Work, Workers
from tests.slurm_cluster import SlurmCluster

pytestmark = pytest.mark.cluster

_TOY = """
import os, signal, sys, time
from pathlib import Path

folder, n_items, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
me = os.environ["SLURM_JOB_ID"]


def stop(*_):
    raise SystemExit(143)


def left():
    return [item for item in range(n_items) if not (folder / f"done-{item}").exists()]


signal.signal(signal.SIGTERM, stop)
while left():
    for item in left():
        held = folder / f"held-{item}"
        try:
            with held.open("x") as file:
                file.write(me)
        except FileExistsError:
            continue
        try:
            print("begins", item, flush=True)
            time.sleep(0 if (folder / "hurry").exists() else seconds)
            (folder / f"done-{item}").write_text(me)
        except SystemExit:
            print("releases", item, flush=True)
            held.unlink()
            raise
    time.sleep(0.05)
"""
"""A worker that takes items by creating a file each, and releases its item on SIGTERM."""


@dataclass(frozen=True)
class Toys:
    """Items in a folder, and the workers that take them."""

    folder: Path
    work: Work

    def done(self) -> dict[int, str]:
        """Return which job has done each item that is done."""
        files = self.folder.glob("done-*")
        return {int(file.name.removeprefix("done-")): file.read_text() for file in files}

    def hurry(self) -> None:
        """Let the items take no time from now on."""
        (self.folder / "hurry").touch()


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, float], Toys]:
    monkeypatch.setattr("fsf_slurm._queue._PAUSE", 0.05)

    def make(n_items: int, seconds: float) -> Toys:
        folder = tmp_path / "items with spaces"
        logs = folder / "logs"
        logs.mkdir(parents=True)
        worker = folder / "worker.py"
        worker.write_text(_TOY)
        command = (sys.executable, str(worker), str(folder), str(n_items), str(seconds))
        return Toys(folder, Work("toys", command, n_items, logs))

    return make


@pytest.fixture
def started(slurm: SlurmCluster):
    """Return a function that starts workers; they are stopped at the end of the test."""
    running: list[Workers] = []

    def start(launcher: SlurmLauncher, work: Work) -> Workers:
        workers = launcher.start(work)
        running.append(workers)
        return workers

    yield start
    for workers in running:
        workers.stop()


def _statuses(workers: Workers) -> list[str]:
    return [state.status for state in workers.states()]


def _until(holds: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def _until_begun(toys: Toys, workers: Workers) -> None:
    _until(lambda: any(toys.folder.glob("held-*")), "no item is held")
    _until(lambda: "running" in _statuses(workers), "no worker is said to run")


def _started_again(workers: Workers, slurm: SlurmCluster) -> None:
    """Wait until the only worker is requeued, and have it start again."""
    _until(lambda: _statuses(workers) == ["waiting"], "the worker is not requeued")
    (state,) = workers.states()
    slurm.start_soon(state.name.removeprefix("job "))


def _log(workers: Workers) -> str:
    (state,) = workers.states()
    return "" if state.log is None else state.log.read_text()


def test_an_array_shares_items(slurm: SlurmCluster, toys, started) -> None:
    queue = toys(6, 0.2)
    workers = started(SlurmLauncher(workers=2), queue.work)
    _until(lambda: set(_statuses(workers)) == {"ended"}, "the workers do not end")
    assert set(queue.done()) == set(range(6))
    assert len(set(queue.done().values())) == 2  # each did some
    first, second = workers.states()
    array = first.name.removesuffix("_0")
    assert (first.name, second.name) == (f"{array}_0", f"{array}_1")
    assert first.place == os.uname().nodename.split(".")[0]
    # Only the logs are left of what submitit needs.
    assert set(queue.work.logs.iterdir()) == {first.log, second.log}


def test_threads_memory_and_further_options(slurm: SlurmCluster, toys, started) -> None:
    queue = toys(1, 60)
    launcher = SlurmLauncher(
        cpus=2,
        memory="300M",
        time="1-01:30:00",
        partition="patient",
        setup=("export GREETING='hello, you'",),
        sbatch=("comment=a word", "nice=3"),
    )
    script = "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['GREETING'], flush=True)"
    python = (sys.executable, "-c", script + "; import time; time.sleep(60)")
    workers = started(launcher, Work("with-options", python, 1, queue.work.logs))
    _until(lambda: _statuses(workers) == ["running"], "the worker does not start")
    _until(lambda: "2 hello, you" in _log(workers), "the worker lacks its variables")
    (state,) = workers.states()
    shown = slurm.command("scontrol", "show", "job", state.name.removeprefix("job "))
    for part in ("JobName=with-options", "Partition=patient", "NumCPUs=2", "MinMemoryNode=300M"):
        assert part in shown
    for part in ("TimeLimit=1-01:30:00", "Comment=a word", "Nice=3", "Requeue=1"):
        assert part in shown


def test_preempted_worker_releases_its_item_and_is_requeued(slurm, toys, started) -> None:
    queue = toys(1, 60)
    workers = started(SlurmLauncher(partition="low", cpus=4), queue.work)
    _until_begun(queue, workers)
    # A job of a partition with a higher tier needs the processors of the worker.
    slurm.command("sbatch", "-p", "high", "-c", "4", "-o", "/dev/null", "--wrap", "true")
    queue.hurry()
    _started_again(workers, slurm)
    _until(lambda: _statuses(workers) == ["ended"], "the worker does not end")
    assert list(queue.done()) == [0]
    log = _log(workers)
    assert log.index("begins 0") < log.index("releases 0") < log.rindex("begins 0")


def test_worker_that_gets_time_before_its_preemption_is_requeued_at_once(
    slurm, toys, started
) -> None:
    # Slurm says RUNNING during the minute of grace, and would count a worker that exits as failed.
    queue = toys(1, 60)
    workers = started(SlurmLauncher(partition="patient", cpus=4), queue.work)
    _until_begun(queue, workers)
    slurm.command("sbatch", "-p", "high", "-c", "4", "-o", "/dev/null", "--wrap", "true")
    queue.hurry()
    _started_again(workers, slurm)
    _until(lambda: _statuses(workers) == ["ended"], "the worker does not end")
    assert list(queue.done()) == [0]


def test_warnings_of_a_time_limit_requeue_a_worker_until_its_requeues_are_used_up(
    slurm, toys, started
) -> None:
    queue = toys(1, 60)
    workers = started(SlurmLauncher(time=5, requeues=1), queue.work)
    (state,) = workers.states()
    job = state.name.removeprefix("job ")
    for requeued in (True, False):
        _until_begun(queue, workers)
        # Slurm sends this before a time limit; the next test waits for it.
        slurm.command("scancel", "--signal=USR2", job)
        _until(lambda: not any(queue.folder.glob("held-*")), "the item is not released")
        if requeued:
            _started_again(workers, slurm)
    _until(lambda: _statuses(workers) == ["failed"], "the worker does not fail")
    (state,) = workers.states()
    assert state.reason == "reached its time limit after 1 requeues"
    assert queue.done() == {}


@pytest.mark.slow  # Slurm looks at time limits every 30 seconds
def test_time_limit(slurm, toys, started) -> None:
    queue = toys(1, 100)
    workers = started(SlurmLauncher(time=10), queue.work)
    _until_begun(queue, workers)
    (state,) = workers.states()
    job = state.name.removeprefix("job ")
    slurm.command("scontrol", "update", f"JobId={job}", "TimeLimit=1")
    _until(lambda: _statuses(workers) == ["waiting"], "the worker is not requeued", 100)
    assert not any(queue.folder.glob("held-*"))
    queue.hurry()
    slurm.start_soon(job)
    _until(lambda: _statuses(workers) == ["ended"], "the worker does not end")
    assert list(queue.done()) == [0]
    assert "TIME LIMIT" not in _log(workers)  # it was warned, and left before


def test_stop_ends_running_and_waiting_workers(slurm: SlurmCluster, toys, started) -> None:
    queue = toys(3, 60)
    workers = started(SlurmLauncher(workers=3, cpus=2), queue.work)  # 4 processors: one waits
    _until(lambda: len(list(queue.folder.glob("held-*"))) == 2, "two items are not held")
    workers.stop()
    assert not any(queue.folder.glob("held-*"))
    jobs = {state.name.removeprefix("job ") for state in workers.states()}
    assert {slurm.job_states()[job] for job in jobs} == {"CANCELLED"}
    assert {(state.status, state.reason) for state in workers.states()} == {
        ("failed", "Slurm reports CANCELLED")
    }
    assert all(path.suffix == ".out" for path in queue.work.logs.iterdir())
    workers.stop()


def test_workers_of_which_slurm_knows_nothing_are_told_by_their_results(
    slurm: SlurmCluster, toys, started
) -> None:
    queue = toys(1, 0)
    failing = (sys.executable, "-c", "raise SystemExit(3)")
    good = started(SlurmLauncher(), queue.work)
    bad = started(SlurmLauncher(), Work("bad", failing, 1, queue.work.logs))
    _until(lambda: set(slurm.job_states().values()) <= _OVER, "the jobs do not end")
    for workers in (good, bad):
        workers._queue._command = ("squeue", "--noheader", "--jobs", "999999")
        _until(lambda: workers._queue.known or not _statuses(workers), "no answer")  # noqa: B023
    assert _statuses(good) == ["ended"]
    assert [(state.status, state.reason) for state in bad.states()] == [("failed", "exited with 3")]


_OVER = {"CANCELLED", "COMPLETED", "FAILED", "PREEMPTED", "TIMEOUT"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"partition": "nowhere"}, "invalid partition specified: nowhere"),
        ({"memory": "9000G"}, "Memory specification can not be satisfied"),
        ({"gpus": 1}, "Invalid generic resource"),
        ({"sbatch": ("no-such-option=1",)}, "unrecognized option"),
    ],
)
def test_what_slurm_refuses_is_told_in_its_words(toys, started, capfd, options, words) -> None:
    queue = toys(2, 0)
    with pytest.raises(OptionError, match=f"Slurm refuses the workers: .*{words}"):
        started(SlurmLauncher(**options), queue.work)
    assert list(queue.work.logs.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_jobs_do_not_inherit_the_job_around_them(
    toys, started, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = toys(1, 0)
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "1")
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "1")  # srun refuses both together
    workers = started(SlurmLauncher(), queue.work)
    assert os.environ["SLURM_JOB_ID"] == "1"
    _until(lambda: _statuses(workers) == ["ended"], "the worker does not end")
