"""How stages report progress: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from fsframework._text import printable

if TYPE_CHECKING:
    from fsframework.records import Epoch

__all__ = ["Advance", "ConsoleReporter", "LogReporter", "Reporter", "usual_reporter"]

_SECONDS_BETWEEN_LINES = 10.0


class Advance(Protocol):
    """Reports that ``amount`` more units are done; ``note`` replaces the stage's remark."""

    def __call__(self, amount: int = 1, note: str = "") -> None:
        """Report progress."""


class Reporter:
    """Reports nothing; the base of reporters that do."""

    @contextmanager
    def stage(self, name: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Report a stage of ``total`` units, ``done`` of which an earlier run had finished."""

        def advance(amount: int = 1, note: str = "") -> None:
            del amount, note

        yield advance

    def learned(self, history: Sequence[Epoch]) -> None:
        """Report the epochs of a training so far; an exception ends it, to be resumed later."""

    def say(self, text: str) -> None:
        """Report one line of text."""

    def note(self, text: str) -> None:
        """Report something that a user should know; the same text is reported once."""
        if text not in self._noted:
            self._noted.add(text)
            self.say(f"note: {text}")

    @cached_property
    def _noted(self) -> set[str]:
        return set()


def usual_reporter() -> Reporter:
    """Return a bar on a terminal, plain lines in a log; both on standard error."""
    return ConsoleReporter() if sys.stderr.isatty() else LogReporter()


class ConsoleReporter(Reporter):
    """One progress bar per stage."""

    def __init__(self) -> None:
        from rich.console import Console

        # A bar moves the cursor.
        self._console = Console(file=getattr(sys.stderr, "steered", sys.stderr), highlight=False)

    @contextmanager
    def stage(self, name: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Show a bar that stays when the stage is done."""
        from rich import progress as bars
        from rich.table import Column

        whole = Column(no_wrap=True)
        with bars.Progress(
            bars.TextColumn("{task.description:<22}"),
            bars.BarColumn(bar_width=24, table_column=whole),
            bars.MofNCompleteColumn(table_column=whole),
            bars.TimeElapsedColumn(table_column=whole),
            bars.TimeRemainingColumn(table_column=whole),
            bars.TextColumn("{task.fields[note]}"),
            console=self._console,
        ) as progress:
            task = progress.add_task(name, total=total, completed=done, note="")

            def advance(amount: int = 1, note: str = "") -> None:
                fields: dict[str, Any] = {"note": note} if note else {}
                progress.update(task, advance=amount, **fields)

            yield advance

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(printable(text), markup=False)


class LogReporter(Reporter):
    """A line when a stage starts and ends, and now and then in between."""

    @contextmanager
    def stage(self, name: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Print plain lines."""
        started = last = time.monotonic()
        count, remark = done, ""
        self.say(f"{name}: {done:,} of {total:,}")

        def advance(amount: int = 1, note: str = "") -> None:
            nonlocal count, last, remark
            count += amount
            remark = f"; {note}" if note else remark
            now = time.monotonic()
            if now - last >= _SECONDS_BETWEEN_LINES and count < total:
                left = (now - started) / max(1, count - done) * (total - count)
                self.say(f"{name}: {count:,} of {total:,}, about {left:.0f} s left{remark}")
                last = now

        yield advance
        self.say(f"{name}: done in {time.monotonic() - started:.1f} s{remark}")

    def say(self, text: str) -> None:
        """Print a line without buffering."""
        print(printable(text), file=sys.stderr, flush=True)
