"""What a job of Slurm runs: the command of a worker, through time limits and preemption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from submitit.core.utils import DelayedSubmission, UncompletedJobError

__all__ = ["WorkerJob", "read_outcome", "warning_seconds"]

_BLOCKED = (signal.SIGUSR1, signal.SIGUSR2)
"""How Slurm warns of a time limit, sent to every process of a job; SUBMITIT_PREEMPT_SIGNAL says
which of them."""


def warning_seconds(minutes: int) -> int:
    """Return how long before a time limit Slurm warns: a fifth of the limit, at most a minute.

    Args:
        minutes: the time limit.

    >>> warning_seconds(1), warning_seconds(240)
    (12, 60)
    """
    return min(60, 12 * minutes)


class WorkerJob:
    """Runs the command of one worker; submitit pickles it and calls it in the job.

    Before a time limit, and at a preemption with a warning, submitit calls ``checkpoint``, requeues
    the job and ends it; the job then runs the same command again.

    Args:
        command: of the worker.
        environment: variables over those of the job.
        outcome: file that says how the command ended for good; ``read_outcome`` reads it.
        minutes: the time limit.
        requeues: how often the job may be requeued at its time limit.
    """

    def __init__(
        self,
        command: tuple[str, ...],
        environment: Mapping[str, str],
        outcome: Path,
        *,
        minutes: int,
        requeues: int,
    ) -> None:
        self.command, self.environment, self.outcome = command, dict(environment), outcome
        self.minutes, self.requeues = minutes, requeues
        self._process: subprocess.Popen[bytes] | None = None
        self._terminated = False

    def __call__(self) -> None:
        """Run the command; the job exits with its code."""
        signal.signal(signal.SIGTERM, self._note_termination)
        try:
            code = self._run()
        except UncompletedJobError:
            self._finish(f"reached its time limit after {self.requeues} requeues", 1)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            self._finish("Slurm did not requeue it at its time limit", 1)
        if code == 0:
            self._finish("", 0)
        elif not (self._terminated and _left_to_slurm()):
            self._finish(_ending(code), code if code > 0 else 128 - code)
        raise SystemExit(128 + signal.SIGTERM)

    def checkpoint(self) -> DelayedSubmission:
        """Stop the command, which keeps what it has done; return what the requeued job runs."""
        if self._process is not None:
            _stop(self._process, 0.75 * warning_seconds(self.minutes))
        again = WorkerJob(
            self.command,
            self.environment,
            self.outcome,
            minutes=self.minutes,
            requeues=self.requeues,
        )
        return DelayedSubmission(again)

    def _run(self) -> int:
        # The command must not die of the warning: it has the signal blocked, and SIGTERM stops it.
        with _blocked():
            try:
                self._process = subprocess.Popen(
                    self.command, env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL
                )
            except OSError as error:
                self._finish(f"its command does not start: {error}", 1)
        return self._process.wait()

    def _note_termination(self, _signal: int, _frame: FrameType | None) -> None:
        """Wait on: Slurm sends SIGTERM to the command too."""
        self._terminated = True

    def _finish(self, reason: str, code: int) -> NoReturn:
        new = self.outcome.with_suffix(".new")
        new.write_text(json.dumps({"reason": reason}), encoding="utf-8")
        new.replace(self.outcome)
        raise SystemExit(code)


def read_outcome(path: Path) -> str | None:
    """Return why a worker failed, ``""`` if it ended well, ``None`` if its file is not there."""
    try:
        reason: str = json.loads(path.read_text(encoding="utf-8"))["reason"]
    except FileNotFoundError:
        return None
    return reason


@contextmanager
def _blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Terminate a process; kill it if it still runs after that time.

    This runs in a signal handler, perhaps within ``process.wait()``, which holds the lock that
    another ``wait`` would need.
    """
    process.terminate()
    deadline = time.monotonic() + seconds
    while _runs(process.pid):
        if time.monotonic() > deadline:
            process.kill()
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:  # waited for already
        return False


def _left_to_slurm() -> bool:
    """Return whether Slurm goes on with this job, or cancels it, after the command was terminated.

    A job that Slurm cancels, or requeues at once, is no longer in the state RUNNING. One that gets
    some time before its preemption still is, and must ask to be requeued.
    """
    job = os.environ["SLURM_JOB_ID"]
    asked = subprocess.run(
        ["squeue", "--noheader", "--jobs", job, "--format", "%T"],
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.stdout.strip() != "RUNNING":
        return True
    return subprocess.run(["scontrol", "requeue", job], check=False).returncode == 0


def _ending(code: int) -> str:
    return f"exited with {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
