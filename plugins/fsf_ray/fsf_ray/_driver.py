"""The driver of a job on Ray: ``python -m fsf_ray._driver JOB STATES``.

A process of its own, which alone imports Ray: what Ray prints does not reach the user's terminal,
its threads and handlers of signals do not reach the user's process, and whatever ends that process
ends the job. JOB is a file with a ``Job``. The states of the workers are written to STATES, or why
the job cannot be started. SIGTERM stops all workers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import (
    GetTimeoutError,
    RayError,
    RayTaskError,
    TaskCancelledError,
    WorkerCrashedError,
)

from fsf_ray._files import Job, read, write
from fsf_ray._task import CannotStart, Killed, run
from fsframework.launchers.tethered import new_log, reason_of, thread_variables

_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_BEFORE_FORCE = 5.0
"""How long a task may take to end after its command has been killed."""

_STORE_BYTES = 100 * 1024**2
"""Size of the object store of a new cluster; only exit statuses go through it."""


class Refused(Exception):
    """The job cannot be started.

    Args:
        message: one sentence.
        option: whether an option does not fit the cluster.
    """

    def __init__(self, message: str, *, option: bool = False) -> None:
        super().__init__(message)
        self.option = option


@dataclass
class Worker:
    """A worker and what is known of it.

    Args:
        name: in messages.
        log: file of its output.
        ref: the result of its task.
        status: as in ``WorkerState``; ``place`` and ``reason`` likewise.
    """

    name: str
    log: Path
    ref: Any
    status: str = "waiting"
    place: str = ""
    reason: str = ""

    @property
    def mark(self) -> Path:
        """The file that its task writes when it starts."""
        return mark_of(self.log)

    @property
    def over(self) -> bool:
        """Whether its task has ended."""
        return self.status in ("ended", "failed")

    def look(self, nodes: dict[str, str]) -> None:
        """Find out what it is doing.

        Args:
            nodes: those that are alive, as ``living_nodes`` returns them.
        """
        if self.over:
            return
        done, _ = ray.wait([self.ref], timeout=0)
        if done:
            self._end()
            return
        found = read(self.mark)
        runs = found.get("node") in nodes  # or else it waits to be started on another node
        self.status = "running" if runs else "waiting"
        self.place = place(found["machine"], nodes[found["node"]]) if runs else ""

    def _end(self) -> None:
        self.reason = why_failed(self.ref)
        self.status = "failed" if self.reason else "ended"
        self.mark.unlink(missing_ok=True)

    def to_json(self) -> dict[str, Any]:
        """Return the arguments of its ``WorkerState``."""
        return {
            "name": self.name,
            "status": self.status,
            "place": self.place,
            "reason": self.reason,
            "log": str(self.log),
        }


def mark_of(log: Path) -> Path:
    """Return the file that a task writes when it starts."""
    return log.with_suffix(".json")


def place(machine: str, address: str) -> str:
    """Return how a node is shown; several may be on one machine."""
    return f"{machine} ({address})"


def why_failed(ref: Any) -> str:
    """Return why a task that has ended failed; empty if its command exited with 0."""
    try:
        status = ray.get(ref, timeout=0)
    except TaskCancelledError:
        return "stopped"
    except RayTaskError as error:
        cause = error.cause
        return str(cause) if isinstance(cause, (Killed, CannotStart)) else one_line(cause or error)
    except (WorkerCrashedError, GetTimeoutError, RayError) as error:
        return f"Ray lost it: {one_line(error)}"
    return reason_of(status) if status else ""


def one_line(error: BaseException) -> str:
    """Return the beginning of a message without its line breaks."""
    text = " ".join(str(error).split())
    return f"{text[:300]}..." if len(text) > 300 else text or type(error).__name__


def connect(address: str | None) -> None:
    """Connect to a cluster, or start one on this machine.

    Raises:
        Refused: it is not possible.
    """
    own: dict[str, Any] = {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
    try:
        ray.init(
            address=address or "local",
            logging_level="ERROR",
            log_to_driver=False,
            **({} if address else own),
        )
    except Exception as error:  # Ray raises RuntimeError, ConnectionError, ValueError and its own
        where = f"Ray at {address}" if address else "a new Ray cluster on this machine"
        raise Refused(f"{where} cannot be used: {one_line(error)}") from error


def living_nodes() -> dict[str, str]:
    """Return the address of every node that is alive, by its id."""
    return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}


def sizes(job: Job) -> tuple[float, int]:
    """Return the GPUs of each worker and the number of workers.

    Raises:
        Refused: no node has room for a worker.
    """
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    has_gpus = any(node.get("GPU", 0) >= 1 for node in resources)
    gpus = job.gpus if job.gpus is not None else float(has_gpus)
    wanted = {"CPU": job.cpus, "GPU": gpus}
    room = sum(
        min(int(node.get(kind, 0) / number + 1e-9) for kind, number in wanted.items() if number)
        for node in resources
    )
    if not room and job.workers is None:
        what = f"{job.cpus:g} CPUs" + (f" and {gpus:g} GPUs" if gpus else "")
        raise Refused(
            f"no node of the Ray cluster has {what} for a worker; give the number of workers to "
            "wait for nodes that come later",
            option=True,
        )
    return gpus, min(job.workers or room, job.n_items)


def submit(job: Job) -> list[Worker]:
    """Hand the workers of a job to Ray."""
    gpus, number = sizes(job)
    environment = {
        **thread_variables(max(1, int(job.cpus))),
        **({} if gpus else {"CUDA_VISIBLE_DEVICES": ""}),
        **job.environment,
    }
    task = ray.remote(
        num_cpus=job.cpus,
        num_gpus=gpus,
        max_retries=job.retries,
        retry_exceptions=[Killed],
        scheduling_strategy="SPREAD",
    )(run)
    workers = []
    for i in range(1, number + 1):
        log = new_log(Path(job.logs), "ray")
        ref = task.options(name=f"{job.name} {i}").remote(
            job.command,
            environment,
            log=log,
            directory=Path(job.directory),
            grace=job.grace,
            mark=mark_of(log),
        )
        workers.append(Worker(f"worker {i}", log, ref))
    return workers


def tell(workers: list[Worker], states: Path) -> None:
    """Find out what the workers are doing, and write it down."""
    nodes = living_nodes()
    for worker in workers:
        worker.look(nodes)
    write(states, {"workers": [worker.to_json() for worker in workers]})


def left(workers: list[Worker]) -> list[Any]:
    """Return the tasks that have not ended."""
    return [worker.ref for worker in workers if not worker.over]


def stop(workers: list[Worker], grace: float) -> None:
    """Cancel all tasks; those that take too long lose their process, and with it the command."""
    for force, seconds in ((False, grace + _SECONDS_BEFORE_FORCE), (True, grace)):
        pending = left(workers)
        for ref in pending:
            ray.cancel(ref, force=force)
        end = time.monotonic() + seconds
        while pending and time.monotonic() < end:
            _, pending = ray.wait(pending, num_returns=len(pending), timeout=0.2)
        if not pending:
            return


def drive(job: Job, states: Path) -> None:
    """Run a job until all workers have ended, or a signal asks for the end."""
    asked: list[int] = []
    connect(job.address)
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    try:
        workers = submit(job)
        tell(workers, states)
        while left(workers) and not asked:
            ray.wait(left(workers), timeout=_SECONDS_BETWEEN_LOOKS)
            tell(workers, states)
        stop(workers, job.grace)
        tell(workers, states)
    finally:
        ray.shutdown()
        with contextlib.suppress(ChildProcessError):
            while True:  # the processes of a cluster that was started for the job
                os.waitpid(-1, 0)


def main() -> int:
    """Read the job, run it and return the exit status."""
    job, states = Job.load(Path(sys.argv[1])), Path(sys.argv[2])
    try:
        drive(job, states)
    except Refused as refusal:
        write(states, {"refused": str(refusal), "option": refusal.option})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
