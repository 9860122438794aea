"""Figures as Vega-Lite: one specification for the page, the paper and the notebook."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fsf_reports._marks import (
    Frame,
    draw_panel,
    least_height,
    least_width,
    numbered,
    same_rows,
    with_room,
    within_limits,
)
from fsf_reports._scales import axis_over
from fsf_reports._style import CONFIG, INK, SIZE, TITLE, WIDTHS
from fsf_reports._text import line_height, plain, text_width, wrapped
from fsf_reports.interfaces import Renderer
from fsf_reports.values import FigureDeclaration, Quantity
from fsframework.errors import DataError, FsfError

if TYPE_CHECKING:
    import altair

__all__ = ["Altair", "chart", "vega_lite"]

VERSION = "6.1"
"""Of Vega-Lite, as ``$schema`` names it."""

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_MEDIA_TYPE = "application/vnd.vegalite.v6+json"
_PPI = 300
_GAP = 10.0
_KEY = 16.0
_MOST_KEYS = 60
"""Nobody looks up more names than that in a legend."""


class Altair(Renderer):
    """Vega-Lite drawn by vl-convert: PDF with embedded fonts, SVG, PNG with 300 dots per inch.

    A figure is 84 mm wide for one column and 174 mm for two, with text of 8 points.
    """

    formats = ("pdf", "svg", "png")

    def draw(self, figure: FigureDeclaration, path: Path, *, columns: Literal[1, 2] = 1) -> None:
        """Draw a figure into a file; see ``Renderer.draw``."""
        import vl_convert

        suffix = path.suffix.lower()
        # vl-convert takes a pixel for a point, browsers and editors do not.
        unit = "pt" if suffix == ".svg" else ""
        svg = _svg(vega_lite(figure, columns), WIDTHS[columns], unit)
        match suffix:
            case ".svg":
                path.write_text(svg, encoding="utf-8")
            case ".png":
                path.write_bytes(vl_convert.svg_to_png(svg, ppi=_PPI))
            case _:
                path.write_bytes(vl_convert.svg_to_pdf(svg))

    def bundle(self, figure: FigureDeclaration) -> Mapping[str, Any]:
        """Return the specification, and a drawing for notebooks that cannot read it."""
        spec = vega_lite(figure, 2)
        return {_MEDIA_TYPE: spec, "image/svg+xml": _svg(spec, WIDTHS[2], "pt")}


def _svg(spec: Mapping[str, Any], width: float, unit: str) -> str:
    """Return a drawing that is exactly so many units wide."""
    import vl_convert

    try:
        text = vl_convert.vegalite_to_svg(dict(spec), vl_version=VERSION, allowed_base_urls=[])
    except ValueError as error:
        raise FsfError(f"the figure cannot be drawn: {error}") from None
    head = re.match(r'<svg [^>]*?width="([\d.]+)" height="([\d.]+)" viewBox="[^"]*"', text)
    assert head is not None  # what Vega begins every drawing with
    drawn, height = float(head[1]), float(head[2])
    scale = min(1.0, width / drawn)
    size = f'width="{width:.2f}{unit}" height="{height * scale:.2f}{unit}"'
    box = f'viewBox="0 0 {max(width, drawn):.2f} {height:g}"'
    new = re.sub(r'width="[\d.]+" height="[\d.]+" viewBox="[^"]*"', f"{size} {box}", head[0])
    background = f'<rect width="{max(width, drawn):.2f}"'
    rest = re.sub(r'<rect width="[^"]*"', background, text[head.end() :], count=1)
    return new + rest


def chart(figure: FigureDeclaration, columns: Literal[1, 2] = 1) -> altair.Chart:
    """Return a figure as a chart of Vega-Altair, to show or to change it in a notebook.

    Raises:
        DataError: the figure has nothing to draw.
    """
    import altair as alt

    made: alt.Chart = alt.Chart.from_dict(vega_lite(figure, columns), validate=True)
    return made


def vega_lite(figure: FigureDeclaration, columns: Literal[1, 2] = 1) -> dict[str, Any]:
    """Return the Vega-Lite specification of a figure; its lengths are in points.

    Names appear only as data and in string literals, never as expressions or markup. Every mark has
    a tooltip with its full names and values.

    Raises:
        DataError: the figure has nothing to draw.
    """
    if not any(point.y is not None for point in figure.points):
        raise DataError(f"{figure.name}: there is nothing to draw: no value was measured")
    width = WIDTHS[columns] - 2 * CONFIG["padding"]
    figure = with_room(figure, width)
    names = list(dict.fromkeys(series.name for panel in figure.panels for series in panel.series))
    frame = _frame(figure, width, names)
    panels = [draw_panel(figure, frame, place) for place in range(len(figure.panels))]
    parts: list[dict[str, Any]] = []
    if (shown := _legend(figure, names, frame)) is not None:
        parts.append(shown)
    grid = {
        "concat": panels,
        "columns": frame.per_row,
        "spacing": _GAP,
    }
    parts.append(grid)
    return {
        "$schema": _SCHEMA,
        "description": plain(f"{figure.name}. {figure.title}"),
        **_title(figure, width),
        "vconcat": parts,
        "spacing": 6,
        "config": CONFIG,
    }


def _title(figure: FigureDeclaration, width: float) -> dict[str, Any]:
    """Return the title with the notes below it; neither where there is no title."""
    if not figure.title:
        return {}
    title: dict[str, Any] = {"text": wrapped(figure.title, width, TITLE, lines=4, bold=True)}
    if figure.notes:
        told = [wrapped(note, width, SIZE, lines=4) for note in figure.notes]
        title["subtitle"] = list(itertools.chain.from_iterable(told))
    return {"title": {**title, "frame": "bounds"}}


def _frame(figure: FigureDeclaration, width: float, names: Sequence[str]) -> Frame:
    """Decide the sizes of the panels, their number per row and their common axes."""
    values = _spread((point.y for point in figure.points), figure.limits)
    bars = figure.mark == "bars"
    y = axis_over(values, zero=bars)
    numbers = [p.x for p in figure.points if not isinstance(p.x, str)]
    x = None
    if numbers and figure.mark in ("points", "lines"):
        limits = figure.limits if figure.mark == "points" else None
        places = _spread(
            (Quantity(n) if isinstance(n, (int, float)) else n for n in numbers), limits
        )
        x = axis_over(places, pad=0.05 if figure.mark == "points" else 0.02)
        if all(isinstance(n, (int, float)) and n == int(n) for n in numbers):
            x = x.of_whole_numbers()  # there is nothing between two epochs
        if figure.diagonal:
            x = y = axis_over([*places, *values])
    frame = Frame(width, tuple(names), x, y, numbered=numbered(figure, width))
    per_row = frame.fitting(least_width(figure, frame), len(figure.panels), _GAP)
    if not same_rows(figure):
        per_row = 1  # only the first panel of a row has names beside it
    frame = frame.of(per_row, figure, _GAP)
    return frame.with_height(least_height(figure, frame))


def _spread(
    quantities: Iterable[Quantity | None], limits: tuple[float, float] | None
) -> list[float]:
    within = [within_limits(q, limits) for q in quantities if q is not None]
    found = [value for q in within for value in (q.value, q.low, q.high)]
    return [value for value in found if not math.isnan(value)]


def _legend(figure: FigureDeclaration, names: Sequence[str], frame: Frame) -> dict[str, Any] | None:
    """Return a row of keys above the panels; none for a matrix or for a single series."""
    labelled = all(
        [point.label for point in series.points] == [series.name]
        for panel in figure.panels
        for series in panel.series
    )
    if frame.numbered:
        room = frame.width - 2
        return _keys([f"{n} {name}" for n, name in enumerate(frame.numbered, 1)], room, 0.0, [])
    if figure.mark == "matrix" or labelled or len(names) > _MOST_KEYS or not any(map(plain, names)):
        return None
    return _keys(names, frame.width - frame.left, _KEY, _key(figure, frame))


def _keys(
    names: Sequence[str], room: float, before: float, marks: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return names in rows, with a mark before each and room for it."""
    keys, x, y = [], 0.0, 0.0
    for number, name in enumerate(names):
        lines = wrapped(name, room - before, SIZE, lines=2)
        wide = before + max(text_width(line, SIZE) for line in lines) + 10
        if x and x + wide > room + 10:
            x, y = 0.0, y + line_height(SIZE) + 1
        keys.append({"s": f"s{number}", "x": x, "y": y + SIZE / 2, "text": lines,
                     "name": plain(name)})  # fmt: skip
        x += wide
        if len(lines) > 1:
            x, y = 0.0, y + len(lines) * line_height(SIZE)
    height = y + line_height(SIZE) if x else y
    text = {"type": "text", "align": "left", "baseline": "middle", "dx": before,
            "lineHeight": line_height(SIZE)}  # fmt: skip
    return {
        "data": {"values": keys},
        "width": room,
        "height": height,
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "scale": None, "axis": None},
            "y": {"field": "y", "type": "quantitative", "scale": None, "axis": None},
        },
        "layer": [
            *marks,
            {"mark": text, "encoding": {"text": {"field": "text", "type": "nominal"}}},
        ],
    }


def _key(figure: FigureDeclaration, frame: Frame) -> list[dict[str, Any]]:
    """Return the mark beside the name of each series."""
    colour = frame.colour()
    if figure.mark == "bars":
        return [{
            "mark": {"type": "point", "shape": "square", "size": 60, "filled": True,
                     "xOffset": 5, "stroke": INK, "strokeWidth": 0.5, "opacity": 1},
            "encoding": {"fill": colour},
        }]  # fmt: skip
    point = {
        "mark": {"type": "point", "filled": True, "size": 32, "xOffset": 6, "opacity": 1},
        "encoding": {"color": colour, "shape": frame.shape()},
    }
    if figure.mark != "lines":
        return [point]
    line = {
        "mark": {"type": "rule", "strokeWidth": 1.3},
        "transform": [{"calculate": "datum.x + 13", "as": "end"}],
        "encoding": {"x2": {"field": "end"}, "color": colour, "strokeDash": frame.dash()},
    }
    return [line, point] if frame.with_points(figure) else [line]
