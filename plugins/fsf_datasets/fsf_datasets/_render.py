"""Rendering of attributes and poses to pixels, one block of images at a time.

Pixels are computed only with ``+ - * /``, square roots, rounding and table look-ups. Each of these
is defined to the last bit, so an image does not depend on its block or, apart from the tables, on
the machine. Lengths are in half images: the image spans ``[-1, 1]`` in both directions, with x to
the right and y down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from fsf_datasets._contours import TABLE_ANGLES, TABLE_SIZE
from fsf_datasets._figures import COMPANIONS, TEXTURES
from fsf_datasets._vocabulary import KINDS
from fsframework.values import FloatArray, IntArray, UInt8Array

__all__ = ["N_DRAWS", "RENDERER_VERSION", "Scenes", "render"]

RENDERER_VERSION = 1
"""Must be raised whenever a pixel may change."""


BACKGROUND_RGB = {
    "brick": (166, 84, 66),
    "lavender": (186, 166, 222),
    "meadow": (112, 168, 88),
    "ocean": (24, 62, 104),
    "sand": (226, 202, 154),
    "sky": (136, 196, 238),
    "slate": (104, 114, 124),
    "snow": (240, 242, 244),
}
COLOUR_RGB = {
    "black": (34, 34, 38),
    "blue": (40, 84, 214),
    "green": (28, 140, 66),
    "orange": (246, 136, 24),
    "pink": (250, 130, 178),
    "purple": (124, 50, 160),
    "red": (212, 36, 40),
    "yellow": (250, 216, 48),
}
# Brightness in the middle, its slope to the right and its slope downwards; then the tint. Neither
# exceeds 1 anywhere and no colour exceeds 255, so no pixel needs clipping.
LIGHTING = {
    "dawn": ((0.77, -0.23, 0.0), (1.0, 0.97, 0.90)),
    "dusk": ((0.77, 0.23, 0.0), (1.0, 0.93, 0.92)),
    "midnight": ((0.57, 0.0, 0.0), (0.88, 0.92, 1.0)),
    "noon": ((0.95, 0.0, -0.05), (1.0, 1.0, 1.0)),
}

_RIM_GREY, _LINE_GREY, _COMPANION_GREY = 252, 30, 240
_RIM, _LINE = 0.06, 0.045  # width of the white rim outside and the dark line inside a contour
_OBJECT_RADIUS, _COMPANION_RADIUS = 0.76, 0.25
_COMPANION_CORNER = 0.70
_BLOCK_PIXELS = 1 << 17  # pixels per block, which fit in a processor's second-level cache


class _Draw(IntEnum):
    """The use of each random number of an image."""

    GAIN = 0
    OBJECT_X = 1
    OBJECT_Y = 2
    TURN = 3
    STRETCH = 4
    BEND = 5  # and the seven after it
    SCALE = 13
    PERIOD = 14
    TILT = 15
    PHASE_U = 16
    PHASE_V = 17
    CORNER = 18
    COMPANION_X = 19
    COMPANION_Y = 20
    COMPANION_SCALE = 21
    COMPANION_TURN = 22


N_DRAWS = 23
"""Random numbers per image."""


@dataclass(frozen=True)
class Scenes:
    """The contents of ``n`` images.

    Args:
        values: int ``(n, kinds)``, index into each kind of ``KINDS``.
        contours: float64 ``(n, TABLE_SIZE)``, radius of the object's contour.
        uniform: float64 ``(n, N_DRAWS)`` in [0, 1), from which pose, scale and jitter are computed.
    """

    values: IntArray
    contours: FloatArray
    uniform: FloatArray

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, part: slice) -> Scenes:
        return Scenes(self.values[part], self.contours[part], self.uniform[part])

    def between(self, draw: _Draw, low: float, high: float) -> FloatArray:
        """Return one random number per image in [low, high), float32 ``(n, 1, 1)``."""
        return (low + (high - low) * self.uniform[:, draw, None, None]).astype(np.float32)

    def value_is(self, kind: str, value: str) -> IntArray:
        """Return the indices of the images with a value."""
        column = list(KINDS).index(kind)
        return np.flatnonzero(self.values[:, column] == KINDS[kind].index(value))

    def lookup(self, kind: str, table: Mapping[str, Sequence[float]]) -> FloatArray:
        """Return the row of ``table`` for the value of each image, float32 ``(n, columns)``."""
        rows = np.array([table[value] for value in KINDS[kind]], dtype=np.float32)
        return rows[self.values[:, list(KINDS).index(kind)]]


def render(scenes: Scenes, size: int) -> UInt8Array:
    """Return the images, RGB uint8 ``(n, size, size, 3)``."""
    out = np.empty((len(scenes), size, size, 3), dtype=np.uint8)
    step = max(1, _BLOCK_PIXELS // size**2)
    for start in range(0, len(scenes), step):
        block = slice(start, start + step)
        _render_block(scenes[block], size, out[block])
    return out


def _render_block(scenes: Scenes, size: int, out: UInt8Array) -> None:
    axis = ((np.arange(size) + 0.5) * (2 / size) - 1).astype(np.float32)
    x, y = axis[None, None, :], axis[None, :, None]
    light, tint = _light(scenes, x, y)
    texture = _texture(scenes, x, y, size)
    behind, grey, inside = _object_layers(scenes, x, y, light)
    _add_companions(scenes, behind, grey)

    background = scenes.lookup("background", BACKGROUND_RGB)
    change = (_accent(background) - background) * tint
    background *= tint
    colour = scenes.lookup("colour", COLOUR_RGB) * tint
    plane, coloured = np.empty_like(texture), np.empty_like(texture)
    for channel in range(3):
        np.multiply(texture, _column(change, channel), out=plane)
        plane += _column(background, channel)
        plane *= behind
        plane += grey
        np.multiply(inside, _column(colour, channel), out=coloured)
        plane += coloured
        out[..., channel] = plane  # truncates; the grey contains the 0.5 that rounds


def _column(table: FloatArray, channel: int) -> FloatArray:
    return table[:, channel, None, None]


def _accent(background: FloatArray) -> FloatArray:
    """Return the texture's second colour: darker on a light background, lighter on a dark one."""
    dark = background.mean(axis=1, keepdims=True) < 90
    return np.where(dark, background + 46, background * 0.76)


def _light(scenes: Scenes, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return brightness ``(n, size, size)`` and tint ``(n, 3)``."""
    plane = scenes.lookup("lighting", {word: plane for word, (plane, _) in LIGHTING.items()})
    tint = scenes.lookup("lighting", {word: tint for word, (_, tint) in LIGHTING.items()})
    gain = scenes.between(_Draw.GAIN, 0.94, 1.0)
    middle, right, down = (_column(plane, i) * gain for i in range(3))
    return (middle + right * x) + down * y, tint


def _frame(
    x: FloatArray,
    y: FloatArray,
    angle: FloatArray,
    unit: FloatArray | float,
    middle: tuple[FloatArray, FloatArray],
) -> tuple[FloatArray, FloatArray]:
    """Return coordinates relative to ``middle``, rotated by ``angle`` radians, in a unit."""
    # Double precision, so that rounding to float32 hides the last bit of the library's sine.
    cosine = np.cos(angle.astype(np.float64)).astype(np.float32) / unit
    sine = np.sin(angle.astype(np.float64)).astype(np.float32) / unit
    x, y = x - middle[0], y - middle[1]
    return cosine * x + sine * y, cosine * y - sine * x


def _coverage(pixels: FloatArray, beyond: float = 0.0) -> FloatArray:
    """Return the share of each pixel inside an edge that is moved outwards by ``beyond``.

    Both are distances in pixels; ``pixels`` is positive inside.
    """
    covered = pixels + (beyond + 0.5)
    np.clip(covered, 0, 1, out=covered)
    return covered


def _object_layers(
    scenes: Scenes, x: FloatArray, y: FloatArray, light: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the layers that combine the object with its background, each ``(n, size, size)``.

    A pixel is ``behind`` times the background, plus ``grey`` (rim, line and the 0.5 that rounds),
    plus ``inside`` times the colour.
    """
    half = x.size / 2
    pixels, glow = _object_distance(scenes, x, y)
    rim = _coverage(pixels, _RIM * half)
    line = _coverage(pixels)
    fill = _coverage(pixels, -_LINE * half)
    behind = (1 - rim) * light
    rim -= line
    rim *= _RIM_GREY
    line -= fill
    line *= _LINE_GREY
    rim += line
    rim *= light
    rim += 0.5
    fill *= glow
    fill *= light
    return behind, rim, fill


def _object_distance(scenes: Scenes, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return distance to the contour in pixels, positive inside, and brightness of the inside."""
    u, v = _object_coordinates(scenes, x, y)
    place = _table_places(u, v)
    u *= u
    v *= v
    u += v
    r = np.sqrt(u, out=u)
    radius, slant = _contour_tables(scenes)
    step = np.roll(radius, -1, axis=1) - radius
    slant *= x.size / 2

    before = np.floor(place)
    place -= before
    before += (np.arange(len(scenes), dtype=np.float32) * radius.shape[1])[:, None, None]
    entry = before.astype(np.intp)
    edge = step.take(entry, mode="clip")  # nothing to clip; the other modes are slower
    edge *= place
    edge += radius.take(entry, mode="clip")
    pixels = edge - r
    pixels *= slant.take(entry, mode="clip")
    r /= edge
    r *= r
    r *= -0.24
    r += 1
    return pixels, r


def _object_coordinates(
    scenes: Scenes, x: FloatArray, y: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the pixels' coordinates relative to the object's middle and along its axes."""
    right, below = _companion_side(scenes)  # the object is shifted away from its companion
    middle = (
        scenes.between(_Draw.OBJECT_X, -0.08, 0.08) - 0.08 * right,
        scenes.between(_Draw.OBJECT_Y, -0.08, 0.08) - 0.08 * below,
    )
    u, v = _frame(x, y, scenes.between(_Draw.TURN, -0.44, 0.44), 1, middle)
    stretch = scenes.between(_Draw.STRETCH, 0.92, 1.08)
    u *= stretch
    v /= stretch
    return u, v


def _contour_tables(scenes: Scenes) -> tuple[FloatArray, FloatArray]:
    """Return radius and slant of each image's contour, float32 ``(n, TABLE_SIZE + 1)``.

    The slant is the cosine between the radius and the normal. Near the edge, a radial distance
    times the slant is the distance to the edge.
    """
    bend = np.ones_like(scenes.contours)
    for column, wave in enumerate(_BENDS, start=_Draw.BEND):
        bend += (scenes.uniform[:, column, None] - 0.5) * wave
    scale = 0.84 + 0.16 * scenes.uniform[:, _Draw.SCALE, None]
    radius = scenes.contours * bend * (scale * _OBJECT_RADIUS)
    gap = (np.roll(TABLE_ANGLES, -1) - np.roll(TABLE_ANGLES, 1)) % (2 * np.pi)
    slope = (np.roll(radius, -1, axis=1) - np.roll(radius, 1, axis=1)) / gap
    slant = 1 / np.sqrt(1 + (slope / radius) ** 2)
    return _closed(radius), _closed(slant)


_BENDS = [0.07 * wave(order * TABLE_ANGLES) for order in (2, 3, 4, 5) for wave in (np.cos, np.sin)]


def _closed(table: FloatArray) -> FloatArray:
    return np.concatenate([table, table[:, :1]], axis=1).astype(np.float32)


def _table_places(u: FloatArray, v: FloatArray) -> FloatArray:
    """Return the position of each pixel's direction in a contour's table, in [0, TABLE_SIZE]."""
    span = np.abs(u)
    span += np.abs(v)
    np.maximum(span, 1e-6, out=span)
    place = u / span
    np.subtract(1, place, out=place)
    np.copysign(place, v, out=place)
    place += 2
    place *= TABLE_SIZE / 4
    return place


def _texture(scenes: Scenes, x: FloatArray, y: FloatArray, size: int) -> FloatArray:
    """Return the share of the second colour in the background, ``(n, size, size)``."""
    out = np.zeros((len(scenes), size, size), dtype=np.float32)
    period, angle = scenes.between(_Draw.PERIOD, 0.32, 0.42), scenes.between(_Draw.TILT, -0.2, 0.2)
    shift = scenes.between(_Draw.PHASE_U, -0.5, 0.5), scenes.between(_Draw.PHASE_V, -0.5, 0.5)
    for texture, distance in TEXTURES.items():
        where = scenes.value_is("texture", texture)
        if where.size:
            middle = shift[0][where], shift[1][where]
            u, v = _frame(x, y, angle[where], period[where], middle)
            pixels = distance(u, v)
            pixels *= period[where] * (size / 2)
            out[where] = _coverage(pixels)
    return out


def _companion_side(scenes: Scenes) -> tuple[FloatArray, FloatArray]:
    """Return whether the companion is right (1) or left (-1), and below (1) or above (-1)."""
    corner = (scenes.uniform[:, _Draw.CORNER] * 4).astype(np.int64)[:, None, None]
    return (corner % 2 * 2 - 1).astype(np.float32), (corner // 2 * 2 - 1).astype(np.float32)


def _add_companions(scenes: Scenes, behind: FloatArray, grey: FloatArray) -> None:
    """Draw each companion between background and object, in place."""
    size = behind.shape[1]
    right, below = _companion_side(scenes)
    middle = (
        _COMPANION_CORNER * right + scenes.between(_Draw.COMPANION_X, -0.05, 0.05),
        _COMPANION_CORNER * below + scenes.between(_Draw.COMPANION_Y, -0.05, 0.05),
    )
    radius = scenes.between(_Draw.COMPANION_SCALE, 0.88, 1.0) * _COMPANION_RADIUS
    width = min(size, int(1.1 * _COMPANION_RADIUS * size) + 3)
    left, top = (_window_starts(centre, width, size) for centre in middle)
    along = np.arange(width) + 0.5
    x = ((left + along[None, None, :]) * (2 / size) - 1).astype(np.float32)
    y = ((top + along[None, :, None]) * (2 / size) - 1).astype(np.float32)
    u, v = _frame(x, y, scenes.between(_Draw.COMPANION_TURN, -0.3, 0.3), radius, middle)
    pixels = np.full_like(u, -1)
    for companion, distance in COMPANIONS.items():
        where = scenes.value_is("companion", companion)
        if where.size:
            pixels[where] = distance(u[where], v[where])
    pixels *= radius * (size / 2)
    within = _coverage(pixels, -0.03 * size / 2)
    outline = _coverage(pixels, 0.02 * size / 2)
    paint = outline * _LINE_GREY + within * (_COMPANION_GREY - _LINE_GREY)
    uncovered = 1 - outline
    for place, (up, aside) in enumerate(zip(top.flat, left.flat, strict=True)):
        window = place, slice(up, up + width), slice(aside, aside + width)
        grey[window] += behind[window] * paint[place]
        behind[window] *= uncovered[place]


def _window_starts(centre: FloatArray, width: int, size: int) -> IntArray:
    """Return the first pixel of a window around the centre, moved into the image."""
    start: IntArray = np.floor((centre + 1) * (size / 2) - width / 2).astype(np.intp)
    np.clip(start, 0, size - width, out=start)
    return start
