"""The driver of a job: it has a launcher start workers, and watches them until all is done."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fsframework._calls import interrupt
from fsframework.errors import FsfError
from fsframework.interfaces.launcher import Launcher, Work, Workers, WorkerState
from fsframework.pipeline.work.leases import Leases
from fsframework.pipeline.work.worker import MOST_DEATHS, Job

__all__ = ["drive"]

_SECONDS_BETWEEN_LOOKS = 0.5
_SECONDS_TO_END = 5.0
_MOST_VAIN_STARTS = MOST_DEATHS + 1
"""Times that workers are started in a row without a single result, before the job is given up; an
item that ends its workers is given up before that."""


@dataclass
class _Starts:
    """The workers that run, and how often they were started in vain."""

    workers: Workers | None = None
    states: Sequence[WorkerState] = ()
    n_left: int = 0
    in_vain: int = field(default=0)

    @property
    def alive(self) -> bool:
        return any(state.status in ("waiting", "running") for state in self.states)


def drive(
    job: Job,
    leases: Leases,
    launcher: Launcher,
    work: Work,
    watch: Callable[[Sequence[WorkerState]], None],
) -> None:
    """Have workers do a job, and return when every item has a result.

    Workers that ended while items were left are started again. On an interruption, and on every
    other error, all are stopped.

    Args:
        job: the items.
        leases: to see what is held; the driver holds nothing.
        launcher: starts workers.
        work: what they run; the number of items is set here.
        watch: called about twice per second with the states of the workers.

    Raises:
        FsfError: workers ended again and again without a result.
    """
    starts = _Starts()
    former = _interrupted_by_sigterm()
    try:
        while left := job.left():
            if not starts.alive:
                _start(starts, leases, launcher, work, left)
            if starts.workers is not None:
                starts.states = starts.workers.states()
            watch(starts.states)
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        watch(())
        _let_end(starts)
    finally:
        if starts.workers is not None:
            starts.workers.stop()
        if former is not None:
            signal.signal(signal.SIGTERM, former)


def _interrupted_by_sigterm() -> signal.Handlers | None:
    """Let SIGTERM interrupt this process as Ctrl-C does, so that no worker outlives it.

    Returns:
        What was done before, ``None`` if nothing was changed: a handler of the user's stays, and
        only the main thread can set one.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return None
    signal.signal(signal.SIGTERM, interrupt)
    return signal.SIG_DFL


def _let_end(starts: _Starts) -> None:
    """Wait a little for workers that have nothing left to do, so that none counts as stopped."""
    waited_until = time.monotonic() + _SECONDS_TO_END
    while starts.workers is not None and starts.alive and time.monotonic() < waited_until:
        starts.states = starts.workers.states()
        time.sleep(_SECONDS_BETWEEN_LOOKS / 5)


def _start(
    starts: _Starts, leases: Leases, launcher: Launcher, work: Work, left: Sequence[str]
) -> None:
    """Start workers for the items that nobody holds, if there are any."""
    free = len(left) - len(leases.holders(left))
    if not free:
        return  # another job does them; should it die, they become free
    if starts.workers is not None:
        starts.in_vain = starts.in_vain + 1 if len(left) == starts.n_left else 0
        if starts.in_vain >= _MOST_VAIN_STARTS:
            raise FsfError(_why(starts.states))
        starts.workers.stop()
    starts.n_left = len(left)
    starts.workers = launcher.start(replace(work, n_items=free))


def _why(states: Sequence[WorkerState]) -> str:
    """Return why workers did nothing, as far as it is known."""
    failed = [state for state in states if state.status == "failed"]
    if not failed:
        return "the workers ended without doing anything"
    first = failed[0]
    log = f"; its output is in {first.log}" if first.log else ""
    return f"no worker could do anything; {first.name}: {first.reason or 'it failed'}{log}"
