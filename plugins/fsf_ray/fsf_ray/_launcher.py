"""The launcher. Ray itself is imported by the driver, a process of its own."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fsf_ray._files import Job, read
from fsframework.errors import FsfError, PluginError
from fsframework.interfaces import Launcher, OptionError, Work, Workers, WorkerState
from fsframework.launchers.tethered import GRACE, Tethered, new_log, reason_of

__all__ = ["RayLauncher"]

_SECONDS_TO_ANSWER = 5.0
_SECONDS_TO_START = 90.0
"""How long Ray may take to start a cluster or to connect to one."""

_QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}


class RayLauncher(Launcher):
    """Workers on the nodes of a Ray cluster.

    All nodes need the same Python environment at the same path, and the disk on which the current
    directory and the results are. A worker whose node is lost, or that is killed, as by a lack of
    memory, is started again. A cluster that was started for the job ends with it.

    Args:
        address: ``HOST:PORT`` of a cluster, or ``auto`` for the one to which this machine belongs;
            by default a new cluster of this machine only is started.
        cpus: processors of each worker, also a fraction. Each worker uses as many threads.
        gpus: GPUs of each worker, also a fraction below 1; by default 1 if the cluster has any.
        workers: number of workers; by default as many as fit into the cluster at the start.
        retries: times that a worker is started again.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self,
        *,
        address: str | None = None,
        cpus: float = 1.0,
        gpus: float | None = None,
        workers: int | None = None,
        retries: int = 3,
    ) -> None:
        if address not in (None, "auto"):
            _host_and_port(address or "")
        if not cpus > 0:
            raise OptionError(f"cpus must be above 0, not {cpus:g}")
        if gpus is not None and (gpus < 0 or (gpus > 1 and gpus % 1)):
            raise OptionError(f"gpus must be a fraction below 1 or a whole number, not {gpus:g}")
        if workers is not None and workers < 1:
            raise OptionError(f"workers must be at least 1, not {workers}")
        if retries < 0:
            raise OptionError(f"retries must be at least 0, not {retries}")
        self.address = address
        self.cpus = cpus
        self.gpus = gpus
        self.workers = workers
        self.retries = retries

    def start(self, work: Work) -> Workers:
        """Connect to the cluster or start one, and hand the workers to it."""
        if importlib.util.find_spec("ray") is None:
            raise PluginError("launcher 'ray' needs Ray, which is not installed: pip install ray")
        if self.address not in (None, "auto"):
            _require_answer(self.address or "")
        job = Job(
            name=work.name,
            command=list(work.command),
            n_items=work.n_items,
            logs=str(work.logs.absolute()),
            environment=dict(work.environment),
            directory=str(Path.cwd()),
            address=self.address,
            cpus=self.cpus,
            gpus=self.gpus,
            workers=self.workers,
            retries=self.retries,
            grace=GRACE,
        )
        workers = _RayWorkers(job)
        try:
            workers.wait_for_start()
        except BaseException:
            workers.stop()
            raise
        return workers


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or int(port) > 65535:
        raise OptionError(f"address must be HOST:PORT or auto, not {address!r}")
    return host.strip("[]"), int(port)


def _require_answer(address: str) -> None:
    """Find out quickly whether anything answers; Ray itself would try for minutes."""
    try:
        socket.create_connection(_host_and_port(address), timeout=_SECONDS_TO_ANSWER).close()
    except OSError as error:
        raise FsfError(f"no Ray cluster answers at {address}: {error}") from error


class _RayWorkers(Workers):
    """The driver of a job and the states that it writes."""

    def __init__(self, job: Job) -> None:
        self._address = job.address
        self._folder = tempfile.TemporaryDirectory(prefix="fsf-ray-")
        path = Path(self._folder.name)
        self._file = path / "states.json"
        self._log = new_log(Path(job.logs), "ray-driver")
        self._states: list[WorkerState] = []
        self._stopped = False
        job.save(path / "job.json")
        # -P: a file ray.py in the current directory is not Ray.
        command = ("-P", "-m", "fsf_ray._driver", str(path / "job.json"), str(self._file))
        self._driver = Tethered(
            (sys.executable, *command),
            log=self._log,
            environment={**os.environ, **_QUIET},
            grace=3 * job.grace,  # the workers have one of them, the end of a cluster takes time
        )

    def wait_for_start(self) -> None:
        """Wait until Ray has the workers.

        Raises:
            OptionError: an option does not fit the cluster.
            FsfError: the cluster cannot be reached or started.
        """
        end = time.monotonic() + _SECONDS_TO_START
        while not (found := read(self._file)):
            if (status := self._driver.poll()) is not None:
                raise FsfError(f"Ray cannot be started ({reason_of(status)}){self._see_log()}")
            if time.monotonic() > end:
                where = self._address or "a new cluster"
                raise FsfError(
                    f"Ray has not answered within {_SECONDS_TO_START:g} seconds ({where})"
                )
            time.sleep(0.05)
        if "refused" in found:
            raise (OptionError if found["option"] else FsfError)(found["refused"])

    def _see_log(self) -> str:
        return f"; its output is in {self._log}"

    def states(self) -> list[WorkerState]:
        """Return the states that the driver has written last."""
        if self._stopped:
            return self._states
        # Looked at before the states, which the driver writes before it ends.
        status = self._driver.poll()
        self._states = [_state(one) for one in read(self._file)["workers"]]
        if status is not None and any(one.status in ("waiting", "running") for one in self._states):
            raise FsfError(f"the driver of Ray has ended ({reason_of(status)}){self._see_log()}")
        return self._states

    def stop(self) -> None:
        """Have the driver stop all workers, and wait for its end."""
        if self._stopped:
            return
        self._driver.ask_to_stop()
        self._driver.wait()
        told = read(self._file).get("workers", [])
        self._states = [_ended(_state(one)) for one in told]
        self._stopped = True
        self._folder.cleanup()
        if not self._log.stat().st_size:
            self._log.unlink()


def _state(told: dict[str, Any]) -> WorkerState:
    return WorkerState(**{**told, "log": Path(told["log"])})


def _ended(state: WorkerState) -> WorkerState:
    """Return the state of a worker whose driver has ended, and with it the worker."""
    if state.status in ("ended", "failed"):
        return state
    return WorkerState(state.name, "failed", state.place, "stopped", state.log)
