"""All methods in one table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from fsf_reports._sections._headline import every_measure, gap_name, headline_of, titled
from fsf_reports.interfaces import ReportedRuns, Section
from fsf_reports.values import Block, TableDeclaration, table_of_headline
from fsf_statistics import ComparedHeadline, letters_shown, letters_told

__all__ = ["Leaderboard"]

_LETTER = "letter"
"""The name that a headline gives to letters of robustness."""


class Leaderboard(Section):
    """Every method with its intervals, one table for each set of equal tasks."""

    title: ClassVar[str] = "Leaderboard"
    place: ClassVar[int] = 100

    def blocks(self, runs: ReportedRuns) -> Iterator[Block]:
        """Return for each set of equal tasks the headline and a table of every measure."""
        groups = runs.by_tasks()
        for number, group in enumerate(groups, start=1):
            yield _board(group, titled("Leaderboard", number, groups))
            yield every_measure(group, titled("Every measure", number, groups))


def _board(group: ReportedRuns, name: str) -> TableDeclaration:
    """Return the headline with what matters most first; how to read it stands in the notes."""
    found = headline_of(group)
    table = table_of_headline(found)
    gap = gap_name(group)
    columns = found.columns[0] if found.columns else ()
    statistic = next((c.measure.statistic for c in columns if c.measure.name == gap), "")
    first = [c.label for c in columns if c.measure.name == gap or not c.measure.arms]
    arms = [
        c.label for c in columns if c.measure.statistic == statistic and len(c.measure.arms) == 1
    ]
    order = list(dict.fromkeys([*first, *arms, *table.columns]))
    entries = sorted(table.entries, key=lambda entry: order.index(entry.column))
    board = dataclasses.replace(table, name=name, entries=tuple(entries), notes=())
    return board if _LETTER in board.row_names else _lettered(board, found, gap)


def _lettered(
    board: TableDeclaration, found: ComparedHeadline, gap: str | None
) -> TableDeclaration:
    """Return a table with letters: of its gap, or of the first column if gaps rank no methods."""
    columns = found.columns[0] if found.columns else ()
    ranking = [one for one in columns if one.measure.name == gap and one.ranks]
    leading = next(iter([*ranking, *columns]), None)
    if leading is None or leading.compared is None:
        return board
    letters = leading.compared.letters
    entries = tuple(
        dataclasses.replace(one, row=(*one.row, letters_shown(letters.get(one.about["row"], ""))))
        for one in board.entries
    )
    told = (
        f"{_LETTER}: by {leading.label}. {letters_told(leading.values.values(), letters.values())}"
    )
    row_names = (*board.row_names, _LETTER)
    return dataclasses.replace(board, row_names=row_names, entries=entries, notes=(told,))
