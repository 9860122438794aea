"""Differences of two means of skewed values, and their one-sided p."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy import sparse, special

from fsframework.values import FloatArray, IntArray

__all__ = ["Differences", "Sample", "differences", "upper_tail"]

_LENT = 50.0
"""Values of the whole group that the variance of a part of it is moderated with."""

_PERMUTATIONS = 299

_LEAST_DEVIATION = 0.1
"""Of a class, relative to the mean over classes; one that varies less says nothing."""

_LEAST_SKEW = 1e-3


@dataclass(frozen=True, eq=False)
class Sample:
    """Number and sums of powers of the values in each of several groups, each float ``(n,)``."""

    count: FloatArray
    first: FloatArray
    second: FloatArray
    third: FloatArray

    @classmethod
    def of(cls, group: IntArray, value: FloatArray, n_groups: int) -> Self:
        """Sum the values of each group."""
        powers = (np.ones(len(value)), value, value**2, value**3)
        return cls(*(_sums(group, power, n_groups) for power in powers))

    def at(self, groups: IntArray) -> Self:
        """Return the groups in another order, or repeated."""
        return type(self)(*(of[groups] for of in (self.count, self.first, self.second, self.third)))

    def less(self, part: Sample) -> Self:
        """Return the groups without a part of each."""
        return type(self)(
            self.count - part.count,
            self.first - part.first,
            self.second - part.second,
            self.third - part.third,
        )

    @property
    def mean(self) -> FloatArray:
        """Mean of each group, 0 where it is empty."""
        return self.first / np.maximum(self.count, 1)

    @property
    def variance(self) -> FloatArray:
        """Unbiased variance of each group, 0 below two values."""
        squares = self.second - self.count * self.mean**2
        return np.maximum(squares, 0.0) / np.maximum(self.count - 1, 1)

    @property
    def skewness(self) -> FloatArray:
        """Third standardised moment of each group, 0 without variance."""
        n, mean = np.maximum(self.count, 1), self.mean
        variance = np.maximum(self.second / n - mean**2, 0.0)
        moment = self.third / n - 3 * mean * self.second / n + 2 * mean**3
        safe = np.where(variance > 1e-12, variance, 1.0)
        return np.where(variance > 1e-12, moment / safe**1.5, 0.0)


def _sums(group: IntArray, value: FloatArray, n_groups: int) -> FloatArray:
    return np.bincount(group, value, minlength=n_groups).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Differences:
    """Means of other values minus means of the values that have something, each float ``(n,)``.

    Args:
        value: the difference; ``error`` its standard error.
        p: one-sided, of no positive difference.
    """

    value: FloatArray
    error: FloatArray
    p: FloatArray


def differences(whole: Sample, having: Sample, spread: FloatArray) -> Differences:
    """Return how much lower the values are that have something, for many parts of many groups.

    The p is that of a permutation test: which values of the group have something is drawn at
    random. The distribution of their mean is approximated by a Pearson type III distribution of the
    same three moments, which are known exactly for draws without replacement.

    The error is that of two groups with different variances, each moderated with that of the whole:
    where images with a rare word are answered less evenly, their mean is less certain.

    Source: Kazi-Aoual et al. 1995 (moments of permutation distributions), Winkler et al. 2016,
    section 2.3.4 (Pearson type III).

    Args:
        whole: the group of each part, which the part is in.
        spread: variance of the values of the group.
    """
    others = whole.less(having)
    value = others.mean - having.mean
    error = np.sqrt(
        _moderated(having, spread) / having.count + _moderated(others, spread) / others.count
    )
    z = value / np.sqrt(spread * (1 / having.count + 1 / others.count))
    share = having.count / whole.count
    drawn = (1 - 2 * share) / np.sqrt(having.count * (1 - share))
    p = np.maximum(special.ndtr(-z), upper_tail(z, -whole.skewness * drawn))
    return Differences(value, error, p)


def _moderated(part: Sample, spread: FloatArray) -> FloatArray:
    """Return the variance of a part, estimated with some values of the whole group besides."""
    free = np.maximum(part.count - 1, 0)
    return np.asarray((free * part.variance + _LENT * spread) / (free + _LENT))


def no_difference(label: IntArray, value: FloatArray, unit: IntArray, word: IntArray) -> float:
    """Return the p of "the values do not depend on the words": a permutation test.

    For each class and word, the values of the units that have the word are summed, relative to the
    mean of the class and in units of its standard deviation. The statistic is the sum of the
    squares. The values of each class are permuted; the tail is that of a Pearson type III
    distribution with the three moments of the permutations.

    Source: Goeman et al. 2004 (the global test of many small effects), Winkler et al. 2016.

    Args:
        label: int ``(n,)``, class of each unit; ``value`` float ``(n,)``.
        unit: int ``(k,)``, the units that have a word, each as often as it has one; ``word`` which.
    """
    rng = np.random.default_rng(0)
    order = np.argsort(label, kind="stable")
    rows = np.split(order, np.cumsum(np.bincount(label))[:-1]) if len(label) else []
    size = (len(label), int(word.max(initial=-1)) + 1)
    has = sparse.csr_array((np.ones(len(unit)), (unit, word)), shape=size)
    found = np.zeros(_PERMUTATIONS + 1)
    spread = {one: value[own].std() for one, own in enumerate(rows) if len(own)}
    usual = np.mean([*spread.values()]) if spread else 0.0
    for one, deviation in spread.items():
        if deviation < _LEAST_DEVIATION * usual or deviation == 0:
            continue
        own = (value[rows[one]] - value[rows[one]].mean()) / deviation
        every = np.tile(own, (_PERMUTATIONS + 1, 1))
        every[1:] = rng.permuted(every[1:], axis=1)
        found += ((has[rows[one]].T @ every.T) ** 2).sum(axis=0)
    drawn = found[1:]
    if drawn.std() < 1e-9:
        return 1.0
    z = (found[:1] - drawn.mean()) / drawn.std()
    skew = np.mean(((drawn - drawn.mean()) / drawn.std()) ** 3, keepdims=True)
    return float(upper_tail(z, skew)[0])


def upper_tail(z: FloatArray, skew: FloatArray) -> FloatArray:
    """Return the chance that a standardised Pearson type III variable exceeds ``z``.

    >>> upper_tail(np.array([0.0, 2.0]), np.array([0.0, 2.0])).round(4).tolist()
    [0.4999, 0.0498]
    """
    skew = np.where(np.abs(skew) < _LEAST_SKEW, _LEAST_SKEW, skew)
    shape = 4 / skew**2
    x = np.maximum(shape + np.sign(skew) * z * np.sqrt(shape), 0.0)
    found = np.where(skew > 0, special.gammaincc(shape, x), special.gammainc(shape, x))
    return np.asarray(found)
