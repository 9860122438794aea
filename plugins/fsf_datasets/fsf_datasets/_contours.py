"""The closed contours of the planted classes: star-shaped, smooth and clearly different."""

from __future__ import annotations

import numpy as np

from fsframework.values import FloatArray

__all__ = ["TABLE_ANGLES", "TABLE_SIZE", "draw_contours"]

TABLE_SIZE = 512
_N_CANDIDATES = 2000
_SLIMMEST = 0.28  # smallest radius of a contour whose largest is 1
_COARSE = 64  # angles at which two candidates are compared
_TURNS = 5  # steps of 360/64 degrees either way that count as the same contour
_CONTOURS = 3  # stream of random numbers


def _table_angles() -> FloatArray:
    """Return the angle in radians of each table entry.

    A table is indexed by ``copysign(1 - x / (|x| + |y|), y)``, -2 to 2, rather than by the angle:
    it costs one division, a tenth of an arc tangent, and every machine computes the same bits.
    """
    turn = np.arange(TABLE_SIZE) / TABLE_SIZE * 4 - 2
    x = 1 - np.abs(turn)
    angles: FloatArray = np.arctan2(np.copysign(1 - np.abs(x), turn), x)
    return angles


TABLE_ANGLES = _table_angles()


def _draw_waves(rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return order, height and phase of the waves of each candidate, each ``(candidates, 5)``.

    One strong wave makes 2 to 7 lobes; four weak ones bend the regular figure.
    """
    count = _N_CANDIDATES
    order = np.tile(np.array([0.0, 1, 2, 3, 4]), (count, 1))
    height = rng.normal(0, 0.2, (count, 5)) / np.sqrt(np.maximum(order, 1))
    order[:, 0] = rng.integers(2, 8, count)
    height[:, 0] = rng.uniform(0.12, 0.5, count)
    return order, height, rng.uniform(0, 2 * np.pi, (count, 5))


def _radii(waves: tuple[FloatArray, FloatArray, FloatArray], angles: FloatArray) -> FloatArray:
    """Return the radii at the angles, ``(contours, angles)``, the largest of each being 1."""
    order, height, phase = (part[..., None] for part in waves)
    log_radius = (height * np.cos(order * angles + phase)).sum(axis=1)
    radii: FloatArray = np.exp(log_radius - log_radius.max(axis=1, keepdims=True))
    return radii


def _same_figures(radii: FloatArray) -> FloatArray:
    """Return a coarse contour rotated slightly either way and mirrored, ``(variants, angles)``."""
    turns = range(-_TURNS, _TURNS + 1)
    return np.stack([np.roll(figure, turn) for figure in (radii, radii[::-1]) for turn in turns])


def draw_contours(seed: int, n_classes: int) -> FloatArray:
    """Return the radius of each class at ``TABLE_ANGLES``, float64 ``(n_classes, TABLE_SIZE)``.

    From about 1,500 random contours, each next one chosen is the farthest from all previous ones
    (Gonzalez 1985); small rotations and mirror images count as the same contour. The chosen ones
    are then shuffled, because the first ones are the most extreme.
    """
    rng = np.random.default_rng([seed, _CONTOURS])
    waves = _draw_waves(rng)
    coarse = _radii(waves, np.arange(_COARSE) / _COARSE * 2 * np.pi)
    stout = np.flatnonzero(coarse.min(axis=1) >= _SLIMMEST)
    coarse = coarse[stout]

    chosen = [0]
    likeness = np.full(len(coarse), -np.inf)
    while len(chosen) < n_classes:
        figures = _same_figures(coarse[chosen[-1]])
        # Maximising this inner product less half the squared lengths minimises the squared
        # distance without computing differences.
        alike = (figures @ coarse.T).max(axis=0) - np.square(figures[0]).sum() / 2
        np.maximum(likeness, alike, out=likeness)
        chosen.append(int((likeness - np.square(coarse).sum(axis=1) / 2).argmin()))
    kept = stout[rng.permutation(chosen)]
    order, height, phase = waves
    return _radii((order[kept], height[kept], phase[kept]), TABLE_ANGLES)
