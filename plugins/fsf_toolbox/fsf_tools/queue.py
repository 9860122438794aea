"""Experiments of a sweep: each run once, locked while it runs, with a log of what came of it.

The folder ``sweeps`` in a folder of runs has a log for each experiment, which all sweeps share, and
a file for each sweep, which lists its experiments. A log has a JSON object per line.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from filelock import FileLock, Timeout

from fsf_tools.workers import MOST_DEATHS, mapped, portable, worker_session
from fsframework.api.experiments import resolved
from fsframework.api.running import load_run, run_resolved
from fsframework.api.session import Advance, Reporter, Session, Workspace
from fsframework.errors import FsfError, RecordError, refusal
from fsframework.interfaces.launcher import Launcher, WorkerDied
from fsframework.launchers.calls import text_of
from fsframework.values import atomic_write, read_file

__all__ = ["Ended", "Item", "SweepFolder", "run_items"]

_Form = TypeVar("_Form")


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt at an experiment ended, as the last line of its log says.

    Args:
        status: ``finished``, ``failed``, ``stopped`` for a trial of a search that promised little,
            or ``busy`` where another process has it.
        reason: why it failed, in one line; of a trial, what came of it.
        run: name of the run's folder in the folder of runs; empty for a trial.
        reused: whether the run was finished before.
        seconds: that it took.
        time: of the end, seconds since the epoch.
    """

    status: Literal["finished", "failed", "stopped", "busy"]
    reason: str = ""
    run: Annotated[str, msgspec.Meta(pattern=r"\A[^/\\\0]*\Z")] = ""
    reused: bool = False
    seconds: float = 0.0
    time: float = 0.0


class _Line(msgspec.Struct, frozen=True):
    """What a line of a log says; a line says some of it."""

    text: str = ""
    begins: str | None = None
    stage: str | None = None
    done: int = 0


Key = Annotated[str, msgspec.Meta(pattern=r"\A[\w-]+\Z")]
"""Of an experiment, which its files are named after."""


@dataclass(frozen=True)
class Item:
    """One experiment.

    Args:
        key: equal for equal experiments; see ``key_of_experiment``.
        name: for people, such as ``protonet, 1 shot``; unique within the sweep.
        tree: its options, a tree of ``Given``.
        group: what it trains, or what computes its features; see ``Sweep``.
        workspace: folders of the runs and of the cache.
        plugins: files whose plugin classes are loaded.
        wait: whether to wait for another process that has the experiment.
        since: a failure after this time, seconds since the epoch, is not tried again.
    """

    key: str
    name: str
    tree: Mapping[str, Any]
    group: str
    workspace: Workspace
    plugins: tuple[str, ...] = ()
    wait: bool = False
    since: float = 0.0

    def attempt(self, session: Session) -> Ended:
        """Run the experiment."""
        made = run_resolved(resolved(self.tree, session), session)
        return Ended(status="finished", run=made.folder.name, reused=made.reused)


@dataclass(frozen=True)
class SweepFolder:
    """What is known of experiments, in the folder ``sweeps`` of a folder of runs.

    Args:
        runs: the folder of runs.
    """

    runs: Path

    def log(self, key: str) -> Path:
        """Return the log of an experiment."""
        return self.runs / "sweeps" / "logs" / f"{key}.jsonl"

    def worker_logs(self, name: str) -> Path:
        """Return the folder for the output of a sweep's workers."""
        return self.runs / "sweeps" / "workers" / name

    def lock(self, key: str) -> FileLock:
        """Return the lock that a process has while it runs an experiment."""
        return FileLock(self.runs / "sweeps" / "locks" / f"{key}.lock")

    def is_running(self, key: str) -> bool:
        """Return whether a process has an experiment."""
        lock = self.lock(key)
        try:
            if Path(lock.lock_file).exists():
                lock.acquire(blocking=False)
        except Timeout:
            return True
        lock.release()
        return False

    def save(self, name: str, experiments: Mapping[str, str]) -> None:
        """Keep the names of a sweep's experiments, by their keys."""
        atomic_write(self._list(name), json.dumps(experiments, indent=1))

    def experiments(self, name: str) -> dict[str, str]:
        """Return the names of a sweep's experiments, by their keys.

        Raises:
            RecordError: the sweep is unknown, or its file is damaged.
        """
        path = self._list(name)
        try:
            return msgspec.json.decode(read_file(path), type=dict[Key, str])
        except FileNotFoundError:
            raise RecordError(f"{path}: no such sweep") from None
        except (OSError, ValueError) as error:
            raise RecordError(f"{path}: is damaged ({error})") from None

    def _list(self, name: str) -> Path:
        return self.runs / "sweeps" / f"{name}.json"

    def ended(self, key: str) -> Ended | None:
        """Return how the last attempt ended; ``None`` if it has not, or its run is gone."""
        found = next(iter(self._told(key, Ended, last=True)), None)
        if found is None:
            return None
        if found.run and not (self.runs / found.run / "run.json").is_file():
            return None
        return found

    def finished(self, key: str) -> Ended | None:
        """Return how an experiment was finished, if its tasks and outcomes are as written."""
        found = self.ended(key)
        if found is None or not found.run:
            return None
        try:
            run = load_run(self.runs / found.run)
            _ = run.outcomes  # reads them
        except FsfError:
            return None
        return found if run.record.status == "finished" else None

    def doing(self, key: str) -> str:
        """Return what the log says last."""
        return next((line.text for line in self._told(key, _Line, last=True)), "")

    def began_with(self, key: str) -> list[tuple[str, int]]:
        """Return the stages of the last attempt, and what of each an earlier one had done.

        An attempt that got on leaves less to do: the next one begins with something else.
        """
        found: list[tuple[str, int]] = []
        for line in self._told(key, _Line):
            if line.begins is not None:
                found = []
            elif line.stage is not None:
                found.append((line.stage, line.done))
        return found

    def _told(self, key: str, form: type[_Form], *, last: bool = False) -> list[_Form]:
        """Return what each whole line of the log says, or the last one, if it has this form."""
        whole, found = list[bytes](), []
        with suppress(OSError):
            whole = read_file(self.log(key)).splitlines()
        for line in whole[-1:] if last else whole:
            with suppress(ValueError):
                found.append(msgspec.json.decode(line, type=form))
        return found


class _Log(Reporter):
    """Writes what an experiment reports into its log, and tells what it is doing."""

    def __init__(self, path: Path, tell: Callable[[str], None]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._tell = path, tell

    def write(self, **told: Any) -> None:
        """Append a line."""
        line = json.dumps({"time": round(time.time(), 1), **told})
        with self._path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(line + "\n")

    @contextmanager
    def stage(self, name: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Report the progress of a stage."""
        count, remark, started = done, "", time.monotonic()
        self.write(stage=name, done=done, text=f"{name}: {done:,} of {total:,}")
        self._tell(f"{name} {count:,}/{total:,}")

        def advance(amount: int = 1, note: str = "") -> None:
            nonlocal count, remark
            count += amount
            if note and note != remark:
                self.write(text=f"{name}: {count:,} of {total:,}; {note}")
            remark = note or remark
            self._tell(f"{name} {count:,}/{total:,}")

        yield advance
        self.write(text=f"{name}: done in {time.monotonic() - started:.1f} s")

    def say(self, text: str) -> None:
        """Write a line."""
        self.write(text=text)


def run_item(item: Item) -> Ended:
    """Run an experiment in a worker; a failure is a result."""
    ended = _run(item, worker_session(item.workspace, item.plugins), lambda text: None)
    if ended.reason and _gpu_is_lost():
        os._exit(1)  # another process goes on, and tries this experiment again
    return ended


def _run(item: Item, session: Session, tell: Callable[[str], None]) -> Ended:
    folder = SweepFolder(item.workspace.runs)
    lock = folder.lock(item.key)
    Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
    try:
        held = lock.acquire(blocking=item.wait)
    except Timeout:
        return Ended(status="busy")
    with held:
        if (found := folder.finished(item.key)) is not None:
            return found
        if (found := folder.ended(item.key)) is not None and found.time > item.since:
            return found
        log, started = _Log(folder.log(item.key), tell), time.monotonic()
        ended = _attempt(item, replace(session, reporter=log), log)
        ended = msgspec.structs.replace(
            ended,
            seconds=round(time.monotonic() - started, 3),
            time=time.time(),
        )
        log.write(**msgspec.structs.asdict(ended))
        return ended


def _attempt(item: Item, session: Session, log: _Log) -> Ended:
    log.write(begins=item.name, text=item.name)
    try:
        return item.attempt(session)
    except FsfError as error:
        return Ended(status="failed", reason=" ".join(str(error).split()))
    except Exception as error:
        # For example, one method needs more GPU memory than there is; the others may still fit.
        log.say(traceback.format_exc())
        return Ended(status="failed", reason=refusal(error) or text_of(error))


def _gpu_is_lost() -> bool:
    """Return whether every further call to the GPU fails in this process, as after some errors."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def run_items(
    items: Sequence[Item],
    session: Session,
    launcher: Launcher | None,
    name: str,
    tell: Callable[[str], None],
) -> Iterator[tuple[Item, Ended]]:
    """Run experiments, and yield how each ended; those that other processes have come last.

    Args:
        items: the experiments, each once.
        session: of the runs.
        launcher: of workers; without one, this process runs them, one after the other.
        name: of the sweep.
        tell: called with what an experiment of this process is doing.

    Raises:
        FsfError: the workers cannot be started, or this process has lost its GPU.
        OptionError: an option is known to this process only.
    """
    now = time.time()
    left = [replace(item, since=now) for item in _ordered(items)]
    if launcher is not None:
        left = [replace(item, tree=portable(item.tree, item.name)) for item in left]
    for wait in (False, True):
        chosen, left = [replace(item, wait=wait) for item in left], []
        if wait and chosen:
            session.reporter.say("waiting for another process that runs the same experiments")
        found = (
            _here(chosen, session, tell)
            if launcher is None
            else _elsewhere(chosen, launcher, session, name)
        )
        for index, ended in found:
            if ended.status == "busy":
                left.append(chosen[index])
            else:
                yield chosen[index], ended


def _ordered(items: Sequence[Item]) -> list[Item]:
    """Return the first experiments of all groups, then the second ones, ...

    The first one computes what others of its group find ready, and need not wait for.
    """
    seen: dict[str, int] = {}
    places = []
    for item in items:
        seen[item.group] = seen.get(item.group, -1) + 1
        places.append(seen[item.group])
    return [items[i] for i in sorted(range(len(items)), key=lambda i: places[i])]


def _here(
    items: Sequence[Item], session: Session, tell: Callable[[str], None]
) -> Iterator[tuple[int, Ended]]:
    for index, item in enumerate(items):
        ended = _run(item, session, lambda text, item=item: tell(f"{item.name}: {text}"))  # type: ignore[misc]
        yield index, ended
        if ended.reason and _gpu_is_lost():
            raise FsfError(f"the GPU of this process no longer answers after {item.name}")


def _elsewhere(
    items: Sequence[Item],
    launcher: Launcher,
    session: Session,
    name: str,
) -> Iterator[tuple[int, Ended]]:
    folder = SweepFolder(session.workspace.runs)
    for index, result in mapped(
        launcher,
        run_item,
        items,
        name=name,
        logs=folder.worker_logs(name),
        progress=lambda index: folder.began_with(items[index].key),
        died=lambda index, end: session.reporter.say(
            f"{items[index].name}: its worker died: {end}"
        ),
    ):
        if isinstance(result, WorkerDied):
            reason = f"{MOST_DEATHS} processes that ran it died; the last one: {result}"
            result = Ended(status="failed", reason=reason, time=time.time())
            log = _Log(folder.log(items[index].key), lambda text: None)
            log.write(**msgspec.structs.asdict(result))
        yield index, result
