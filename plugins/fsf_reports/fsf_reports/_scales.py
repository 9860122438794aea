"""Ranges and ticks of axes, and where labels of points have room."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Axis", "Label", "Rectangle", "axis_over", "placed_labels", "steps_between"]


def steps_between(low: float, high: float, most: int = 6) -> list[float]:
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


@dataclass(frozen=True)
class Axis:
    """The range of an axis of numbers, and its ticks."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def at(self, value: float, length: float) -> float:
        """Return the distance of a value from the beginning of an axis of this length."""
        return length * (value - self.low) / (self.high - self.low)

    def of_whole_numbers(self) -> Axis:
        """Return the same axis with those of its ticks that are whole numbers."""
        return Axis(self.low, self.high, tuple(t for t in self.ticks if t == int(t)))


def axis_over(
    values: Iterable[float],
    *,
    zero: bool = False,
    pad: float = 0.05,
    most: int = 6,
    limits: tuple[float, float] | None = None,
) -> Axis:
    """Return an axis that shows all values, with some room at both ends.

    Args:
        values: NaN is left out.
        zero: whether it includes 0, without room beyond it.
        pad: room at each end, as a share of the range.
        most: ticks.
        limits: that the axis does not pass, such as 0 and 100 for percentages. An axis with 0 as
            limit begins there unless all values lie close together far from it, and ends at a
            tenth or a fifth of the other limit.

    >>> [axis_over(shares, limits=(0, 100)).high for shares in ([3, 24], [3, 61], [9, 85], [0])]
    [30.0, 80.0, 100.0, 10.0]
    """
    known = [value for value in values if math.isfinite(value)] + ([0.0] if zero else [])
    low, high = min(known), max(known)
    if limits is not None and limits[0] == 0 and 2 * low <= high:
        step = limits[1] / (10 if 2 * high <= limits[1] else 5)
        end = max(1, math.ceil(high / step)) * step
        return Axis(0.0, end, tuple(steps_between(0.0, end, most)))
    room = pad * (high - low) or pad * abs(high) or 1.0
    low = low if zero and low == 0 else low - room
    high = high if zero and high == 0 else high + room
    if limits is not None:
        low, high = max(low, limits[0]), min(high, limits[1])
    return Axis(low, high, tuple(steps_between(low, high, most)))


@dataclass(frozen=True)
class Rectangle:
    """A part of the plane, in points from its upper left corner."""

    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: Rectangle) -> float:
        """Return the area that both share."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0.0, width) * max(0.0, height)

    def outside(self, width: float, height: float) -> float:
        """Return the area beyond a frame of this size."""
        inside = self.overlap(Rectangle(0, 0, width, height))
        return (self.right - self.left) * (self.bottom - self.top) - inside

    def distance(self, point: tuple[float, float]) -> float:
        """Return how far a point is, 0 inside."""
        (x, y) = point
        right = max(self.left - x, 0.0, x - self.right)
        down = max(self.top - y, 0.0, y - self.bottom)
        return math.hypot(right, down)


@dataclass(frozen=True)
class Label:
    """Where a label is, relative to its point; ``dx`` right and ``dy`` down, in points."""

    dx: float
    dy: float
    align: str
    is_free: bool = True
    """Whether it is near its point and no other, inside the panel and covers nothing."""

    @property
    def is_far(self) -> bool:
        """Whether it needs a line to its point."""
        return math.hypot(self.dx, self.dy) > _NEAR


_AROUND = tuple(
    (round(math.cos(n * math.pi / 8), 2), round(math.sin(n * math.pi / 8), 2))
    for n in (0, 8, 12, 4, 14, 2, 10, 6, 15, 1, 9, 7, 13, 3, 11, 5)
)
"""Directions from a point, the usual ones first."""
_DISTANCES = (5.0, 8.0, 12.0, 17.0, 23.0, 30.0, 38.0, 48.0, 60.0, 75.0, 95.0, 120.0, 150.0)
_NEAR, _FAR = 9.0, 38.0
"""A label further away than this has a line to its point."""


def placed_labels(
    points: Sequence[tuple[float, float]],
    widths: Sequence[float],
    obstacles: Sequence[Rectangle],
    frame: tuple[float, float],
    size: float,
    *,
    only_free: bool = False,
) -> list[Label | None]:
    """Return where each label has most room, ``None`` where there is no label.

    Labels are placed in turn, those of crowded points first, where they cover as little as possible
    of other labels, points and intervals, further away where there is no room beside their point.
    Where only some can have room, those of lone points are placed first.

    Args:
        points: from the upper left corner of the frame.
        widths: of the labels; 0 for none.
        obstacles: that labels should not cover.
        frame: width and height.
        size: of the font.
        only_free: place only labels that have room beside their point.
    """
    marks = [Rectangle(x - 3, y - 3, x + 3, y + 3) for x, y in points]
    taken: list[Rectangle] = []
    lines: list[Rectangle] = []
    found: list[Label | None] = [None] * len(points)
    crowded_first = _by_neighbours(points)
    for place in reversed(crowded_first) if only_free else crowded_first:
        (x, y), width = points[place], widths[place]
        if not width:
            continue
        best, box, cost = Label(0, 0, "left"), marks[place], math.inf
        for distance, (right, down) in itertools.product(_DISTANCES, _AROUND):
            far = 1.2 * (distance - _DISTANCES[0])
            if far > cost:
                break
            dx, dy = distance * right, distance * down
            align = "left" if right > 0.1 else "right" if right < -0.1 else "center"
            tried = _box(x + dx, y + dy, width, size, align)
            hidden = sum(tried.overlap(other) for other in (*taken, *marks))
            hidden += tried.outside(*frame)
            others = [other for other in points if math.dist(other, (x, y)) >= 1]
            hidden += 10 * _is_ambiguous(tried, (x, y), (x + dx, y + dy), others)
            covered = 100 * hidden + 0.5 * sum(tried.overlap(other) for other in obstacles)
            covered += sum(map(tried.overlap, lines))
            if distance > _NEAR:
                line = _along((x, y), (x + dx, y + dy))
                covered += 20 * sum(one.overlap(other) for one in line for other in taken)
            if covered + far < cost - 1e-9:
                free = hidden < 1e-6 and distance <= _FAR
                best, box, cost = Label(dx, dy, align, free), tried, covered + far
        if only_free and (best.is_far or not best.is_free):
            continue
        found[place] = best
        taken.append(box)
        if best.is_far:
            lines += _along((x, y), (x + best.dx, y + best.dy))
    return found


def _is_ambiguous(
    box: Rectangle,
    own: tuple[float, float],
    end: tuple[float, float],
    others: Sequence[tuple[float, float]],
) -> bool:
    """Return whether a label can be read as that of another point.

    A label beside its point is clearly nearer to it than to any other. The line of a label further
    away passes no other point, and the label is not beside one.
    """
    nearest = min(map(box.distance, others), default=math.inf)
    if math.dist(own, end) <= _NEAR:
        return nearest < box.distance(own) + 3
    line = [Rectangle(one.left - 2, one.top - 2, one.right + 2, one.bottom + 2)
            for one in _along(own, end)]  # fmt: skip
    return nearest <= _NEAR or any(not one.distance(other) for one in line for other in others)


def _along(start: tuple[float, float], end: tuple[float, float]) -> list[Rectangle]:
    """Return small boxes along a line."""
    count = max(1, int(math.dist(start, end) / 3))
    at = [
        (start[0] + (end[0] - start[0]) * n / count, start[1] + (end[1] - start[1]) * n / count)
        for n in range(count)
    ]
    return [Rectangle(x - 1, y - 1, x + 1, y + 1) for x, y in at]


def _by_neighbours(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the places of points, those with the most others around first."""
    near = [sum(math.dist(one, other) < 30 for other in points) for one in points]
    return sorted(range(len(points)), key=lambda n: (-near[n], n))


def _box(x: float, y: float, width: float, size: float, align: str) -> Rectangle:
    left = x - {"left": 0.0, "center": width / 2, "right": width}[align]
    return Rectangle(left, y - size / 2, left + width, y + size / 2)
