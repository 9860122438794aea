"""Tables and figures, declared by what has the numbers and drawn elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fsframework.errors import DataError
from fsframework.values.quantities import Quantity

__all__ = ["Entry", "FigureDeclaration", "Panel", "Point", "Series", "TableDeclaration"]


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
    """

    row: tuple[str, ...]
    column: str
    measured: Quantity | None
    reason: str = ""
    printed: Quantity | None = None
    from_printed: Quantity | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

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
            "reason": self.reason,
        }


def _fields(name: str, quantity: Quantity | None, *, bounds: bool = False) -> dict[str, Any]:
    q = quantity or Quantity(math.nan)
    ends = {f"{name}_low": _known(q.low), f"{name}_high": _known(q.high)} if bounds else {}
    return {name: _known(q.value), f"{name}_half_width": _known(q.half_width), **ends}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 6)


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

    def to_json(self) -> dict[str, Any]:
        """Return name, title, notes and every entry as JSON values."""
        return {
            "table": self.name,
            "title": self.title,
            "notes": list(self.notes),
            "rows": [entry.to_json() for entry in self.entries],
        }


@dataclass(frozen=True)
class Point:
    """One value of a figure.

    Args:
        x: its place on the horizontal axis: a number, or the name of a category.
        y: the value on the vertical axis with its interval; ``None`` where it is missing.
    """

    x: float | str
    y: Quantity | None


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
        title: one sentence.
        x_axis: what the horizontal axis shows, with its unit; ``y_axis`` the vertical one.
        panels: from left to right.
        caption_axis: what the captions of the panels are; empty where there are none.
        source: the publication whose figure it is; empty for none.
    """

    name: str
    title: str
    x_axis: str
    y_axis: str
    panels: tuple[Panel, ...]
    caption_axis: str = ""
    source: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return axes, panels and every value as JSON values."""
        return {
            "figure": self.name,
            "title": self.title,
            "x_axis": self.x_axis,
            "y_axis": self.y_axis,
            "panels": [
                {
                    "title": panel.title,
                    "series": [
                        {
                            "name": series.name,
                            "points": [
                                {"x": p.x, **_fields("y", p.y, bounds=True)} for p in series.points
                            ],
                        }
                        for series in panel.series
                    ],
                    "captions": {str(x): text for x, text in panel.captions.items()},
                }
                for panel in self.panels
            ],
        }
