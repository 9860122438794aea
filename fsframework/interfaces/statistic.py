"""The contract of statistics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from fsframework.interfaces.component import Configurable
from fsframework.values import FloatArray, Outcomes

__all__ = ["Statistic"]


class Statistic(Configurable, ABC):
    """Outcomes in, one number a task out; the mean and its interval follow from those.

    >>> import numpy as np
    >>> class Best(Statistic):
    ...     def per_task(self, outcomes):
    ...         return outcomes.class_accuracy.max(axis=1)
    >>> Best().per_task(Outcomes(np.array([[[0, 1], [1, 1]]]), "digest", 6, False)).tolist()
    [1.0]
    """

    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    """Smallest and largest value a task can have."""

    @abstractmethod
    def per_task(self, outcomes: Outcomes) -> FloatArray:
        """Return float64 ``(T,)``, finite and within ``bounds``."""
