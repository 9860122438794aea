"""A launcher, which runs work elsewhere.

Try it: fsf sweep --method protonet,ncc --launcher my-launcher
"""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fsframework.interfaces import Launcher, WorkerDied
from fsframework.launchers.calls import GRACE, reason_of

WORKER = """
import pickle, signal, sys
from pathlib import Path
from fsframework.launchers.calls import call

signal.signal(signal.SIGTERM, signal.default_int_handler)
file = Path(sys.argv[1])
file.write_bytes(pickle.dumps(call(*pickle.loads(file.read_bytes()))))
"""


class MyLauncher(Launcher):
    """One process of low priority."""

    # Options say how many workers there are and what each gets.
    def __init__(self, *, niceness: int = 19) -> None:
        self.niceness = niceness

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], *, name: str, logs: Path
    ) -> Iterator[tuple[int, Any]]:
        """Yield the position of each item with the function's result, or with ``WorkerDied``."""
        log = logs / f"{name}.log"
        ready: list[tuple[int, Any]] = []
        for index, item in enumerate(items):
            file = logs / f"{name}-{index}.pickle"
            file.write_bytes(pickle.dumps((function, item, log)))
            # Change the command that starts a worker. `-P` keeps files of this folder out of it.
            worker = ["nice", "-n", str(self.niceness), sys.executable, "-P", "-c", WORKER]
            with log.open("ab") as out:
                process = subprocess.Popen(
                    [*worker, file], stdout=out, stderr=out, start_new_session=True
                )
            try:
                yield from ready  # while the next item is worked on
                status = process.wait()
                died = WorkerDied(reason_of(status), log=log)
                ready = [(index, died if status else pickle.loads(file.read_bytes()))]
            finally:  # also when the caller closes this iterator: nothing may go on
                stop(process)
                file.unlink()
        yield from ready


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it has started: first it may clean up."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
