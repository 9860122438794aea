"""The contract of launchers, which run the workers of a job somewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from fsframework.interfaces.component import Configurable

__all__ = ["Launcher", "Work", "WorkerState", "Workers"]


@dataclass(frozen=True)
class Work:
    """A job of independent items that any number of workers share.

    The workers find the items, agree on who does which, and leave the results on a disk that all of
    them see. A launcher knows nothing of that: it runs the same command several times.

    Args:
        name: of the job, for names that an engine shows: letters, digits, ``-``, ``_`` and ``.``.
        command: of one worker, run in the directory of the caller. It takes items until none is
            left, and exits with 0. A worker that stops earlier loses nothing: what it held goes to
            others, or to the same command again. ``SIGTERM`` makes it stop within seconds.
        n_items: that are to be done, at least 1; more workers would find nothing to do.
        logs: an existing folder on that disk, where each worker's output goes.
        environment: variables to set for every worker, over those of the place where it runs.
    """

    name: str
    command: tuple[str, ...]
    n_items: int
    logs: Path
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkerState:
    """What is known of one worker.

    Args:
        name: unique within the job, such as ``process 1`` or ``job 17_2``.
        status: ``waiting`` for resources, ``running``, ``ended`` (its command exited with 0) or
            ``failed`` (it did not, or never started; its launcher does not try again).
        place: where it runs, such as the name of the machine; empty if unknown.
        reason: why it failed, in one sentence, such as ``killed by SIGKILL``.
        log: file of its output, if there is one.
    """

    name: str
    status: Literal["waiting", "running", "ended", "failed"]
    place: str = ""
    reason: str = ""
    log: Path | None = None


class Workers(ABC):
    """The workers that a launcher has started."""

    _kind: ClassVar[str] = "workers"

    @abstractmethod
    def states(self) -> Sequence[WorkerState]:
        """Return the state of every worker; called about once a second, so it must be quick.

        Raises:
            FsfError: the engine no longer answers, and whether the workers run is unknown.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop all workers, waiting ones included; return when none runs. May be called again.

        Workers get ``SIGTERM`` first. Those that do not stop within some seconds are killed, with
        the processes that they have started.
        """


class Launcher(Configurable, ABC, kind="launcher"):
    """Runs the workers of a job somewhere: processes of this machine, Ray, Slurm.

    Options say how many workers, and what each gets: processors, GPUs, time, a partition. A worker
    that an engine stops for its own reasons (a lost node, a time limit, preemption) is started
    again by the launcher as far as its engine can; what it had done is kept on disk.
    """

    @abstractmethod
    def start(self, work: Work) -> Workers:
        """Start workers, at most ``work.n_items``, and return at once.

        Raises:
            OptionError: an option does not fit the place, such as a partition that does not exist.
            FsfError: the engine cannot be reached.
        """
