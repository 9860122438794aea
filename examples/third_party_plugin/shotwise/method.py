"""A method that looks at single shots."""

from __future__ import annotations

import torch
from torch import Tensor

from fsframework.interfaces import FewShotMethod, OptionError

__all__ = ["NearestShot"]


class NearestShot(FewShotMethod):
    """Assign a query to the class of its nearest support images.

    Args:
        neighbours: number of a class's nearest support images that count, at least 1; with fewer
            shots, all of them count.

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
        nearest: Tensor = distances.topk(min(self.neighbours, shot), dim=3, largest=False).values
        return -nearest.mean(dim=3)
