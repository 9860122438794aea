"""How the stages tell of their progress; the command line decides what a user sees."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["Advance", "Reporter"]


class Advance(Protocol):
    """Say that ``amount`` more units are done; ``note`` replaces the stage's remark."""

    def __call__(self, amount: int = 1, note: str = "") -> None:
        """Report progress."""


class Reporter:
    """Says nothing; the base of those that do."""

    @contextmanager
    def stage(self, name: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Report a stage of ``total`` units, ``done`` of which an earlier run had finished."""

        def advance(amount: int = 1, note: str = "") -> None:
            del amount, note

        yield advance

    def say(self, text: str) -> None:
        """Report one line that stands by itself."""
