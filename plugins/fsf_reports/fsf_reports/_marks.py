"""Panels of figures as Vega-Lite, a function for each kind of mark."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsf_reports._scales import Axis, Rectangle, placed_labels
from fsf_reports._style import COLOURS, DASHES, DIVERGING, FAINT, INK, RISING, SHAPES, SIZE
from fsf_reports._text import cut, line_height, pieces, plain, text_width, wrapped
from fsf_reports.values import FigureDeclaration, Panel, Point, Quantity, Series

__all__ = [
    "GAP",
    "Drawn",
    "Frame",
    "across_title",
    "draw_panel",
    "height_of",
    "labels_are_clear",
    "least_height",
    "least_width",
    "lowest_height",
    "room_above",
    "room_below",
    "rows_of",
    "same_rows",
    "with_key",
    "with_room",
    "within_limits",
    "without_room",
]

Drawn = dict[str, Any]
"""A view of Vega-Lite: its width, height and layers."""

GAP = 10.0
"""Between two panels."""

_LEAST_STEP, _LEAST_PANEL = 7.0, 84.0
_LEAST_BARS = 9.0
_MOST_LABELS = 100
_MOST_POINTS_MARKED = _MOST_POINTS_KEYED = 24
_LABEL_LINES = 3
_NAME_LINES = 4
_TITLE_LINES = 4
_SHARE_OF_NAMES = 0.38
_WIDEST_LABEL = 0.6


@dataclass(frozen=True)
class Frame:
    """What the panels of a figure share.

    Args:
        width: of the figure in points.
        names: of all series, in the order of the legend.
        x: axis of numbers, ``None`` for names; ``y`` that of the values.
        own: axis of the values of each panel; empty where all share ``y``.
        left: room for the labels and the title of the first panel of a row.
        panel: width of each panel; ``height`` its height.
        per_row: panels.
        numbered: names that are drawn as numbers, since they have no room.
        shared: whether the titles of the axes stand once beside all panels.
    """

    width: float
    names: tuple[str, ...]
    x: Axis | None
    y: Axis
    own: tuple[Axis, ...] = ()
    left: float = 40.0
    panel: float = 0.0
    height: float = 0.0
    per_row: int = 1
    numbered: tuple[str, ...] = ()
    shared: bool = False

    @property
    def gap(self) -> float:
        """The room between two panels of a row, with that for labels between them."""
        return GAP + (self.left if self.own else 0.0)

    def fitting(self, least: float, panels: int) -> int:
        """Return how many panels of a width fit into a row, of rows as equal as possible."""
        room = self.width - self.left + self.gap
        most = max(1, min(panels, int(room / (least + self.gap))))
        return math.ceil(panels / math.ceil(panels / most))

    def of(self, per_row: int, figure: FigureDeclaration) -> Frame:
        """Return a frame of so many panels per row."""
        left = _left(figure, dataclasses.replace(self, per_row=per_row))
        found = dataclasses.replace(self, left=left, per_row=per_row)
        right = max((_over_the_edge(figure, self)), 3.0)
        panel = (self.width - left - right - (per_row - 1) * found.gap) / per_row
        return dataclasses.replace(found, panel=panel)

    def with_height(self, height: float) -> Frame:
        """Return a frame whose panels have this height."""
        return dataclasses.replace(self, height=height)

    def number(self, name: str) -> str:
        """Return the number of a name that has no room, empty for others."""
        shown = plain(name)
        return str(self.numbered.index(shown) + 1) if shown in self.numbered else ""

    def series(self, name: str) -> str:
        """Return the key of a series in the data."""
        return f"s{self.names.index(name)}"

    def _scale(self, of: Sequence[Any], shift: int = 0) -> dict[str, Any]:
        keys = [f"s{n}" for n in range(len(self.names))]
        places = [(n + shift * (n // len(of))) % len(of) for n in range(len(keys))]
        return {
            "field": "s",
            "type": "nominal",
            "scale": {"domain": keys, "range": [of[place] for place in places]},
            "legend": None,
        }

    def colour(self) -> dict[str, Any]:
        """Return the channel of colours."""
        return self._scale(COLOURS)

    def shape(self) -> dict[str, Any]:
        """Return the channel of shapes."""
        return self._scale(SHAPES, 1)  # with a colour that is used again goes another shape

    def dash(self) -> dict[str, Any]:
        """Return the channel of dashes."""
        return self._scale(DASHES, 1)

    def with_points(self, figure: FigureDeclaration) -> bool:
        """Return whether the values of curves are marked one by one."""
        most = max(len(s.points) for panel in figure.panels for s in panel.series)
        return most <= _MOST_POINTS_MARKED


def with_room(figure: FigureDeclaration, width: float) -> FigureDeclaration:
    """Return a figure as it can be drawn: bars whose names have no room become whiskers."""
    least = max(_LEAST_BARS, max(map(_room_of, _words_below(figure)), default=0.0) + 4)
    if figure.mark != "bars" or _columns(figure) * least <= width - 45:
        return figure
    named = []
    for panel in figure.panels:
        both = {_name(x): f"{_name(x)} ({text})" for x, text in panel.captions.items() if text}
        series = tuple(
            Series(s.name, tuple(Point(both.get(n := _name(p.x), n), p.y, p.label)
                                 for p in s.points))
            for s in panel.series
        )  # fmt: skip
        named.append(Panel(panel.title, series))
    told = f", in parentheses: {figure.caption_axis}" if figure.caption_axis else ""
    return dataclasses.replace(
        figure, mark="whiskers", panels=tuple(named), y_axis=figure.y_axis + told, caption_axis=""
    )


def without_room(figure: FigureDeclaration, frame: Frame) -> tuple[str, ...]:
    """Return the names that have no room beside their points or below a panel, in order.

    Few points need no numbers: a key of their shapes is easier to read.
    """
    if figure.mark == "points":
        labels = tuple(dict.fromkeys(plain(p.label) for p in figure.points if p.label))
        many = len(labels) > len(SHAPES) and not labels_are_clear(figure, frame)
        return labels if many else ()
    if figure.mark not in ("bars", "matrix", "lines") or not _with_names(figure):
        return ()
    for panel in figure.panels:
        names = _categories(figure, panel)
        longest = max(map(_room_of, names), default=0.0)
        if len(names) > 1 and longest > frame.panel / len(names) - 3:
            every = (plain(n) for p in figure.panels for n in _categories(figure, p))
            return tuple(dict.fromkeys(every))
    return ()


def labels_are_clear(figure: FigureDeclaration, frame: Frame) -> bool:
    """Return whether labels beside points, if any, have room and cannot be taken for others'."""
    if figure.mark != "points" or len({p.label for p in figure.points}) > _MOST_LABELS:
        return True
    return all(
        _place_labels(rows, frame, diagonal=figure.diagonal)
        for panel in figure.panels
        if (rows := _drawn_rows(figure, panel, frame))
    )


def with_key(figure: FigureDeclaration) -> FigureDeclaration:
    """Return a figure in which a key tells points apart by colour and shape, instead of labels."""
    panels = []
    for panel in figure.panels:
        found: dict[str, list[Point]] = {}
        for series in panel.series:
            for point in series.points:
                parts = dict.fromkeys(filter(None, (series.name, point.label)))
                found.setdefault(", ".join(parts), []).append(Point(point.x, point.y))
        keyed = tuple(Series(name, tuple(points)) for name, points in found.items())
        panels.append(dataclasses.replace(panel, series=keyed))
    return dataclasses.replace(figure, panels=tuple(panels))


def within_limits(quantity: Quantity, limits: tuple[float, float] | None) -> Quantity:
    """Return a quantity whose interval ends where no value can lie beyond."""
    if limits is None or not quantity.has_interval:
        return quantity
    low, high = max(quantity.low, limits[0]), min(quantity.high, limits[1])
    return dataclasses.replace(quantity, low=low, high=high)


def least_width(figure: FigureDeclaration, frame: Frame) -> float:
    """Return the width that a panel needs."""
    if figure.mark == "points":
        labels = max(sum(bool(p.label) for s in panel.series for p in s.points)
                     for panel in figure.panels)  # fmt: skip
        return min(150.0, 60.0 + 5.0 * max(labels, len(frame.names)))
    if figure.mark not in ("bars", "matrix"):
        return 110.0
    matrix = figure.mark == "matrix"
    step = 11.0 if matrix else max(_LEAST_BARS, len(frame.names) * _LEAST_STEP + 6)
    upright = _columns(figure) * (max(map(_room_of, _words_below(figure))) + 4)
    room = frame.width - frame.left
    # Names are written out where a panel of the whole width has room for them.
    return max(_LEAST_PANEL, _columns(figure) * step, upright if upright <= room else 0.0)


def _words_below(figure: FigureDeclaration) -> list[str]:
    """Return the names below the panels, with their captions."""
    return [
        text
        for panel in figure.panels
        for text in (*_categories(figure, panel), *panel.captions.values())
    ]


def least_height(figure: FigureDeclaration, frame: Frame) -> float:
    """Return the height of the panels."""
    if figure.mark in ("whiskers", "matrix"):
        lines = max(len(label) for p in figure.panels for label in _labels(figure, p, frame))
        least = max(14.0, 8.0 * _per_row(figure) + 4)
        if figure.mark == "matrix":
            least = min(22.0, max(11.0, frame.panel / max(1, _columns(figure))))
        return rows_of(figure) * max(least, lines * (SIZE + 1) + 3)
    if figure.mark == "points":
        return min(frame.panel * (1.0 if figure.diagonal else 0.8), 300.0)
    return max(90.0, min(0.62 * frame.panel, 190.0))


def same_rows(figure: FigureDeclaration) -> bool:
    """Return whether all panels have the same names on their left, or none."""
    return len({tuple(_row_texts(figure, panel)) for panel in figure.panels}) == 1


def rows_of(figure: FigureDeclaration) -> int:
    """Return the rows of the panel that has most."""
    return max(len(_row_texts(figure, panel)) for panel in figure.panels)


def _row_texts(figure: FigureDeclaration, panel: Panel) -> list[str]:
    """Return the names left of the rows of whiskers or a matrix."""
    if figure.mark == "matrix":
        return [series.name for series in panel.series]
    return _categories(figure, panel) if figure.mark == "whiskers" else []


def _per_row(figure: FigureDeclaration) -> int:
    """Return how many series have values in one row, which need places of their own."""
    return max(
        sum(any(_name(p.x) == name for p in series.points) for series in panel.series)
        for panel in figure.panels
        for name in _categories(figure, panel)
    )


def _columns(figure: FigureDeclaration) -> int:
    return max(len(_categories(figure, panel)) for panel in figure.panels)


def _categories(figure: FigureDeclaration, panel: Panel) -> list[str]:
    """Return the names on the axis of names, each once, in order."""
    if figure.mark == "points":
        return []
    return list(dict.fromkeys(_name(p.x) for series in panel.series for p in series.points))


def _name(x: float | str | Quantity) -> str:
    return x if isinstance(x, str) else f"{x:g}" if isinstance(x, (int, float)) else x.text()


def _with_names(figure: FigureDeclaration) -> bool:
    """Return whether the horizontal axis of the declaration has names."""
    if figure.mark == "lines":
        return any(isinstance(point.x, str) for point in figure.points)
    return figure.mark != "points"


def _room_for_names(frame: Frame) -> float:
    return _SHARE_OF_NAMES * frame.width


def _left(figure: FigureDeclaration, frame: Frame) -> float:
    """Return the room for labels and title left of a panel."""
    if figure.mark in ("whiskers", "matrix"):
        shown = [line for panel in figure.panels for names in _labels(figure, panel, frame)
                 for line in names]  # fmt: skip
        return max((text_width(line, SIZE) for line in shown), default=0.0) + 6
    ticks = [tick for axis in frame.own or (frame.y,) for tick in axis.ticks]
    labels = max(text_width(f"{tick:,g}", SIZE) for tick in ticks or (0.0,))
    # The title runs along a height that depends on this width: one step of the iteration is enough.
    panel = frame.panel or frame.width / frame.per_row - 45
    height = least_height(figure, dataclasses.replace(frame, panel=panel))
    titled = figure.y_axis and not frame.shared
    lines = len(wrapped(figure.y_axis, height, SIZE, lines=2)) if titled else 0
    return labels + 3 + 2 + 4 + lines * line_height(SIZE) + 2


def _over_the_edge(figure: FigureDeclaration, frame: Frame) -> float:
    """Return how far the last label of an axis of numbers reaches beyond the panel."""
    axis = frame.y if figure.mark == "whiskers" else frame.x
    if axis is None or not axis.ticks:
        return 0.0
    return text_width(f"{axis.ticks[-1]:,g}", SIZE) / 2


def _labels(figure: FigureDeclaration, panel: Panel, frame: Frame) -> list[list[str]]:
    """Return the lines of the names left of the rows of whiskers or a matrix, no two alike."""
    names, room, lines = _row_texts(figure, panel), _room_for_names(frame), _NAME_LINES
    if frame.height:
        room = min(room, frame.left - 5)
        lines = min(lines, max(1, int(frame.height / rows_of(figure) / (SIZE + 1))))
    found: dict[tuple[str, ...], int] = {}
    for place, name in enumerate(names):
        text = f"{frame.number(name)} {name}".lstrip()
        shown = tuple(wrapped(text, room, SIZE, lines=lines))
        if shown in found:
            shown = tuple(wrapped(f"({place + 1}) {text}", room, SIZE, lines=lines))
        found[shown] = place
    return [list(shown) for shown in found]


# --- what the marks are made of ---------------------------------------------------------------


@dataclass(frozen=True)
class Edges:
    """Where a panel is: labels that panels share stand only at the edges of the grid.

    Args:
        left: whether it is the first of its row, or has a vertical axis of its own.
        bottom: whether no panel is below it.
    """

    left: bool
    bottom: bool


def _edges(figure: FigureDeclaration, frame: Frame, place: int) -> Edges:
    below = place + frame.per_row < len(figure.panels)
    left = place % frame.per_row == 0 or bool(frame.own)
    return Edges(left, not below or not _same_below(figure))


def _same_below(figure: FigureDeclaration) -> bool:
    """Return whether all panels have the same labels below them."""
    if not _with_names(figure) or figure.mark == "whiskers":
        return True
    below = {(*_categories(figure, p), *p.captions.values()) for p in figure.panels}
    return len(below) == 1


def draw_panel(figure: FigureDeclaration, frame: Frame, place: int) -> Drawn:
    """Return a panel of a figure."""
    panel = figure.panels[place]
    frame = dataclasses.replace(frame, y=frame.own[place]) if frame.own else frame
    layers = _DRAW[figure.mark](figure, panel, frame, _edges(figure, frame, place))
    if panel.title:
        lines = wrapped(panel.title, frame.panel, SIZE, lines=_TITLE_LINES, bold=True)
        layers.append(_text(lines, 0.0, -6.0, "left", fontWeight="bold"))
    return {"width": frame.panel, "height": height_of(figure, frame, panel), "layer": layers}


def height_of(figure: FigureDeclaration, frame: Frame, panel: Panel) -> float:
    """Return the height of a panel: panels of rows are as high as their rows need."""
    rows = len(_row_texts(figure, panel))
    return frame.height * rows / rows_of(figure) if rows else frame.height


def _text(lines: Sequence[str], x: float, y: float, align: str, **style: Any) -> dict[str, Any]:
    """Return lines of text above a place, in points from the upper left corner of a panel."""
    mark = {"type": "text", "text": list(lines), "align": align, "baseline": "bottom",
            "lineHeight": line_height(SIZE), "limit": 0, **style}  # fmt: skip
    top = y - (len(lines) - 1) * line_height(SIZE)
    place = {"x": {"value": x}, "y": {"value": top}}
    return {"data": {"values": [{}]}, "mark": mark, "encoding": place}


def _row_names(names: Mapping[str, Sequence[str]], channel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names left of the rows, by their keys; Vega's axes do not centre several lines."""
    field = channel["field"]
    rows = [
        {field: key, "lines": list(lines), "up": -(len(lines) - 1) / 2 * (SIZE + 1)}
        for key, lines in names.items()
    ]
    mark = {"type": "text", "align": "right", "baseline": "middle", "lineHeight": SIZE + 1,
            "limit": 0, "dy": {"expr": "datum.up"}}  # fmt: skip
    text = {"field": "lines", "type": "nominal"}
    return {
        "data": {"values": rows},
        "mark": mark,
        "encoding": {"x": {"value": -5}, "y": dict(channel), "text": text},
    }


def _rows(figure: FigureDeclaration, panel: Panel, frame: Frame) -> Iterator[dict[str, Any]]:
    """Yield the data of a panel: a row per value."""
    categories = {name: f"c{n}" for n, name in enumerate(_categories(figure, panel))}
    for series in panel.series:
        for point in series.points:
            y = point.y and within_limits(point.y, figure.limits)
            row: dict[str, Any] = {"s": frame.series(series.name), **_numbers("y", y)}
            if isinstance(point.x, Quantity):
                row |= _numbers("x", within_limits(point.x, figure.limits))
            elif isinstance(point.x, (int, float)) and not _with_names(figure):
                row["x"] = float(point.x)
            if figure.mark != "points":
                row["c"] = categories[_name(point.x)]
            yield {**row, **_told(figure, series.name, point)}


def _numbers(name: str, quantity: Quantity | None) -> dict[str, Any]:
    if quantity is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    bounds = {f"{name}_low": quantity.low, f"{name}_high": quantity.high}
    known = {key: None if math.isnan(value) else value for key, value in bounds.items()}
    return {name: quantity.value, **known}


def _told(figure: FigureDeclaration, series: str, point: Point) -> dict[str, str]:
    """Return what a tooltip tells of a value."""
    x = point.x.text() if isinstance(point.x, Quantity) else plain(_name(point.x))
    return {
        "name": plain(series),
        "label": plain(point.label),
        "at": x,
        "value": "not measured" if point.y is None else point.y.text(),
    }


def _tooltip(figure: FigureDeclaration) -> list[dict[str, str]]:
    fields = [("name", "series"), ("at", plain(figure.x_axis) or "at")]
    fields += [("value", plain(figure.y_axis) or "value")]
    if any(point.label for point in figure.points):
        fields = [("label", "label"), *fields]
    return [{"field": field, "type": "nominal", "title": title} for field, title in fields]


def _looked_up(texts: Mapping[str, Sequence[str]]) -> str:
    """Return an expression that gives the lines of an axis label by its key."""
    return f"{json.dumps({key: list(lines) for key, lines in texts.items()})}[datum.value]"


def _unless(frame: Frame, title: str) -> str:
    """Return the title of an axis, empty where it stands once beside all panels."""
    return "" if frame.shared else title


def _axis_of_numbers(axis: Axis, title: str, room: float, *, shown: bool = True) -> dict[str, Any]:
    """Return scale and axis of numbers; without labels where a panel beside or below has them."""
    lines = wrapped(title, room, SIZE, lines=2)
    return {
        "type": "quantitative",
        "scale": {"domain": [axis.low, axis.high], "nice": False, "zero": False},
        "axis": {
            "values": list(axis.ticks),
            "title": lines if shown and title else None,
            "labels": shown,
            "ticks": shown,
            "labelFlush": False,
            **({"format": ",d"} if all(tick == int(tick) for tick in axis.ticks) else {}),
        },
    }


def _names_below(figure: FigureDeclaration, panel: Panel, frame: Frame) -> dict[str, list[str]]:
    """Return the lines of the names below a panel with its captions, by their keys."""
    names = _categories(figure, panel)
    room = frame.panel / max(1, len(names)) - 3
    captions = {_name(x): plain(text) for x, text in panel.captions.items()}
    texts = {}
    for n, name in enumerate(names):
        number = frame.number(name)
        texts[f"c{n}"] = [number] if number else wrapped(name, room, SIZE, lines=_LABEL_LINES)
        if below := captions.get(name, ""):
            texts[f"c{n}"] += wrapped(below, room, SIZE, lines=2)
    return texts


def across_title(figure: FigureDeclaration, frame: Frame, room: float) -> list[str]:
    """Return the lines of the title of the horizontal axis, with what the captions are."""
    whiskers = figure.mark == "whiskers"
    told = figure.caption_axis and f"below the names: {figure.caption_axis}"
    parts = [figure.y_axis if whiskers else figure.x_axis, told]
    return [line for part in parts if part for line in wrapped(part, room, SIZE, lines=2)]


def room_below(figure: FigureDeclaration, frame: Frame, *, bottom: bool) -> float:
    """Return the height of the labels below a row of panels, the lowest or another one."""
    if not bottom and _same_below(figure):
        return 0.0
    if not _with_names(figure) or figure.mark == "whiskers":
        return SIZE + 6.0
    lines = [len(t) for p in figure.panels for t in _names_below(figure, p, frame).values()]
    return max(lines, default=0) * (SIZE + 1.0) + 6


def room_above(figure: FigureDeclaration, frame: Frame) -> float:
    """Return the height of the title above a panel."""
    titles = [
        wrapped(panel.title, frame.panel, SIZE, lines=_TITLE_LINES, bold=True)
        for panel in figure.panels
        if panel.title
    ]
    lines = max(map(len, titles), default=0)
    return lines * line_height(SIZE) + 6 if lines else 0.0


def lowest_height(figure: FigureDeclaration) -> float:
    """Return the height below which a panel cannot be read."""
    if figure.mark == "whiskers":
        return rows_of(figure) * max(SIZE + 1.0, 5.0 * _per_row(figure))
    return 11.0 * rows_of(figure) if figure.mark == "matrix" else 54.0


def _axis_of_names(
    figure: FigureDeclaration, panel: Panel, frame: Frame, *, shown: bool = True
) -> dict[str, Any]:
    """Return scale and axis of names below a panel, with the captions of the panel."""
    texts = _names_below(figure, panel, frame)
    style: dict[str, Any] = {"labelAngle": 0, "labelBaseline": "top", "labelAlign": "center"}
    if frame.numbered:  # numbers of two digits are wider than narrow columns
        widest = text_width(str(len(frame.numbered)), 1)
        style["labelFontSize"] = min(SIZE, (frame.panel / len(texts) - 2) / widest)
    lines = [] if frame.shared else across_title(figure, frame, frame.panel)
    return {
        "field": "c",
        "type": "nominal",
        "scale": {"domain": list(texts), "paddingInner": 0.22, "paddingOuter": 0.11},
        "axis": {
            "labelExpr": _looked_up(texts),
            "labels": shown,
            "title": lines or None,
            **style,
        },
    }


def _room_of(text: str) -> float:
    """Return the width that a name below a panel needs."""
    room = max((text_width(part.rstrip(), SIZE) for part in pieces(plain(text))), default=0.0)
    while len(wrapped(text, room, SIZE, lines=_LABEL_LINES + 1)) > _LABEL_LINES:
        room += SIZE
    return room


def _line(axis: str, value: float, **style: Any) -> dict[str, Any]:
    """Return a line across a panel at a value."""
    mark = {"type": "rule", "color": INK, "strokeWidth": 0.6, **style}
    return {"data": {"values": [{}]}, "mark": mark, "encoding": {axis: {"datum": value}}}


_KNOWN = [{"filter": "isValid(datum.y_low)"}]


def _whisker(
    along: str, channels: Mapping[str, Any], field: str = "y", cap: float = 5.0
) -> list[dict[str, Any]]:
    """Return an interval with a stroke at each end, along an axis."""
    known = [{"filter": f"isValid(datum.{field}_low)"}]
    low, high = f"{field}_low", f"{field}_high"
    rule = {
        "transform": known,
        "mark": {"type": "rule", "strokeWidth": 0.9, "color": INK},
        "encoding": {**channels, along: {"field": low}, f"{along}2": {"field": high}},
    }
    if not cap:
        return [rule]
    across = "horizontal" if along == "y" else "vertical"
    tick = {"type": "tick", "orient": across, "size": cap, "thickness": 0.9, "color": INK}
    ends: list[dict[str, Any]] = [
        {"transform": known, "mark": dict(tick), "encoding": {**channels, along: {"field": end}}}
        for end in (low, high)
    ]
    return [rule, *ends]


# --- a function for each mark -----------------------------------------------------------------


def _bars(figure: FigureDeclaration, panel: Panel, frame: Frame, at: Edges) -> list[dict[str, Any]]:
    keys = [frame.series(series.name) for series in panel.series]
    offset = {"field": "s", "type": "nominal", "scale": {"domain": keys}}
    several = len(keys) > 1
    place = {"xOffset": offset} if several else {}
    step = frame.panel / max(1, len(_categories(figure, panel))) / len(keys)
    y = {
        "field": "y",
        **_axis_of_numbers(frame.y, _unless(frame, figure.y_axis), frame.height, shown=at.left),
    }
    x = _axis_of_names(figure, panel, frame, shown=at.bottom)
    x["axis"]["domain"] = False  # there is a line at zero
    bar = {
        "mark": {"type": "bar", "stroke": INK, "strokeWidth": 0.4},
        "encoding": {"y2": {"datum": 0}, "fill": frame.colour(), "tooltip": _tooltip(figure)},
    }
    missing = {
        "transform": [{"filter": "!isValid(datum.y)"}],
        "mark": {"type": "text", "text": "n/a", "fontSize": 6.5, "color": FAINT, "dy": -5},
        "encoding": {"y": {"datum": 0}},
    }
    layers = [bar, *_whisker("y", {}, cap=min(5.0, 0.45 * step)), missing, _line("y", 0.0)]
    shared = {"x": x, **place}
    data = {"values": list(_rows(figure, panel, frame))}
    for layer in layers[:-1]:
        y_own = layer["encoding"].get("y", {})
        layer["encoding"] = {**shared, "y": {**y, **y_own}, **_without(layer["encoding"], "y")}
        if "datum" in y_own:
            layer["encoding"]["y"].pop("field")
    layers[-1]["encoding"] = {"y": {**_without(y, "field"), "datum": 0.0}}
    return [{"data": data, "layer": layers[:-1]}, layers[-1]]


def _without(channels: Any, name: str) -> dict[str, Any]:
    return {key: value for key, value in dict(channels).items() if key != name}


def _whiskers(
    figure: FigureDeclaration, panel: Panel, frame: Frame, at: Edges
) -> list[dict[str, Any]]:
    names, keys = _categories(figure, panel), [f"s{n}" for n in range(len(frame.names))]
    labels = dict(zip((f"c{n}" for n in range(len(names))), _labels(figure, panel, frame),
                      strict=True))  # fmt: skip
    x = _axis_of_numbers(frame.y, _unless(frame, figure.y_axis), frame.panel, shown=at.bottom)
    y = {
        "field": "c",
        "type": "nominal",
        "scale": {"domain": list(labels), "paddingInner": 0.15, "paddingOuter": 0.08},
        "axis": {"labels": False, "title": None, "domain": False, "grid": True,
                 "tickBand": "extent"},
    }  # fmt: skip
    offset = {"field": "s", "type": "nominal", "scale": {"domain": keys}}
    place = {"y": y, **({"yOffset": offset} if _per_row(figure) > 1 else {})}
    layers = _whisker("x", {}, cap=4.0)
    dot = {
        "mark": {"type": "point", "filled": True, "size": 26, "opacity": 1},
        "encoding": {"x": {"field": "y"}, "color": frame.colour(), "shape": frame.shape(),
                     "tooltip": _tooltip(figure)},
    }  # fmt: skip
    for layer in (*layers, dot):
        own = layer["encoding"]
        own["x"] = {**x, **own["x"]}
        layer["encoding"] = {**place, **own}
    drawn = [{"data": {"values": list(_rows(figure, panel, frame))}, "layer": [*layers, dot]}]
    if frame.y.low < 0 < frame.y.high:
        zero = _line("x", 0.0, color=FAINT, strokeDash=[2, 2])
        zero["encoding"]["x"] = {**x, "datum": 0.0}
        drawn.insert(0, zero)
    if at.left:
        drawn.append(_row_names(labels, y))
    return drawn


def _lines(
    figure: FigureDeclaration, panel: Panel, frame: Frame, at: Edges
) -> list[dict[str, Any]]:
    y = _axis_of_numbers(frame.y, _unless(frame, figure.y_axis), frame.height, shown=at.left)
    if frame.x is None or _with_names(figure):
        x = _axis_of_names(figure, panel, frame, shown=at.bottom)
        x["scale"] = {**x["scale"], "paddingInner": 1, "paddingOuter": 0.5}
    else:
        title = _unless(frame, figure.x_axis)
        x = {"field": "x", **_axis_of_numbers(frame.x, title, frame.panel, shown=at.bottom)}
    marked = frame.with_points(figure)
    order = {"field": "x", "type": "quantitative"} if x["field"] == "x" else None
    line = {
        "mark": {"type": "line", "strokeWidth": 1.3, "invalid": "break-paths-filter-domains"},
        "encoding": {
            "y": {**y, "field": "y"}, "color": frame.colour(), "strokeDash": frame.dash(),
            **({"order": order} if order else {}),
        },
    }  # fmt: skip
    dot = {
        "mark": {"type": "point", "filled": True, "size": 22 if marked else 14,
                 "opacity": 1 if marked else 0},
        "encoding": {"y": {**y, "field": "y"}, "color": frame.colour(), "shape": frame.shape(),
                     "tooltip": _tooltip(figure)},
    }  # fmt: skip
    if marked:
        around = _whisker("y", {"color": frame.colour()}, cap=4.0)
    else:
        band = {"y": {"field": "y_low"}, "y2": {"field": "y_high"}, "color": frame.colour()}
        around = [{"transform": _KNOWN, "mark": {"type": "area", "opacity": 0.16},
                   "encoding": band}]  # fmt: skip
    for layer in around:
        layer["encoding"]["y"] = {**y, **layer["encoding"]["y"]}
    layers = [*around, line, dot]
    data = {"values": list(_rows(figure, panel, frame))}
    return [{"data": data, "encoding": {"x": x}, "layer": layers}]


def _points(
    figure: FigureDeclaration, panel: Panel, frame: Frame, at: Edges
) -> list[dict[str, Any]]:
    assert frame.x is not None
    x = _axis_of_numbers(frame.x, _unless(frame, figure.x_axis), frame.panel, shown=at.bottom)
    y = _axis_of_numbers(frame.y, _unless(frame, figure.y_axis), frame.height, shown=at.left)
    rows = _drawn_rows(figure, panel, frame)
    _place_labels(rows, frame, diagonal=figure.diagonal)
    keyed = len(frame.names) > 1
    many = not (keyed or any(row["label"] for row in rows)) or len(rows) > 100
    if keyed:
        _show_all(rows, frame)
    size = {"size": {"field": "size", "type": "quantitative", "scale": None}} if keyed else {}
    crowded = len(rows) > _MOST_POINTS_KEYED
    dot = {
        "mark": {"type": "point", "filled": True, "size": 5 if many else 15 if crowded else 30,
                 "opacity": 0.55 if many else 1},
        "encoding": {**size, "x": {"field": "x"}, "y": {"field": "y"}, "color": frame.colour(),
                     "shape": frame.shape(), "tooltip": _tooltip(figure)},
    }  # fmt: skip
    upright = _whisker("y", {"x": {"field": "x"}}, cap=0)
    level = _whisker("x", {"y": {"field": "y"}}, field="x", cap=0)
    layers = [*upright, *level, dot]
    for layer in (*upright, *level):
        layer["mark"]["color"] = "#9a9a9a"
        layer["mark"]["opacity"] = 0.3 if many else 1
    for layer in layers:
        own = layer["encoding"]
        layer["encoding"] = {**own, "x": {**x, **own["x"]}, "y": {**y, **own["y"]}}
    drawn = [*_diagonal(figure, frame, x, y)]
    drawn.append({"data": {"values": rows}, "layer": [*layers, *_label_layers(rows, x, y)]})
    return drawn


def _show_all(rows: list[dict[str, Any]], frame: Frame) -> None:
    """Put into each row the size of its mark, larger below marks that would hide it."""
    assert frame.x is not None
    at = [(frame.x.at(row["x"], frame.panel), frame.y.at(row["y"], frame.height)) for row in rows]
    for place, row in enumerate(rows):
        above = sum(math.dist(at[place], other) < 2 for other in at[place + 1 :])
        row["size"] = 30 * (1 + above)


def _diagonal(
    figure: FigureDeclaration, frame: Frame, x: Mapping[str, Any], y: Mapping[str, Any]
) -> list[dict[str, Any]]:
    assert frame.x is not None
    low, high = max(frame.x.low, frame.y.low), min(frame.x.high, frame.y.high)
    if not figure.diagonal or low >= high:
        return []
    return [{
        "data": {"values": [{"at": low}, {"at": high}]},
        "mark": {"type": "line", "color": FAINT, "strokeWidth": 0.8, "strokeDash": [3, 2]},
        "encoding": {"x": {**x, "field": "at"}, "y": {**y, "field": "at"}},
    }]  # fmt: skip


def _drawn_rows(figure: FigureDeclaration, panel: Panel, frame: Frame) -> list[dict[str, Any]]:
    return [row for row in _rows(figure, panel, frame) if row["y"] is not None]


def _place_labels(rows: list[dict[str, Any]], frame: Frame, *, diagonal: bool) -> bool:
    """Put into each row where its label goes, and return whether all of them have room.

    Points at one place have one label. Of very many points only those are labelled that have room,
    and the others go without: nobody looks up so many in a key.
    """
    if frame.x is None or not 0 < sum(bool(row["label"]) for row in rows) <= _MOST_LABELS:
        return True
    at = [(frame.x.at(row["x"], frame.panel), frame.height - frame.y.at(row["y"], frame.height))
          for row in rows]  # fmt: skip
    texts = _at_one_place(at, [frame.number(row["label"]) or row["label"] for row in rows])
    obstacles = _along_the_diagonal(frame) if diagonal else []
    for row, (x, y) in zip(rows, at, strict=True):
        if row["y_low"] is not None:
            ends = [frame.height - frame.y.at(row[k], frame.height) for k in ("y_high", "y_low")]
            obstacles.append(Rectangle(x - 1, ends[0], x + 1, ends[1]))
        if row.get("x_low") is not None:
            left, right = (frame.x.at(row[k], frame.panel) for k in ("x_low", "x_high"))
            obstacles.append(Rectangle(left, y - 1, right, y + 1))
    widths = [text_width(text, SIZE) + 2 if text else 0.0 for text in texts]
    some = len(rows) > _MOST_POINTS_KEYED
    if not (some or frame.numbered) and max(widths) > _WIDEST_LABEL * frame.panel:
        return False
    area = (frame.panel, frame.height)
    found = placed_labels(
        tuple(at), tuple(widths), tuple(obstacles), area, SIZE + 1, only_free=some
    )
    for place, (row, text, label) in enumerate(zip(rows, texts, found, strict=True)):
        if label is not None:
            row |= {"shown": text, "dx": label.dx, "dy": label.dy, "align": label.align}
            if label.is_far:
                end = (x := at[place][0]) + label.dx, (y := at[place][1]) + label.dy
                if label.align == "center":  # a line from above or below ends at the text
                    end = end[0], end[1] - math.copysign(SIZE / 2, label.dy)
                row |= {"from_x": x, "from_y": y, "to_x": end[0], "to_y": end[1]}
    return some or all(label is None or label.is_free for label in found)


def _at_one_place(at: Sequence[tuple[float, float]], texts: Sequence[str]) -> list[str]:
    """Return the labels, that of the first of points at one place with those of the others."""
    found = list(texts)
    for place, text in enumerate(texts):
        first = next(n for n in range(place + 1) if math.dist(at[n], at[place]) < 1)
        if text and first < place and found[first]:
            found[first], found[place] = f"{found[first]}, {text}", ""
    return found


def _along_the_diagonal(frame: Frame) -> list[Rectangle]:
    """Return small boxes along the line of equal coordinates, which labels should not cover."""
    count = max(1, int(frame.panel / 3))
    at = [(n * frame.panel / count, frame.height - n * frame.height / count) for n in range(count)]
    return [Rectangle(x, y - 3, x + 3, y) for x, y in at]


_LEADER = ("from_x", "from_y", "to_x", "to_y")


def _label_layers(
    rows: Sequence[Mapping[str, Any]], x: Mapping[str, Any], y: Mapping[str, Any]
) -> list[dict[str, Any]]:
    places = {"x": {**x, "field": "x"}, "y": {**y, "field": "y"}}
    lines = [{key: row[key] for key in _LEADER} for row in rows if "to_x" in row]
    leader: dict[str, Any] = {
        "data": {"values": lines},
        "mark": {"type": "rule", "color": FAINT, "strokeWidth": 0.5},
        "encoding": {
            channel: {"field": key, "type": "quantitative", "scale": None, "axis": None}
            for channel, key in zip(("x", "y", "x2", "y2"), _LEADER, strict=True)
        },
    }
    for channel in ("x2", "y2"):
        leader["encoding"][channel] = {"field": leader["encoding"][channel]["field"]}
    found: list[dict[str, Any]] = [
        {
            "transform": [{"filter": f"datum.align === '{align}'"}],
            "mark": {"type": "text", "align": align, "baseline": "middle", "limit": 0,
                     "dx": {"expr": "datum.dx"}, "dy": {"expr": "datum.dy"}},
            "encoding": {**places, "text": {"field": "shown", "type": "nominal"}},
        }
        for align in ("left", "center", "right")
        if any(row.get("align") == align for row in rows)
    ]  # fmt: skip
    return [leader, *found] if lines else found


def _matrix(
    figure: FigureDeclaration, panel: Panel, frame: Frame, at: Edges
) -> list[dict[str, Any]]:
    x = _axis_of_names(figure, panel, frame, shown=at.bottom)
    x["scale"] = {"domain": x["scale"]["domain"], "padding": 0.04}
    labels = {frame.series(s.name): lines for s, lines in
              zip(panel.series, _labels(figure, panel, frame), strict=True)}  # fmt: skip
    y = {
        "field": "s",
        "type": "nominal",
        "scale": {"domain": list(labels), "padding": 0.04},
        "axis": {"labels": False, "title": None, "domain": False},
    }  # fmt: skip
    rows = list(_rows(figure, panel, frame))
    known = [abs(p.y.value) for p in figure.points if p.y is not None]
    both_signs = any(p.y is not None and p.y.value < 0 for p in figure.points)
    most = max(known) or 1.0
    domain = [-most, 0, most] if both_signs else [min(known), max(most, min(known) + 1e-9)]
    size = _write_cells(rows, figure, frame, most if both_signs else None, domain)
    colour = {
        "field": "y",
        "type": "quantitative",
        "scale": {"domain": domain, "range": list(DIVERGING if both_signs else RISING)},
        "legend": _colour_key(figure, frame) if at.left else None,
    }
    encoding = {"x": x, "y": y}
    cell = {
        "mark": {"type": "rect", "invalid": "filter"},
        "encoding": {**encoding, "color": colour, "tooltip": _tooltip(figure)},
    }
    texts: list[dict[str, Any]] = [
        {
            "transform": [{"filter": f"datum.ink === '{ink}' && datum.bold === {bold}"}],
            "mark": {"type": "text", "color": ink, "baseline": "middle", "align": "center",
                     "fontWeight": "bold" if bold == "true" else "normal",
                     "fontSize": size},
            "encoding": {**encoding, "text": {"field": "shown", "type": "nominal"}},
        }
        for ink in (INK, "#ffffff")
        for bold in ("true", "false")
    ]  # fmt: skip
    drawn: list[dict[str, Any]] = [{"data": {"values": rows}, "layer": [cell, *texts]}]
    return [*drawn, _row_names(labels, y)] if at.left else drawn


_FORMS = (
    (8.0, "{:+.1f}"), (7.0, "{:+.1f}"), (8.0, "{:+.0f}"), (7.0, "{:+.0f}"), (7.0, "{:.0f}"),
    (6.5, "{:.0f}"),
)  # fmt: skip
"""How a cell shows its value, the best first: size and form."""


def _write_cells(
    rows: list[dict[str, Any]],
    figure: FigureDeclaration,
    frame: Frame,
    most: float | None,
    domain: Sequence[float],
) -> float:
    """Put into each row what its cell shows, and return the size of the font.

    All cells show their values with the same digits, or, where one of them has no room, their
    labels.
    """
    step = frame.panel / max(1, _columns(figure)) - 2
    signed = most is not None
    known = [row for row in rows if row["y"] is not None]
    size, form = next(
        (
            (size, form)
            for size, form in _FORMS
            if all(text_width(form.format(row["y"]), size, bold=True) <= step for row in known)
        ),
        (float(SIZE), ""),
    )
    for row in rows:
        value = row["y"]
        row["bold"] = bool(row["label"])
        if value is None:
            row |= {"shown": "–", "ink": INK}
            continue
        text = form.format(value).replace("-", "−")
        if not text.strip("+−0."):
            text = text.lstrip("+−")
        row["shown"] = text.lstrip("" if signed else "+") or cut(row["label"], step + 2, SIZE)
        share = abs(value) / most if most else (value - domain[0]) / (domain[-1] - domain[0])
        row["ink"] = "#ffffff" if share > 0.55 else INK
    return size


def _colour_key(figure: FigureDeclaration, frame: Frame) -> dict[str, Any]:
    return {
        "title": wrapped(figure.y_axis, frame.panel - 10, SIZE, lines=2),
        "orient": "top",
        "direction": "horizontal",
        "gradientLength": min(140.0, frame.panel),
        "gradientThickness": 6,
        "tickCount": 4,
        "offset": 4,
        "titlePadding": 2,
    }


_DRAW: Mapping[str, Callable[[FigureDeclaration, Panel, Frame, Edges], list[dict[str, Any]]]] = {
    "bars": _bars,
    "whiskers": _whiskers,
    "lines": _lines,
    "points": _points,
    "matrix": _matrix,
}
