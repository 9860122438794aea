"""A method and a statistic for fsframework, from outside its repository."""

from __future__ import annotations

import torch
from torch import Tensor

from fsframework.interfaces import FewShotMethod, OptionError, Statistic
from fsframework.values import FloatArray, Outcomes

__version__ = "0.1.0"
__all__ = ["NearestShot", "Spread"]


class NearestShot(FewShotMethod):
    """Give a query to the class of its nearest support images.

    Args:
        neighbours: how many of a class' nearest support images count, at least 1; with fewer
            shots all of them do.

    Raises:
        OptionError: ``neighbours`` is below 1.
    """

    learns_from = "nothing"
    weightless = True

    def __init__(self, *, neighbours: int = 1) -> None:
        super().__init__()
        if neighbours < 1:
            raise OptionError(f"neighbours must be at least 1, not {neighbours}")
        self.neighbours = neighbours

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the negative mean distance to the nearest shots, ``(tasks, n, way)``."""
        way, shot = support.shape[1:3]
        distances = torch.cdist(query, support.flatten(1, 2)).unflatten(2, (way, shot))
        nearest = distances.topk(min(self.neighbours, shot), dim=3, largest=False).values
        return -nearest.mean(dim=3)


class Spread(Statistic):
    """Best minus worst class accuracy of a task: how unevenly a method serves its classes."""

    def per_task(self, outcomes: Outcomes) -> FloatArray:
        """Return float64 ``(T,)`` in 0..1."""
        accuracy = outcomes.class_accuracy
        spread: FloatArray = accuracy.max(axis=1) - accuracy.min(axis=1)
        return spread
