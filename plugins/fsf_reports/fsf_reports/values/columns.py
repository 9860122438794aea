"""The columns of a table as readers see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from fsf_reports.values.quantities import Quantity
from fsf_reports.values.tables import Entry, TableDeclaration

__all__ = ["TableColumn", "shown_columns"]

ColumnKind = Literal["measured", "printed", "difference", "from_printed"]


@dataclass(frozen=True)
class TableColumn:
    """A column of a table as readers see it: measured values, or what is beside them.

    Args:
        name: its head.
        kind: ``measured``, ``printed``, measured minus printed (``difference``), or computed from
            the printed values of the methods that were measured (``from_printed``).
        values: one per row, ``None`` where there is none.
        entries: that the values are of.
    """

    name: str
    kind: ColumnKind
    values: tuple[Quantity | None, ...]
    entries: tuple[Entry | None, ...]


def shown_columns(table: TableDeclaration) -> tuple[TableColumn, ...]:
    """Return the columns of a table, with printed values beside measured ones."""
    at = {(entry.row, entry.column): entry for entry in table.entries}
    columns: list[TableColumn] = []
    for name in table.columns:
        entries = tuple(at.get((row, name)) for row in table.rows)
        columns += _beside(name, entries, differences=table.differences)
    return tuple(columns)


def _beside(
    name: str, entries: tuple[Entry | None, ...], *, differences: bool
) -> Iterator[TableColumn]:
    """Yield a column of measured values, and those beside it that have any value."""

    def column(head: str, kind: ColumnKind, of: Callable[[Entry], Quantity | None]) -> TableColumn:
        values = tuple(None if entry is None else of(entry) for entry in entries)
        return TableColumn(head, kind, values, entries)

    yield column(name, "measured", lambda entry: entry.measured)
    known = [entry for entry in entries if entry is not None]
    if any(entry.printed for entry in known):
        yield column(f"{name}, printed", "printed", lambda entry: entry.printed)
        if differences:
            head = f"{name}, measured − printed"
            yield column(head, "difference", lambda entry: entry.difference)
    if any(entry.from_printed for entry in known):
        head = f"{name}, printed, these methods"
        yield column(head, "from_printed", lambda entry: entry.from_printed)
