"""What runs on a node: the function, for one item."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fsframework.interfaces import WorkerDied
from fsframework.launchers.calls import call, write_output_to

__all__ = ["run"]


def run(
    function: Callable[[Any], Any],
    item: Any,
    logs: Path,
    directory: Path,
    variables: Mapping[str, str],
) -> Any:
    """Call a function in a process of Ray, and return its result.

    Args:
        function: of a module.
        item: its argument.
        logs: folder for what it prints.
        directory: in which it is called.
        variables: of the environment, over those of the node.
    """
    # A cancelled task gets SIGINT, which a Ray that was started in the background ignores.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    machine = socket.gethostname()
    log = logs / f"ray-{machine}-{os.getpid()}.txt"
    try:
        os.chdir(directory)
        write_output_to(log)
    except OSError as error:
        return WorkerDied(f"{error.filename}: {error.strerror}", machine)
    os.environ.update(variables)
    return call(function, item, log)
