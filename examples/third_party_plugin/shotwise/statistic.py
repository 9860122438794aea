"""A statistic of how unevenly a method serves its classes."""

from __future__ import annotations

from typing import ClassVar

from fsframework.interfaces import Statistic
from fsframework.values import FloatArray, Outcomes

__all__ = ["Spread"]


class Spread(Statistic):
    """Best minus worst class accuracy of a task; smaller is better."""

    higher_is_better: ClassVar[bool] = False
    label: ClassVar[str] = "Spread"

    def per_task(self, outcomes: Outcomes) -> FloatArray:
        """Return float64 ``(T,)`` in 0..1."""
        accuracy = outcomes.class_accuracy
        spread: FloatArray = accuracy.max(axis=1) - accuracy.min(axis=1)
        return spread
