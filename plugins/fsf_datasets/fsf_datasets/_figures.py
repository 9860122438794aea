"""The figures of textures and companions, as signed distances to their edges.

Each function takes two coordinates and returns the distance to the edge, positive inside and exact
near the edge; all arrays have one shape. Textures repeat with period 1; a companion fits in the
unit circle, with y pointing down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from fsframework.values import FloatArray

__all__ = ["COMPANIONS", "TEXTURES"]


def _to_middle(u: FloatArray) -> FloatArray:
    """Return the distance to the middle of the period, 0 to 0.5."""
    distance: FloatArray = np.abs(u - np.floor(u) - 0.5)
    return distance


def _length(u: FloatArray, v: FloatArray) -> FloatArray:
    length: FloatArray = np.sqrt(u * u + v * v)
    return length


def _wave(u: FloatArray) -> FloatArray:
    """Return a smooth wave of period 1 and range -1 to 1, composed of parabolas."""
    part: FloatArray = u - np.floor(u + 0.5)
    wave: FloatArray = 8 * part * (1 - 2 * np.abs(part))
    return wave


def _checkered(u: FloatArray, v: FloatArray) -> FloatArray:
    a, b = 0.25 - _to_middle(u * 0.75), 0.25 - _to_middle(v * 0.75)
    nearer: FloatArray = np.minimum(np.abs(a), np.abs(b))
    return np.where((a > 0) == (b > 0), nearer, -nearer)


def _dotted(u: FloatArray, v: FloatArray) -> FloatArray:
    return 0.3 - _length(_to_middle(u), _to_middle(v))


def _gridded(u: FloatArray, v: FloatArray) -> FloatArray:
    nearer: FloatArray = np.minimum(_to_middle(u), _to_middle(v))
    return 0.09 - nearer


def _striped(u: FloatArray, v: FloatArray) -> FloatArray:
    return 0.25 - _to_middle((u + v) * 0.75)


def _wavy(u: FloatArray, v: FloatArray) -> FloatArray:
    return 0.2 - _to_middle(v + 0.28 * _wave(u * 0.5))


def _ball(u: FloatArray, v: FloatArray) -> FloatArray:
    return 0.8 - _length(u, v)


def _cross(u: FloatArray, v: FloatArray) -> FloatArray:
    a, b = np.abs(u), np.abs(v)
    inside: FloatArray = np.minimum(0.3 - np.minimum(a, b), 0.92 - np.maximum(a, b))
    return inside


def _heart(u: FloatArray, v: FloatArray) -> FloatArray:
    a, down = np.abs(u), v + 0.1
    lobe = 0.58 - _length(a - 0.41, down + 0.41)
    square = (0.82 - a - np.abs(down)) * 0.7071
    inside: FloatArray = np.maximum(lobe, square)
    return inside


def _moon(u: FloatArray, v: FloatArray) -> FloatArray:
    outside_bite = _length(u - 0.42, v + 0.18) - 0.66
    inside: FloatArray = np.minimum(0.9 - _length(u, v), outside_bite)
    return inside


def _ring(u: FloatArray, v: FloatArray) -> FloatArray:
    off_circle: FloatArray = np.abs(_length(u, v) - 0.64)
    return 0.24 - off_circle


def _star(u: FloatArray, v: FloatArray) -> FloatArray:
    """Fold the plane onto half a point of a five-pointed star (Quilez, "2D distance functions")."""
    k_x, k_y = math.cos(math.pi / 5), math.sin(math.pi / 5)
    a, b = np.abs(u), -v
    for side in (1, -1):
        along = 2 * np.maximum(side * k_x * a - k_y * b, 0)
        a, b = a - along * side * k_x, b + along * k_y
    edge_x, edge_y = 0.45 * k_y, 0.45 * k_x - 1
    inside: FloatArray = (np.abs(a) * edge_y - (b - 1) * edge_x) / math.hypot(edge_x, edge_y)
    return inside


Figures = Mapping[str, Callable[[FloatArray, FloatArray], FloatArray]]

TEXTURES: Figures = MappingProxyType(
    {
        "checkered": _checkered,
        "dotted": _dotted,
        "gridded": _gridded,
        "striped": _striped,
        "wavy": _wavy,
    }
)
"""The part of the background with the second colour; ``plain`` has no such part."""

COMPANIONS: Figures = MappingProxyType(
    {
        "ball": _ball,
        "cross": _cross,
        "heart": _heart,
        "moon": _moon,
        "ring": _ring,
        "star": _star,
    }
)
