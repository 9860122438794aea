"""The launcher; Ray itself is imported when it is used."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fsf_ray._task import run
from fsframework.errors import FsfError, PluginError, install_hint
from fsframework.interfaces import (
    Launcher,
    OptionError,
    WorkerDied,
    check_above,
    check_at_least,
)
from fsframework.launchers.calls import GRACE, module_path

__all__ = ["RayLauncher"]

_SECONDS_TO_ANSWER = 5.0
_SECONDS_BETWEEN_LOOKS = 0.5
_STORE_BYTES = 100 * 1024**2
"""Size of the object store of a new cluster; only small results go through it."""


@dataclass(kw_only=True, eq=False)
class RayLauncher(Launcher):
    """Workers on the nodes of a Ray cluster.

    All nodes need the same Python environment at the same path, and the disk on which the current
    directory and the results are. What a node that is lost was doing, or a process that is killed,
    as by a lack of memory, is done again, elsewhere. A cluster that was started for the job ends
    with it.

    Args:
        address: ``HOST:PORT`` of a cluster, or ``auto`` for the one to which this machine belongs;
            by default a new cluster of this machine only is started.
        cpus: processors of each worker, also a fraction. Each worker uses as many threads.
        gpus: GPUs of each worker, also a fraction below 1; by default 1 if the cluster has any.
        workers: number of workers; by default as many as fit into the cluster at the start.
        retries: times that Ray itself begins an item again.

    Raises:
        OptionError: an option is outside its range.
    """

    external: ClassVar[Mapping[str, str]] = {
        "address": "code, file names and variables of the environment go to that cluster"
    }

    address: str | None = None
    cpus: float = 1.0
    gpus: float | None = None
    workers: int | None = None
    retries: int = 3

    def __post_init__(self) -> None:
        if self.address not in (None, "auto"):
            _host_and_port(self.address)
        check_above(0, cpus=self.cpus)
        check_at_least(1, workers=1 if self.workers is None else self.workers)
        check_at_least(0, gpus=self.gpus or 0, retries=self.retries)
        if self.gpus is not None and self.gpus > 1 and self.gpus % 1:
            raise OptionError(f"gpus must be below 1 or a whole number, not {self.gpus:g}")

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], *, name: str, logs: Path
    ) -> Iterator[tuple[int, Any]]:
        """Connect to the cluster or start one, and make a task of each item."""
        if importlib.util.find_spec("ray") is None:
            raise PluginError(
                f"launcher 'ray' needs Ray, which is not installed: {install_hint('ray')}"
            )
        if self.address not in (None, "auto"):
            _require_answer(self.address)
        import ray
        from ray import cloudpickle

        with _connected(self.address):
            gpus, number = self._sizes()
            task = ray.remote(
                num_cpus=self.cpus,
                num_gpus=gpus,
                max_retries=self.retries,
                scheduling_strategy="SPREAD",
            )(_task(module_path()))
            variables = {k: v for k, v in os.environ.items() if k.startswith("FSF_")}
            variables["PYTHONSAFEPATH"] = "1"
            if not gpus:
                variables["CUDA_VISIBLE_DEVICES"] = ""
            waiting, running = deque(enumerate(items)), dict[Any, int]()
            ended: list[tuple[int, Any]] = []
            try:
                while waiting or running:
                    while waiting and len(running) < number:
                        index, item = waiting.popleft()
                        named = task.options(name=f"{name} {index}")
                        job = cloudpickle.dumps((run, function, item, logs, Path.cwd(), variables))
                        running[named.remote(job)] = index
                    yield from ended  # workers go on while the caller looks at these
                    done, _ = ray.wait([*running], timeout=_SECONDS_BETWEEN_LOOKS)
                    ended = [(running.pop(ref), _result(ref)) for ref in done]
                yield from ended
            finally:
                _stop([*running])

    def _sizes(self) -> tuple[float, int]:
        """Return the GPUs of each worker and the number of workers.

        Raises:
            OptionError: no node has room for a worker.
        """
        import ray

        resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        has_gpus = any(node.get("GPU", 0) >= 1 for node in resources)
        gpus = self.gpus if self.gpus is not None else float(has_gpus)
        wanted = {"CPU": self.cpus, "GPU": gpus}
        room = sum(
            min(int(node.get(kind, 0) / number + 1e-9) for kind, number in wanted.items() if number)
            for node in resources
        )
        if not room and self.workers is None:
            what = f"{self.cpus:g} CPUs" + (f" and {gpus:g} GPUs" if gpus else "")
            raise OptionError(
                f"no node of the Ray cluster has {what} for a worker; give the number of workers "
                "to wait for nodes that come later"
            )
        return gpus, self.workers or room


def _task(path: list[str]) -> Callable[[bytes], Any]:
    """Return what Ray calls in a worker; it travels as code, and sets the path before it imports.

    Args:
        path: the folders in which the worker looks for modules.
    """

    def start(job: bytes) -> Any:
        import pickle
        import sys

        sys.path[:] = path
        function, *arguments = pickle.loads(job)
        return function(*arguments)

    return start


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


@contextmanager
def _connected(address: str | None) -> Iterator[None]:
    """Connect to a cluster for a block, or start one on this machine, which then ends with it.

    Raises:
        FsfError: it is not possible.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray.job_config import JobConfig

    class Apart(JobConfig):
        """A job whose workers do not look for modules in the caller's folder and script first."""

        def _serialize(self) -> Any:
            self._py_driver_sys_path.clear()  # where Ray has put both
            return super()._serialize()

    own: dict[str, Any] = {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address=address or "local",
            logging_level="ERROR",
            log_to_driver=False,
            job_config=Apart(),
            **({} if address else own),
        )
    except Exception as error:  # Ray raises RuntimeError, ConnectionError, ValueError and its own
        where = f"Ray at {address}" if address else "a new Ray cluster on this machine"
        raise FsfError(f"{where} cannot be used: {_one_line(error)}") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # Ray has set its own
    try:
        yield
    finally:
        ray.shutdown()


def _result(ref: Any) -> Any:
    """Return the result of a task that has ended, or why it has none."""
    import ray
    from ray.exceptions import RayError

    try:
        return ray.get(ref)
    except RayError as error:
        return WorkerDied(f"Ray lost it: {_one_line(error)}")


def _stop(running: list[Any]) -> None:
    """Cancel tasks; those that take too long lose their process."""
    import ray

    for force in (False, True):
        for ref in running:
            ray.cancel(ref, force=force)
        end = time.monotonic() + GRACE
        while running and time.monotonic() < end:
            _, running = ray.wait(running, num_returns=len(running), timeout=0.2)


def _one_line(error: BaseException) -> str:
    """Return the beginning of a message without its line breaks."""
    text = " ".join(str(error).split())
    return f"{text[:300]}..." if len(text) > 300 else text or type(error).__name__
