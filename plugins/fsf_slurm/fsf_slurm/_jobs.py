"""The jobs of an array: what each runs, and what Slurm says of them."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from submitit import JobEnvironment
from submitit.core.utils import DelayedSubmission, pickle_load

from fsframework.errors import FsfError
from fsframework.interfaces import WorkerDied
from fsframework.launchers.calls import call

__all__ = ["STOPPED", "Call", "JobArray", "controller_answers", "words_of"]

STOPPED = "stopped"
"""Name of the file that tells the jobs of a folder to end for good."""

_ALIVE = (
    *("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"),
    *("STOPPED", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "RUNNING", "SIGNALING"),
    "STAGE_OUT",
)
_PAUSE = 3.0
"""Seconds between two questions to the controller: one question is for the whole array."""
_PATIENCE = 600.0
"""Seconds that the controller may be away, as when it is restarted."""
_STOPPING = 120.0
"""Seconds to wait until cancelled jobs have ended. Slurm kills them after its KillWait, usually 30
seconds."""


class Call:
    """Calls the function for an item; submitit pickles it and calls it in the job.

    Before a time limit submitit asks for a ``checkpoint``, requeues the job and ends it; the job
    then calls the function again.

    Args:
        function: of a module.
        item: its argument.
        stopped: file that tells the job not to go on.
    """

    def __init__(self, function: Callable[[Any], Any], item: Any, stopped: Path) -> None:
        self.function, self.item, self.stopped = function, item, stopped

    def __call__(self) -> Any:
        """Return the function's result."""
        signal.signal(signal.SIGTERM, self._terminated)
        return call(self.function, self.item)

    def checkpoint(self) -> DelayedSubmission:
        """Return what the requeued job runs."""
        return DelayedSubmission(self)

    def _terminated(self, _signal: int, _frame: FrameType | None) -> NoReturn:
        """End the job, which is preempted unless it is stopped.

        Slurm itself requeues a job that it preempts at once, but counts one as failed that ends in
        the time that it was given before.
        """
        if not self.stopped.exists():
            _ask("scontrol", "requeue", JobEnvironment().job_id)
        raise SystemExit(128 + signal.SIGTERM)


class _Row(NamedTuple):
    """State of a job, its nodes, and the reason of the state, as Slurm names them."""

    state: str
    nodes: str
    reason: str


class JobArray:
    """The jobs of an array.

    Args:
        jobs: those of submitit.
        folder: of submitit's files, below that of the logs.
    """

    def __init__(self, jobs: Sequence[Any], folder: Path) -> None:
        self._jobs, self._folder = dict(enumerate(jobs)), folder
        self._array = jobs[0].job_id.partition("_")[0]
        self._away_since: float | None = None

    def results(self) -> Iterator[tuple[int, Any]]:
        """Yield the position of each job and its result, as they end; cancel those that are left.

        Raises:
            FsfError: Slurm no longer answers.
        """
        try:
            while self._jobs:
                rows = self._rows()  # asked first: a job leaves its result before it ends
                for place, job in tuple(self._jobs.items()):
                    if job.paths.result_pickle.exists():
                        del self._jobs[place]
                        yield place, self._result(job)
                    elif rows is not None and not _is_alive(rows.get(job.job_id)):
                        del self._jobs[place]
                        yield place, self._died(job, rows.get(job.job_id))
                if self._jobs:
                    time.sleep(_PAUSE)
        finally:
            if self._jobs:
                self._cancel()

    def _result(self, job: Any) -> Any:
        outcome, result = pickle_load(job.paths.result_pickle)
        if outcome == "success":
            return result
        return WorkerDied(str(result).strip().rpartition("\n")[2], log=self._log(job))

    def _died(self, job: Any, row: _Row | None) -> WorkerDied:
        if row is None:
            reason, place = "Slurm no longer knows its job, which has left no result", ""
        else:
            # The reason of another state may be left over from the time when the job was waiting.
            why = f" ({row.reason})" if row.state == "FAILED" and row.reason else ""
            reason, place = f"Slurm reports {row.state}{why}", row.nodes
        return WorkerDied(reason, place, self._log(job))

    def _log(self, job: Any) -> Path | None:
        log = self._folder.parent / f"slurm-{job.job_id}.0.out"
        return log if log.is_file() else None

    def _rows(self) -> Mapping[str, _Row] | None:
        """Return what Slurm says by id of the job, ``None`` while it does not answer.

        Slurm forgets a job some minutes after its end.

        Raises:
            FsfError: the controller has not answered for ten minutes.
        """
        rows = ("--noheader", "--array", "--states=all", "--format", "%i|%T|%N|%r")
        done = _ask("squeue", *rows, "--jobs", self._array)
        # squeue fails too if it knows none of the jobs any more.
        if done.returncode == 0 or controller_answers():
            self._away_since = None
            lines = done.stdout.splitlines() if done.returncode == 0 else []
            found = (line.split("|", 3) for line in lines)
            return {job: _Row(s, n, "" if r == "None" else r) for job, s, n, r in found}
        now = time.monotonic()
        self._away_since = now if self._away_since is None else self._away_since
        if now - self._away_since >= _PATIENCE:
            raise FsfError(
                f"Slurm has not answered for {_PATIENCE / 60:.0f} minutes: {words_of(done.stderr)}"
            )
        return None

    def _cancel(self) -> None:
        """Cancel the jobs, and wait until Slurm has ended them.

        Raises:
            FsfError: Slurm does not cancel them.
        """
        (self._folder / STOPPED).touch()
        done = _ask("scancel", "--quiet", self._array)
        if done.returncode:
            raise FsfError(f"Slurm did not cancel job {self._array}: {words_of(done.stderr)}")
        deadline = time.monotonic() + _STOPPING
        while (rows := self._rows()) is None or any(map(_is_alive, rows.values())):
            if time.monotonic() > deadline:
                raise FsfError(
                    f"job {self._array} was cancelled {_STOPPING:.0f} seconds ago and has not "
                    f"ended; see `squeue --jobs {self._array}`"
                )
            time.sleep(0.5)


def _is_alive(row: _Row | None) -> bool:
    return row is not None and row.state in _ALIVE


def _ask(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm, in a session of its own, so that Ctrl-C does not reach it."""
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        start_new_session=True,
    )


def controller_answers() -> bool:
    """Return whether the controller of the cluster can be reached."""
    return _ask("scontrol", "ping").returncode == 0


def words_of(text: str) -> str:
    r"""Return what a command of Slurm wrote as one line.

    >>> words_of("sbatch: error: invalid partition\nsbatch: error: Batch job failed\n")
    'invalid partition; Batch job failed'
    """
    lines = [re.sub(r"^(\w+: )?(error: )?", "", line) for line in text.splitlines()]
    return "; ".join(line.strip() for line in lines if line.strip()) or "no reason given"
