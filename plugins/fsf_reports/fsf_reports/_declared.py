"""Declared tables as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from fsf_reports.values import TableColumn, TableDeclaration, shown_columns

__all__ = ["print_table", "table_lines"]

_GAP = 2
_LEAST_NAME = 8
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_HEADS = {"printed": "printed", "difference": "difference", "from_printed": "printed, these"}
_MARKS = {"best": " *", "tied": " ~", "": ""}


def print_table(table: TableDeclaration) -> None:
    """Print a table so that it fits the terminal; in a pipe nothing wraps or is cut."""
    from fsframework.cli.render import room_of_line

    for line in table_lines(table, room_of_line()):
        print(line)


def table_lines(table: TableDeclaration, width: int) -> Iterator[str]:
    """Yield a table with its name, title and notes as lines of at most ``width`` characters.

    A table with too many columns is shown in parts, each with the names of the rows; names that are
    too long are cut in the middle. A missing value is a dash, and the reason is a footnote.

    Args:
        width: characters per line.
    """
    title = f"{table.name}. {table.title}" if table.title else table.name
    yield from textwrap.wrap(title, width, break_on_hyphens=False)
    yield ""
    names = [[head, *(row[i] for row in table.rows)] for i, head in enumerate(table.row_names)]
    groups = [_cells_of(group, table.reasons) for group in _groups(table)]
    single = max((_width([cells]) for group in groups for cells in group), default=0)
    together = max((_width(group) for group in groups), default=0)
    names = _fitted(names, width - max(single, min(together, 2 * width // 3)) - _GAP)
    room = width - _width(names) - _GAP
    pieces = list[list[list[str]]]()
    for columns, group in zip(_groups(table), groups, strict=True):
        apart = [[[c.name, *cells[1:]]] for c, cells in zip(columns, group, strict=True)]
        pieces += [group] if _width(group) <= room else apart
    for part in _parts(pieces, room):
        yield from _lines([*names, *part])
        yield ""
    wrapper = textwrap.TextWrapper(
        width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
    )
    notes = [f"{_sign(i)}: {reason}" for i, reason in enumerate(table.reasons)]
    for note in (*notes, *filter(None, [table.reading]), *table.notes, *table.remarks):
        yield from wrapper.wrap(note)


def _groups(table: TableDeclaration) -> list[list[TableColumn]]:
    """Return each column of measured values, together with what is beside it."""
    groups: list[list[TableColumn]] = []
    for column in shown_columns(table):
        if column.kind == "measured":
            groups.append([])
        groups[-1].append(column)
    return groups


def _cells_of(group: Sequence[TableColumn], reasons: Sequence[str]) -> list[list[str]]:
    """Return heads and cells of columns; heads beside measured values are short."""
    return [[_HEADS.get(one.kind, one.name), *_cells(one, reasons)] for one in group]


def _cells(column: TableColumn, reasons: Sequence[str]) -> Iterator[str]:
    for entry, value in zip(column.entries, column.values, strict=True):
        if value is not None:
            signed = column.kind == "difference"
            bare = column.kind == "measured" and not (value.has_interval or value.exact)
            mark = _MARKS[entry.mark] if entry is not None and column.kind == "measured" else ""
            yield value.text(signed=signed) + " (no interval)" * bare + mark
        elif entry is not None and entry.reason and column.kind == "measured":
            yield f"– {_sign(reasons.index(entry.reason))}"
        else:
            yield "–"


def _sign(place: int) -> str:
    return _LETTERS[place] if place < len(_LETTERS) else str(place + 1)


def _width(columns: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, cells)) for cells in columns) + _GAP * (len(columns) - 1)


def _fitted(names: list[list[str]], room: int) -> list[list[str]]:
    """Return names of rows that are cut in the middle until they fit."""
    widths = [max(map(len, cells)) for cells in names]
    while sum(widths) + _GAP * (len(widths) - 1) > room and max(widths) > _LEAST_NAME:
        widths[widths.index(max(widths))] -= 1
    return [[_cut(cell, most) for cell in cells] for cells, most in zip(names, widths, strict=True)]


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"


def _parts(pieces: Sequence[list[list[str]]], room: int) -> Iterator[list[list[str]]]:
    """Yield the columns of as many pieces at once as fit, at least of one."""
    part: list[list[str]] = []
    for columns in pieces:
        if part and _width([*part, *columns]) > room:
            yield part
            part = []
        part = [*part, *columns]
    yield part


def _lines(columns: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, cells)) for cells in columns]
    for line in zip(*columns, strict=True):
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        yield (" " * _GAP).join(cells).rstrip()
