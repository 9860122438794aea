"""The contract of launchers, which call a function for many items somewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsframework.interfaces.component import Configurable

__all__ = ["Launcher", "WorkerDied"]


@dataclass(frozen=True)
class WorkerDied:
    """In place of a result: the worker ended before the function returned one.

    Args:
        reason: in one sentence, such as ``killed by SIGKILL``.
        place: where it ran, such as the name of the machine; empty if unknown.
        log: file of its output, if there is one.
    """

    reason: str
    place: str = ""
    log: Path | None = None

    def __str__(self) -> str:
        """Return one line for people."""
        where = f" on {self.place}" if self.place else ""
        return f"{self.reason}{where}" + (f"; its output is in {self.log}" if self.log else "")


class Launcher(Configurable, ABC, kind="launcher"):
    """Calls a function for many items somewhere: processes of this machine, Ray, Slurm.

    Options say how many workers there are, and what each gets: processors, GPUs, time, a partition.
    """

    @abstractmethod
    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], *, name: str, logs: Path
    ) -> Iterator[tuple[int, Any]]:
        """Call a function once for each item, and yield its results as they come.

        Workers go on with other items while the caller looks at a result.

        When the iterator is closed, as at an interruption, all workers are stopped within seconds:
        with SIGTERM first, so that the function sees a ``KeyboardInterrupt`` or ``SystemExit``,
        then with SIGKILL. Workers do not outlive the process that called this, where their engine
        allows that. What an engine interrupts for its own reasons, such as a lost node or a
        preemption, it begins again as far as it can.

        Args:
            function: of a module; workers import it by its name.
            items: each is pickled for its worker. They are taken in this order.
            name: of the job, for what an engine shows: letters, digits, ``-``, ``_`` and ``.``.
            logs: existing folder, seen by all workers, for files with their output.

        Yields:
            The position of an item and the function's result, or a ``WorkerDied``: the worker of
            this item alone was killed, or the function raised an exception. Others go on.

        Raises:
            OptionError: an option does not fit the place, such as a partition that does not exist.
            FsfError: the engine cannot be reached.
        """
