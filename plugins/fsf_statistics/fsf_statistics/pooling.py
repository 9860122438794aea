"""Many effects estimated with error: what each one is likely to be, given all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from fsframework.values import FloatArray, IntArray

__all__ = ["Effects", "Pooled", "pooled", "shares_wrong", "simes"]

_SPREADS = np.array([0.0, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.48])
"""Standard deviations of the normal distributions of which the prior is a mixture."""

_STEPS = 60
_HALVINGS = 50


@dataclass(frozen=True, eq=False)
class Effects:
    """Effects estimated independently of each other.

    Args:
        value: float ``(n,)``; ``error`` the standard error of each, above 0.
        kind: int ``(n,)``, from 0: effects of one kind, here of one word, have a common part.
        scale: float ``(n,)``, above 0: what effects and their common parts are proportional to.
    """

    value: FloatArray
    error: FloatArray
    kind: IntArray
    scale: FloatArray


@dataclass(frozen=True, eq=False)
class Pooled:
    """The posterior distribution of each effect, a mixture of ``k`` normal distributions.

    Args:
        weight: float ``(n, k)``; ``centre`` and ``spread`` likewise.
    """

    weight: FloatArray
    centre: FloatArray
    spread: FloatArray

    @property
    def mean(self) -> FloatArray:
        """Mean of each, ``(n,)``."""
        return np.asarray((self.weight * self.centre).sum(axis=1))

    def below(self, limit: FloatArray | float) -> FloatArray:
        """Return the probability that each is below a limit, ``(n,)``."""
        distance = np.reshape(limit, (-1, 1)) - self.centre
        return np.asarray((self.weight * special.ndtr(distance / self.spread)).sum(axis=1))

    def quantile(self, share: float) -> FloatArray:
        """Return a quantile of each, ``(n,)``, by bisection."""
        reach = 12 * self.spread
        low, high = (self.centre - reach).min(axis=1), (self.centre + reach).max(axis=1)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            under = self.below(middle) < share
            low, high = np.where(under, middle, low), np.where(under, high, middle)
        return np.asarray((low + high) / 2)


def pooled(effects: Effects) -> Pooled:
    """Return the posterior distribution of each effect, with a prior estimated from all of them.

    An effect is ``scale`` times the sum of a part common to its kind, normal with mean 0, and one
    of its own, of a mixture of normal distributions with mean 0. The variance of the common parts
    and the weights of the mixture are those of highest likelihood, found by the EM algorithm. The
    mixture allows for a few large effects among many small ones.

    Source: Stephens 2017, False discovery rates: a new deal (adaptive shrinkage), here with a
    common part of each kind, whose uncertainty is added to the variance.
    """
    scale, kind = effects.scale, effects.kind
    x, noise = effects.value / scale, (effects.error / scale) ** 2
    n_kinds = int(kind.max(initial=-1)) + 1
    common, doubt = np.zeros(n_kinds), np.zeros(n_kinds)
    between, share = 1e-4, np.full(len(_SPREADS), 1 / len(_SPREADS))
    weight = np.tile(share, (len(x), 1))
    for _ in range(_STEPS):
        weight = _weights(x - common[kind], noise + doubt[kind], share)
        share = weight.mean(axis=0)
        precision = (weight / (noise[:, None] + _SPREADS**2)).sum(axis=1)
        total = np.bincount(kind, precision, minlength=n_kinds) + 1 / between
        common = np.bincount(kind, precision * x, minlength=n_kinds) / total
        doubt = 1 / total
        between = max(float(np.mean(common**2 + doubt)), 1e-8)
    weight = _weights(x - common[kind], noise + doubt[kind], share)
    prior = _SPREADS**2 + doubt[kind][:, None]
    shrunk = prior / (prior + noise[:, None])
    centre = common[kind][:, None] + shrunk * (x - common[kind])[:, None]
    spread = np.sqrt(shrunk * noise[:, None])
    return Pooled(weight, centre * scale[:, None], spread * scale[:, None])


def _weights(rest: FloatArray, noise: FloatArray, share: FloatArray) -> FloatArray:
    """Return the probability of each part of the mixture for each effect, ``(n, k)``."""
    variance = noise[:, None] + _SPREADS**2
    with np.errstate(divide="ignore"):
        logs = np.log(share) - (rest[:, None] ** 2 / variance + np.log(variance)) / 2
    logs -= logs.max(axis=1, keepdims=True)
    found = np.exp(logs)
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def shares_wrong(chances: FloatArray) -> FloatArray:
    """Return for each claim the expected share of wrong ones among it and all more certain ones.

    Source: Stephens 2017 (the s-value).

    Args:
        chances: float ``(n,)``, the probability that each claim is wrong.

    >>> shares_wrong(np.array([0.3, 0.0, 0.03])).round(3).tolist()
    [0.11, 0.0, 0.015]
    """
    order = np.argsort(chances, kind="stable")
    found = np.empty(len(chances))
    found[order] = np.cumsum(chances[order]) / np.arange(1, len(chances) + 1)
    return found


def simes(p: FloatArray) -> float:
    """Return the p of the hypothesis that all of several hypotheses hold; 1 for none.

    Source: Simes 1986. It holds for independent p and the usual positively dependent ones.

    >>> round(simes(np.array([0.5, 0.01, 0.03])), 3)
    0.03
    """
    if not len(p):
        return 1.0
    return float(min(1.0, (np.sort(p) * len(p) / np.arange(1, len(p) + 1)).min()))
