"""Figures as Vega-Lite: one specification for the page, the paper and the notebook."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fsf_reports._marks import (
    GAP,
    Frame,
    across_title,
    draw_panel,
    height_of,
    labels_are_clear,
    least_height,
    least_width,
    lowest_height,
    room_above,
    room_below,
    rows_of,
    same_rows,
    with_key,
    with_room,
    within_limits,
    without_room,
)
from fsf_reports._scales import axis_over
from fsf_reports._style import CONFIG, INK, SIZE, TITLE, WIDTHS
from fsf_reports._text import line_height, plain, text_width, wrapped
from fsf_reports.interfaces import Renderer
from fsf_reports.values import FigureDeclaration, Panel, Quantity, Series
from fsframework.errors import DataError, FsfError

if TYPE_CHECKING:
    import altair

__all__ = ["Altair", "chart", "on_a_page", "vega_lite"]

VERSION = "6.1"
"""Of Vega-Lite, as ``$schema`` names it."""

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_MEDIA_TYPE = "application/vnd.vegalite.v6+json"
_PPI = 300
_PAGE = 230 * 72 / 25.4
"""Height of a page, with room for the caption."""
_NARROWEST = 60.0
"""Width of a panel of a figure that needs many to fit a page."""
_KEY = 16.0
_MOST_KEYS = 60
"""Nobody looks up more names than that in a legend."""
_MOST_PANELS = 12


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
    figure = on_a_page(figure, columns)
    width = WIDTHS[columns] - 2 * CONFIG["padding"]
    figure, frame = _laid_out(figure, width)
    panels = [draw_panel(figure, frame, place) for place in range(len(figure.panels))]
    parts = _heads(figure, frame)
    grid = {"concat": panels, "columns": frame.per_row, "spacing": GAP,
            "resolve": {"scale": dict.fromkeys(("xOffset", "yOffset"), "independent")}}  # fmt: skip
    parts += [grid] if not frame.shared else _titled(figure, frame, grid)
    return {
        "$schema": _SCHEMA,
        "description": plain(f"{figure.name}. {figure.title}"),
        **_title(figure, width),
        "vconcat": parts,
        "spacing": 6,
        "config": CONFIG,
    }


def on_a_page(figure: FigureDeclaration, columns: Literal[1, 2] = 1) -> FigureDeclaration:
    """Return as much of a figure as fits a page, with a note on what is left out."""
    width = WIDTHS[columns] - 2 * CONFIG["padding"]

    def over(panels: Sequence[Panel]) -> float:
        tried = dataclasses.replace(figure, panels=tuple(panels))
        return _height(*_laid_out(tried, width)) - _PAGE - 1  # for rounding

    panels = figure.panels[:_MOST_PANELS]
    while len(panels) > 1 and over(panels) > 0:
        panels = panels[:-1]
    left = f"{len(figure.panels) - len(panels)} of {len(figure.panels)} panels"
    if panels == figure.panels:
        kept = rows = rows_of(with_room(figure, width))
        while kept > 1 and (more := over(panels)) > 0:
            kept = max(1, kept - math.ceil(more / (SIZE + 6)))
            panels = tuple(_first_rows(panel, kept) for panel in figure.panels)
        left = f"{rows - kept} of {rows} rows"
    if panels == figure.panels:
        return figure
    note = f"Left out, as a page has no room: {left}."
    return dataclasses.replace(figure, panels=panels, notes=(*figure.notes, note))


def _first_rows(panel: Panel, count: int) -> Panel:
    names = list(dict.fromkeys(point.x for series in panel.series for point in series.points))
    series = tuple(
        Series(s.name, tuple(point for point in s.points if point.x in names[:count]))
        for s in panel.series
    )
    return dataclasses.replace(panel, series=series)


def _title(figure: FigureDeclaration, width: float) -> dict[str, Any]:
    """Return the title with the notes below it; neither where there is no title."""
    if not figure.title:
        return {}
    title: dict[str, Any] = {"text": wrapped(figure.title, width, TITLE, lines=4, bold=True)}
    if figure.notes:
        told = [wrapped(note, width, SIZE, lines=4) for note in figure.notes]
        title["subtitle"] = list(itertools.chain.from_iterable(told))
    return {"title": {**title, "frame": "bounds"}}


def _laid_out(figure: FigureDeclaration, width: float) -> tuple[FigureDeclaration, Frame]:
    """Return a figure as it can be drawn and read, and its sizes."""
    figure = with_room(figure, width)
    frame = _frame(figure, width)
    if labels_are_clear(figure, frame):
        return figure, frame
    figure = with_key(figure)
    return figure, _frame(figure, width)


def _frame(figure: FigureDeclaration, width: float) -> Frame:
    """Decide the sizes of the panels, their number per row and their common axes."""
    names = dict.fromkeys(series.name for panel in figure.panels for series in panel.series)
    shares = figure.limits is not None and figure.limits[0] == 0 and figure.mark != "whiskers"
    zero = figure.mark == "bars" or shares

    def over(panels: Sequence[Panel]) -> list[float]:
        points = (p for panel in panels for series in panel.series for p in series.points)
        return _spread((point.y for point in points), figure.limits)

    values = over(figure.panels)
    y = axis_over(values, zero=zero, limits=figure.limits)
    own = tuple(
        axis_over(known, zero=zero, limits=figure.limits) if (known := over([panel])) else y
        for panel in (figure.panels if figure.own_ranges else ())
    )
    numbers = [p.x for p in figure.points if not isinstance(p.x, str)]
    x = None
    if numbers and figure.mark in ("points", "lines"):
        limits = figure.limits if figure.mark == "points" else None
        places = _spread(
            (Quantity(n) if isinstance(n, (int, float)) else n for n in numbers), limits
        )
        points = figure.mark == "points"
        x = axis_over(places, zero=points and shares, pad=0.05 if points else 0.02, limits=limits)
        if all(isinstance(n, (int, float)) and n == int(n) for n in numbers):
            x = x.of_whole_numbers()  # there is nothing between two epochs
        if figure.diagonal:
            x = y = axis_over([*places, *values], zero=zero, limits=limits)
    shared = len(figure.panels) > 1
    beside = _room_beside(figure) if shared else 0.0
    frame = _sized(figure, Frame(width - beside, tuple(names), x, y, own, shared=shared))
    numbered = without_room(figure, frame)
    again = dataclasses.replace(frame, numbered=numbered, height=0.0)
    return _sized(figure, again) if numbered else frame


def _sized(figure: FigureDeclaration, frame: Frame) -> Frame:
    """Return the frame with as few panels per row as a page allows, and lower ones if it must."""
    count = len(figure.panels)
    # Where rows have different names, only the first panel of a row has names beside it.
    first, most = 1, 1
    if same_rows(figure):
        first = frame.fitting(least_width(figure, frame), count)
        most = max(first, frame.fitting(_NARROWEST, count))
    for per_row in range(first, most + 1):
        found = frame.of(per_row, figure)
        found = found.with_height(least_height(figure, found))
        over = _height(figure, found) - _PAGE
        if over <= 0:
            return found
    lower = found.height * (1 - over / _panels_height(figure, found))
    return found.with_height(max(lower, min(found.height, lowest_height(figure))))


def _height(figure: FigureDeclaration, frame: Frame) -> float:
    """Return the height of a figure in points, nearly as Vega lays it out."""
    rows = math.ceil(len(figure.panels) / frame.per_row)
    heads = _heads(figure, frame)
    title = _title(figure, frame.width).get("title", {})
    lines = [*title.get("text", ()), *title.get("subtitle", ())]
    lines += across_title(figure, frame, frame.width)
    height = len(lines) * line_height(TITLE) + sum(head["height"] + 6 for head in heads)
    height += 40.0 if figure.mark == "matrix" else 0.0  # the key of the colours
    height += _panels_height(figure, frame)
    height += rows * room_above(figure, frame) + (rows - 1) * GAP
    height += (rows - 1) * room_below(figure, frame, bottom=False)
    return height + room_below(figure, frame, bottom=True)


def _panels_height(figure: FigureDeclaration, frame: Frame) -> float:
    """Return the height of one panel of each row, together."""
    return sum(height_of(figure, frame, panel) for panel in figure.panels[:: frame.per_row])


def _room_beside(figure: FigureDeclaration) -> float:
    """Return the room for the title of the vertical axis left of all panels."""
    upright = figure.mark in ("bars", "lines", "points") and figure.y_axis
    return line_height(SIZE) + 4 if upright else 0.0


def _titled(figure: FigureDeclaration, frame: Frame, grid: dict[str, Any]) -> list[dict[str, Any]]:
    """Return panels with the titles of their axes, each once."""
    beside = _room_beside(figure)
    wide = frame.per_row * (frame.panel + frame.gap) - frame.gap
    across = across_title(figure, frame, wide)
    parts: list[dict[str, Any]] = [grid]
    start = 0.0  # of the first panel, relative to where the part below begins
    if beside:
        room = frame.height * math.ceil(len(figure.panels) / frame.per_row)
        upright = _written(wrapped(figure.y_axis, room, SIZE, lines=1), angle=270)
        side = {**upright, "width": line_height(SIZE), "height": SIZE}
        parts = [{"hconcat": [side, grid], "spacing": 4, "center": True}]
        start = beside + frame.left
    if across:
        below = _written(across, baseline="top")
        below["encoding"] = {"x": {"value": start + wide / 2}, "y": {"value": 0}}
        height = len(across) * line_height(SIZE)
        parts.append({**below, "width": start + wide, "height": height})
    return parts


def _written(lines: Sequence[str], **style: Any) -> dict[str, Any]:
    mark = {"type": "text", "text": list(lines), "align": "center", "limit": 0,
            "lineHeight": line_height(SIZE), **style}  # fmt: skip
    return {"data": {"values": [{}]}, "mark": mark}


def _spread(
    quantities: Iterable[Quantity | None], limits: tuple[float, float] | None
) -> list[float]:
    within = [within_limits(q, limits) for q in quantities if q is not None]
    found = [value for q in within for value in (q.value, q.low, q.high)]
    return [value for value in found if not math.isnan(value)]


def _heads(figure: FigureDeclaration, frame: Frame) -> list[dict[str, Any]]:
    """Return what is above the panels: a key of the series, and one of names that are numbers.

    A matrix and a single series of dots have no key of series, and names beside rows no key.
    """
    labelled = all(
        [point.label for point in series.points] == [series.name]
        for panel in figure.panels
        for series in panel.series
    )
    names, found = frame.names, []
    hidden = figure.mark == "matrix" or (figure.mark == "whiskers" and len(names) == 1)
    if not (hidden or labelled) and len(names) <= _MOST_KEYS and any(map(plain, names)):
        found.append(_keys(names, frame.width - frame.left, _KEY, _key(figure, frame)))
    beside = list(map(plain, frame.names)) if figure.mark == "matrix" else []
    if numbers := [f"{frame.number(n)} {n}" for n in frame.numbered if n not in beside]:
        found.append(_keys(numbers, frame.width - frame.left, 0.0, []))
    return found


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
