"""Workers in processes of this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fsframework.errors import OptionError
from fsframework.interfaces.launcher import Launcher, Work, Workers, WorkerState
from fsframework.launchers.tethered import GRACE, Tethered, new_log, reason_of, thread_variables

__all__ = ["Local"]

_NEW_STARTS = 3
"""Processes that are started for each of the first ones, one after the other, if it is killed."""


class Local(Launcher):
    """Processes of this machine, which share its cores and GPUs.

    Each process gets its part of the cores and one GPU; where there are fewer GPUs than processes,
    processes share them in turn. ``CUDA_VISIBLE_DEVICES``, if it is set, says which GPUs there are.

    The processes end with the one that started them, whatever ends it. In place of a process that
    is killed, as by a lack of memory, a new one is started, up to three times for each.

    Args:
        processes: number of processes; by default one for each GPU, or for each core if there is
            no GPU.
        threads: threads of each process; by default the cores divided by the processes.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(self, *, processes: int | None = None, threads: int | None = None) -> None:
        for name, value in (("processes", processes), ("threads", threads)):
            if value is not None and value < 1:
                raise OptionError(f"{name} must be at least 1, not {value}")
        self.processes = processes
        self.threads = threads

    def start(self, work: Work) -> Workers:
        """Start the processes, at most ``work.n_items``."""
        cores, gpus = _cores(), _gpus()
        number = min(self.processes or len(gpus) or cores, work.n_items)
        threads = self.threads or max(1, cores // number)
        shared = {**os.environ, **thread_variables(threads)}
        own = [{"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} if gpus else {} for i in range(number)]
        return _Processes(work, [{**shared, **one, **work.environment} for one in own])


def _cores() -> int:
    """Return the number of cores that this process may use."""
    usable = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(usable(0)) if usable is not None else os.cpu_count() or 1


def _gpus() -> list[str]:
    """Return the GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    import torch

    number = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    named = map(str, range(number)) if visible is None else visible.split(",")
    return [name.strip() for name in named][:number]


@dataclass
class _Place:
    """The processes that have run one after the other with the same variables.

    Args:
        environment: the variables.
        runs: names, logs and processes; only the last one may still run.
    """

    environment: dict[str, str]
    runs: list[tuple[str, Path, Tethered]] = field(default_factory=list)


class _Processes(Workers):
    """Processes with logs of their own."""

    def __init__(self, work: Work, environments: Sequence[dict[str, str]]) -> None:
        self._work = work
        self._machine = socket.gethostname()
        self._stopped = False
        self._started = 0
        self._places = [_Place(environment) for environment in environments]
        try:
            for place in self._places:
                self._start(place)
        except BaseException:
            self.stop()
            raise

    def _start(self, place: _Place) -> None:
        self._started += 1
        log = new_log(self._work.logs, self._machine)
        process = Tethered(self._work.command, log=log, environment=place.environment, grace=GRACE)
        place.runs.append((f"process {self._started}", log, process))

    def states(self) -> list[WorkerState]:
        """Return the states; a process that was killed is replaced."""
        for place in self._places:
            status = place.runs[-1][2].poll()
            killed = status is not None and status < 0
            if killed and not self._stopped and len(place.runs) <= _NEW_STARTS:
                self._start(place)
        runs = [run for place in self._places for run in place.runs]
        return [self._state(*run) for run in runs]

    def _state(self, name: str, log: Path, process: Tethered) -> WorkerState:
        status = process.poll()
        if status is None:
            return WorkerState(name, "running", self._machine, log=log)
        if status == 0:
            return WorkerState(name, "ended", self._machine, log=log)
        return WorkerState(name, "failed", self._machine, reason_of(status), log)

    def stop(self) -> None:
        """Stop all processes at the same time and wait for their ends."""
        self._stopped = True
        running = [process for place in self._places for _, _, process in place.runs]
        for process in running:
            process.ask_to_stop()
        for process in running:
            process.wait()
