"""Figures, declared by what has the numbers and drawn elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal, get_args

from fsf_reports.values.quantities import Quantity, quantity_fields
from fsframework.errors import DataError
from fsframework.values import html_table

__all__ = ["FigureDeclaration", "Mark", "Panel", "Point", "Series"]

Mark = Literal["bars", "points", "whiskers", "lines", "matrix"]
"""How the values of a figure are shown; see ``FigureDeclaration``."""


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
        x = (
            quantity_fields("x", self.x, bounds=True)
            if isinstance(self.x, Quantity)
            else {"x": self.x}
        )
        return {**x, **quantity_fields("y", self.y, bounds=True), "label": self.label}


def _place(x: float | str | Quantity) -> str:
    return x.text() if isinstance(x, Quantity) else x if isinstance(x, str) else f"{x:g}"


@dataclass(frozen=True)
class Series:
    """Values that belong together, such as those of one arm: one colour, one line of the legend."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Panel:
    """One plot of a figure; see ``FigureDeclaration.own_ranges`` for its vertical axis.

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
        caption_axis: what the captions of the panels are; empty without captions.
        source: the publication whose figure it is; empty for none.
        mark: ``bars`` from zero in groups; ``points`` in a plane, with intervals on both axes where
            ``x`` has one; ``whiskers``, dots with intervals, categories down the side and values
            to the right; ``lines``, curves over numbers or ordered categories; ``matrix``, a cell
            per name of a series (its row) and category (its column).
        diagonal: whether the line of equal coordinates is drawn through ``points``.
        limits: what no value can lie beyond, such as 0 and 100 for percentages; intervals are drawn
            no further. ``None`` for none.
        own_ranges: whether the vertical axis of each panel of ``lines`` has a range of its own,
            since panels show several measures; otherwise all panels have the same.
        notes: what a reader must know, such as the level of the intervals; a sentence each.

    Raises:
        DataError: ``mark`` is unknown, cannot show what is on the horizontal axis, or has no
            ranges of its own.
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
    own_ranges: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.mark not in get_args(Mark):
            allowed = ", ".join(get_args(Mark))
            raise DataError(f"{self.name}: mark must be one of {allowed}, not {self.mark!r}")
        if self.diagonal and self.mark != "points":
            raise DataError(f"{self.name}: only points have a diagonal, not {self.mark}")
        if self.own_ranges and self.mark != "lines":
            raise DataError(f"{self.name}: only lines have ranges of their own, not {self.mark}")
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

    def __repr__(self) -> str:
        n_panels, n_points = len(self.panels), len(self.points)
        counts = f"{n_panels} panel{'s' * (n_panels != 1)}, {n_points:,} points"
        return f"<FigureDeclaration {self.name}: {counts}, {self.y_axis} over {self.x_axis}>"

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
        """Return the figure as the first renderer that can show it in a notebook draws it."""
        from fsf_reports._saving import in_notebook

        return in_notebook(self) or {"text/html": self._repr_html_(), "text/plain": repr(self)}

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
            "own_ranges": self.own_ranges,
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
