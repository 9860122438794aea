"""The contract of statistics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from fsframework.interfaces.component import Configurable
from fsframework.values import ArmOutcomes, Estimate, FloatArray, Outcomes

__all__ = ["Statistic"]


class Statistic(Configurable, ABC, kind="statistic"):
    """Outcomes in, one number per task out, from which the mean and its interval follow.

    >>> import numpy as np
    >>> class Best(Statistic):
    ...     def per_task(self, outcomes):
    ...         return outcomes.class_accuracy.max(axis=1)
    >>> Best().per_task(Outcomes(np.array([[[0, 1], [1, 1]]]), "digest", 6, False)).tolist()
    [1.0]
    """

    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    """Smallest and largest value that a task can have."""

    higher_is_better: ClassVar[bool] = True
    """Whether larger values are better; a gap is positive where the tested arm is worse."""

    label: ClassVar[str] = ""
    """Its name in tables, such as ``wAcc``; empty for the name of the plugin."""

    @abstractmethod
    def per_task(self, outcomes: Outcomes) -> FloatArray:
        """Return float64 ``(T,)``, finite and within ``bounds``."""

    def guessing(self, n_way: int, n_query: int) -> float | None:
        """Return the mean over tasks whose queries are assigned to ways at random.

        With it, the share of a value above guessing that a gap takes away, the relative drop, is
        estimated, and values near it are noted.

        Args:
            n_way: classes per task, all equally likely to be guessed.
            n_query: queries per class.

        Returns:
            ``None`` if it is not known.
        """
        del n_way, n_query
        return None

    def interval(self, outcomes: Outcomes, level: float) -> tuple[float, float] | None:
        """Return the bounds of an interval of its own for the mean over tasks.

        It replaces the usual one in the estimate of an arm. Contrasts of arms, comparisons and
        intervals over training seeds are always made of the values per task.

        Args:
            outcomes: of one arm.
            level: confidence level, 0 < level < 1.

        Returns:
            Lower and upper bound with the mean between them, both within ``bounds``; ``None`` for
            the usual interval.
        """
        del outcomes, level
        return None

    def notes(self, outcomes: ArmOutcomes, gap: Estimate) -> list[str]:
        """Return what a reader of the gap between two arms must know, one sentence each.

        A run prints and records the sentences.

        Args:
            outcomes: of both arms, with their tasks.
            gap: of this statistic; ``gap.arms`` names the arms, the control first.
        """
        del outcomes, gap
        return []
