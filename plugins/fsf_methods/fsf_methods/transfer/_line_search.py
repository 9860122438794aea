"""A line search for many functions in parallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["search"]

_DECREASE, _CURVATURE, _WIDTH = 1e-3, 0.9, 0.1
_LONGEST = 1e10
_MOST_TRIALS = 50

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class _Ends(NamedTuple):
    """A step of each function, the function's value there and its slope; each ``(tasks,)``."""

    step: Floats
    value: Floats
    slope: Floats

    def where(self, mask: Bools, other: _Ends) -> _Ends:
        """Return this where the mask holds, else the other."""
        return _Ends(*(np.where(mask, mine, its) for mine, its in zip(self, other, strict=True)))

    def tilted(self, by: Floats) -> _Ends:
        """Return the same for the function plus ``by`` times the step."""
        return _Ends(self.step, self.value + self.step * by, self.slope + by)


def search(
    phi: Callable[[Floats], tuple[Floats, Floats]],
    value: Floats,
    slope: Floats,
    first: Floats,
    wanted: Bools,
) -> tuple[Floats, Floats, Bools]:
    """Find steps that lower functions of one variable enough and leave them flat enough.

    Source: Moré and Thuente 1994, "Line search algorithms with guaranteed sufficient decrease"
    (ACM TOMS 20(3)), with the constants of L-BFGS-B (Zhu et al. 1997): a value of at most
    ``value + 1e-3 * step * slope`` and a slope of at most 0.9 times the first; or an interval that
    has shrunk to a tenth of its upper end.

    Args:
        phi: maps steps ``(tasks,)`` to the functions' values and slopes there. Its last call is
            with the returned steps, unless some are 0 because none was found.
        value: float64 ``(tasks,)``, at step 0.
        slope: float64 ``(tasks,)``, at step 0, below 0 where wanted.
        first: float64 ``(tasks,)``, above 0, the steps to try first.
        wanted: bool ``(tasks,)``, where a step is needed.

    Returns:
        Steps, values there, and where a step was found; steps are 0 elsewhere.
    """
    start = _Ends(np.zeros_like(value), value, slope)
    step = np.where(wanted, first, 0.0)
    tried = _Ends(step, *phi(step))
    found = wanted & _accepted(start, tried)
    open_ = wanted & ~found & np.isfinite(tried.value)
    if open_.any():
        with np.errstate(all="ignore"):
            tried, found = _refined(phi, start, tried, open_, found)
    lost = wanted & ~found
    if lost.any():
        tried = start.where(lost, tried)
    return tried.step, tried.value, found


def _accepted(start: _Ends, tried: _Ends) -> Bools:
    lower: Bools = tried.value <= start.value + tried.step * _DECREASE * start.slope
    flat: Bools = np.abs(tried.slope) <= -_CURVATURE * start.slope
    return lower & flat


def _refined(
    phi: Callable[[Floats], tuple[Floats, Floats]],
    start: _Ends,
    tried: _Ends,
    open_: Bools,
    found: Bools,
) -> tuple[_Ends, Bools]:
    """Try further steps where it is not yet known whether there is a good one."""
    near = far = start
    bracketed, second_stage = np.zeros_like(open_), np.zeros_like(open_)
    width = np.full_like(start.value, _LONGEST)
    width_before = 2 * width
    low, high = np.zeros_like(width), 5 * tried.step
    for _ in range(_MOST_TRIALS):
        lower = tried.value <= start.value + tried.step * _DECREASE * start.slope
        second_stage = second_stage | (lower & (tried.slope >= 0))
        # Until a step lowers enough, the search is for a minimum of the function above its target.
        above = ~second_stage & (tried.value <= near.value) & ~lower
        tilt = np.where(above, _DECREASE * start.slope, 0.0)
        near, far, step, bracketed = _next(
            near.tilted(-tilt), far.tilted(-tilt), tried.tilted(-tilt), bracketed, low, high
        )
        near, far = near.tilted(tilt), far.tilted(tilt)

        apart = far.step - near.step
        slow = bracketed & (np.abs(apart) >= 0.66 * width_before)
        step = np.where(slow, near.step + 0.5 * apart, step)
        width_before = np.where(bracketed, width, width_before)
        width = np.where(bracketed, np.abs(apart), width)
        beyond = step - near.step
        low = np.where(bracketed, np.minimum(near.step, far.step), step + 1.1 * beyond)
        high = np.where(bracketed, np.maximum(near.step, far.step), step + 4 * beyond)
        step = np.clip(step, 0, _LONGEST)
        narrow = bracketed & (high - low <= _WIDTH * high)
        step = np.where(bracketed & ((step <= low) | (step >= high)) | narrow, near.step, step)

        step = np.where(open_, step, tried.step)
        tried = _Ends(step, *phi(step))
        outside = (tried.step <= low) | (tried.step >= high)
        ended = open_ & (_accepted(start, tried) | bracketed & outside | narrow)
        found = found | ended
        open_ = open_ & ~ended & np.isfinite(tried.value)
        if not open_.any():
            break
    return tried, found


def _next(
    near: _Ends, far: _Ends, tried: _Ends, bracketed: Bools, low: Floats, high: Floats
) -> tuple[_Ends, _Ends, Floats, Bools]:
    """Return the ends of the new interval, the step to try, and whether a minimum is between.

    The four cases of the paper's section 4: ``near`` is the end with the lower value, ``far`` the
    other; the step is that of a cubic or a quadratic through the known values, or between the two.
    A case that does not apply to a function may divide by 0 for it.
    """
    higher = tried.value > near.value
    opposite = tried.slope * np.sign(near.slope) < 0
    flatter = np.abs(tried.slope) < np.abs(near.slope)
    ahead = tried.step > near.step
    cubic, quotient = _cubic(near, tried)
    secant = tried.step + tried.slope / (tried.slope - near.slope) * (near.step - tried.step)

    # 4: the slope keeps its sign and is no flatter.
    limit = np.where(ahead, high, low)
    step = np.where(bracketed, _cubic(far, tried)[0], limit)
    # 3: the slope keeps its sign and is flatter; the cubic may have no minimum beyond.
    beyond = np.where(quotient < 0, cubic, limit)
    cubic_longer = np.abs(beyond - tried.step) > np.abs(secant - tried.step)
    most = tried.step + 0.66 * (far.step - tried.step)
    inside = np.where(cubic_longer, secant, beyond)
    inside = np.where(ahead, np.minimum(most, inside), np.maximum(most, inside))
    onward = np.clip(np.where(cubic_longer, beyond, secant), low, high)
    step = np.where(flatter, np.where(bracketed, inside, onward), step)
    # 2: the slopes have opposite signs, a minimum is between.
    cubic_longer = np.abs(cubic - tried.step) > np.abs(secant - tried.step)
    step = np.where(opposite, np.where(cubic_longer, cubic, secant), step)
    # 1: the value is higher, a minimum is between.
    span = tried.step - near.step
    bend = (near.value - tried.value) / span + near.slope
    quadratic = near.step + 0.5 * span * near.slope / bend
    cubic_shorter = np.abs(cubic - near.step) < np.abs(quadratic - near.step)
    step = np.where(higher, np.where(cubic_shorter, cubic, 0.5 * (cubic + quadratic)), step)

    new_far = tried.where(higher, near.where(opposite, far))
    return near.where(higher, tried), new_far, step, bracketed | higher | opposite


def _cubic(end: _Ends, tried: _Ends) -> tuple[Floats, Any]:
    """Return the minimum of the cubic through two points, and its place between them.

    The place is 0 at the tried point, 1 at the other, and below 0 beyond the tried point.
    """
    theta = 3 * (end.value - tried.value) / (tried.step - end.step) + end.slope + tried.slope
    scale = np.maximum(np.abs(theta), np.maximum(np.abs(end.slope), np.abs(tried.slope)))
    root = (theta / scale) ** 2 - (end.slope / scale) * (tried.slope / scale)
    gamma = scale * np.sqrt(np.maximum(root, 0))
    gamma = np.where(tried.step > end.step, -gamma, gamma)
    quotient = (gamma - tried.slope + theta) / (2 * gamma - tried.slope + end.slope)
    return tried.step + quotient * (end.step - tried.step), quotient
