"""The contract of task samplers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from fsframework.errors import OptionError
from fsframework.interfaces.component import Configurable
from fsframework.values import ImagePool, TaskSet

__all__ = ["TaskSampler"]


class TaskSampler(Configurable, ABC):
    """Labels and attributes in, indices out; a sampler never sees a pixel or a model.

    Args:
        n_way: classes a task, at least 2.
        n_shot: support images a class, at least 1.
        n_query: query images a class, at least 1.

    Raises:
        OptionError: one of them is too small.
    """

    needs_attributes: ClassVar[bool] = False
    """Whether ``draw`` reads ``pool.attributes``."""

    independent: ClassVar[bool] = True
    """Whether tasks are drawn independently, so that a shorter draw is a prefix of a longer."""

    def __init__(self, *, n_way: int = 5, n_shot: int = 5, n_query: int = 15) -> None:
        for name, value, least in (
            ("n_way", n_way, 2),
            ("n_shot", n_shot, 1),
            ("n_query", n_query, 1),
        ):
            if value < least:
                raise OptionError(f"{name} must be at least {least}, not {value}")
        self.n_way = n_way
        self.n_shot = n_shot
        self.n_query = n_query

    @abstractmethod
    def draw(self, pool: ImagePool, n_tasks: int | None, seed: int) -> TaskSet:
        """Draw tasks.

        Args:
            pool: the images to draw from; ``pool.attributes`` holds their words, if any.
            n_tasks: number of tasks; ``None`` means as many as there are, for samplers that end.
            seed: task ``t`` is drawn from ``task_rng(seed, t, name)`` and nothing else.

        Returns:
            The tasks, built with ``TaskSet.of(pool, ...)``.

        Raises:
            InfeasibleTask: the pool cannot yield such a task; the message names the class (or
                word) at fault and the largest number that would do. Raised quickly, not after
                an unbounded search.
            OptionError: ``n_tasks`` is ``None`` for a sampler without an end.
        """
