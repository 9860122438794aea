"""The values of a figure as CSV."""

from __future__ import annotations

from fsf_reports.values import FigureDeclaration
from fsf_statistics import PathNames
from fsframework.values import csv_text

__all__ = ["figure_csv"]


def figure_csv(figure: FigureDeclaration) -> str:
    """Return one row per value: panel, series, label, place, value and interval."""
    figure = PathNames().in_text(figure)
    rows = [
        {"panel": panel.title, "series": series.name, **point.to_json(),
         "unit": point.y.unit if point.y is not None else ""}
        for panel in figure.panels
        for series in panel.series
        for point in series.points
    ]  # fmt: skip
    names = list(dict.fromkeys(name for row in rows for name in row))
    return csv_text(names, rows)
