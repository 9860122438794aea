"""What runs on a node: the command of one worker, as a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fsf_ray._files import write
from fsframework.launchers.tethered import Tethered, reason_of

__all__ = ["CannotStart", "Killed", "run"]

_SECONDS_BETWEEN_LOOKS = 0.1


class Killed(Exception):
    """The command was killed by a signal, such as for a lack of memory; Ray tries again."""


class CannotStart(Exception):
    """The node lacks what the command needs."""


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    log: Path,
    directory: Path,
    grace: float,
    mark: Path,
) -> int:
    """Run a command until it ends or this task is cancelled, and return its exit status.

    The command ends with the process of this task, whatever ends that.

    Args:
        command: what to run.
        environment: variables over those of the node.
        log: file to which its output is appended.
        directory: in which it runs.
        grace: seconds that it has to stop after SIGTERM, before it is killed.
        mark: file to write when it starts, with the node.

    Raises:
        Killed: a signal ended the command.
        CannotStart: a file or a folder is missing on this node.
    """
    import ray

    # A cancelled task gets SIGINT, which a Ray that was started in the background ignores.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    node = ray.get_runtime_context().get_node_id()
    try:
        write(mark, {"node": node, "machine": socket.gethostname()})
        process = Tethered(
            command,
            log=log,
            environment={**os.environ, **environment},
            directory=directory,
            grace=grace,
        )
    except OSError as error:
        raise CannotStart(f"{error.filename}: {error.strerror} on {socket.gethostname()}") from None
    try:
        while (status := process.poll()) is None:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    finally:
        process.ask_to_stop()
        process.wait()
    if status < 0:
        raise Killed(reason_of(status))
    return status
