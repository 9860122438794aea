"""Many effects estimated with error: what each one is likely to be, given all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from fsframework.values import BoolArray, FloatArray

__all__ = [
    "Posterior",
    "moderated",
    "normal_errors",
    "one_sided",
    "posterior",
    "shares_wrong",
    "simes",
]

_SPREADS = 0.03 * 2 ** (np.arange(9) / 2)
"""Standard deviations of the normal distributions that the prior mixes with no effect at all.

Narrower ones would pass for no effect, and take weight from it."""

_NONE_LIKELIER = 10.0
"""Effects of zero that the prior counts besides those observed, so that it errs on that side."""

_STEPS, _HALVINGS = 300, 50
_MOST_FREEDOM, _LEAST_P, _NOTHING = 1e4, 1e-300, 1e-9


@dataclass(frozen=True, eq=False)
class Posterior:
    """The distribution of each effect: zero, or one of ``k`` normal distributions.

    Args:
        weight: float ``(n, 1 + k)``, the first that of zero.
        centre: float ``(n, k)``; ``spread`` likewise.
    """

    weight: FloatArray
    centre: FloatArray
    spread: FloatArray

    @property
    def mean(self) -> FloatArray:
        """Mean of each, ``(n,)``."""
        return np.asarray((self.weight[:, 1:] * self.centre).sum(axis=1))

    def below(self, limit: FloatArray | float) -> FloatArray:
        """Return the probability that each is at most a limit, ``(n,)``."""
        limit = np.broadcast_to(limit, len(self.weight))[:, None]
        parts = special.ndtr((limit - self.centre) / self.spread)
        return np.asarray((self.weight * np.hstack([limit >= 0, parts])).sum(axis=1))

    def quantile(self, share: float) -> FloatArray:
        """Return a quantile of each, ``(n,)``, by bisection."""
        reach = 12 * self.spread
        low = np.minimum((self.centre - reach).min(axis=1), -1e-9)
        high = np.maximum((self.centre + reach).max(axis=1), 1e-9)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            under = self.below(middle) < share
            low, high = np.where(under, middle, low), np.where(under, high, middle)
        found = (low + high) / 2
        return np.where(np.abs(found) < _NOTHING, 0.0, found)


def posterior(value: FloatArray, error: FloatArray) -> Posterior:
    """Return the distribution of each effect, with a prior estimated from all of them.

    The prior is a mixture of a point mass at zero and normal distributions with mean 0, whose
    weights are those of highest likelihood, found by the EM algorithm.

    Source: Stephens 2017, False discovery rates: a new deal (adaptive shrinkage).

    Args:
        value: float ``(n,)``, estimates; ``error`` their standard errors, above 0.
    """
    noise = error[:, None] ** 2
    prior = np.concatenate([[0.0], _SPREADS**2])
    variance = noise + prior
    logs = -(value[:, None] ** 2 / variance + np.log(variance)) / 2
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    share = np.full(len(prior), 1 / len(prior))
    more = np.zeros(len(prior))
    more[0] = _NONE_LIKELIER
    for _ in range(_STEPS):
        weight = likelihood * share
        weight /= weight.sum(axis=1, keepdims=True)
        share = (weight.sum(axis=0) + more) / (len(value) + _NONE_LIKELIER)
    shrunk = prior[1:] / variance[:, 1:]
    return Posterior(weight, shrunk * value[:, None], np.sqrt(shrunk * noise))


def moderated(
    variance: FloatArray, freedom: FloatArray, expected: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return variances and degrees of freedom that also use what the others let expect.

    How much they use it follows from how far variances are from those expected, beyond what their
    degrees of freedom explain.

    Source: Smyth 2004 (moderated t).

    Args:
        variance: float ``(n,)``, estimated with ``freedom``; ``expected`` up to a common factor.
    """
    usable = (variance > 0) & (expected > 0) & (freedom > 1)
    if usable.sum() < 3:
        return variance, freedom
    half = freedom[usable] / 2
    logs = np.log(variance[usable] / expected[usable]) - special.digamma(half) + np.log(half)
    beyond = logs.var(ddof=1) - special.polygamma(1, half).mean()
    lent = _MOST_FREEDOM
    if beyond > special.polygamma(1, _MOST_FREEDOM / 2):
        lent = 2 * optimize.brentq(
            lambda x: float(special.polygamma(1, x)) - beyond, 1e-3, _MOST_FREEDOM
        )
    factor = np.exp(logs.mean() + special.digamma(lent / 2) - np.log(lent / 2))
    total = lent + freedom
    return (lent * factor * expected + freedom * variance) / total, total


def one_sided(value: FloatArray, error: FloatArray, freedom: FloatArray) -> FloatArray:
    """Return the p of "the effect is not above zero", by Student's distribution."""
    return np.asarray(special.stdtr(freedom, -value / error))


def normal_errors(value: FloatArray, error: FloatArray, freedom: FloatArray) -> FloatArray:
    """Return errors with which a normal distribution gives the p of Student's."""
    t = np.maximum(np.abs(value / error), 0.1)
    p = np.maximum(special.stdtr(freedom, -t), _LEAST_P)
    return np.asarray(-t * error / special.ndtri(p))


def shares_wrong(chances: FloatArray, counted: BoolArray) -> FloatArray:
    """Return for each claim the expected share of wrong ones among it and all more certain ones.

    Source: Stephens 2017 (the s-value).

    Args:
        chances: float ``(n,)``, the probability that each claim is wrong.
        counted: bool ``(n,)``, the claims that count besides the one itself.

    >>> shares_wrong(np.array([0.3, 0.0, 0.03]), np.array([True, True, True])).round(3).tolist()
    [0.11, 0.0, 0.015]
    """
    order = np.argsort(chances, kind="stable")
    own, used = chances[order], counted[order]
    found = np.empty(len(chances))
    before = np.cumsum(own * used) - own * used, np.cumsum(used) - used
    found[order] = (before[0] + own) / (before[1] + 1)
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
