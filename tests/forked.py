"""Commands in processes of their own, started within milliseconds.

A real ``python -m fsframework`` spends seconds on imports before it works. Where a test is about a
process, but not about its start, it forks a server that has imported everything: the child is a
process like any other, with its own environment and current folder, which may be killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["Forked", "finished", "started"]

_IMPORTED = [
    "pytest", "kornia.augmentation", "pyarrow.parquet", "rich.console", "safetensors.torch",
    "scipy.stats", "sklearn.linear_model", "torch", "torch._dynamo", "fsframework.api",
    "fsframework.cli.main", "fsf_backbones", "fsf_methods",
]  # fmt: skip
"""What commands import first; a module that is not listed is only imported later."""
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(_IMPORTED)


class Forked:
    """A started command, with those methods of ``subprocess.Popen`` that tests use."""

    def __init__(self, folder: Path, arguments: tuple[object, ...]) -> None:
        self.args = ["fsf", *map(str, arguments)]
        self._said = [tempfile.NamedTemporaryFile(prefix="fsf-said-") for _ in range(2)]  # noqa: SIM115
        files = [file.name for file in self._said]
        given = (self.args, str(folder), dict(os.environ), files)
        self._process = _SERVER.Process(target=_main, args=given)
        self._process.start()

    def __del__(self) -> None:
        for file in self._said:
            file.close()

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; ``None`` while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float = 600) -> int:
        """Wait for the end and return the exit code."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            self.send_signal(signal.SIGKILL)
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            assert self._process.pid is not None
            os.kill(self._process.pid, number)

    def said(self) -> tuple[str, str]:
        """Return what it has printed so far, output and errors."""
        out, err = (Path(file.name).read_text("utf-8") for file in self._said)
        return out, err


def started(folder: Path, *arguments: object) -> Forked:
    """Start a command in a folder, with the environment of now."""
    return Forked(folder, arguments)


def finished(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Give a command in a folder and wait for its end."""
    process = started(folder, *arguments)
    code = process.wait()
    return subprocess.CompletedProcess(process.args, code, *process.said())


def _main(argv: list[str], folder: str, environment: dict[str, str], said: list[str]) -> None:
    """Be the command, in the forked process."""
    from fsframework.cli.main import main

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, file in enumerate(said, start=1):
        os.dup2(os.open(file, os.O_WRONLY), number)
    # As an interpreter's own start does.
    sys.path[:0] = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.argv = argv
    main()
