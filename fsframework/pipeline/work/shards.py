"""Work on many rows, such as the images of a data set, in shards that several workers take.

A shard is some of the rows that a stage lacks. A worker computes it and keeps what it computed in
a file of its own; the process that shares the work waits for all shards, then moves what is in the
files to where one process would have put it. The rows are listed once and shards end where batches
end, so that batches are those of one process.

A command that is killed may leave workers. The next one ends their job, then waits for the locks
that they hold, then lists what is missing; whoever gets a lock later finds the job ended.
"""

from __future__ import annotations

import io
import secrets
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from fsframework._calls import text_of
from fsframework._digest import digest_of
from fsframework._files import atomic_write
from fsframework._reading import read_file
from fsframework.errors import FsfError, RecordError, refusal
from fsframework.interfaces.launcher import Launcher, Work, WorkerState
from fsframework.pipeline.cache.sealed import discard, held
from fsframework.pipeline.progress import Advance
from fsframework.pipeline.session import Session
from fsframework.pipeline.work.driver import drive
from fsframework.pipeline.work.leases import Lease, Leases, this_machine
from fsframework.pipeline.work.trees import packed, unpacked
from fsframework.values import IntArray

__all__ = ["Do", "MissingRows", "ShardJob", "Shared", "Sharing", "Task"]

Do = Callable[[str, IntArray, Callable[[], bool]], None]
"""Computes some rows, and keeps them in files whose names begin with a name. The function returns
whether they are still wanted, to be asked once what keeps others from computing them is locked."""

_LEAST_ROWS, _MOST_SHARDS = 256, 256
_TASK, _ROWS = "task.json", "rows.npy"


@dataclass(frozen=True)
class Task:
    """What a worker needs to know to compute rows.

    Args:
        stage: what is computed: ``words``, ``images`` or ``features``.
        tree: options of the command, a tree of ``Given``.
        plugins: files whose plugin classes are loaded.
        options: further options, as JSON values.
    """

    stage: str
    tree: Mapping[str, Any]
    plugins: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MissingRows:
    """The rows that a stage lacks.

    Args:
        rows: int64 ``(n,)``.
        block: rows that are computed together; shards end after a multiple of it.
    """

    rows: IntArray
    block: int = 1

    @property
    def shard_size(self) -> int:
        """Number of rows of each shard but the last."""
        size = max(_LEAST_ROWS, -(-len(self.rows) // _MOST_SHARDS))
        return -(-size // self.block) * self.block


class _Result(msgspec.Struct, frozen=True):
    """The end of a shard; ``reason`` says why it failed."""

    reason: str = ""


class _File(msgspec.Struct, frozen=True):
    """The file that describes a job to workers; ``token`` tells it from every other job."""

    token: str
    stage: str
    tree: Any
    plugins: tuple[str, ...]
    options: dict[str, Any]
    shard_size: int


class ShardJob:
    """The shards of a folder as a process sees them.

    Args:
        folder: of the job, on a disk that all processes see.

    Raises:
        RecordError: the folder does not describe a job.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self._file = msgspec.json.decode(read_file(folder / _TASK), type=_File)
            self._rows: IntArray = np.load(folder / _ROWS, allow_pickle=False)
        except OSError as error:
            raise RecordError(f"{folder}: {error.strerror}") from None
        except ValueError as error:
            raise RecordError(f"{folder}: does not describe work in shards ({error})") from None
        self.keys = tuple(
            f"{self._file.token}-{number:05d}"
            for number in range(-(-len(self._rows) // self._file.shard_size))
        )
        self.do_rows: Do | None = None
        """Computes rows; a process that only watches has none."""
        self._done: set[str] = set()

    @classmethod
    def made(cls, folder: Path, task: Task, rows: MissingRows) -> Self:
        """Return a new job in a folder, in place of an earlier one.

        Raises:
            OptionError: an option is a class or an object, which only this process knows.
        """
        tree = packed(task.tree, task.stage)
        for old in folder.iterdir():
            if old.name != "lock":
                discard(old)
        raw = io.BytesIO()
        np.save(raw, rows.rows, allow_pickle=False)
        atomic_write(folder / _ROWS, raw.getvalue())
        made = _File(
            secrets.token_hex(6),
            task.stage,
            tree,
            task.plugins,
            dict(task.options),
            rows.shard_size,
        )
        atomic_write(folder / _TASK, msgspec.json.encode(made))
        return cls(folder)

    @staticmethod
    def end(folder: Path) -> None:
        """End the job of a folder, if there is one: its workers begin nothing more."""
        (folder / _TASK).unlink(missing_ok=True)

    @property
    def is_current(self) -> bool:
        """Whether the job goes on: no other one has replaced it."""
        try:
            found = msgspec.json.decode(read_file(self.folder / _TASK), type=_File)
        except (OSError, ValueError):
            return False
        return found.token == self._file.token

    @property
    def task(self) -> Task:
        """What a worker needs to know."""
        file = self._file
        return Task(file.stage, unpacked(file.tree), file.plugins, file.options)

    def rows_of(self, key: str) -> IntArray:
        """Return the rows of a shard, int64 ``(k,)``."""
        first = self.keys.index(key) * self._file.shard_size
        return self._rows[first : first + self._file.shard_size]

    def left(self) -> Sequence[str]:
        """Return the shards without a result; none once another job has replaced this one.

        Raises:
            FsfError: a shard failed, and this process only watches.
        """
        if not self.is_current:
            return ()
        for key in self.keys:
            if key not in self._done and (result := self._result(key)) is not None:
                if result.reason and self.do_rows is None:
                    raise FsfError(result.reason)
                self._done.add(key)
        return [key for key in self.keys if key not in self._done]

    def n_done(self) -> int:
        """Return the number of rows in shards with a result, as last seen."""
        return sum(len(self.rows_of(key)) for key in self._done)

    def group(self, key: str) -> str:
        """Return the shard: no two compute the same."""
        return key

    def do(self, key: str, lease: Lease) -> None:
        """Compute a shard; a failure is its result."""
        del lease
        assert self.do_rows is not None
        reason = ""
        try:
            self.do_rows(key, self.rows_of(key), lambda: self.is_current)
        except FsfError as error:
            reason = " ".join(str(error).split())
        except Exception as error:
            traceback.print_exc()  # into the worker's log
            reason = refusal(error) or text_of(error)
        self._save(key, reason)

    def give_up(self, key: str, deaths: int) -> None:
        """Keep that a shard ends its workers."""
        rows = self.rows_of(key)
        self._save(
            key,
            f"{deaths} processes that worked on the same {len(rows):,} images died without a word, "
            f"perhaps for lack of memory; their output is in {self.logs}",
        )

    @property
    def logs(self) -> Path:
        """Folder of the output of the workers."""
        return self.folder / "logs"

    @property
    def leases(self) -> Path:
        """Folder of the leases."""
        return self.folder / "leases"

    def _save(self, key: str, reason: str) -> None:
        atomic_write(self._result_file(key), msgspec.json.encode(_Result(reason)))

    def _result_file(self, key: str) -> Path:
        return self.folder / "results" / f"{key}.json"

    def _result(self, key: str) -> _Result | None:
        try:
            return msgspec.json.decode(read_file(self._result_file(key)), type=_Result)
        except (OSError, ValueError):
            return None


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
    def opened(self, label: str, identity: str) -> Iterator[Shared]:
        """Open the folder of a stage for this process; it is removed if all goes well.

        Another process that shares the same work is waited for.

        Args:
            label: what the rows are, for people.
            identity: digest of what they depend on.
        """
        reporter = self.session.reporter
        folder = self.session.workspace.cache / "shards" / digest_of(identity)[:24]

        def waiting() -> None:
            reporter.say(f"waiting for another process that shares the same work: {label}")

        with held(folder, reporter, waiting=waiting):
            ShardJob.end(folder)  # workers of a command that was killed may still be at work
            yield Shared(self, label, folder)
            ShardJob.end(folder)
            shutil.rmtree(folder, ignore_errors=True)  # such a worker may still write


@dataclass(frozen=True)
class Shared:
    """A stage whose rows workers compute.

    Args:
        sharing: its workers.
        label: what the rows are.
        folder: of the job, and of what workers keep.
    """

    sharing: Sharing
    label: str
    folder: Path

    def compute(self, rows: MissingRows) -> None:
        """Have rows computed.

        Raises:
            FsfError: a shard failed, or the workers end again and again without a result.
        """
        if not len(rows.rows):
            return
        reporter = self.sharing.session.reporter
        job = ShardJob.made(self.folder, self.sharing.task, rows)
        with reporter.stage(self.label, len(rows.rows)) as advance:
            watch = _Watch(job, advance, reporter.say)
            leases = Leases(job.leases, f"{this_machine()}, which shares the work")
            drive(job, leases, self.sharing.launcher, self._work(job), watch)

    def _work(self, job: ShardJob) -> Work:
        job.logs.mkdir(exist_ok=True)
        workspace, key = self.sharing.session.workspace, job.folder.name
        folders = {"FSF_RUNS": workspace.runs, "FSF_CACHE": workspace.cache}
        return Work(
            name=f"{self.sharing.task.stage}-{key[:8]}",
            command=(sys.executable, "-m", "fsframework", "data", "work", key),
            n_items=len(job.keys),
            logs=job.logs.absolute(),
            environment={name: str(path.absolute()) for name, path in folders.items()},
        )


class _Watch:
    """Shows how many rows are done, and which workers failed."""

    def __init__(self, job: ShardJob, advance: Advance, say: Callable[[str], None]) -> None:
        self._job, self._advance, self._say = job, advance, say
        self._done = 0
        self._failed: set[str] = set()

    def __call__(self, states: Sequence[WorkerState]) -> None:
        """Show what has changed."""
        for state in states:
            if state.status == "failed" and state.name not in self._failed:
                self._failed.add(state.name)
                log = f" (its output: {state.log})" if state.log else ""
                self._say(f"worker {state.name} failed: {state.reason}{log}")
        now = self._job.n_done()
        waiting = sum(state.status == "waiting" for state in states)
        if now > self._done or waiting:
            remark = f"{waiting} {'worker waits' if waiting == 1 else 'workers wait'}"
            self._advance(now - self._done, remark if waiting else "")
        self._done = now
