"""Plain words for properties measured in pixels: light, colour, position, direction, detail."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from fsframework.interfaces import AttributeDetector, DataError
from fsframework.values import BoolArray, FloatArray, UInt8Array

__all__ = ["RULES", "Appearance", "Rule", "measured"]

_SIDE, _EDGE = 32, 4
"""Side of the resized images and width of the border on each side, in pixels."""

_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
_NOTHING = 1e-4
"""Mean square of the difference from the ground below which an image counts as empty."""
_FAINT = 0.06
"""Largest minus smallest channel of the ground below which it has no hue."""


@dataclass(frozen=True)
class Rule:
    """An image has ``word`` if ``low <= measure < high``."""

    word: str
    measure: str
    low: float = -np.inf
    high: float = np.inf


RULES: tuple[Rule, ...] = (
    Rule("dark", "light", high=0.44),
    Rule("bright", "light", low=0.52),
    Rule("low-contrast", "contrast", high=0.185),
    Rule("high-contrast", "contrast", low=0.265),
    Rule("grey", "chroma", high=0.07),
    Rule("colourful", "chroma", low=0.18),
    Rule("patterned-border", "border_spread", low=0.14),
    Rule("red-border", "border_hue", low=330.0, high=380.0),
    Rule("yellow-border", "border_hue", low=380.0, high=430.0),
    Rule("green-border", "border_hue", low=70.0, high=170.0),
    Rule("blue-border", "border_hue", low=170.0, high=270.0),
    Rule("light-above", "above", low=0.05),
    Rule("light-below", "above", high=-0.05),
    Rule("dark-middle", "middle", high=-0.28),
    Rule("light-middle", "middle", low=-0.03),
    Rule("left", "x", high=-0.06),
    Rule("right", "x", low=0.06),
    Rule("top", "y", high=-0.07),
    Rule("bottom", "y", low=0.05),
    Rule("centred", "off_centre", high=0.045),
    Rule("wide", "stretch", low=0.3),
    Rule("tall", "stretch", high=-0.36),
    Rule("compact", "spread", high=0.18),
    Rule("spread-out", "spread", low=0.36),
    Rule("empty-middle", "fill", high=1.2),
    Rule("symmetric", "symmetry", low=0.5),
    Rule("plain", "edges", high=0.12),
    Rule("busy", "edges", low=0.215),
    Rule("level-lines", "upright", high=-0.2),
    Rule("upright-lines", "upright", low=0.2),
    Rule("rising-lines", "falling", high=-0.12),
    Rule("falling-lines", "falling", low=0.12),
    Rule("no-direction", "coherence", high=0.11),
    Rule("sparse", "ink", high=0.08),
    Rule("dense", "ink", low=0.5),
    Rule("smooth", "fineness", high=0.2),
    Rule("fine", "fineness", low=0.64),
)
"""Every word, in the order of the documentation. Thresholds are fixed numbers, not statistics of a
data set, so that an image has the same words in every data set."""


class Appearance(AttributeDetector):
    """Plain words for light, colour, position, direction and detail, measured in the pixels.

    It needs no weights, no network and no annotations, so it runs on any images, black-on-white
    drawings as well as photographs. The words name statistics of an image, not objects in it:
    ``left`` means that the pixels that differ from the border are left of the middle,
    ``blue-border`` that the border is blue, whether it shows sky, sea or a wall. A gap measured
    with these words shows how much a classifier relies on such properties, not whether it relies
    on grass or sofas. For some classes such a property is not accidental but inherent (a swan is
    bright, an I is tall).

    Every image is first reduced to 32 x 32 pixels by averaging over areas, with values from 0 to 1.
    Its *ground* is the median colour of the *border*, the outermost 4 pixels on each side. The
    *difference* of a pixel is the largest difference of one of its channels from the ground.
    ``measured`` defines the measures and ``RULES`` the range of a measure for each word.

    >>> ink = np.full((40, 40, 3), 255, np.uint8)
    >>> ink[10:30, 6:8] = 0
    >>> sorted(Appearance().detect([ink])[0] & {"left", "right", "tall", "wide", "bright", "grey"})
    ['bright', 'grey', 'left', 'tall']
    """

    def detect(self, images: Sequence[UInt8Array]) -> list[frozenset[str]]:
        """Return the words of each uint8 RGB image ``(H, W, 3)``, of any size."""
        if not len(images):
            return []
        measures = measured(images)
        has = np.stack([_holds(rule, measures[rule.measure]) for rule in RULES], axis=1)
        return [frozenset(RULES[i].word for i in np.flatnonzero(row)) for row in has]

    def provenance(self) -> Mapping[str, str]:
        """Return the number of words and a digest of their rules."""
        rules = repr([(r.word, r.measure, r.low, r.high) for r in RULES])
        return {"rules": f"{len(RULES)} words, sha256:{hashlib.sha256(rules.encode()).hexdigest()}"}


def _holds(rule: Rule, values: FloatArray) -> BoolArray:
    # NaN means that there is nothing to measure; it is in no range.
    return np.asarray((values >= rule.low) & (values < rule.high))


def measured(images: Sequence[UInt8Array]) -> dict[str, FloatArray]:
    """Return every measure of uint8 RGB images ``(H, W, 3)``, float32 ``(n,)`` each.

    - ``light``, ``contrast``: mean and standard deviation of the luminance (ITU-R BT.601 weights).
    - ``chroma``: mean over pixels of the largest minus the smallest channel.
    - ``border_spread``: standard deviation of the luminance in the border.
    - ``border_hue``: hue of the ground in degrees, with red at 360 and shades towards yellow up to
      430 (70); NaN for a ground with almost no hue.
    - ``above``: mean luminance of the upper half minus that of the lower half.
    - ``middle``: mean luminance of the middle quarter of the area minus that of the border.
    - ``x``, ``y``: mean position of the pixels, weighted by their squared difference, from -0.5
      (left, top) to 0.5; ``off_centre``: distance of that position from the middle; ``spread``:
      root mean square distance of the pixels from it, with the same weights, in sides;
      ``stretch``: logarithm of their standard deviation along x over that along y. NaN if no pixel
      differs.
    - ``fill``: mean difference in the central sixteenth over the mean of all pixels; NaN if no
      pixel differs.
    - ``symmetry``: correlation of the luminance with its mirror image, left and right exchanged.
    - ``edges``: mean length of the luminance's gradient, as the difference two pixels apart.
    - ``upright``, ``falling``: cosine and sine part of the doubled direction of the gradients
      (structure tensor), in -1..1. ``upright`` is 1 for vertical lines and -1 for horizontal ones;
      ``falling`` is 1 for lines from the upper left to the lower right and -1 for rising ones;
      ``coherence`` is the length of both.
    - ``ink``: share of pixels with a difference above 0.15.
    - ``fineness``: share of the luminance's variance within squares of 4 x 4 pixels.

    Raises:
        DataError: an array has another type or shape.
    """
    x = np.stack([_reduced(image) for image in images]).astype(np.float32) / 255
    light = x @ _LUMA
    border = np.ones((_SIDE, _SIDE), bool)
    border[_EDGE:-_EDGE, _EDGE:-_EDGE] = False
    ground = np.median(x[:, border], axis=1)
    out = np.abs(x - ground[:, None, None]).max(axis=-1)
    variance = light.var(axis=(1, 2))
    half, quarter = _SIDE // 2, _SIDE // 4
    found = {
        "light": light.mean(axis=(1, 2)),
        "contrast": np.sqrt(variance),
        "chroma": (x.max(axis=-1) - x.min(axis=-1)).mean(axis=(1, 2)),
        "border_spread": light[:, border].std(axis=1),
        "border_hue": _hue(ground),
        "above": light[:, :half].mean(axis=(1, 2)) - light[:, half:].mean(axis=(1, 2)),
        "middle": light[:, quarter:-quarter, quarter:-quarter].mean(axis=(1, 2))
        - light[:, border].mean(axis=1),
        "symmetry": _correlation(light, light[:, :, ::-1]),
        "ink": (out > 0.15).mean(axis=(1, 2)),
    }
    blocks = light.reshape(-1, _SIDE // 4, 4, _SIDE // 4, 4).mean(axis=(2, 4))
    found["fineness"] = 1 - _over(blocks.var(axis=(1, 2)), variance, 1.0)
    return found | _places(out) | _directions(light)


def _reduced(image: UInt8Array) -> UInt8Array:
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
        raise DataError(
            f"an image must be uint8 (height, width, 3), not {image.dtype} {image.shape}"
        )
    if image.shape[:2] == (_SIDE, _SIDE):
        return image
    picture = Image.fromarray(np.ascontiguousarray(image))
    return np.asarray(picture.resize((_SIDE, _SIDE), Image.Resampling.BOX))


def _over(part: FloatArray, whole: FloatArray, otherwise: float) -> FloatArray:
    """Return ``part / whole``, or ``otherwise`` for images of uniform brightness."""
    some = whole > _NOTHING
    return np.where(some, part / np.where(some, whole, 1), otherwise)


def _hue(colour: FloatArray) -> FloatArray:
    """Return the hues of colours ``(n, 3)`` in 70..430 degrees; NaN for nearly grey colours."""
    r, g, b = colour.T
    chroma = colour.max(axis=1) - colour.min(axis=1)
    # The angle of the colour in the plane of constant channel sum.
    hue = np.degrees(np.arctan2(np.sqrt(3) * (g - b), 2 * r - g - b)) % 360
    return np.where(chroma < _FAINT, np.nan, np.where(hue < 70, hue + 360, hue))


def _correlation(first: FloatArray, second: FloatArray) -> FloatArray:
    a, b = (v - v.mean(axis=(1, 2), keepdims=True) for v in (first, second))
    # A mirrored image has the same variance.
    return _over((a * b).mean(axis=(1, 2)), (a * a).mean(axis=(1, 2)), 1.0)


def _places(out: FloatArray) -> dict[str, FloatArray]:
    """Return the measures of position from the differences ``(n, 32, 32)``."""
    weight = out**2
    total = weight.mean(axis=(1, 2))
    some = total > _NOTHING
    weight = weight / np.where(some, total, 1)[:, None, None] / weight[0].size
    along = (np.arange(_SIDE, dtype=np.float32) + 0.5) / _SIDE - 0.5
    columns, rows = weight.sum(axis=1), weight.sum(axis=2)
    x, y = columns @ along, rows @ along
    # A line has at least the width of a pixel.
    wide, tall = (
        np.maximum(w @ along**2 - m**2, (0.5 / _SIDE) ** 2) for w, m in ((columns, x), (rows, y))
    )
    centre = slice(_SIDE * 3 // 8, _SIDE * 5 // 8)
    found = {
        "x": x,
        "y": y,
        "off_centre": np.hypot(x, y),
        "spread": np.sqrt(wide + tall),
        "stretch": np.log(wide / tall) / 2,
        "fill": out[:, centre, centre].mean(axis=(1, 2)) / np.where(some, out.mean(axis=(1, 2)), 1),
    }
    return {name: np.where(some, values, np.nan) for name, values in found.items()}


def _directions(light: FloatArray) -> dict[str, FloatArray]:
    """Return the strength and the direction of edges from the luminance ``(n, 32, 32)``."""
    x = light[:, 1:-1, 2:] - light[:, 1:-1, :-2]
    y = light[:, 2:, 1:-1] - light[:, :-2, 1:-1]
    energy = (x**2 + y**2).mean(axis=(1, 2))
    # The gradient is perpendicular to the line: if both parts have the same sign, the line rises.
    upright = _over((x**2 - y**2).mean(axis=(1, 2)), energy, 0.0)
    falling = _over((-2 * x * y).mean(axis=(1, 2)), energy, 0.0)
    return {
        "edges": np.hypot(x, y).mean(axis=(1, 2)),
        "upright": upright,
        "falling": falling,
        "coherence": np.hypot(upright, falling),
    }
