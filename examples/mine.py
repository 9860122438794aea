"""A method in a script: `fsf run --plugin examples/mine.py --method mine`."""

import torch

from fsframework.interfaces import FewShotMethod


class Mine(FewShotMethod):
    """Give a query to the class whose prototype points in the most similar direction."""

    weightless = True

    def __init__(self, *, temperature: float = 0.1) -> None:
        super().__init__()
        self.temperature = temperature

    def scores(self, support, query):
        """Return cosine similarities over the temperature, ``(tasks, n, way)``."""
        prototypes = torch.nn.functional.normalize(support.mean(dim=2), dim=-1)
        query = torch.nn.functional.normalize(query, dim=-1)
        return query @ prototypes.transpose(1, 2) / self.temperature
