"""Work on many rows, such as the images of a data set, that workers divide.

A slice of the missing rows is an item of a launcher. The worker keeps what it computes in a file of
its own; this process then moves it to where one process would have put it. Slices end where batches
end, so that batches are those of one process.
"""

from __future__ import annotations

import functools
import pickle
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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

Do = Callable[[IntArray], None]
"""Computes some rows, and keeps them where one process would have kept them."""

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
    rows: IntArray


def do_rows(part: _Part) -> str:
    """Compute some rows in a worker, and return why that failed; empty if it did not."""
    try:
        _prepared(part.task)(part.rows)
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

    def compute(self, label: str, identity: str, rows: IntArray, block: int) -> None:
        """Have rows computed, while another process that shares the same work waits.

        Args:
            label: what the rows are.
            identity: digest of what they depend on.
            rows: int64 ``(n,)``.
            block: rows that are computed together.

        Raises:
            FsfError: some rows cannot be computed, or the workers that try to die.
        """
        reporter = self.session.reporter
        folder = self.session.workspace.cache / "shared" / digest_of(identity)[:24]

        def waiting() -> None:
            reporter.say(f"waiting for another process that shares the same work: {label}")

        def died(_: int, end: WorkerDied) -> None:
            reporter.say(f"a worker died: {end}")

        parts, logs = self._parts(rows, block), folder / "logs"
        with held(folder, reporter, waiting=waiting):
            with reporter.stage(label, len(rows)) as advance:
                for index, result in mapped(
                    self.launcher, do_rows, parts, name=label, logs=logs, died=died
                ):
                    n_rows = len(parts[index].rows)
                    if isinstance(result, WorkerDied):
                        raise FsfError(
                            f"{MOST_DEATHS} processes that worked on the same {n_rows:,} images "
                            f"died; the last one: {result}"
                        )
                    if result:
                        raise FsfError(result)
                    advance(n_rows)
            shutil.rmtree(folder, ignore_errors=True)

    def _parts(self, rows: IntArray, block: int) -> list[_Part]:
        task = Task(
            self.task.prepare,
            portable(self.task.tree, "the command"),
            Workspace(*(path.absolute() for path in vars(self.task.workspace).values())),
            self.task.plugins,
            self.task.options,
        )
        pickled = pickle.dumps(task)
        return [_Part(pickled, one) for one in slices_of(rows, block)]


def slices_of(rows: IntArray, block: int) -> list[IntArray]:
    """Return slices of some rows that end where blocks of them end."""
    size = max(_LEAST_ROWS, -(-len(rows) // _MOST_PARTS))
    size = -(-size // block) * block
    return [rows[start : start + size] for start in range(0, len(rows), size)]
