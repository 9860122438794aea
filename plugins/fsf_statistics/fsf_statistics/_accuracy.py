"""The mean class accuracy."""

from __future__ import annotations

from typing import ClassVar

from fsframework.interfaces import Statistic
from fsframework.values import ArmOutcomes, Estimate, FloatArray, Outcomes

__all__ = ["Accuracy"]


class Accuracy(Statistic):
    """Mean class accuracy of a task (Acc).

    Source: Zheng, Ye and Zhang 2024, "Benchmarking Spurious Bias in Few-Shot Image Classifiers"
    (ECCV), Eq. (1). The equation prints the sum over classes; the paper's tables show the mean,
    which this returns. As every class of a task has the same number of queries, it is also the
    fraction of the task's queries that are right.

    >>> import numpy as np
    >>> outcomes = Outcomes(np.array([[[0, 1], [1, 1]]]), "digest", 6, False)
    >>> Accuracy().per_task(outcomes).tolist()
    [0.75]
    """

    label: ClassVar[str] = "Acc"

    def per_task(self, outcomes: Outcomes) -> FloatArray:
        """Return ``task_accuracy``, float64 ``(T,)`` in 0..1, which needs no predictions."""
        return outcomes.task_accuracy

    def guessing(self, n_way: int, n_query: int) -> float:
        """Return ``1 / n_way``."""
        del n_query
        return 1 / n_way

    def notes(self, outcomes: ArmOutcomes, gap: Estimate) -> list[str]:
        """Return what different shares of the classes in the arms do to the gap, if it matters."""
        from fsf_statistics.class_shares import class_share_notes

        return class_share_notes(self, outcomes, gap)
