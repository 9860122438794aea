"""A method, which learns from the support and scores the queries.

Try it: fsf run --method my-method
"""

import torch
from fsframework.interfaces import FewShotMethod, check_above
from torch import Tensor
from torch.nn import functional


class MyMethod(FewShotMethod):
    """Give a query to the class whose prototype points in the most similar direction."""

    # Change the line above first: listings show it. Then change the scores below.

    weightless = True  # it has nothing of its own to train; remove this once `build` makes layers

    # Options are keyword-only, have a type, and are stored under their own names.
    def __init__(self, *, temperature: float = 0.1) -> None:
        super().__init__()
        check_above(0, temperature=temperature)
        self.temperature = temperature

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return ``(tasks, n, way)``, where higher is likelier.

        Args:
            support: many tasks at once, ``(tasks, way, shot, width)``.
            query: ``(tasks, n, width)``.
        """
        prototypes = functional.normalize(support.mean(dim=2), dim=-1)
        directions = functional.normalize(query, dim=-1)
        # With its type stated, arithmetic on tensors passes `mypy --strict`, whatever it is.
        scores: Tensor = torch.matmul(directions, prototypes.transpose(1, 2)) / self.temperature
        return scores
