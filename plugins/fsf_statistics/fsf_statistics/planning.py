"""The best number of queries per class, from a pilot and the size of the data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from fsf_statistics.query_variance import QueryVariance
from fsframework.errors import InfeasibleTask, OptionError

__all__ = ["LEAST_TASKS", "TaskSupply", "best_queries"]

LEAST_TASKS = 10
"""Fewer tasks are not advised, if the data yield this many."""


@dataclass(frozen=True)
class TaskSupply:
    """How many tasks without replacement a data set yields.

    Args:
        class_sizes: images of each class.
        n_way: classes per task; ``n_shot``: support images per class.

    Raises:
        OptionError: there are fewer than 2 ways or 1 shot.
        InfeasibleTask: the data do not yield two tasks.

    >>> TaskSupply((600,) * 20, 5, 5).most_tasks(15), TaskSupply((10, 10, 100), 2, 1).most_tasks(4)
    (120, 4)
    """

    class_sizes: tuple[int, ...]
    n_way: int
    n_shot: int

    def __post_init__(self) -> None:
        if self.n_way < 2 or self.n_shot < 1:
            raise OptionError("a plan needs at least 2 ways and 1 shot")
        if not self.most_tasks(1) >= 2:
            raise InfeasibleTask(
                f"{len(self.class_sizes)} classes of {min(self.class_sizes, default=0):,} to "
                f"{max(self.class_sizes, default=0):,} images do not yield two {self.n_way}-way "
                f"{self.n_shot}-shot tasks without replacement, even with 1 query per class"
            )

    def most_tasks(self, n_query: int) -> int:
        """Return the most tasks with ``n_query`` queries per class that the data can yield.

        It is the largest T with sum_c min(g_c, T) >= n_way T, where g_c is the number of whole
        groups of ``n_shot + n_query`` images in class c; the sampler ``depleting`` reaches it with
        ``choose=by-what-is-left``.
        """
        groups = np.array(self.class_sizes) // (self.n_shot + n_query)
        low, high = 0, int(groups.sum()) // self.n_way
        while low < high:
            middle = (low + high + 1) // 2
            if np.minimum(groups, middle).sum() >= self.n_way * middle:
                low = middle
            else:
                high = middle - 1
        return low

    @cached_property
    def candidates(self) -> tuple[int, ...]:
        """Numbers of queries that leave two tasks: each up to 200, then in steps of 2 %."""
        largest = sorted(self.class_sizes)[-self.n_way] - self.n_shot
        dense = np.arange(1, min(largest, 200) + 1)
        sparse = np.geomspace(
            200, max(largest, 200), 1 + max(0, round(50 * math.log(max(largest, 200) / 200)))
        )
        numbers = np.unique(np.concatenate([dense, np.round(sparse).astype(int)]))
        return tuple(int(q) for q in numbers if q <= largest and self.most_tasks(int(q)) >= 2)

    def leaving(self, least_tasks: int) -> list[int]:
        """Return the candidates that leave so many tasks, or as many as there can be."""
        enough = min(least_tasks, self.most_tasks(1))
        return [q for q in self.candidates if self.most_tasks(q) >= enough]


def best_queries(
    supply: TaskSupply, pilot: QueryVariance, level: float = 0.95, least_tasks: int = LEAST_TASKS
) -> int:
    """Return the number of queries per class whose tasks give the shortest interval.

    It differs from Q* because the number of tasks is whole and Student's quantile is large for few
    tasks.

    Args:
        supply: the tasks to choose from.
        pilot: variances of a method, or of the difference of two.
        level: of the interval.
        least_tasks: fewer tasks are not advised, if the data yield this many.
    """

    def length(n_query: int) -> float:
        n_tasks = supply.most_tasks(n_query)
        quantile = float(special.stdtrit(n_tasks - 1, (1 + level) / 2))
        return quantile * math.sqrt(float(pilot.variance(n_query)) / n_tasks)

    return min(supply.leaving(least_tasks), key=length)
