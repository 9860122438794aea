"""The answer of a run: a few sentences and one table."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from fsframework._text import printable
from fsframework.api.running import Run
from fsframework.errors import DataError
from fsframework.statistics.measures import Measure
from fsframework.values import Contrast, Estimate, text_table

__all__ = [
    "Headline",
    "HeadlineEntry",
    "HeadlineTable",
    "gap_told",
    "headline_of_run",
    "loss_told",
    "measures_of_table",
    "points",
    "reading_told",
]

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
        return f"{value:.{digits}f}", f"{(high - low) / 2:.{digits}f}" * (low == low), mark


@dataclass(frozen=True)
class HeadlineTable:
    """The table of a headline.

    Args:
        row_names: what the names of a row are, such as ``shot`` and ``method``.
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
        """Return heads and cells of the whole table."""
        columns = [_cells(self.entries_of(name)) for name in self.columns]
        rows = [[*names, *cells] for names, *cells in zip(self.rows, *columns, strict=True)]
        return [*self.row_names, *self.columns], rows

    def text(self, width: int) -> str:
        """Return the table as lines of at most ``width`` characters.

        The intervals of the last column are also drawn as bars on a common scale, if there is
        room. Where there is too little room, columns before the last three are left out.
        """
        heads, rows = self.cells()
        columns = [list(cells) for cells in zip(heads, *rows, strict=True)]
        spare = len(self.columns) - 3
        while (room := width - sum(max(map(len, c)) + 2 for c in columns)) < -2 and spare > 0:
            del columns[len(self.row_names)]
            spare -= 1
        if room >= _LEAST_BAR and self.columns:
            columns.append(["", *_bars(self.entries_of(self.columns[-1]), min(room, _MOST_BAR))])
        first, *lines = zip(*columns, strict=True)
        return text_table(first, lines, width)


@dataclass(frozen=True, repr=False, eq=False)
class Headline:
    """What experiments found: printed, sentences and one table that fits 80 columns.

    Args:
        sentences: the answer in words.
        table: a row per method; columns are the measures of both arms and the gap.
        notes: what is needed to read the table.
    """

    sentences: tuple[str, ...]
    table: HeadlineTable = HeadlineTable()
    notes: tuple[str, ...] = ()

    def text(self, width: int = 80) -> str:
        """Return sentences, table and notes as lines of at most ``width`` characters."""
        paragraphs = [
            textwrap.fill(" ".join(self.sentences), width),
            self.table.text(width) if self.table.entries else "",
            "\n".join(textwrap.fill(note, width) for note in self.notes),
        ]
        return printable("\n\n".join(filter(None, paragraphs)))

    def __repr__(self) -> str:
        return self.text()


def headline_of_run(run: Run) -> Headline:
    """Return the answer of a run from the estimates it holds.

    Raises:
        DataError: it has no estimates.
    """
    record, estimates = run.record, run.estimates
    if not estimates:
        raise DataError(f"{run.name}: has no estimates")
    names = list(dict.fromkeys(e.statistic for e in estimates.values()))
    usual = [one.name for one in measures_of_table(names, tuple(record.arms), record.contrast)]
    label = record.method.called if record.method is not None else run.name
    own = [estimates[name] for name in usual if name in estimates] or list(estimates.values())
    shown = {"gap" if len(one.arms) > 1 else record.label(one): one for one in own}
    table = HeadlineTable(
        ("method",), tuple(HeadlineEntry((label,), head, label, e) for head, e in shown.items())
    )
    (head, main), notes = list(shown.items())[-1], [reading_told(list(shown.values()))]
    sentence = f"{label} has {head} {main}."
    same = {head: e for head, e in shown.items() if e.statistic == main.statistic}
    of_arms = {head: e for head, e in same.items() if len(e.arms) == 1}
    if len(main.arms) > 1:
        called = record.labels.get(main.statistic) or main.statistic
        sentence = loss_told(label, called, main, list(of_arms.values()))
        notes.append(gap_told(list(of_arms), higher_is_better=main.higher_is_better))
    notes += [f"note: {caution}" for caution in record.cautions]
    return Headline((sentence,), table, tuple(notes))


def measures_of_table(
    statistics: Sequence[str], arms: Sequence[str], contrast: Contrast | None
) -> list[Measure]:
    """Return the measures of the table: the main statistic, which is the last, in every arm."""
    own, main = contrast.arms if contrast is not None else tuple(arms), statistics[-1]
    measures = [Measure(name, own[:1]) for name in statistics[:-1]]
    measures += [Measure(main, (arm,)) for arm in own]
    return measures + ([] if contrast is None else [Measure(main, contrast.arms)])


def reading_told(estimates: Sequence[Estimate]) -> str:
    """Return a sentence on units, intervals and tasks."""
    tasks = sorted({e.n_tasks // max(1, len(e.arms) if not e.paired else 1) for e in estimates})
    counts = f"{tasks[0]:,}" if len(tasks) == 1 else f"{tasks[0]:,} to {tasks[-1]:,}"
    unit = "In percent" if all(e.share for e in estimates) else "Shares in percent"
    over = " and training seeds" if any(e.n_seeds > 1 for e in estimates) else ""
    meaning = {
        "closed": "closed: images recur between tasks, so they speak of this data set only",
        "open": "open: no image recurs between tasks, so they speak of the data's distribution",
    }
    said = "; ".join(meaning[scope] for scope in sorted({e.scope for e in estimates}))
    return (
        f"{unit}; ± {100 * estimates[0].level:g} % interval over {counts} tasks per arm{over} "
        f"({said})."
    )


def gap_told(arms: Sequence[str], *, higher_is_better: bool) -> str:
    """Return what a gap subtracts from what, by the labels of its arms."""
    first, second = arms if higher_is_better else reversed(arms)
    return f"gap = {first} − {second}; larger is worse."


def loss_told(label: str, statistic: str, gap: Estimate, of_arms: Sequence[Estimate]) -> str:
    """Return what one method loses from the control arm to the tested one."""
    ends = " to ".join(
        f"{100 * one.value:.1f} %" if one.share else f"{one.value:.4g}" for one in of_arms
    )
    arms = f"of {statistic} from {gap.arms[0]} to {gap.arms[1]} tasks"
    if gap.low > 0:
        return f"{label} loses {points(gap)} {arms} ({ends})."
    if gap.high < 0:
        return f"{label} gains {points(gap, -1)} {arms} ({ends})."
    why = "an interval that contains 0" if gap.low == gap.low else "without an interval"
    return f"No loss {arms} is shown for {label}: the gap is {points(gap)}, {why} ({ends})."


def points(estimate: Estimate, sign: int = 1) -> str:
    """Return a difference with its half-width, of shares in points."""
    factor, unit = (100, " points") if estimate.share else (1, "")
    value = f"{sign * factor * estimate.value:.1f}"
    if estimate.low != estimate.low:
        return value + unit
    return f"{value} ± {factor * estimate.half_width:.1f}{unit}"


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
