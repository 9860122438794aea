"""The kinds of intervals by name; this module imports no SciPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from fsframework.errors import OptionError, argument

__all__ = ["ESTIMATORS", "INTERVALS", "LEVELS", "Estimator", "Interval", "IntervalChoice", "Level"]

Estimator = Literal["student-t", "percentile", "bca"]
"""Over tasks, treated as independent draws."""

ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)

Level = Literal["image-level", "class-level"]
"""Over images, or classes, which tasks may share."""

LEVELS: tuple[Level, ...] = get_args(Level)

Interval = Literal[Estimator, Level]

INTERVALS: tuple[Interval, ...] = (*ESTIMATORS, *LEVELS)


@dataclass(frozen=True)
class IntervalChoice:
    """Level and method of intervals.

    Args:
        level: confidence level, 0 < level < 1.
        method: how they are computed; see ``fsf_statistics.image_intervals``.

    Raises:
        OptionError: the level is out of range, or the method is unknown.
    """

    level: float = 0.95
    method: Interval = "student-t"

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise OptionError(f"{argument('level')} must lie between 0 and 1, not {self.level}")
        if self.method not in INTERVALS:
            known = ", ".join(INTERVALS)
            raise OptionError(f"{argument('interval')} must be one of {known}, not {self.method!r}")
