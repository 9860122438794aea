"""Work on many rows, such as the images of a data set, that workers divide.

A slice of the missing rows is an item of a launcher. The worker keeps what it computes in a file of
its own; this process then moves it to where one process would have put it. Slices end where batches
end, so that batches are those of one process.
"""

from __future__ import annotations

import functools
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsf_tools.workers import (
    MOST_DEATHS,
    mapped,
    portable,
    without_launcher,
    worker_session,
)
from fsframework.api.session import Session, Workspace
from fsframework.api.stores import held
from fsframework.errors import FsfError
from fsframework.interfaces import Launcher, WorkerDied, contained
from fsframework.values import IntArray, digest_of

__all__ = ["Do", "Sharing", "sharing_of", "slices_of"]

Do = Callable[[IntArray], None]
"""Computes some rows, and keeps them where one process would have kept them."""

Prepare = Callable[[Mapping[str, Any], Session, Mapping[str, Any]], Do]
"""Makes the function that computes rows from options, a session and further arguments."""

_LEAST_ROWS, _MOST_PARTS = 256, 256


_Work = tuple[Prepare, Mapping[str, Any], Workspace, tuple[str, ...], Mapping[str, Any]]
"""What a worker needs: ``prepare``, the options, folders, files of plugins, further arguments."""

_prepared: dict[str, Do] = {}
"""The function of this worker, by the token of the work; it is prepared once for all parts."""


def _do_rows(token: str, work: _Work, rows: IntArray) -> str:
    """Compute some rows in a worker, and return why that failed; empty if it did not."""
    try:
        with contained():
            if token not in _prepared:
                prepare, tree, workspace, plugins, options = work
                _prepared.clear()
                _prepared[token] = prepare(tree, worker_session(workspace, plugins), options)
            _prepared[token](rows)
    except FsfError as error:
        return " ".join(str(error).split())
    return ""


@dataclass(frozen=True)
class Sharing:
    """Workers of a launcher that compute rows for this process.

    Args:
        launcher: starts them.
        session: of the command.
        prepare: makes the function that computes rows, in a worker; one of a module.
        tree: options of the command, a tree of ``Given``.
        plugins: files whose plugin classes are loaded.
        options: further arguments of ``prepare``.
    """

    launcher: Launcher
    session: Session
    prepare: Prepare
    tree: Mapping[str, Any]
    plugins: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

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

        work = functools.partial(_do_rows, secrets.token_hex(8), self._work())
        parts, logs = slices_of(rows, block), folder / "logs"
        with held(folder, reporter.note, waiting=waiting):
            with reporter.stage(label, len(rows)) as advance:
                for index, result in mapped(
                    self.launcher, work, parts, name=label, logs=logs, died=died
                ):
                    n_rows = len(parts[index])
                    if isinstance(result, WorkerDied):
                        raise FsfError(
                            f"{MOST_DEATHS} processes that worked on the same {n_rows:,} images "
                            f"died; the last one: {result}"
                        )
                    if result:
                        raise FsfError(result)
                    advance(n_rows)
            shutil.rmtree(folder, ignore_errors=True)

    def _work(self) -> _Work:
        tree, workspace = portable(self.tree, "the command"), self.session.workspace.absolute()
        return self.prepare, tree, workspace, self.plugins, self.options


def slices_of(rows: IntArray, block: int) -> list[IntArray]:
    """Return slices of some rows that end where blocks of them end."""
    size = max(_LEAST_ROWS, -(-len(rows) // _MOST_PARTS))
    size = -(-size // block) * block
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def sharing_of(
    prepare: Prepare,
    tree: Mapping[str, Any],
    session: Session,
    plugins: Sequence[str | Path] = (),
    **options: Any,
) -> tuple[Sharing | None, dict[str, Any]]:
    """Return the workers that a tree of ``Given`` asks for, if any, and the tree without them.

    Args:
        prepare: makes, in a worker, the function that computes rows, from the tree, a session and
            the further arguments; one of a module.
        tree: options of a command.
        session: of the command.
        plugins: the files of its plugins.
        **options: further arguments of ``prepare``.

    Raises:
        PluginError: the launcher is unknown or cannot be loaded.
        OptionError: an option of it is not allowed.
    """
    launcher, [rest] = without_launcher([tree], session)
    if launcher is None:
        return None, rest
    files = tuple(str(Path(file).absolute()) for file in plugins)
    return Sharing(launcher, session, prepare, rest, files, options), rest
