"""The table of a headline, as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from fsf_statistics.task_sets import head_of_fact, told_value
from fsframework.values import Estimate, text_table

__all__ = ["HeadlineEntry", "HeadlineTable"]


_MARKS = {"best": "*", "tied": "~", "": ""}
_LEAST_BAR, _MOST_BAR = 10, 24


@dataclass(frozen=True)
class HeadlineEntry:
    """A value of the table of a headline, or the reason why there is none.

    Args:
        row: names of its row, one for each of the table's ``row_names``.
        column: name of its column.
        label: what sentences call the row.
        estimate: ``None`` where nothing was measured; ``reason`` says why.
        mark: ``best`` for the best value of its column, ``tied`` for one that cannot be
            distinguished from it.
    """

    row: tuple[str, ...]
    column: str
    label: str
    estimate: Estimate | None
    reason: str = ""
    mark: Literal["", "best", "tied"] = ""

    @property
    def in_percent(self) -> tuple[float, float, float]:
        """Value and interval, shares in percent; NaN where nothing was measured."""
        one = self.estimate
        if one is None:
            return float("nan"), float("nan"), float("nan")
        factor = 100 if one.share else 1
        return factor * one.value, factor * one.low, factor * one.high

    @property
    def parts(self) -> tuple[str, str, str]:
        """Value, half-width and mark as text."""
        mark = _MARKS[self.mark]
        if self.estimate is None:
            return "–", "", mark
        digits, (value, low, high) = (1 if self.estimate.share else 3), self.in_percent
        shown = f"{value:z.{digits}f}".replace("-", "−")
        return shown, f"{(high - low) / 2:.{digits}f}" * (low == low), mark


@dataclass(frozen=True)
class HeadlineTable:
    """The table of a headline.

    Args:
        row_names: what the names of a row are, such as ``shot`` and ``method``; ``letter`` is
            shared by methods that cannot be told apart.
        entries: in the order of rows and columns.
    """

    row_names: tuple[str, ...] = ()
    entries: tuple[HeadlineEntry, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns, in order."""
        return tuple(dict.fromkeys(entry.column for entry in self.entries))

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The names of each row, in order."""
        return tuple(dict.fromkeys(entry.row for entry in self.entries))

    def entries_of(self, column: str) -> list[HeadlineEntry]:
        """Return the entries of a column, in the order of the rows."""
        return [entry for entry in self.entries if entry.column == column]

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return heads and cells of the whole table, names of rows as readers call them."""
        columns = [_cells(self.entries_of(name)) for name in self.columns]
        named = [list(map(told_value, names)) for names in self.rows]
        rows = [[*names, *cells] for names, *cells in zip(named, *columns, strict=True)]
        return [*map(head_of_fact, self.row_names), *self.columns], rows

    def text(self, width: int) -> str:
        """Return the table as lines of at most ``width`` characters.

        The intervals of the last column are also drawn as bars on a common scale, if there is
        room. Where there is too little, columns are left out, but never the first or the last two.
        """
        heads, rows = self.cells()
        columns = [list(cells) for cells in zip(heads, *rows, strict=True)]
        spare = len(self.columns) - 3
        while (room := width - sum(max(map(len, c)) + 2 for c in columns)) < -2 and spare > 0:
            del columns[len(self.row_names) + 1]
            spare -= 1
        if room >= _LEAST_BAR and self.columns:
            columns.append(["", *_bars(self.entries_of(self.columns[-1]), min(room, _MOST_BAR))])
        first, *lines = zip(*columns, strict=True)
        return text_table(first, lines, width)


def _cells(entries: Sequence[HeadlineEntry]) -> list[str]:
    """Return values with their intervals and marks, aligned at the decimal point."""
    parts = [entry.parts for entry in entries]
    before, after = (max(len(part[i]) for part in parts) for i in range(2))
    return [
        f"{value.rjust(before)}{f' ± {half.rjust(after)}' if half else ''}{mark or ' '}".rstrip()
        for value, half, mark in parts
    ]


def _bars(entries: Sequence[HeadlineEntry], width: int) -> list[str]:
    """Return each interval as a bar on a common scale, with 0 marked."""
    values = [entry.in_percent for entry in entries]
    ends = [0.0, *(x for one in values for x in one if x == x)]
    low, span = min(ends), (max(ends) - min(ends)) or 1.0

    def place(x: float) -> int:
        return round((x - low) / span * (width - 1))

    return ["" if one[0] != one[0] else _bar(*one, place, width) for one in values]


def _bar(value: float, low: float, high: float, place: Callable[[float], int], width: int) -> str:
    line = [" "] * width
    line[place(0.0)] = "╎"
    if low == low:
        first, last = place(low), place(high)
        line[first : last + 1] = "─" * (last - first + 1)
        if last - first > 1:
            line[first], line[last] = "├", "┤"
    line[place(value)] = "●"
    return "".join(line).rstrip()
