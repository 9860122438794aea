"""The best number of queries per class, from a pilot and the size of the data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from scipy import special

from fsframework.errors import InfeasibleTask, OptionError, argument
from fsframework.statistics.query_variance import QueryVariance
from fsframework.values import IntArray

__all__ = [
    "Advice",
    "Choose",
    "QueryPlan",
    "most_tasks",
    "queries_of_the_paper",
    "uniform_tasks",
]

Choose = Literal["uniform", "by-what-is-left"]

_TASKS_AT_LEAST, _TASKS_AT_ONCE = 16, 1 << 18


# -- What the data can yield -----------------------------------------------------------------------


def most_tasks(class_sizes: IntArray, n_way: int, n_images: int) -> int:
    """Return the most tasks without replacement that classes of these sizes can yield.

    It is the largest T with sum_c min(g_c, T) >= n_way T, where g_c is the number of whole groups
    of ``n_images`` in class c; the sampler ``depleting`` reaches it with
    ``choose=by-what-is-left``.

    Args:
        class_sizes: images of each class.
        n_way: classes per task.
        n_images: images that a task takes from each of its classes, shots and queries together.

    >>> most_tasks(np.array([600] * 20), 5, 20), most_tasks(np.array([10, 10, 100]), 2, 5)
    (120, 4)
    """
    groups = np.asarray(class_sizes) // n_images
    low, high = 0, int(groups.sum()) // n_way
    while low < high:
        middle = (low + high + 1) // 2
        if np.minimum(groups, middle).sum() >= n_way * middle:
            low = middle
        else:
            high = middle - 1
    return low


def uniform_tasks(class_sizes: IntArray, n_way: int, n_images: int, seed: int = 0) -> int:
    """Return how many tasks one draw of ``depleting`` yields if classes are picked uniformly.

    Arguments are as in ``most_tasks``. The number varies between draws by a few tasks.

    >>> uniform_tasks(np.array([40, 40]), 2, 10)
    4
    """
    left, count = np.asarray(class_sizes) // n_images, 0
    rng = np.random.default_rng(seed)
    while (able := np.flatnonzero(left)).size >= n_way:
        # No class runs out before the smallest one could, so that many tasks need no check.
        sure = min(int(left[able].min()), _TASKS_AT_ONCE)
        if able.size < 4 * n_way:
            picks = np.argsort(rng.random((sure, able.size)), axis=1)[:, :n_way]
        else:
            # Tasks that have a class twice are discarded.
            picks = rng.integers(able.size, size=(max(sure, _TASKS_AT_LEAST), n_way))
            ordered = np.sort(picks, axis=1)
            picks = picks[(ordered[:, 1:] != ordered[:, :-1]).all(axis=1)][:sure]
        left[able] -= np.bincount(picks.ravel(), minlength=able.size)
        count += len(picks)
    return count


# -- What to do ------------------------------------------------------------------------------------


def queries_of_the_paper(n_shot: int) -> float:
    """Return the best number of queries per class as the paper found it, if there is no pilot.

    1, 5 and 7 at 1, 5 and 10 shots, linearly interpolated, 7 beyond.

    Source: Lafargue et al. 2024, section 4.1.1, with CLIP on nine data sets.

    >>> queries_of_the_paper(1), queries_of_the_paper(3), queries_of_the_paper(40)
    (1.0, 3.0, 7.0)
    """
    return float(np.interp(n_shot, (1, 5, 10), (1, 5, 7)))


@dataclass(frozen=True)
class Advice:
    """One sentence of advice.

    Args:
        topic: what it is about: the number of queries per class, the number of tasks, or an
            option of the sampler that would give more tasks.
        sentence: for people; nothing reads it.
    """

    topic: Literal["queries", "tasks", "sampler"]
    sentence: str


@dataclass(frozen=True)
class QueryPlan:
    """How many queries per class to take from a data set, for tasks without replacement.

    Args:
        class_sizes: images of each class.
        n_way: classes per task; ``n_shot``: support images per class.
        pilot: variances of a method, or of the difference of two; ``None`` without a pilot.
        choose: how the sampler ``depleting`` picks classes.
        level: of intervals.
        least_tasks: fewer tasks are not advised, if the data yield this many.

    Raises:
        OptionError: an option is out of its range.
        InfeasibleTask: the data do not yield two tasks.
    """

    class_sizes: tuple[int, ...]
    n_way: int
    n_shot: int
    pilot: QueryVariance | None = None
    choose: Choose = "uniform"
    level: float = 0.95
    least_tasks: int = 10

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise OptionError(f"{argument('level')} must lie between 0 and 1, not {self.level}")
        if self.choose not in get_args(Choose):
            known = ", ".join(get_args(Choose))
            raise OptionError(f"{argument('choose')} must be one of {known}, not {self.choose!r}")
        if self.n_way < 2 or self.n_shot < 1 or self.least_tasks < 2:
            raise OptionError("a plan needs at least 2 ways, 1 shot and 2 tasks")
        if not self.most_tasks(1) >= 2:
            raise InfeasibleTask(
                f"{len(self.class_sizes)} classes of {min(self.class_sizes, default=0):,} to "
                f"{max(self.class_sizes, default=0):,} images do not yield two {self.n_way}-way "
                f"{self.n_shot}-shot tasks without replacement, even with 1 query per class"
            )

    def most_tasks(self, n_query: int) -> int:
        """Return the most tasks with ``n_query`` queries per class that the data can yield."""
        return most_tasks(np.array(self.class_sizes), self.n_way, self.n_shot + n_query)

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

    @cached_property
    def n_query(self) -> int:
        """The advised number of queries: its tasks give the shortest interval.

        It differs from Q* because the number of tasks is whole and Student's quantile is large for
        few tasks. Without a pilot, it is the paper's number for the shots.
        """
        enough = min(self.least_tasks, self.most_tasks(1))
        able = [q for q in self.candidates if self.most_tasks(q) >= enough]
        judged = self.pilot
        if judged is None:
            wanted = queries_of_the_paper(self.n_shot)
            return min(able, key=lambda q: abs(q - wanted))

        def length(n_query: int) -> float:
            n_tasks = self.most_tasks(n_query)
            quantile = float(special.stdtrit(n_tasks - 1, (1 + self.level) / 2))
            return quantile * math.sqrt(float(judged.variance(n_query)) / n_tasks)

        return min(able, key=length)

    def n_tasks(self, n_query: int) -> int:
        """Return how many tasks with ``n_query`` queries per class the sampler draws."""
        count = most_tasks if self.choose == "by-what-is-left" else uniform_tasks
        return count(np.array(self.class_sizes), self.n_way, self.n_shot + n_query)

    def left_over(self, n_query: int, n_tasks: int) -> int:
        """Return how many images are in none of ``n_tasks`` tasks."""
        return sum(self.class_sizes) - n_tasks * self.n_way * (self.n_shot + n_query)

    def advice(self) -> list[Advice]:
        """Return sentences on what to do and how certain that is."""
        n_tasks, most = self.n_tasks(self.n_query), self.most_tasks(self.n_query)
        tasks = (
            f"{n_tasks:,} {self.n_way}-way {self.n_shot}-shot tasks of {_queries(self.n_query)} "
            f"per class without replacement; {self.left_over(self.n_query, n_tasks):,} of "
            f"{sum(self.class_sizes):,} images left over"
        )
        found = [Advice("queries", sentence) for sentence in self._advice_on_queries()]
        found.append(Advice("tasks", tasks))
        if self.choose == "uniform" and most > n_tasks:
            more = f"{most:,} tasks with sampler.choose=by-what-is-left"
            found.append(Advice("sampler", more))
        return found

    def _advice_on_queries(self) -> list[str]:
        judged = self.pilot
        of_pair = judged is not None and judged.of_differences
        what = "differences between the two methods" if of_pair else "accuracy"
        lines = []
        if judged is None:
            lines.append(
                f"{_queries(self.n_query)} per class, as the paper found best at {self.n_shot} "
                "shots with CLIP on nine data sets; a pilot run would give the number for this "
                "method and these data"
            )
        else:
            lines.append(
                f"Q* = {_number(judged.best)} queries per class for {what}, "
                f"{100 * judged.level:g} % interval {_number(judged.best_low)} to "
                f"{_number(judged.best_high)}, from {judged.n_tasks:,} tasks"
            )
            if judged.alpha <= 0:
                lines.append(
                    "the pilot's tasks differ by no more than the noise of their queries: judged "
                    "by them, Q* is unbounded, the more queries the better"
                )
            if judged.unseen > 0 and judged.cautious < 0.8 * judged.best:
                lines.append(
                    f"allowing for tasks that confuse two classes, which such a "
                    f"short pilot may have missed, Q* = {_number(judged.cautious)}"
                )
            lines.append(
                f"advised: {_queries(self.n_query)} per class, the shortest interval that these "
                "data give"
            )
            enough = min(self.least_tasks, self.most_tasks(1))
            if self.most_tasks(self.n_query) == enough or judged.cautious > 1.5 * self.n_query:
                lines.append(
                    f"more queries would leave fewer than {enough} tasks: {self.n_query} is the "
                    "largest number advised"
                    if self._next_is_too_many()
                    else "fewer than Q*, because tasks are whole and few tasks give long intervals"
                )
        return lines

    def _next_is_too_many(self) -> bool:
        enough = min(self.least_tasks, self.most_tasks(1))
        after = [q for q in self.candidates if q > self.n_query]
        return not after or self.most_tasks(after[0]) < enough


def _queries(number: int) -> str:
    return "1 query" if number == 1 else f"{number} queries"


def _number(value: float) -> str:
    """Return a number of queries as text.

    >>> _number(1.54), _number(24.1), _number(math.inf)
    ('1.5', '24', 'unbounded')
    """
    if math.isinf(value):
        return "unbounded"
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"
