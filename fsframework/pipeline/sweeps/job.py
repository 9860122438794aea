"""The job of a sweep: its experiments, and the results that all workers share."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Literal

import msgspec

from fsframework._calls import text_of
from fsframework._files import atomic_write
from fsframework._reading import read_file
from fsframework.errors import FsfError, refusal
from fsframework.pipeline.experiment.configuration import resolve_experiment
from fsframework.pipeline.progress import Advance, Reporter
from fsframework.pipeline.run import run_experiment
from fsframework.pipeline.session import Session
from fsframework.pipeline.sweeps.items import Item
from fsframework.pipeline.work.leases import Lease, this_machine
from fsframework.records import RECORD_NAME, RunRecord, checked_outcomes

__all__ = ["ItemResult", "SweepFiles", "SweepJob"]


@dataclass(frozen=True)
class ItemResult:
    """What came of an experiment.

    Args:
        status: ``finished`` or ``failed``.
        reason: why it failed, in one line.
        run: name of the run's folder in the folder of runs.
        reused: whether the run was finished before.
        seconds: that it took.
        machine: where it ran; ``finished`` when it ended, ISO 8601, UTC.
    """

    status: Literal["finished", "failed"]
    reason: str = ""
    run: str = ""
    reused: bool = False
    seconds: float = 0.0
    machine: str = ""
    finished: str = ""


@dataclass(frozen=True)
class SweepFiles:
    """The folder ``sweeps`` in a folder of runs.

    All sweeps share the leases and results of its experiments, so that two with common experiments
    share the work.

    Args:
        runs: the folder of runs.
    """

    runs: Path

    @property
    def leases(self) -> Path:
        """Folder of the leases."""
        return self.runs / "sweeps" / "leases"

    def manifest(self, name: str) -> Path:
        """Return the file that describes a sweep, as it was started last."""
        return self.runs / "sweeps" / f"{name}.json"

    def grid(self, digest: str) -> Path:
        """Return the file that describes certain experiments to workers."""
        return self.runs / "sweeps" / "grids" / f"{digest}.json"

    def with_results(self) -> set[str]:
        """Return the keys of the experiments that have a file of results."""
        try:
            return {Path(entry.name).stem for entry in os.scandir(self.runs / "sweeps" / "results")}
        except FileNotFoundError:
            return set()

    def log(self, key: str) -> Path:
        """Return the log of an experiment."""
        return self.runs / "sweeps" / "logs" / f"{key}.txt"

    def worker_logs(self, name: str) -> Path:
        """Return the folder of the logs of a sweep's workers."""
        return self.runs / "sweeps" / "workers" / name

    def _result_file(self, key: str) -> Path:
        return self.runs / "sweeps" / "results" / f"{key}.json"

    def result(self, key: str) -> ItemResult | None:
        """Return the result of an experiment; ``None`` if it has none, or its run is gone."""
        try:
            found = msgspec.json.decode(read_file(self._result_file(key)), type=ItemResult)
        except (OSError, ValueError):
            return None
        if found.status == "finished" and not (self.runs / found.run / RECORD_NAME).is_file():
            return None
        return found

    def save_result(self, key: str, result: ItemResult) -> None:
        """Keep the result of an experiment."""
        atomic_write(self._result_file(key), msgspec.json.encode(result))

    def is_sound(self, key: str) -> bool:
        """Return whether an experiment is finished, and its tasks and outcomes are as written."""
        result = self.result(key)
        if result is None or result.status == "failed":
            return False
        try:
            record = RunRecord.load(self.runs / result.run)
            checked_outcomes(self.runs / result.run, record)
        except FsfError:
            return False
        return record.status == "finished"

    def forget(self, key: str) -> None:
        """Let an experiment be run again."""
        with suppress(OSError):
            self._result_file(key).unlink(missing_ok=True)


class SweepJob:
    """The experiments of a sweep as one worker sees them.

    Args:
        items: in the order in which they are taken.
        session: of the runs.
        alone: whether this process only runs experiments, so that what plugins print belongs in
            the logs.
        told: called with an experiment and what it is doing.
        ended: called once for each result that is found, of whatever worker.
    """

    def __init__(
        self,
        items: Sequence[Item],
        session: Session,
        *,
        alone: bool = False,
        told: Callable[[Item, str], None] = lambda item, text: None,
        ended: Callable[[Item, ItemResult], None] = lambda item, result: None,
    ) -> None:
        self.files = SweepFiles(session.workspace.runs)
        self.items = {item.key: item for item in items}
        self.results: dict[str, ItemResult] = {}
        self._session, self._alone, self._told, self._ended = session, alone, told, ended

    def left(self) -> list[str]:
        """Return the keys of the experiments without a result."""
        new = self.files.with_results() - self.results.keys()
        for key, item in self.items.items():
            if key in new and (found := self.files.result(key)) is not None:
                self.results[key] = found
                self._ended(item, found)
        return [key for key in self.items if key not in self.results]

    def group(self, key: str) -> str:
        """Return what the experiment trains."""
        return self.items[key].group

    def do(self, key: str, lease: Lease) -> None:
        """Run an experiment; a failure is its result."""
        item, started = self.items[key], time.monotonic()
        with self._logging(key) as log:
            result = self._run(item, lease, log)
        seconds = round(time.monotonic() - started, 3)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        result = replace(result, seconds=seconds, machine=this_machine(), finished=now)
        self.files.save_result(key, result)
        if result.reason and _gpu_is_lost():
            raise FsfError(
                f"the GPU of this process no longer answers after {item.name}, which failed; other "
                "processes go on"
            )

    def give_up(self, key: str, deaths: int) -> None:
        """Keep that an experiment ends its workers."""
        self.files.save_result(
            key,
            ItemResult(
                "failed",
                f"{deaths} processes that ran it died without a word, perhaps for lack of memory; "
                f"the last lines are in {self.files.log(key)}",
                machine=this_machine(),
            ),
        )

    @contextmanager
    def _logging(self, key: str) -> Iterator[IO[str]]:
        path = self.files.log(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            log = stack.enter_context(
                path.open("a", encoding="utf-8", errors="replace", buffering=1)
            )
            if self._alone:
                stack.enter_context(redirect_stdout(log))
                stack.enter_context(redirect_stderr(log))
            yield log

    def _run(self, item: Item, lease: Lease, log: IO[str]) -> ItemResult:
        def told(text: str) -> None:
            lease.note(text)
            self._told(item, text)

        reporter = _ItemReporter(log, told)
        reporter.say(f"{datetime.now(UTC).isoformat(timespec='seconds')} {item.name}")
        try:
            assert item.tree is not None, "workers only get experiments that they can resolve"
            experiment = resolve_experiment(self._session.registry, item.tree)
            made = run_experiment(experiment, replace(self._session, reporter=reporter))
        except FsfError as error:
            reporter.say(f"failed: {error}")
            return ItemResult("failed", " ".join(str(error).split()))
        except Exception as error:
            # For example, one method needs more GPU memory than there is; the others may still fit.
            traceback.print_exc(file=log)
            return ItemResult("failed", refusal(error) or text_of(error))
        reporter.say("finished")
        return ItemResult("finished", run=made.folder.name, reused=made.reused)


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


def _opened(log: Path) -> IO[str]:
    return log.open("a", encoding="utf-8", errors="replace", buffering=1)


class _ItemReporter(Reporter):
    """Writes what an experiment reports into its log, and tells what it is doing."""

    def __init__(self, log: IO[str], told: Callable[[str], None]) -> None:
        self._log, self._tell = log, told

    @contextmanager
    def stage(self, name: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Report the progress of a stage."""
        count, remark = done, ""
        started = time.monotonic()
        self._log.write(
            f"{name}: {total:,} to do" + (f", {done:,} done before\n" if done else "\n")
        )
        self._tell(f"{name} {count:,}/{total:,}")

        def advance(amount: int = 1, note: str = "") -> None:
            nonlocal count, remark
            count += amount
            if note and note != remark:
                self._log.write(f"{name}: {count:,} of {total:,}; {note}\n")
            remark = note or remark
            self._tell(f"{name} {count:,}/{total:,}")

        yield advance
        self._log.write(f"{name}: done in {time.monotonic() - started:.1f} s\n")

    def say(self, text: str) -> None:
        """Write a line."""
        self._log.write(f"{text}\n")
