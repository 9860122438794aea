"""Intervals over training seeds and tasks, two crossed random effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from fsframework.errors import DataError, OptionError, argument
from fsframework.statistics.differences import (
    NO_SPREAD,
    ComparisonOptions,
    Difference,
    differences,
    means_over_seeds,
    without_spread,
)
from fsframework.values import FloatArray

__all__ = ["OVER_SEEDS", "crossed", "differences_over_seeds"]

OVER_SEEDS = "crossed-t"
"""Estimator of intervals over seeds and tasks, two crossed random effects."""


_SEEDS, _TASKS = range(2)
"""Axes of a cell."""


@dataclass(frozen=True)
class _Part:
    """One independent part of the variance of a mean, and its degrees of freedom."""

    variance: float
    freedom: float


def crossed(cells: Mapping[tuple[str, str], FloatArray], level: float = 0.95) -> Difference:
    """Estimate a mean over seeds and tasks, or a difference of such means.

    For one cell, ``y_st = mean + seed_s + task_t + rest_st`` with independent random terms. With S
    seeds and T tasks, the half-width is the root of ``t(S-1)^2 v_seeds / S
    + t(T-1)^2 max(v_tasks / T - v_rest / (S T), 0)``. Here v_seeds is the variance of the means per
    seed, v_tasks that of the means per task, v_rest that of the rest, and t the quantile of
    Student's t (after Banerjee 1960). Both variances of means contain the rest. It is subtracted
    from the tasks' part, which is known well. Subtracted from the seeds' part, as an unbiased
    estimate of their variance has it, it makes intervals too short when few seeds happen to lie
    close together.

    Cells of equal models, or of equal tasks, are added up before their variance is taken, so that
    pairing counts; those of others are independent. Two methods with equally many seeds have
    Welch's degrees of freedom. With different numbers each keeps its own quantile: Welch's interval
    is too short where two seeds next to ten happen to lie close together. A method with a single
    model adds nothing for seeds: the interval then speaks of these weights, and not of the method
    trained again.

    Caveats: seeds are taken as draws from all seeds, and tasks as draws from all tasks of the same
    sampler and images. Two seeds give a wide interval, since t(1) is 12.7 at 95 %; where one
    training in ten collapses, few seeds hold the truth less often than it says. No number of seeds
    covers other hyperparameters or other training data. The coverage that
    ``benchmarks/seed_coverage.py`` measures is in ``docs/concepts/intervals.md``.

    Args:
        cells: what is added up, float64 ``(seeds, tasks)`` each, weighted (1 and -1 for a
            difference): the statistic of each model of a method on each task of an arm. A key is a
            name of the models and one of the tasks; equal names are equal models, or equal tasks,
            in the same order.
        level: confidence level, 0 < level < 1.

    Raises:
        DataError: cells of equal models or tasks have different numbers of them, or there are fewer
            than two tasks.

    >>> one = crossed({("ncc", "random"): np.array([[0.5, 0.7, 0.6], [0.6, 0.8, 0.7]])})
    >>> round(one.value, 3), round(one.seed_deviation, 3), one.n_seeds
    (0.65, 0.071, 2)
    """
    _check(cells)
    value = float(sum(values.mean() for values in cells.values()))
    n_seeds = min(len(values) for values in cells.values())
    between = _spreads(cells, _SEEDS)
    if len({part.freedom for part in between}) == 1:
        between = [_added(between)]
    parts = [_added(_spreads(cells, _TASKS, without_rest=True)), *between]
    own = _spreads(cells, _SEEDS, without_rest=True)
    between_seeds = sum(one.variance * (one.freedom + 1) for one in own)
    deviation = float(np.sqrt(between_seeds)) if n_seeds > 1 else None
    half, p = _half_width(parts, level), _p(value, parts)
    varies = any(part.variance > NO_SPREAD**2 for part in parts)
    return Difference(value, value - half, value + half, p, varies, OVER_SEEDS, n_seeds, deviation)


def differences_over_seeds(
    parts: Sequence[FloatArray],
    contrasts: FloatArray,
    how: ComparisonOptions,
    n_seeds: Sequence[int],
) -> list[Difference]:
    """Estimate contrasts of methods with several models each; see ``differences``.

    Raises:
        OptionError: the interval is not Student's.
    """
    if how.choice.method != "student-t":
        raise OptionError(
            f"{argument('interval', how.choice.method)} is for one model per method; intervals "
            f"over several training seeds are {argument('interval', 'student-t')}"
        )
    columns = np.split(np.arange(sum(n_seeds)), np.cumsum(n_seeds)[:-1])
    of_means = differences([means_over_seeds(part, n_seeds) for part in parts], contrasts, how)
    found = []
    for one, weights in zip(of_means, contrasts, strict=True):
        methods = np.flatnonzero(weights)
        numbers = np.asarray(n_seeds)[methods].tolist()
        if one.estimator == "none":
            found.append(replace(one, n_seeds=min(numbers)))
            continue
        over = crossed(
            {
                (str(method), str(place)): weights[method] * values[:, columns[method]].T
                for place, values in enumerate(parts)
                for method in methods
            },
            how.choice.level,
        )
        if max(numbers) == 1:
            over = replace(over, estimator=one.estimator)
        value = 0.0 if abs(over.value) < NO_SPREAD else over.value
        found.append(without_spread(replace(over, value=value)))
    return found


def _check(cells: Mapping[tuple[str, str], FloatArray]) -> None:
    for axis, of, what in ((0, "models", "seeds"), (1, "tasks", "tasks")):
        sizes: dict[str, int] = {}
        for names, values in cells.items():
            if (known := sizes.setdefault(names[axis], values.shape[axis])) != values.shape[axis]:
                raise DataError(
                    f"cells with the same {of} have {known} and {values.shape[axis]} {what}"
                )
    fewest = min(values.shape[1] for values in cells.values())
    if fewest < 2:
        raise DataError(f"an interval over seeds needs at least 2 tasks, not {fewest}")


def _spreads(
    cells: Mapping[tuple[str, str], FloatArray], axis: int, *, without_rest: bool = False
) -> list[_Part]:
    """Return the variance of the mean over each method's seeds, or over each set of tasks.

    Cells of equal models, or of equal tasks, are added up first. A single model has no variance.
    """
    sums: dict[str, FloatArray] = {}
    rest: dict[str, float] = {}
    for names, values in cells.items():
        name, means = names[axis], values.mean(axis=1 - axis)
        sums[name] = sums[name] + means if name in sums else means
        rest[name] = rest.get(name, 0.0) + _rest(values) * without_rest
    return [
        _Part(max(float(one.var(ddof=1)) / one.size - rest[name], 0.0), one.size - 1.0)
        for name, one in sums.items()
        if one.size > 1
    ]


def _added(parts: Sequence[_Part]) -> _Part:
    """Return the sum of independent parts, with Welch's degrees of freedom."""
    variance = sum(part.variance for part in parts)
    if variance == 0:
        return _Part(0.0, min(part.freedom for part in parts))
    return _Part(variance, variance**2 / sum(p.variance**2 / p.freedom for p in parts))


def _rest(values: FloatArray) -> float:
    """Return what the rest, neither of seed nor of task, adds to the variance of the mean."""
    seeds, tasks = values.shape
    rest = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    freedom = max(seeds - 1, 1) * (tasks - 1)  # a single model leaves a rest of 0
    return float(np.square(rest).sum() / (freedom * rest.size))


def _half_width(parts: Sequence[_Part], level: float) -> float:
    quantiles = scipy.special.stdtrit(np.array([part.freedom for part in parts]), (1 + level) / 2)
    return float(np.sqrt(np.sum(quantiles**2 * np.array([part.variance for part in parts]))))


def _p(value: float, parts: Sequence[_Part]) -> float:
    """Return the p at whose level the interval would end at 0."""
    if not any(part.variance > 0 for part in parts):
        return float("nan")
    least = 1e-12
    if _half_width(parts, 1 - least) <= abs(value):
        return least
    if value == 0:
        return 1.0
    return float(
        scipy.optimize.brentq(lambda p: _half_width(parts, 1 - p) - abs(value), least, 1.0)
    )
