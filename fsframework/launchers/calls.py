"""What launchers have in common: how a worker calls the function, and how it tells its end."""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fsframework._calls import text_of
from fsframework.interfaces.launcher import WorkerDied

__all__ = ["GRACE", "call", "module_path", "reason_of", "text_of", "write_output_to"]

GRACE = 10.0
"""Seconds that a worker has to stop after SIGTERM, before it is killed."""


def module_path() -> list[str]:
    """Return where workers look for modules: the folders of this process, the current one last.

    Python itself looks first in the current folder, or in that of the script. There a file such as
    ``numpy.py`` would take the place of a library. What ``PYTHONPATH`` names stays in its place.
    """
    script = Path(getattr(sys.modules["__main__"], "__file__", None) or "").parent
    named = (Path(one) for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one)
    last = {Path.cwd(), script.resolve()} - {one.resolve() for one in named}
    folders = (one or str(Path.cwd()) for one in sys.path)
    return sorted(folders, key=lambda one: Path(one).resolve() in last)


def call(function: Callable[[Any], Any], item: Any, log: Path | None = None) -> Any:
    """Return the function's result, or a ``WorkerDied`` that says which exception it raised."""
    try:
        return function(item)
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        return WorkerDied(text_of(error), socket.gethostname(), log)


def write_output_to(log: Path) -> None:
    """Append what this process and its children print to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    with log.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)


def reason_of(status: int) -> str:
    """Return why a process ended, in a few words.

    Args:
        status: exit status, or the negative number of the signal that killed it.

    >>> reason_of(3), reason_of(-15)
    ('exit status 3', 'killed by SIGTERM')
    """
    if status >= 0:
        return f"exit status {status}"
    perhaps = " (perhaps out of memory)" if -status == signal.SIGKILL else ""
    return f"killed by {signal.Signals(-status).name}{perhaps}"
