"""Contrasts of methods over training seeds and tasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fsframework.errors import OptionError, argument
from fsframework.statistics.crossed import Cell, Crossed, crossed
from fsframework.statistics.differences import (
    NO_SPREAD,
    ComparisonOptions,
    Differences,
    differences,
    without_spread,
)
from fsframework.values import FloatArray

__all__ = ["OVER_SEEDS", "differences_over_seeds", "means_over_seeds"]

OVER_SEEDS = "crossed-t"
"""Estimator of intervals over seeds and tasks, two crossed random effects."""


def differences_over_seeds(
    parts: Sequence[FloatArray],
    contrasts: FloatArray,
    n_seeds: Sequence[int],
    how: ComparisonOptions | None = None,
) -> Differences:
    """Estimate many contrasts of methods that were trained with several seeds each.

    Seeds and tasks are crossed random effects; see ``statistics.crossed``. The tasks of two methods
    are paired, their seeds never. A method with one model adds nothing for seeds, so the interval
    of its contrasts speaks of these weights only.

    Args:
        parts: float64 ``(T, models)`` each, the models of each method side by side; a contrast's
            value is the sum of the parts' means, and the tasks of parts are independent.
        contrasts: float64 ``(contrasts, methods)``, weights of the methods.
        n_seeds: models of each method.
        how: the interval, which must be Student's where a method has several models.

    Raises:
        OptionError: a bootstrap, or an interval over images or classes, is asked for.
    """
    how = how or ComparisonOptions()
    if max(n_seeds) == 1:
        return differences(parts, contrasts, how)
    if how.choice.method != "student-t":
        raise OptionError(
            f"{argument('interval', how.choice.method)}: is for one model per method; intervals "
            f"over several training seeds are {argument('interval', 'student-t')}"
        )
    means = [means_over_seeds(values, n_seeds) for values in parts]
    single = differences(means, contrasts, how)
    if single.estimators[0] == "none":
        return single
    columns = np.split(np.arange(sum(n_seeds)), np.cumsum(n_seeds)[:-1])
    found = [_over_seeds(parts, columns, row, how.choice.level) for row in contrasts]
    bounds = tuple(
        np.array([getattr(one, name) for one in found]) for name in ("value", "low", "high", "p")
    )
    bounds = (np.where(np.abs(bounds[0]) < NO_SPREAD, 0.0, bounds[0]), *bounds[1:])
    varies = np.array([one.varies for one in found])
    most = [max(n for n, weight in zip(n_seeds, row, strict=True) if weight) for row in contrasts]
    return Differences(
        *without_spread(bounds, varies, contrasts),
        varies,
        tuple(OVER_SEEDS if n > 1 else single.estimators[0] for n in most),
        tuple(one.n_seeds for one in found),
        tuple(one.seed_deviation if one.n_seeds > 1 else None for one in found),
    )


def _over_seeds(
    parts: Sequence[FloatArray], columns: Sequence[np.ndarray], weights: FloatArray, level: float
) -> Crossed:
    cells = [
        Cell(values[:, own].T, str(method), str(part), float(weights[method]))
        for part, values in enumerate(parts)
        for method, own in enumerate(columns)
        if weights[method]
    ]
    return crossed(cells, level)


def means_over_seeds(values: FloatArray, n_seeds: Sequence[int]) -> FloatArray:
    """Return the mean of each method's models in every task, ``(T, methods)``.

    >>> means_over_seeds(np.array([[0.2, 0.4, 0.5]]), [2, 1]).round(3).tolist()
    [[0.3, 0.5]]
    """
    starts = np.cumsum([0, *n_seeds[:-1]])
    return np.asarray(np.add.reduceat(values, starts, axis=1) / np.asarray(n_seeds))
