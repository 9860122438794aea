"""Work on many rows, such as the images of a data set, that workers divide.

A slice of the missing rows is an item of a launcher. The worker keeps what it computes in a file of
its own; this process then moves it to where one process would have put it. Slices end where batches
end, so that batches are those of one process.
"""

from __future__ import annotations

import functools
import pickle
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsframework._calls import text_of
from fsframework._digest import digest_of
from fsframework.errors import FsfError, refusal
from fsframework.interfaces.launcher import Launcher, WorkerDied
from fsframework.pipeline.cache.sealed import held
from fsframework.pipeline.cache.workspace import Workspace
from fsframework.pipeline.mapping import MOST_DEATHS, mapped, portable, worker_session
from fsframework.pipeline.session import Session
from fsframework.values import IntArray

__all__ = ["Do", "Sharing", "Task", "do_rows", "slices_of"]

Do = Callable[[Path, str, IntArray], None]
"""Computes some rows, and keeps them in files of a folder whose names begin with a name."""

_LEAST_ROWS, _MOST_PARTS = 256, 256


@dataclass(frozen=True)
class Task:
    """What a worker needs to know to compute rows.

    Args:
        prepare: makes the function that computes rows; one of a module.
        tree: options of the command, a tree of ``Given``.
        workspace: its folders.
        plugins: files whose plugin classes are loaded.
        options: further arguments of ``prepare``.
    """

    prepare: Callable[[Mapping[str, Any], Session, Mapping[str, Any]], Do]
    tree: Mapping[str, Any]
    workspace: Workspace
    plugins: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Part:
    """Some rows; ``task`` is pickled, so that a worker prepares itself once for equal tasks."""

    task: bytes
    folder: Path
    name: str
    rows: IntArray


def do_rows(part: _Part) -> str:
    """Compute some rows in a worker, and return why that failed; empty if it did not."""
    try:
        _prepared(part.task)(part.folder, part.name, part.rows)
    except FsfError as error:
        return " ".join(str(error).split())
    except MemoryError as error:
        return refusal(error) or text_of(error)
    return ""


@functools.lru_cache(maxsize=1)
def _prepared(pickled: bytes) -> Do:
    task: Task = pickle.loads(pickled)
    session = worker_session(task.workspace, task.plugins)
    return task.prepare(task.tree, session, task.options)


@dataclass(frozen=True)
class Sharing:
    """Workers of a launcher that compute rows for this process.

    Args:
        launcher: starts them.
        task: what they need to know.
        session: of the command.
    """

    launcher: Launcher
    task: Task
    session: Session

    @contextmanager
    def folder(self, label: str, identity: str) -> Iterator[Path]:
        """Lock the folder for what workers keep; it is removed if all goes well.

        Args:
            label: what the rows are, for people.
            identity: digest of what they depend on.
        """
        reporter = self.session.reporter
        folder = self.session.workspace.cache / "shared" / digest_of(identity)[:24]

        def waiting() -> None:
            reporter.say(f"waiting for another process that shares the same work: {label}")

        with held(folder, reporter, waiting=waiting):
            yield folder
            shutil.rmtree(folder, ignore_errors=True)  # a worker of a killed command may write

    def compute(self, label: str, folder: Path, rows: IntArray, block: int) -> None:
        """Have rows computed.

        Args:
            label: what the rows are.
            folder: of ``folder``.
            rows: int64 ``(n,)``.
            block: rows that are computed together.

        Raises:
            FsfError: some rows cannot be computed, or the workers that try to die.
        """
        parts = self._parts(folder.absolute(), rows, block)
        reporter = self.session.reporter
        with reporter.stage(label, len(rows)) as advance:
            for index, result in mapped(
                self.launcher,
                do_rows,
                parts,
                name=label,
                logs=folder / "logs",
                died=lambda _, end: reporter.say(f"a worker died: {end}"),
            ):
                if isinstance(result, WorkerDied):
                    raise FsfError(
                        f"{MOST_DEATHS} processes that worked on the same "
                        f"{len(parts[index].rows):,} images died; the last one: {result}"
                    )
                if result:
                    raise FsfError(result)
                advance(len(parts[index].rows))

    def _parts(self, folder: Path, rows: IntArray, block: int) -> list[_Part]:
        task = Task(
            self.task.prepare,
            portable(self.task.tree, "the command"),
            Workspace(*(path.absolute() for path in vars(self.task.workspace).values())),
            self.task.plugins,
            self.task.options,
        )
        pickled = pickle.dumps(task)
        slices = slices_of(rows, block)
        return [_Part(pickled, folder, digest_of("rows", one)[:16], one) for one in slices]


def slices_of(rows: IntArray, block: int) -> list[IntArray]:
    """Return slices of some rows that end where blocks of them end."""
    size = max(_LEAST_ROWS, -(-len(rows) // _MOST_PARTS))
    size = -(-size // block) * block
    return [rows[start : start + size] for start in range(0, len(rows), size)]
