"""Names of the ways to make an interval; here alone, so that naming one imports no SciPy."""

from __future__ import annotations

from typing import Literal, get_args

__all__ = ["ESTIMATORS", "LEVELS", "Estimator", "Interval", "Level"]

Estimator = Literal["student-t", "percentile", "bca"]
"""Over tasks, taken for independent draws."""

ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)

Level = Literal["image-level", "class-level"]
"""Over images, or classes, which tasks may share."""

LEVELS: tuple[Level, ...] = get_args(Level)

Interval = Literal[Estimator, Level]
