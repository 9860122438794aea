"""Bar charts with intervals and scatter plots, as PNG files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fsframework.api.files import atomic_path
from fsframework.values import FigureDeclaration, FloatArray

__all__ = ["Bar", "BarGroup", "draw_bars", "draw_figure", "draw_scatter", "steps_between"]

COLOURS = ("#0072b2", "#d55e00", "#007a5a", "#a8478a", "#8a6d00", "#3f7fbf", "#7a3b00", "#4d4d4d")
"""One per series, repeated if there are more series; colour-blind readers can distinguish them
(after Okabe & Ito 2008)."""

INK, FAINT, PAPER = "#222222", "#767676", "#ffffff"
"""Text, secondary text and background."""

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_MARGIN, _LINE, _GRID = 24, 20, "#e4e4e4"
_BAR, _BETWEEN, _HEIGHT = 34, 44, 300
_PLOT, _LEGEND = 520, 190
_GROUP_LEAST = 130


@dataclass(frozen=True)
class Bar:
    """A value with its interval; NaN if it is missing."""

    label: str
    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class BarGroup:
    """Adjacent bars above a name, with a text below the name."""

    name: str
    bars: tuple[Bar, ...]
    below: str = ""


def draw_figure(figure: FigureDeclaration, path: Path) -> None:
    """Draw a figure as bars with intervals, panel by panel, into a PNG file.

    Raises:
        FsfError: the file cannot be written.
    """
    panels: dict[str, list[BarGroup]] = {}
    for panel in figure.panels:
        places = dict.fromkeys(point.x for series in panel.series for point in series.points)
        groups = []
        for x in places:
            bars = []
            for series in panel.series:
                y = next((point.y for point in series.points if point.x == x), None)
                bars.append(
                    Bar(series.name, math.nan)
                    if y is None
                    else Bar(series.name, y.value, y.low, y.high)
                )
            name = x if isinstance(x, str) else f"{x:g}"
            groups.append(BarGroup(name, tuple(bars), panel.captions.get(x, "")))
        panels[panel.title] = groups
    draw_bars(panels, path, axis=figure.y_axis, below=figure.caption_axis)


def steps_between(low: float, high: float, most: int = 8) -> list[float]:
    """Return round numbers between two numbers, at most ``most`` of them.

    >>> steps_between(0, 93)
    [0.0, 20.0, 40.0, 60.0, 80.0]
    >>> steps_between(0.13, 0.32, 5)
    [0.15, 0.2, 0.25, 0.3]
    """
    span = max(high - low, 1e-9)
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * m for m in (1, 2, 5, 10, 20) if span / (power * m) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(n * step, 10) for n in range(first, last + 1)]


def draw_bars(
    panels: Mapping[str, Sequence[BarGroup]], path: Path, *, axis: str, below: str = ""
) -> None:
    """Draw panels of groups of bars side by side, all on one scale that includes 0.

    Args:
        panels: groups by the title of their panel.
        axis: what the bars show.
        below: what the texts below the groups are.

    Raises:
        FsfError: the file cannot be written.
    """
    font, small = ImageFont.load_default(15), ImageFont.load_default(13)
    groups = [group for panel in panels.values() for group in panel]
    labels = list(dict.fromkeys(bar.label for group in groups for bar in group.bars))
    widest = max(
        [_GROUP_LEAST, *(len(g.bars) * _BAR for g in groups)]
        + [round(small.getlength(text)) + 14 for g in groups for text in (g.name, g.below)]
    )
    left = _MARGIN + 44
    width = left + len(groups) * widest + (len(panels) - 1) * _BETWEEN + _MARGIN
    legend = sum(round(font.getlength(label)) + 44 for label in labels)
    width = max(width, left + legend + round(font.getlength(axis)) + 60)
    scale = _Scale.of(groups, _MARGIN + 3 * _LINE)
    canvas = Image.new("RGB", (width, scale.bottom + 3 * _LINE + _MARGIN), PAPER)
    draw = ImageDraw.Draw(canvas)
    draw.text((_MARGIN, _MARGIN), axis, INK, font)
    x = left + round(font.getlength(axis)) + 30
    for place, label in enumerate(labels):
        draw.rectangle((x, _MARGIN + 3, x + 14, _MARGIN + 15), fill=COLOURS[place % len(COLOURS)])
        draw.text((x + 20, _MARGIN), label, INK, font)
        x += round(font.getlength(label)) + 44
    x = left
    for title, panel in panels.items():
        end = x + len(panel) * widest
        draw.text((x + 4, scale.top - _LINE - 4), title, INK, font)
        for tick in steps_between(scale.low, scale.high):
            y = scale.at(tick)
            draw.line((x, y, end, y), _GRID)
            if x == left:
                text = f"{tick:g}"
                draw.text((left - 8 - small.getlength(text), y - 8), text, FAINT, small)
        for group in panel:
            _draw_bars_of(group, draw, labels, scale, x + (widest - len(group.bars) * _BAR) // 2)
            _write_below(group, draw, small, scale.bottom + 8, (x, widest))
            x += widest
        draw.line((end - len(panel) * widest, scale.at(0), end, scale.at(0)), INK)
        x += _BETWEEN
    if below:
        draw.text((_MARGIN, scale.bottom + 8 + 2 * _LINE + 4), below, FAINT, small)
    with atomic_path(path) as temporary:
        canvas.save(temporary, format="PNG")


@dataclass(frozen=True)
class _Scale:
    """The vertical scale of a bar chart: two values, and the pixel rows where they are."""

    low: float
    high: float
    top: int

    @classmethod
    def of(cls, groups: Sequence[BarGroup], top: int) -> _Scale:
        """Return a scale that includes 0, and every bar with its interval."""
        bars = [bar for group in groups for bar in group.bars]
        ends = [v for b in bars for v in (b.value, b.low, b.high) if not math.isnan(v)]
        return cls(1.04 * min([*ends, 0.0]), 1.04 * max([*ends, 1e-9]), top)

    @property
    def bottom(self) -> int:
        return self.top + _HEIGHT

    def at(self, value: float) -> int:
        """Return the row of a value."""
        return round(self.bottom - _HEIGHT * (value - self.low) / (self.high - self.low))


def _draw_bars_of(
    group: BarGroup, draw: ImageDraw.ImageDraw, labels: Sequence[str], scale: _Scale, start: int
) -> None:
    zero = scale.at(0)
    for place, bar in enumerate(group.bars):
        middle = start + place * _BAR + _BAR // 2
        if math.isnan(bar.value):
            draw.text((middle - 8, zero - _LINE), "n/a", FAINT, ImageFont.load_default(13))
            continue
        colour = COLOURS[labels.index(bar.label) % len(COLOURS)]
        upper, lower = sorted((scale.at(bar.value), zero))
        draw.rectangle((middle - _BAR // 2 + 2, upper, middle + _BAR // 2 - 2, lower), fill=colour)
        if not math.isnan(bar.low):
            low, high = scale.at(bar.low), scale.at(bar.high)
            draw.line((middle, low, middle, high), INK, 2)
            for y in (low, high):
                draw.line((middle - 5, y, middle + 5, y), INK, 2)


def _write_below(
    group: BarGroup, draw: ImageDraw.ImageDraw, font: Font, y: int, span: tuple[int, int]
) -> None:
    """Centre a group's name and text below it; ``span`` is the left end and the width."""
    x, width = span
    for line, text in enumerate((group.name, group.below)):
        text = cut_to(text, font, width - 6)
        place = x + (width - font.getlength(text)) / 2
        draw.text((place, y + line * _LINE), text, FAINT if line else INK, font)


def draw_scatter(
    x: FloatArray,
    y: FloatArray,
    groups: Sequence[str],
    path: Path,
    *,
    x_axis: str,
    y_axis: str,
    title: str,
) -> None:
    """Draw a cloud of points with equal scales and the line on which both values are equal.

    Args:
        x: float ``(n,)``; ``y`` likewise.
        groups: the group of each point; the most frequent groups have separate colours.

    Raises:
        FsfError: the file cannot be written.
    """
    font, small = ImageFont.load_default(15), ImageFont.load_default(13)
    low = float(min(x.min(), y.min()))
    high = float(max(x.max(), y.max()))
    pad = 0.04 * max(high - low, 1e-3)
    low, high = low - pad, high + pad
    x_zero, y_top = _MARGIN + 64, _MARGIN + 2 * _LINE
    y_zero = y_top + _PLOT
    canvas = Image.new(
        "RGB", (x_zero + _PLOT + _LEGEND + _MARGIN, y_zero + 3 * _LINE + _MARGIN), PAPER
    )
    draw = ImageDraw.Draw(canvas)

    def place(values: FloatArray | float) -> FloatArray:
        return np.asarray(_PLOT * (np.asarray(values, np.float64) - low) / (high - low))

    for tick in steps_between(low, high):
        at = float(place(tick))
        draw.line((x_zero + at, y_top, x_zero + at, y_zero), _GRID)
        draw.line((x_zero, y_zero - at, x_zero + _PLOT, y_zero - at), _GRID)
        text = f"{tick:g}"
        draw.text((x_zero + at - small.getlength(text) / 2, y_zero + 6), text, FAINT, small)
        draw.text((x_zero - 8 - small.getlength(text), y_zero - at - 8), text, FAINT, small)
    draw.line((x_zero, y_zero, x_zero + _PLOT, y_top), FAINT)
    names, group = np.unique(np.array(groups), return_inverse=True)
    count = np.bincount(group)
    largest = np.argsort(-count, kind="stable")
    rank = np.empty_like(largest)
    rank[largest] = np.arange(largest.size)
    # With more groups than colours, all remaining groups share the last colour.
    shown = len(names) if len(names) <= len(COLOURS) else len(COLOURS) - 1
    size = 2 if len(x) > 400 else 3
    colour_of = np.minimum(rank[group], shown)
    # In random order, so that no group covers the others.
    order = np.random.default_rng(0).permutation(len(x))
    centres = np.stack([x_zero + place(x), y_zero - place(y)], axis=1)[order]
    boxes = np.concatenate([centres - size, centres + size], axis=1).round().astype(int).tolist()
    for box, colour in zip(boxes, colour_of[order].tolist(), strict=True):
        draw.ellipse(box, fill=COLOURS[colour % len(COLOURS)])
    draw.text((x_zero, _MARGIN), title, INK, font)
    text_x = x_zero + (_PLOT - font.getlength(x_axis)) / 2
    draw.text((text_x, y_zero + _LINE + 10), x_axis, INK, font)
    _upright(canvas, y_axis, font, (_MARGIN - 10, y_top + _PLOT // 2))
    line_x, line_y = x_zero + _PLOT + 20, y_top
    for number in range(min(shown + 1, len(names))):
        rest = number == shown
        name = f"{len(names) - shown} others" if rest else str(names[largest[number]]) or "(none)"
        many = int(count[largest[shown:]].sum()) if rest else int(count[largest[number]])
        draw.ellipse((line_x, line_y + 4, line_x + 9, line_y + 13), fill=COLOURS[number])
        text = cut_to(f"{name} ({many:,})", small, _LEGEND - 40)
        draw.text((line_x + 16, line_y), text, INK, small)
        line_y += _LINE
    with atomic_path(path) as temporary:
        canvas.save(temporary, format="PNG")


def _upright(
    canvas: Image.Image,
    text: str,
    font: Font,
    place: tuple[int, int],
) -> None:
    """Write a text from bottom to top, centred at a height."""
    length = round(font.getlength(text)) + 4
    strip = Image.new("RGB", (length, _LINE + 4), PAPER)
    ImageDraw.Draw(strip).text((2, 2), text, INK, font)
    canvas.paste(strip.rotate(90, expand=True), (place[0], place[1] - length // 2))


def cut_to(text: str, font: Font, width: int) -> str:
    """Return as much of a text as fits in ``width`` pixels, with an ellipsis if it is cut."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"
