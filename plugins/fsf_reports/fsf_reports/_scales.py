"""Ranges and ticks of axes, and where labels of points have room."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Axis", "Label", "Rectangle", "axis_over", "placed_labels", "steps_between"]

Array = np.ndarray[Any, np.dtype[Any]]


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


class Rectangle(NamedTuple):
    """A part of the plane, in points from its upper left corner."""

    left: float
    top: float
    right: float
    bottom: float


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


_AROUND = np.array([
    (round(math.cos(n * math.pi / 8), 2), round(math.sin(n * math.pi / 8), 2))
    for n in (0, 8, 12, 4, 14, 2, 10, 6, 15, 1, 9, 7, 13, 3, 11, 5)
])  # fmt: skip
"""Directions from a point, the usual ones first."""
_ALIGNED = ["left" if x > 0.1 else "right" if x < -0.1 else "center" for x, _ in _AROUND]
_SHIFTED = np.array([{"left": 0.0, "center": 0.5, "right": 1.0}[one] for one in _ALIGNED])
"""How much of a label lies left of the end of its line."""
_DISTANCES = (5.0, 8.0, 12.0, 17.0, 23.0, 30.0, 38.0, 48.0, 60.0, 75.0, 95.0, 120.0, 150.0)
_NEAR, _FAR = 9.0, 38.0
"""A label further away than this has a line to its point."""


@functools.lru_cache(maxsize=16)
def placed_labels(
    points: tuple[tuple[float, float], ...],
    widths: tuple[float, ...],
    obstacles: tuple[Rectangle, ...],
    frame: tuple[float, float],
    size: float,
    *,
    only_free: bool = False,
) -> tuple[Label | None, ...]:
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
    at = np.asarray(points, dtype=float).reshape(-1, 2)
    marks = _around(at, 3)
    covered = np.asarray(obstacles, dtype=float).reshape(-1, 4)
    taken = lines = np.empty((0, 4))
    found: list[Label | None] = [None] * len(points)
    crowded_first = _by_neighbours(points)
    for place in reversed(crowded_first) if only_free else crowded_first:
        if not widths[place]:
            continue
        own = at[place]
        others = at[np.hypot(*(at - own).T) >= 1]
        best, box, cost = Label(0, 0, "left"), marks[place], math.inf
        for distance in _DISTANCES:
            far = 1.2 * (distance - _DISTANCES[0])
            if far > cost:
                break
            ends = own + distance * _AROUND
            tried = _boxes(ends, widths[place], size)
            hidden = _overlaps(tried, np.concatenate([taken, marks])).sum(1)
            hidden += _areas(tried) - _overlaps(tried, np.array([[0, 0, *frame]])).sum(1)
            hidden += 10 * _are_ambiguous(tried, own, ends, others)
            costs = far + 100 * hidden + 0.5 * _overlaps(tried, covered).sum(1)
            costs += _overlaps(tried, lines).sum(1)
            if distance > _NEAR:
                costs += [20 * _overlaps(_along(own, end), taken).sum() for end in ends]
            for way in range(len(costs)):
                if costs[way] < cost - 1e-9:
                    (dx, dy), box, cost = distance * _AROUND[way], tried[way], costs[way]
                    free = bool(hidden[way] < 1e-6) and distance <= _FAR
                    best = Label(float(dx), float(dy), _ALIGNED[way], free)
        if only_free and (best.is_far or not best.is_free):
            continue
        found[place] = best
        taken = np.vstack([taken, box])
        if best.is_far:
            lines = np.vstack([lines, _along(own, own + np.array([best.dx, best.dy]))])
    return tuple(found)


def _are_ambiguous(boxes: Array, own: Array, ends: Array, others: Array) -> Array:
    """Return which labels can be read as those of another point.

    A label beside its point is clearly nearer to it than to any other. The line of a label further
    away passes no other point, and the label is not beside one.
    """
    if not len(others):
        return np.zeros(len(boxes), dtype=bool)
    nearest = _distances(boxes, others).min(1)
    if np.hypot(*(ends[0] - own)) <= _NEAR:
        return np.asarray(nearest < _distances(boxes, own[None])[:, 0] + 3)
    wider = (-2, -2, 2, 2)
    passed = [not _distances(_along(own, end) + wider, others).all() for end in ends]
    return np.asarray((nearest <= _NEAR) | passed)


def _along(start: Array, end: Array) -> Array:
    """Return small rectangles along a line."""
    count = max(1, int(np.hypot(*(end - start)) / 3))
    return _around(start + (end - start) * np.arange(count)[:, None] / count, 1)


def _around(points: Array, reach: float) -> Array:
    """Return a rectangle around each point."""
    return np.hstack([points - reach, points + reach])


def _boxes(ends: Array, width: float, size: float) -> Array:
    """Return the rectangle of a label at each end of the lines around a point."""
    left = ends[:, 0] - width * _SHIFTED
    top = ends[:, 1] - size / 2
    return np.stack([left, top, left + width, top + size], axis=1)


def _areas(boxes: Array) -> Array:
    return np.asarray((boxes[:, 2:] - boxes[:, :2]).prod(1))


def _overlaps(some: Array, others: Array) -> Array:
    """Return the area that each of some rectangles shares with each of others."""
    low = np.maximum(some[:, None, :2], others[:, :2])
    high = np.minimum(some[:, None, 2:], others[:, 2:])
    return np.asarray(np.maximum(high - low, 0).prod(2))


def _distances(boxes: Array, points: Array) -> Array:
    """Return how far each point is from each rectangle, 0 inside."""
    beyond = np.maximum(boxes[:, None, :2] - points, points - boxes[:, None, 2:])
    beyond = np.maximum(beyond, 0)
    return np.asarray(np.hypot(beyond[..., 0], beyond[..., 1]))


def _by_neighbours(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the places of points, those with the most others around first."""
    near = [sum(math.dist(one, other) < 30 for other in points) for one in points]
    return sorted(range(len(points)), key=lambda n: (-near[n], n))
