"""Commands that do not outlive whoever started them, however that ends."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fsframework.launchers import _tether

__all__ = ["GRACE", "Tethered", "new_log", "reason_of", "thread_variables"]

GRACE = 10.0
"""Seconds that a worker usually has to stop after SIGTERM, before it is killed."""


_THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)
"""Variables from which PyTorch, NumPy, SciPy and Numba take their number of threads."""


def thread_variables(number: int) -> dict[str, str]:
    """Return the variables that give a process a number of threads."""
    return dict.fromkeys(_THREADS, str(number))


def new_log(folder: Path, prefix: str) -> Path:
    """Create the first file ``PREFIX-NUMBER.txt`` of a folder that nobody else has.

    The folder may contain the logs of other machines, of other launchers and of earlier starts.

    Raises:
        OSError: the folder cannot be written.
    """
    for number in itertools.count(1):
        path = folder / f"{prefix}-{number}.txt"
        with contextlib.suppress(FileExistsError):
            path.touch(exist_ok=False)
            break
    return path


class Tethered:
    """A command in a session of its own, which ends with the process that started it.

    A small process between the two holds the command: it notices the end of its owner, SIGKILL
    included, by a pipe. Signals of the terminal, such as Ctrl-C, do not reach the command.

    Args:
        command: what to run.
        log: file to which its output is appended.
        environment: its variables.
        grace: seconds that it has to stop after SIGTERM, before it is killed with the processes of
            its group.
        directory: in which it runs, by default the current one.

    Raises:
        OSError: the log cannot be written, or its directory does not exist.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str],
        grace: float,
        directory: Path | None = None,
    ) -> None:
        holder = (sys.executable, "-I", "-S", _tether.__file__, str(os.getpid()), str(grace))
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*holder, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=directory,
                start_new_session=True,
            )

    def poll(self) -> int | None:
        """Return the exit status, the negative number of a signal, or ``None`` while it runs."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        """Have the command stopped, and return at once."""
        pipe = self._process.stdin
        if pipe is None or pipe.closed:
            return
        # Not only the end of the pipe: a process forked from this one may keep it open.
        with contextlib.suppress(BrokenPipeError):
            os.write(pipe.fileno(), b".")
        with contextlib.suppress(BrokenPipeError):
            pipe.close()

    def wait(self) -> int:
        """Wait for the end of the command and its group, and return the exit status."""
        return self._process.wait()


def reason_of(status: int) -> str:
    """Return why a command failed, in a few words.

    Args:
        status: exit status, or the negative number of the signal that killed it.

    >>> reason_of(3), reason_of(-15)
    ('exit status 3', 'killed by SIGTERM')
    """
    if status == _tether.NOT_STARTED:
        return "its program cannot be started"
    if status >= 0:
        return f"exit status {status}"
    perhaps = " (perhaps out of memory)" if -status == signal.SIGKILL else ""
    return f"killed by {signal.Signals(-status).name}{perhaps}"
