"""Contrasts of methods over training seeds and tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

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
from fsframework.values import FloatArray, IntArray

__all__ = ["OVER_SEEDS", "differences_over_seeds", "grouped_by_seeds", "means_over_seeds"]

T = TypeVar("T")

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
            f"{argument('interval', how.choice.method)} is for one model per method; intervals "
            f"over several training seeds are {argument('interval', 'student-t')}"
        )
    means = [means_over_seeds(values, n_seeds) for values in parts]
    single = differences(means, contrasts, how)
    if single.estimators[0] == "none":
        return single
    columns = np.split(np.arange(sum(n_seeds)), np.cumsum(n_seeds)[:-1])
    found = [_over_seeds(parts, columns, row, how.choice.level) for row in contrasts]
    value, low, high, p = np.array([(one.value, one.low, one.high, one.p) for one in found]).T
    bounds = np.where(np.abs(value) < NO_SPREAD, 0.0, value), low, high, p
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
    parts: Sequence[FloatArray], columns: Sequence[IntArray], weights: FloatArray, level: float
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


def grouped_by_seeds(
    items: Sequence[T], told: Callable[[T], tuple[str, int | None]]
) -> list[list[T]]:
    """Return items that differ only in their training seed together, in the order of their seeds.

    Args:
        items: groups are in the order of their first items.
        told: group of an item and its training seed. Without a group, which is empty then, or a
            seed an item stays alone; one with a seed that its group has already begins another.

    >>> runs = [("a", 1), ("b", 0), ("a", 0), ("a", 1)]
    >>> grouped_by_seeds(runs, lambda run: run)
    [[('a', 0), ('a', 1)], [('b', 0)], [('a', 1)]]
    """
    found: list[dict[int | None, T]] = []
    by_group: dict[str, list[dict[int | None, T]]] = {}
    for item in items:
        group, seed = told(item)
        alike = by_group.setdefault(group, []) if group and seed is not None else []
        own = next((one for one in alike if seed not in one), None)
        if own is None:
            own = {}
            alike.append(own)
            found.append(own)
        own[seed] = item
    return [[own[seed] for seed in sorted(own, key=lambda one: one or 0)] for own in found]
