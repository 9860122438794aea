"""Processes of this machine."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fsframework.interfaces.checks import check_at_least
from fsframework.interfaces.launcher import Launcher, WorkerDied
from fsframework.launchers.calls import GRACE, call, module_path, reason_of, write_output_to

__all__ = ["Local"]

_THREADS = (
    *(f"{library}_NUM_THREADS" for library in ("OMP", "MKL", "OPENBLAS", "NUMBA")),
    "VECLIB_MAXIMUM_THREADS",
)
"""Variables from which PyTorch, NumPy, SciPy and Numba take their number of threads."""
_SPAWN = get_context("spawn")


@dataclass(kw_only=True, eq=False)
class Local(Launcher):
    """Processes of this machine, which share its cores and GPUs.

    Each process gets its part of the cores and one GPU; where there are fewer GPUs than processes,
    processes share them in turn. ``CUDA_VISIBLE_DEVICES``, if it is set, says which GPUs there are.

    The processes end with the one that started them, whatever ends it. In place of a process that
    is killed, as by a lack of memory, a new one is started.

    Args:
        processes: number of processes; by default one for each GPU, or for each core if there is
            no GPU.
        threads: threads of each process; by default ``OMP_NUM_THREADS`` if it is set, or else the
            cores divided by the processes.

    Raises:
        OptionError: an option is outside its range.
    """

    processes: int | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        check_at_least(1, **given)

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], *, name: str, logs: Path
    ) -> Iterator[tuple[int, Any]]:
        """Call the function in processes, each of which takes one item after the other."""
        del name
        workers = [_Worker(variables, logs) for variables in self._variables(len(items))]
        waiting = deque(enumerate(items))
        ended: list[tuple[int, Any]] = []
        try:
            while True:
                for worker in workers:
                    if worker.index is None and waiting:
                        worker.begin(function, *waiting.popleft())
                yield from ended  # workers go on while the caller looks at these
                busy = {one.pipe: one for one in workers if one.index is not None}
                if not busy:
                    return
                ended = [busy[pipe].end() for pipe in wait(busy)]  # type: ignore[index]
        finally:
            _stop(workers)

    def _variables(self, most: int) -> list[dict[str, str]]:
        """Return the variables of each process over those of this one."""
        cores, gpus = _cores(), _gpus()
        number = min(self.processes or len(gpus) or cores, most)
        shared: dict[str, str] = {}
        if self.threads is not None or "OMP_NUM_THREADS" not in os.environ:
            shared = dict.fromkeys(_THREADS, str(self.threads or max(1, cores // max(1, number))))
        own = [{"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} if gpus else {} for i in range(number)]
        return [{**shared, **one} for one in own]


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


class _Worker:
    """A process and the item that it has; a new process takes the place of a dead one.

    Args:
        variables: of the environment, over those of this process.
        logs: folder of the files with its output.
    """

    def __init__(self, variables: Mapping[str, str], logs: Path) -> None:
        self._variables, self._logs = variables, logs
        self.index: int | None = None
        self.process: Any = None
        self.log = logs
        self.pipe: Connection

    def begin(self, function: Callable[[Any], Any], index: int, item: Any) -> None:
        """Have the process call the function; its result or its end can be read from the pipe."""
        if self.process is None:
            self._start()
        self.index = index
        with suppress(BrokenPipeError):  # it has just been killed, as the pipe will tell
            self.pipe.send((function, item))

    def _start(self) -> None:
        self.pipe, other = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_serve, args=(other, self._logs, self._variables))
        with _apart():
            self.process.start()
        other.close()
        self.log = _log_of(self._logs, self.process.pid)

    def end(self) -> tuple[int, Any]:
        """Return the item's position and its result."""
        assert self.index is not None
        index, self.index = self.index, None
        try:
            return index, self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            status = self.process.exitcode
            self.kill()
            return index, WorkerDied(reason_of(status), socket.gethostname(), self.log)

    def kill(self) -> None:
        """End the process and whatever it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()  # it may have no group of its own yet
        self.process.join()
        self.pipe.close()
        self.process = None
        with suppress(OSError):
            if not self.log.stat().st_size:
                self.log.unlink()


def _stop(workers: Sequence[_Worker]) -> None:
    """End all processes: idle ones at once, the others with time for SIGTERM."""
    running = [worker for worker in workers if worker.process is not None]
    for worker in running:
        worker.process.terminate()
    end = time.monotonic() + GRACE
    for worker in running:
        worker.process.join(max(0.0, end - time.monotonic()))
        worker.kill()


def _serve(pipe: Connection, logs: Path, variables: Mapping[str, str]) -> None:
    """Call functions for the owner until it no longer asks: the life of a process."""
    os.environ.update(variables)  # the libraries that read them are not imported yet
    os.setsid()  # a terminal's Ctrl-C is for the owner alone
    log = _log_of(logs, os.getpid())
    write_output_to(log)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_end_with_owner, daemon=True).start()
    try:
        while True:
            function, item = pipe.recv()
            pipe.send(call(function, item, log))
    except (EOFError, KeyboardInterrupt, SystemExit):
        os.killpg(0, signal.SIGKILL)


def _end_with_owner() -> None:
    """End this process, as SIGTERM does, when the one that started it has ended."""
    owner = parent_process()
    assert owner is not None
    owner.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os.killpg(0, signal.SIGKILL)


def _log_of(logs: Path, pid: int) -> Path:
    return logs / f"{socket.gethostname()}-{pid}.txt"


@contextmanager
def _apart() -> Iterator[None]:
    """Let new processes of a block run no user's script and no module of the current folder."""
    main, path, safe = sys.modules["__main__"], sys.path, os.environ.get("PYTHONSAFEPATH", "")
    sys.path = module_path()
    sys.modules["__main__"] = type(sys)("__main__")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        sys.modules["__main__"], sys.path = main, path
        os.environ["PYTHONSAFEPATH"] = safe  # empty is the same as none
