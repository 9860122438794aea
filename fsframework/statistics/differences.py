"""Means over tasks, and many differences of them at once: values, intervals and p."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy

from fsframework.errors import OptionError, argument
from fsframework.statistics.estimators import LEVELS, IntervalChoice
from fsframework.statistics.further import further
from fsframework.values import FloatArray

__all__ = [
    "NO_SPREAD",
    "ComparisonOptions",
    "Difference",
    "bootstrap_of_few",
    "differences",
    "means_over_seeds",
    "without_spread",
]

NO_SPREAD = 1e-12
"""Shares whose sums differ in the last digits count as equal."""

_FEWEST_RESAMPLED = 20
"""Tasks below which a bootstrap's intervals are noticeably too short."""


def bootstrap_of_few(interval: str, n_tasks: int) -> str | None:
    """Return a warning if an interval is a bootstrap of too few tasks, else ``None``."""
    if interval not in ("percentile", "bca") or n_tasks >= _FEWEST_RESAMPLED:
        return None
    return (
        f"a bootstrap of {n_tasks} tasks gives intervals that are too short, and p that are too "
        f"small; use at least {_FEWEST_RESAMPLED} tasks, or student-t, which allows for few"
    )


@dataclass(frozen=True)
class Difference:
    """A weighted sum of means, such as a mean or a difference of two, with its interval.

    Args:
        value: the sum; ``low`` and ``high`` bound its interval.
        p: two-sided, of the value 0; NaN where nothing varies.
        varies: whether anything varies; if not, the interval says nothing.
        estimator: how the interval was computed; ``none`` for a single task.
        n_seeds: models of each method behind it, the fewest if they differ.
        seed_deviation: standard deviation between seeds, without the share of the tasks; ``None``
            where a method has only one seed.
    """

    value: float
    low: float
    high: float
    p: float
    varies: bool
    estimator: str
    n_seeds: int = 1
    seed_deviation: float | None = None


@dataclass(frozen=True)
class ComparisonOptions:
    """How methods are compared.

    Args:
        choice: ``student-t`` (Welch's for a gap of two task sets), or a bootstrap of the tasks,
            ``percentile`` or ``bca``, in which all pairs share the resamples; p then comes from
            the bootstrap too: the level at which the interval would end at 0, so that both always
            agree. ``image-level`` and ``class-level`` give open intervals for closed tasks that
            were drawn uniformly, and for their differences; if they are not available, Student's
            is used and a note says why.
        n_resamples: of the bootstrap; no p is below ``2 / (n_resamples + 1)``.
        seed: of the bootstrap.
        baseline: label of the method that all others are compared with; p are adjusted for these
            pairs only. ``None`` compares all pairs.

    Raises:
        OptionError: ``n_resamples`` is below 1.
    """

    choice: IntervalChoice = field(default_factory=IntervalChoice)
    n_resamples: int = 10_000
    seed: int = 0
    baseline: str | None = None

    def __post_init__(self) -> None:
        if self.n_resamples < 1:
            raise OptionError(f"{argument('resamples')} must be at least 1, not {self.n_resamples}")


def differences(
    parts: Sequence[FloatArray],
    contrasts: FloatArray,
    how: ComparisonOptions | None = None,
    n_seeds: Sequence[int] = (),
) -> list[Difference]:
    """Estimate many contrasts of the same methods at once.

    Methods may have been trained with several seeds each. Seeds and tasks are then crossed random
    effects; see ``fsf_statistics.crossed``. The tasks of two methods are paired, their seeds never.
    A method with one model adds nothing for seeds, so the interval of its contrasts speaks of these
    weights only.

    Where a contrast does not vary, an interval of zero width would claim certainty that nobody has:
    its bounds and its p are NaN.

    Args:
        parts: float64 ``(T, models)`` each, the models of each method side by side; a contrast's
            value is the sum of the parts' means, and the parts are independent of each other.
        contrasts: float64 ``(contrasts, methods)``, weights of the methods; a row with 1 and -1
            is the difference of two.
        how: the interval; those over images or classes are Student's here.
        n_seeds: models of each method; empty for one each.

    Raises:
        OptionError: a method has several models, and the interval is not Student's.
    """
    how = how or ComparisonOptions()
    if max(n_seeds, default=1) > 1:
        over: list[Difference] = further("differences_over_seeds")(parts, contrasts, how, n_seeds)
        return over
    # In this order a mean is summed alike whether a method is alone or among others.
    tasks = [np.asfortranarray(values @ contrasts.T) for values in parts]
    value = sum((values.mean(axis=0) for values in tasks), start=np.zeros(len(contrasts)))
    value = np.where(np.abs(value) < NO_SPREAD, 0.0, value)
    if min(len(values) for values in tasks) < 2:
        nan = float("nan")
        return [Difference(one, nan, nan, nan, varies=False, estimator="none") for one in value]
    varies = np.any([np.ptp(values, axis=0) > NO_SPREAD for values in tasks], axis=0)
    if how.choice.method == "student-t" or how.choice.method in LEVELS:
        bounds = _student(tasks, value, how.choice.level)
        estimator = "student-t" if len(parts) == 1 else "welch-t"
    else:
        bounds = further("bootstrap")(parts, contrasts, value, how)
        estimator = how.choice.method
    found = []
    for row in range(len(contrasts)):
        low, high, p = (float(one[row]) for one in bounds)
        one = Difference(float(value[row]), low, high, p, bool(varies[row]), estimator)
        found.append(without_spread(one))
    return found


def means_over_seeds(values: FloatArray, n_seeds: Sequence[int]) -> FloatArray:
    """Return the mean of each method's models in every task, ``(T, methods)``.

    >>> means_over_seeds(np.array([[0.2, 0.4, 0.5]]), [2, 1]).round(3).tolist()
    [[0.3, 0.5]]
    """
    starts = np.cumsum([0, *n_seeds[:-1]])
    return np.asarray(np.add.reduceat(values, starts, axis=1) / np.asarray(n_seeds))


def without_spread(one: Difference) -> Difference:
    """Return a contrast, without bounds and p if it does not vary."""
    nan = float("nan")
    return one if one.varies else replace(one, low=nan, high=nan, p=nan)


def _student(
    tasks: Sequence[FloatArray], value: FloatArray, level: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return low, high and p by Student's t, with Welch's degrees of freedom for two parts."""
    errors = [values.var(axis=0, ddof=1) / len(values) for values in tasks]
    variance = np.sum(errors, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = sum(e**2 / (len(v) - 1) for e, v in zip(errors, tasks, strict=True))
        freedom = variance**2 / squares
        scale = np.sqrt(variance)
        p = 2 * scipy.special.stdtr(freedom, -np.abs(value) / scale)
        half = scipy.special.stdtrit(freedom, (1 + level) / 2) * scale
    return value - half, value + half, p
