"""What shares of the classes do to a gap, where two arms draw classes differently."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
from scipy.special import stdtrit

from fsframework.errors import argument
from fsframework.interfaces import Statistic
from fsframework.values import ArmOutcomes, Estimate, FloatArray, IntArray

__all__ = ["class_share_notes"]

_NEGLIGIBLE = 0.25
"""Part of a gap's half-width: with such a bias a 95 % interval holds the truth in 92 % of cases."""
_RIDGE = 1e-6
"""Makes the effect of a class that the control never draws uncertain instead of undefined."""
_MATCHED = {"control": "matched"}
"""The option of a sampler with which both arms have the same classes."""


def class_share_notes(statistic: Statistic, outcomes: ArmOutcomes, gap: Estimate) -> list[str]:
    """Return sentences on the classes of two arms if their shares differ enough to matter.

    That is so if the gap that the shares alone make is not zero at the level of the gap's interval,
    and exceeds a quarter of its half-width.

    Args:
        statistic: of the gap.
        outcomes: of both arms; nothing is said of arms that are paired, which have equal classes.
        gap: between the arms.
    """
    contrast = outcomes.arms.contrast
    if contrast is None or contrast.paired:
        return []
    classes = [outcomes.arms[arm].classes for arm in gap.arms]
    values = statistic.per_task(outcomes[contrast.control])
    value, half = _made_by_shares(values, *classes, gap.level)
    if not abs(value) > max(half, _NEGLIGIBLE * gap.half_width):
        return []
    value *= 1 if statistic.higher_is_better else -1
    alone = replace(gap, value=value, low=value - half, high=value + half)
    shares = _shares(*classes)
    most = np.argmax(np.abs(shares[0] - shares[1]))
    first, second = (
        f"{100 * share[most]:.1f} % of {arm} tasks"
        for share, arm in zip(shares, gap.arms, strict=True)
    )
    remedy = ""
    if _MATCHED.keys() <= outcomes.arms.tested.options.keys():
        [(option, matched)] = _MATCHED.items()
        remedy = f"; {argument(f'sampler.{option}', matched)} gives both arms the same classes"
    return [
        f"the arms draw classes in different shares: one is in {first} and in {second}{remedy}",
        f"these shares alone make {gap.name} {alone}",
    ]


def _shares(*arms: IntArray) -> list[FloatArray]:
    """Return the share of the tasks of each arm that have a class, by its label."""
    n_classes = max(int(classes.max()) for classes in arms) + 1
    return [np.bincount(one.ravel(), minlength=n_classes) / len(one) for one in arms]


def _made_by_shares(
    values: FloatArray, control: IntArray, tested: IntArray, level: float
) -> tuple[float, float]:
    """Return the difference of two arms that their shares of classes make, with its half-width.

    Each task's value is taken for a sum of effects of its classes. These are estimated from the
    control by least squares, and give the value that each arm would have if only the classes
    mattered. The interval covers the draw of the classes and the error of the effects.

    Args:
        values: of a statistic in the control's tasks, ``(T,)``.
        control: classes of the control's tasks, ``(T, way)``; ``tested`` of the others.
        level: of the interval.
    """
    shares = _shares(control, tested)
    free = len(values) - np.count_nonzero(shares[0])
    if free < 1:
        return 0.0, np.inf
    together = _RIDGE * np.eye(shares[0].size)
    np.add.at(together, (control[:, :, None], control[:, None, :]), 1)
    totals = np.bincount(control.ravel(), np.repeat(values, control.shape[1]), shares[0].size)
    difference = shares[0] - shares[1]
    effects, spread = np.linalg.solve(together, np.column_stack([totals, difference])).T
    expected = [effects[classes].sum(axis=1) for classes in (control, tested)]
    variance = np.sum((values - expected[0]) ** 2) / free * (difference @ spread)
    variance += sum(one.var() / len(one) for one in expected)
    half = stdtrit(free, (1 + level) / 2) * sqrt(variance)
    return float(expected[0].mean() - expected[1].mean()), float(half)
