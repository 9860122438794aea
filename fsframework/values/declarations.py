"""Tables and figures, declared by what has the numbers and drawn elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal, get_args

from fsframework._showing import shown
from fsframework.errors import DataError
from fsframework.values.quantities import Quantity
from fsframework.values.tables import html_table

__all__ = [
    "Entry",
    "FigureDeclaration",
    "Mark",
    "Panel",
    "Point",
    "Series",
    "TableColumn",
    "TableDeclaration",
]

Mark = Literal["bars", "points", "whiskers", "lines", "matrix"]
"""How the values of a figure are shown; see ``FigureDeclaration``."""


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
            **_fields("measured", self.measured, bounds=True),
            **_fields("printed", self.printed),
            **_fields("difference", self.difference),
            "from_printed": None if self.from_printed is None else self.from_printed.value,
            "unit": self.measured.unit if self.measured else "",
            **self.about,
            "mark": self.mark,
            "reason": self.reason,
        }


def _fields(name: str, quantity: Quantity | None, *, bounds: bool = False) -> dict[str, Any]:
    q = quantity or Quantity(math.nan)
    ends = {f"{name}_low": _known(q.low), f"{name}_high": _known(q.high)} if bounds else {}
    return {name: _known(q.value), f"{name}_half_width": _known(q.half_width), **ends}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 6)


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


@dataclass(frozen=True)
class TableDeclaration:
    """A table of measured values, with printed ones beside them where there are any.

    Args:
        name: what it is called, such as ``Table S7``.
        title: one sentence.
        row_names: what the names of a row are, such as ``shot`` and ``method``.
        entries: in the order of rows and columns.
        notes: footnotes, a sentence each.
        differences: whether measured minus printed is shown.
        source: the publication whose table it is; empty for none.

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
    def shown(self) -> tuple[TableColumn, ...]:
        """The columns as readers see them, with printed values beside measured ones."""
        at = {(entry.row, entry.column): entry for entry in self.entries}
        columns = []
        for name in self.columns:
            entries = tuple(at.get((row, name)) for row in self.rows)
            columns += list(_beside(name, entries, differences=self.differences))
        return tuple(columns)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why values are missing, each reason once."""
        missing = (e.reason for e in self.entries if e.measured is None and e.reason)
        return tuple(dict.fromkeys(missing))

    def _repr_html_(self) -> str:
        found: dict[tuple[str, ...], dict[str, Entry]] = {}
        for entry in self.entries:
            found.setdefault(entry.row, {})[entry.column] = entry
        rows = [
            [*names, *(_told(entries.get(column)) for column in self.columns)]
            for names, entries in found.items()
        ]
        heads = [*self.row_names, *self.columns]
        below = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return html_table(heads, rows, f"{self.name}. {self.title}") + below

    def to_json(self) -> dict[str, Any]:
        """Return name, title, notes and every entry as JSON values."""
        return {
            "table": self.name,
            "title": self.title,
            "notes": list(self.notes),
            "rows": [entry.to_json() for entry in self.entries],
        }


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


def _told(entry: Entry | None) -> str:
    """Return a value as text: ``*`` marks the best of a column, ``~`` what is tied with it."""
    if entry is None or entry.measured is None:
        return "–"
    marks = {"best": " *", "tied": " ~", "": ""}
    printed = f" (printed {entry.printed.text()})" if entry.printed is not None else ""
    return entry.measured.text() + marks[entry.mark] + printed


@dataclass(frozen=True)
class Point:
    """One value of a figure.

    Args:
        x: its place on the horizontal axis: a number, the name of a category, or a value with its
            interval.
        y: the value on the vertical axis with its interval; ``None`` where it is missing.
        label: a few words that name it next to its mark; empty for none.
    """

    x: float | str | Quantity
    y: Quantity | None
    label: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return place, value and label as JSON values; what is missing is null."""
        x = _fields("x", self.x, bounds=True) if isinstance(self.x, Quantity) else {"x": self.x}
        return {**x, **_fields("y", self.y, bounds=True), "label": self.label}


def _place(x: float | str | Quantity) -> str:
    return x.text() if isinstance(x, Quantity) else x if isinstance(x, str) else f"{x:g}"


@dataclass(frozen=True)
class Series:
    """Values that belong together, such as those of one arm: one colour, one line of the legend."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Panel:
    """One plot of a figure; all panels of a figure have the same vertical axis.

    Args:
        title: above it.
        series: in the order of the legend.
        captions: a text below places on the horizontal axis.
    """

    title: str
    series: tuple[Series, ...]
    captions: Mapping[float | str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FigureDeclaration:
    """A figure: what is on which axis.

    Args:
        name: what it is called, such as ``Figure 3``.
        title: one sentence; empty for none.
        x_axis: what the horizontal axis shows, with its unit; ``y_axis`` the vertical one.
        panels: from left to right.
        caption_axis: what the captions of the panels are; empty where there are none.
        source: the publication whose figure it is; empty for none.
        mark: ``bars`` from zero in groups; ``points`` in a plane, with intervals on both axes where
            ``x`` has one; ``whiskers``, dots with intervals, categories down the side and values
            to the right; ``lines``, curves over numbers or ordered categories; ``matrix``, a cell
            per name of a series (its row) and category (its column).
        diagonal: whether the line of equal coordinates is drawn through ``points``.
        limits: what no value can lie beyond, such as 0 and 100 for percentages; intervals are drawn
            no further. ``None`` for none.
        notes: what a reader must know, such as the level of the intervals; a sentence each.

    Raises:
        DataError: ``mark`` is unknown or cannot show what is on the horizontal axis.
    """

    name: str
    title: str
    x_axis: str
    y_axis: str
    panels: tuple[Panel, ...]
    caption_axis: str = ""
    source: str = ""
    mark: Mark = "bars"
    diagonal: bool = False
    limits: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.mark not in get_args(Mark):
            allowed = ", ".join(get_args(Mark))
            raise DataError(f"{self.name}: mark must be one of {allowed}, not {self.mark!r}")
        if self.diagonal and self.mark != "points":
            raise DataError(f"{self.name}: only points have a diagonal, not {self.mark}")
        for point in self.points:
            self._check_place(point.x)

    def _check_place(self, x: float | str | Quantity) -> None:
        if self.mark == "points":
            if isinstance(x, str):
                raise DataError(f"{self.name}: the x of points must be a number, not {x!r}")
        elif isinstance(x, Quantity):
            raise DataError(f"{self.name}: only the x of points can have an interval")
        elif self.mark in ("whiskers", "matrix") and not isinstance(x, str):
            raise DataError(f"{self.name}: the x of {self.mark} must be a name, not {x!r}")

    @property
    def points(self) -> tuple[Point, ...]:
        """The points of all series of all panels."""
        return tuple(p for panel in self.panels for series in panel.series for p in series.points)

    def _repr_html_(self) -> str:
        rows = [
            (panel.title, series.name, point.label, _place(point.x),
             "–" if point.y is None else point.y.text())
            for panel in self.panels
            for series in panel.series
            for point in series.points
        ]  # fmt: skip
        heads = ("panel", "series", "label", self.x_axis, self.y_axis)
        kept = [i for i, head in enumerate(heads) if i > 2 or any(row[i] for row in rows)]
        below = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        shortened = [[row[i] for i in kept] for row in rows]
        title = f"{self.name}. {self.title}"
        return html_table([heads[i] for i in kept], shortened, title) + below

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Return the figure as it is drawn, where something that draws is installed."""
        drawn = shown(self)
        return drawn or {"text/html": self._repr_html_(), "text/plain": repr(self)}

    def to_json(self) -> dict[str, Any]:
        """Return axes, panels and every value as JSON values."""
        return {
            "figure": self.name,
            "title": self.title,
            "x_axis": self.x_axis,
            "y_axis": self.y_axis,
            "mark": self.mark,
            "diagonal": self.diagonal,
            "limits": None if self.limits is None else list(self.limits),
            "panels": [
                {
                    "title": panel.title,
                    "series": [
                        {"name": series.name, "points": [p.to_json() for p in series.points]}
                        for series in panel.series
                    ],
                    "captions": {str(x): text for x, text in panel.captions.items()},
                }
                for panel in self.panels
            ],
            "notes": list(self.notes),
        }
