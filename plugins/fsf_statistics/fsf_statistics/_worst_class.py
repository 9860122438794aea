"""The accuracy of the worst class."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy

from fsframework.interfaces import Statistic
from fsframework.values import ArmOutcomes, Estimate, FloatArray, Outcomes

__all__ = ["WorstClassAccuracy"]


class WorstClassAccuracy(Statistic):
    """Smallest class accuracy of a task (wAcc).

    Source: Zheng, Ye and Zhang 2024, "Benchmarking Spurious Bias in Few-Shot Image Classifiers"
    (ECCV), Eq. (2). On attribute-biased tasks the paper calls its mean wAcc-A, on random tasks
    wAcc-R.

    Caveat: the smallest of a few noisy fractions is below the accuracy of the worst class, and the
    more so with fewer queries and more ways. A classifier that is right with probability 0.6 in
    each of 5 classes has an expected wAcc of 0.45 with 15 queries per class and of 0.54 with 100.
    Compare values only at equal ways and queries; more tasks narrow the interval around the biased
    value but do not remove the bias. The bias does not cancel in wAcc-R - wAcc-A where the two
    differ in how unequal their classes are.

    >>> import numpy as np
    >>> outcomes = Outcomes(np.array([[[0, 1], [1, 1]]]), "digest", 6, False)
    >>> WorstClassAccuracy().per_task(outcomes).tolist()
    [0.5]
    """

    label: ClassVar[str] = "wAcc"

    def per_task(self, outcomes: Outcomes) -> FloatArray:
        """Return the minimum of ``class_accuracy`` over ways, float64 ``(T,)`` in 0..1."""
        return outcomes.class_accuracy.min(axis=1)

    def guessing(self, n_way: int, n_query: int) -> float:
        """Return the expected minimum of ``n_way`` shares of right guesses.

        Right guesses of a class are binomial with ``1 / n_way``, independently of other classes'.
        It is far below ``1 / n_way``: 0.088 with 5 ways of 15 queries, 0.028 with 5 of 5.
        """
        above = scipy.special.bdtrc(np.arange(n_query), n_query, 1 / n_way)
        return float((above**n_way).sum() / n_query)

    def notes(self, outcomes: ArmOutcomes, gap: Estimate) -> list[str]:
        """Return what different shares of the classes in the arms do to the gap, if it matters."""
        from fsf_statistics.class_shares import class_share_notes

        return class_share_notes(self, outcomes, gap)
