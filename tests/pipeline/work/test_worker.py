"""Workers: every item is done once, whatever happens to whom."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fsframework.errors import FsfError
from fsframework.interfaces.launcher import Launcher, Work, Workers, WorkerState
from fsframework.pipeline.work.driver import drive
from fsframework.pipeline.work.leases import Lease, Leases
from fsframework.pipeline.work.worker import MOST_DEATHS, work_off

ROOT = Path(__file__).parents[3]
SCRIPT = """
import os, signal, sys, time
from pathlib import Path
from tests.pipeline.work.test_worker import Files
from fsframework.pipeline.work.leases import Leases
from fsframework.pipeline.work.worker import work_off

class Killed(Files):
    def do(self, key, lease):
        if key == sys.argv[2]:
            os.kill(os.getpid(), signal.SIGKILL)
        super().do(key, lease)

folder = Path(sys.argv[1])
work_off(Killed(folder, "abcdef"), Leases(folder / "leases", str(os.getpid())))
"""


class Files:
    """Items whose results are files; each line of a result is a time that the item was done."""

    def __init__(self, folder: Path, keys: str) -> None:
        self.folder, self.keys = folder, keys

    def left(self) -> list[str]:
        return [key for key in self.keys if not (self.folder / key).exists()]

    def group(self, key: str) -> str:
        return key

    def do(self, key: str, lease: Lease) -> None:
        with (self.folder / key).open("a") as file:
            file.write(f"{lease.key}\n")

    def give_up(self, key: str, deaths: int) -> None:
        (self.folder / key).write_text(f"given up after {deaths}\n")


def run_script(folder: Path, dies_at: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", SCRIPT, str(folder), dies_at]
    return subprocess.run(command, cwd=ROOT, check=False)


def test_each_item_is_done_once_by_two_workers(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), "nothing"]
    workers = [subprocess.Popen(command, cwd=ROOT) for _ in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    assert {key: (tmp_path / key).read_text() for key in "abcdef"} == {
        k: f"{k}\n" for k in "abcdef"
    }


def test_what_a_killed_worker_held_is_done_by_the_next(tmp_path: Path) -> None:
    assert run_script(tmp_path, dies_at="c").returncode == -9
    assert not (tmp_path / "c").exists()
    assert run_script(tmp_path, dies_at="nothing").returncode == 0
    assert (tmp_path / "c").read_text() == "c\n"


def test_an_item_that_kills_its_workers_is_given_up(tmp_path: Path) -> None:
    for _ in range(MOST_DEATHS):
        assert run_script(tmp_path, dies_at="c").returncode == -9
    assert run_script(tmp_path, dies_at="c").returncode == 0
    assert (tmp_path / "c").read_text() == f"given up after {MOST_DEATHS}\n"
    assert (tmp_path / "d").read_text() == "d\n"


def test_what_is_held_elsewhere_comes_last(tmp_path: Path) -> None:
    class Grouped(Files):
        def __init__(self, folder: Path, keys: str) -> None:
            super().__init__(folder, keys)
            self.order: list[str] = []

        def group(self, key: str) -> str:
            return "first" if key in "abc" else key

        def do(self, key: str, lease: Lease) -> None:
            self.order.append(key)
            super().do(key, lease)

    held = Leases(tmp_path / "leases", "another").take("a")
    assert held is not None
    job = Grouped(tmp_path, "abcde")
    work_off(job, Leases(tmp_path / "leases", "mine"), wait=False)
    assert job.order == ["d", "e", "b", "c"], "b and c compute what a computes now"
    assert job.left() == ["a"]


def test_an_interrupted_item_is_given_back(tmp_path: Path) -> None:
    class Interrupted(Files):
        def do(self, key: str, lease: Lease) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work_off(Interrupted(tmp_path, "a"), Leases(tmp_path / "leases", "mine"))
    lease = Leases(tmp_path / "leases", "another").take("a")
    assert lease is not None
    assert lease.deaths == 0


class _Lazy(Launcher):
    """Starts a worker that does at most one item, in this process."""

    def __init__(self, job: Files | None = None) -> None:
        self.job, self.started, self.stopped = job, list[int](), 0

    def start(self, work: Work) -> Workers:
        self.started.append(work.n_items)
        if self.job is not None:
            leases = Leases(self.job.folder / "leases", "lazy")
            lease = leases.take(self.job.left()[0])
            assert lease is not None
            with lease:
                self.job.do(lease.key, lease)
        return _Ended(self)


class _Ended(Workers):
    def __init__(self, launcher: _Lazy) -> None:
        self.launcher = launcher

    def states(self) -> Sequence[WorkerState]:
        if self.launcher.job is None:
            return [WorkerState("one", "failed", reason="killed by SIGKILL")]
        return [WorkerState("one", "ended")]

    def stop(self) -> None:
        self.launcher.stopped += 1


def test_workers_that_end_too_early_are_started_again(tmp_path: Path) -> None:
    job = Files(tmp_path, "abc")
    launcher = _Lazy(job)
    work = Work("test", ("true",), 1, tmp_path)
    drive(job, Leases(tmp_path / "leases", "driver"), launcher, work, lambda states: None)
    assert launcher.started == [3, 2, 1]
    assert launcher.stopped == 3
    assert job.left() == []


def test_workers_that_do_nothing_end_the_job_with_the_reason(tmp_path: Path) -> None:
    job = Files(tmp_path, "abc")
    launcher = _Lazy()
    work = Work("test", ("true",), 1, tmp_path)
    with pytest.raises(FsfError, match="one: killed by SIGKILL"):
        drive(job, Leases(tmp_path / "leases", "driver"), launcher, work, lambda states: None)
    assert launcher.stopped == len(launcher.started) == MOST_DEATHS + 1
