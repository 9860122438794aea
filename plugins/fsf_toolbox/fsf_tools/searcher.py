"""The contract of searchers, which propose values of options and stop trials early."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fsframework.interfaces.component import Configurable

__all__ = ["Range", "Search", "Searcher", "Space", "State", "Trial"]

State = Literal["running", "finished", "stopped", "failed"]


@dataclass(frozen=True)
class Range:
    """The numbers that an option may have.

    Args:
        low: smallest value; ``high`` the largest.
        log: whether values are even on a logarithmic scale.
        step: distance of neighbouring values, from ``low`` on; any number in between without one.
        whole: whether the numbers are whole.
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None
    whole: bool = False

    def __str__(self) -> str:
        """Return the range as it is given on the command line."""
        rest = [*(["log"] if self.log else []), *([self.step] if self.step else [])]
        return ":".join(map(str, (self.low, self.high, *rest)))


Space = Mapping[str, "Range | tuple[str, ...]"]
"""A range, or names to choose from, by option."""


@dataclass(frozen=True)
class Trial:
    """One configuration, and what came of it.

    Args:
        number: within the search, from 0.
        values: of every option of the space.
        state: ``stopped`` before its training ended; ``failed`` where it cannot be run.
        score: if it is finished; higher is better.
        reason: why it failed.
    """

    number: int
    values: Mapping[str, Any]
    state: State = "running"
    score: float | None = None
    reason: str = ""


class Search(ABC):
    """A search that is under way; several processes may have the same one open."""

    @abstractmethod
    def begin(self, number: int) -> Trial:
        """Return the trial of a number, with the values that it already has if it was begun before.

        No other process has this number.
        """

    @abstractmethod
    def goes_on(self, number: int, epoch: int, accuracy: float) -> bool:
        """Take note of the validation accuracy after an epoch; return whether to train further.

        Args:
            number: of a running trial.
            epoch: counted from 1 over all stages. An interrupted trial may report it again.
            accuracy: in 0..1.
        """

    @abstractmethod
    def end(
        self, number: int, state: State, *, score: float | None = None, reason: str = ""
    ) -> None:
        """Take note of what came of a running trial; see ``Trial``."""

    @abstractmethod
    def trials(self) -> list[Trial]:
        """Return all trials so far, by number."""


class Searcher(Configurable, ABC, kind="searcher"):
    """Searches for the values of options with which a method does best on validation tasks.

    The options include ``seed``: in one process, equal seeds make equal trials, interrupted or not.
    """

    @abstractmethod
    def open(self, file: Path, space: Space) -> Search:
        """Return the search that a file holds; a new one if the file does not exist.

        Args:
            file: which this alone reads and writes; other processes may open it at the same time.
            space: of the search, always the same for one file.

        Raises:
            OptionError: the searcher cannot search this space.
            DataError: the file is damaged.
        """
