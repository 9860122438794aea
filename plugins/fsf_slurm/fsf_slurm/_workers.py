"""The workers of an array of jobs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fsf_slurm._job import read_outcome
from fsf_slurm._queue import Asked, Queue, Row, words_of
from fsframework.errors import FsfError
from fsframework.interfaces import Workers, WorkerState

__all__ = ["SlurmWorker", "SlurmWorkers"]

_WAITING = frozenset(
    {
        "PENDING",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESV_DEL_HOLD",
        "SPECIAL_EXIT",
        "STOPPED",
        "SUSPENDED",
    }
)
_RUNNING = frozenset({"COMPLETING", "CONFIGURING", "RESIZING", "RUNNING", "SIGNALING", "STAGE_OUT"})

_STOPPING = 120.0
"""Seconds to wait until cancelled jobs have ended. Slurm kills them after its KillWait, usually 30
seconds."""


@dataclass(frozen=True)
class SlurmWorker:
    """A job of the array.

    Args:
        job: its id, such as ``17_2``.
        log: file of its output.
        outcome: file that says how its command ended.
    """

    job: str
    log: Path
    outcome: Path


class SlurmWorkers(Workers):
    """Workers that run as jobs of one array.

    Args:
        array: id of the array.
        workers: its jobs.
        folder: what submitit needs; removed when all have ended.
    """

    def __init__(self, array: str, workers: Sequence[SlurmWorker], folder: Path) -> None:
        self._array, self._workers, self._folder = array, tuple(workers), folder
        self._queue = Queue(array)
        self._ended: dict[str, WorkerState] = {}
        self._stopped = False

    def states(self) -> Sequence[WorkerState]:
        """Return the state of every worker, as Slurm told it some seconds ago."""
        if len(self._ended) < len(self._workers):
            self._queue.look()
        states = [self._ended.get(worker.job) or self._state(worker) for worker in self._workers]
        if len(self._ended) == len(self._workers):
            shutil.rmtree(self._folder, ignore_errors=True)
        return states

    def stop(self) -> None:
        """Cancel the jobs, and wait until Slurm has ended them.

        Raises:
            FsfError: Slurm does not cancel them.
        """
        if self._stopped or len(self._ended) == len(self._workers):
            return
        fine, _, words = Asked("scancel", "--quiet", self._array).answer()
        if not fine:
            raise FsfError(f"Slurm did not cancel job {self._array}: {words_of(words)}")
        deadline = time.monotonic() + _STOPPING
        while self._any_left():
            if time.monotonic() > deadline:
                raise FsfError(
                    f"job {self._array} was cancelled {_STOPPING:.0f} seconds ago and has not "
                    f"ended; see `squeue --jobs {self._array}`"
                )
            time.sleep(0.5)
        self._stopped = True
        shutil.rmtree(self._folder, ignore_errors=True)

    def _any_left(self) -> bool:
        self._queue.look(wait=True)
        if not self._queue.known:
            return True
        return any(row.state in _WAITING | _RUNNING for row in self._queue.rows.values())

    def _state(self, worker: SlurmWorker) -> WorkerState:
        row = self._queue.rows.get(worker.job)
        if row is None and not self._queue.known:
            return _told(worker, "waiting")
        if row is not None and row.state in _WAITING:
            return _told(worker, "waiting")
        if row is not None and row.state in _RUNNING:
            return _told(worker, "running", row.nodes)
        reason = _failure(row, read_outcome(worker.outcome))
        state = _told(worker, "failed" if reason else "ended", row.nodes if row else "", reason)
        self._ended[worker.job] = state
        return state


def _told(
    worker: SlurmWorker,
    status: Literal["waiting", "running", "ended", "failed"],
    place: str = "",
    reason: str = "",
) -> WorkerState:
    log = worker.log if worker.log.is_file() else None
    return WorkerState(f"job {worker.job}", status, place=place, reason=reason, log=log)


def _failure(row: Row | None, outcome: str | None) -> str:
    """Return why a worker that is over has failed, ``""`` if it has not.

    Args:
        row: what Slurm says of its job; ``None`` if it knows the job no longer.
        outcome: what the job itself has left; ``None`` for nothing.
    """
    if row is None and outcome is None:
        return "Slurm no longer knows its job, which has left no result"
    if row is None or (row.state == "FAILED" and outcome):
        return outcome or ""
    if row.state == "COMPLETED":
        return ""
    # The reason of another state may be left over from the time when the job was waiting.
    reason = f" ({row.reason})" if row.state == "FAILED" and row.reason else ""
    return f"Slurm reports {row.state}{reason}"
