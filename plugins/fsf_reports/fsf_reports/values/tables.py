"""Tables, declared by what has the numbers and written elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from fsf_reports.values.quantities import Quantity, quantity_fields
from fsframework.errors import DataError
from fsframework.values import html_table

if TYPE_CHECKING:
    from fsf_statistics import ComparedHeadline

__all__ = ["Entry", "TableDeclaration", "table_of_headline"]


@dataclass(frozen=True)
class Entry:
    """One value of a table, and all that must be known to read it.

    Args:
        row: names of its row, one for each of the table's ``row_names``.
        column: name of its column.
        measured: ``None`` where it could not be measured; ``reason`` says why.
        printed: what a publication prints for it, ``None`` where it prints nothing.
        from_printed: the same quantity computed from the printed values of the methods measured
            here, where that differs from ``printed``.
        about: what was measured, as JSON values; the same keys in every entry of a table.
        mark: ``best`` for the best value of its column, ``tied`` for one that cannot be
            distinguished from it.
    """

    row: tuple[str, ...]
    column: str
    measured: Quantity | None
    reason: str = ""
    printed: Quantity | None = None
    from_printed: Quantity | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    mark: Literal["", "best", "tied"] = ""

    @property
    def difference(self) -> Quantity | None:
        """Measured minus printed."""
        if self.measured is None or self.printed is None:
            return None
        return self.measured.minus(self.printed)

    def to_json(self) -> dict[str, Any]:
        """Return a flat object; what is missing is null."""
        return {
            "quantity": self.column,
            **quantity_fields("measured", self.measured, bounds=True),
            **quantity_fields("printed", self.printed),
            **quantity_fields("difference", self.difference),
            "from_printed": None if self.from_printed is None else self.from_printed.value,
            "unit": self.measured.unit if self.measured else "",
            **self.about,
            "mark": self.mark,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class TableDeclaration:
    """A table of measured values, with printed ones beside them where there are any.

    Args:
        name: what it is called, such as ``Table S7``.
        title: one sentence.
        row_names: what the names of a row are, such as ``shot`` and ``method``.
        entries: in the order of rows and columns.
        notes: below the table, a sentence each.
        differences: whether measured minus printed is shown.
        source: the publication whose table it is; empty for none.
        folded: whether a page shows it only when it is asked for.
        reading: what a caption adds to the title: data, tasks, intervals, and what is left out.
        remarks: what its author must know, a sentence each; printed, but in no file.

    Raises:
        DataError: an entry has another number of row names, or two entries have the same place.
    """

    name: str
    title: str
    row_names: tuple[str, ...]
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()
    differences: bool = True
    source: str = ""
    folded: bool = False
    reading: str = ""
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        places = set()
        for entry in self.entries:
            if len(entry.row) != len(self.row_names):
                raise DataError(
                    f"{self.name}: the row {entry.row} must have {len(self.row_names)} names "
                    f"({', '.join(self.row_names)})"
                )
            if (entry.row, entry.column) in places:
                where = f"the row {entry.row} and the column {entry.column!r}"
                raise DataError(f"{self.name}: two values have {where}")
            places.add((entry.row, entry.column))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of measured values, in order."""
        return tuple(dict.fromkeys(entry.column for entry in self.entries))

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The names of each row, in order."""
        return tuple(dict.fromkeys(entry.row for entry in self.entries))

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why values are missing, each reason once."""
        missing = (e.reason for e in self.entries if e.measured is None and e.reason)
        return tuple(dict.fromkeys(missing))

    def __repr__(self) -> str:
        columns = ", ".join(self.columns)
        return f"<TableDeclaration {self.name}: {len(self.rows):,} rows; {columns}>"

    def _repr_html_(self) -> str:
        found: dict[tuple[str, ...], dict[str, Entry]] = {}
        for entry in self.entries:
            found.setdefault(entry.row, {})[entry.column] = entry
        rows = [
            [*names, *(_told(entries.get(column)) for column in self.columns)]
            for names, entries in found.items()
        ]
        heads = [*self.row_names, *self.columns]
        below = "".join(f"<p>{escape(note)}</p>" for note in (*self.notes, *self.remarks))
        return (
            html_table(heads, rows, " ".join((f"{self.name}.", self.title, self.reading))) + below
        )

    def to_json(self) -> dict[str, Any]:
        """Return name, title, reading, notes, remarks and every entry as JSON values."""
        return {
            "table": self.name,
            "title": self.title,
            "reading": self.reading,
            "notes": list(self.notes),
            "remarks": list(self.remarks),
            "rows": [entry.to_json() for entry in self.entries],
        }


def _told(entry: Entry | None) -> str:
    """Return a value as text: ``*`` marks the best of a column, ``~`` what is tied with it."""
    if entry is None or entry.measured is None:
        return "–"
    marks = {"best": " *", "tied": " ~", "": ""}
    printed = f" (printed {entry.printed.text()})" if entry.printed is not None else ""
    return entry.measured.text() + marks[entry.mark] + printed


def table_of_headline(headline: ComparedHeadline) -> TableDeclaration:
    """Return the table of a headline, with its notes."""
    entries = tuple(
        Entry(
            one.row,
            one.column,
            None if one.estimate is None else Quantity.of(one.estimate),
            one.reason,
            about={"row": one.label, "measure": one.estimate.name if one.estimate else ""},
            mark=one.mark,
        )
        for one in headline.table.entries
    )
    names = headline.table.row_names
    return TableDeclaration("headline", "", names, entries, headline.notes, differences=False)
