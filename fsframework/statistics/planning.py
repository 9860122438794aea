"""How many queries, how many tasks: what to do, by what a pilot tells and what the data yield."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from scipy import stats

from fsframework.errors import InfeasibleTask, OptionError
from fsframework.statistics.query_variance import Spread
from fsframework.values import IntArray

__all__ = [
    "Advice",
    "Choose",
    "Plan",
    "Row",
    "detectable_difference",
    "most_tasks",
    "parse_class_sizes",
    "queries_of_the_paper",
    "tasks_needed",
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
        n_way: classes a task.
        n_images: images a task takes of each of its classes, shots and queries together.

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
    """Return how many tasks one draw of ``depleting`` yields whose classes are picked uniformly.

    Arguments are as in ``most_tasks``. Draws differ in it by a few tasks.

    >>> uniform_tasks(np.array([40, 40]), 2, 10)
    4
    """
    left, count = np.asarray(class_sizes) // n_images, 0
    rng = np.random.default_rng(seed)
    while (able := np.flatnonzero(left)).size >= n_way:
        # No class can run out sooner than the smallest of them, so so many tasks need no check.
        sure = min(int(left[able].min()), _TASKS_AT_ONCE)
        if able.size < 4 * n_way:
            picks = np.argsort(rng.random((sure, able.size)), axis=1)[:, :n_way]
        else:
            # Tasks that name a class twice are thrown away.
            picks = rng.integers(able.size, size=(max(sure, _TASKS_AT_LEAST), n_way))
            ordered = np.sort(picks, axis=1)
            picks = picks[(ordered[:, 1:] != ordered[:, :-1]).all(axis=1)][:sure]
        left[able] -= np.bincount(picks.ravel(), minlength=able.size)
        count += len(picks)
    return count


def parse_class_sizes(text: str) -> tuple[int, ...]:
    """Read class sizes: numbers of images, or ``IMAGESxCLASSES``, separated by commas.

    Raises:
        OptionError: it is written otherwise.

    >>> parse_class_sizes("600x3"), parse_class_sizes("20,45x2")
    ((600, 600, 600), (20, 45, 45))
    """
    found: list[int] = []
    for part in text.split(","):
        size, times, number = part.strip().partition("x")
        try:
            found += [int(size)] * (int(number) if times else 1)
        except ValueError:
            raise OptionError(
                f"class sizes are numbers of images, or IMAGESxCLASSES, separated by commas, as "
                f"in 600x20 or 45,80,120; not {part.strip()!r}"
            ) from None
    if not found or min(found) < 0:
        raise OptionError(f"class sizes must be at least 0, not {text!r}")
    return tuple(found)


# -- What to do ------------------------------------------------------------------------------------


def queries_of_the_paper(n_shot: int) -> float:
    """Return the best number of queries a class as the paper found it, for want of a pilot.

    1, 5 and 7 at 1, 5 and 10 shots, between them on straight lines, 7 beyond.

    Source: Lafargue et al. 2024, section 4.1.1, with CLIP on nine data sets.

    >>> queries_of_the_paper(1), queries_of_the_paper(3), queries_of_the_paper(40)
    (1.0, 3.0, 7.0)
    """
    return float(np.interp(n_shot, (1, 5, 10), (1, 5, 7)))


def detectable_difference(
    variance: float, n_tasks: int, *, paired: bool, level: float = 0.95, power: float = 0.8
) -> float:
    """Return the least true difference of two means over tasks that a test would find.

    Args:
        variance: paired, of the difference on a task; unpaired, of both accuracies together.
        n_tasks: of each method, at least 2; fewer give NaN.
        paired: whether both methods have the same tasks.
        level: of the interval that must not hold 0.
        power: probability to find it.

    >>> round(detectable_difference(0.02, 100, paired=False), 4)
    0.0398
    """
    if n_tasks < 2:
        return math.nan
    freedom = (1 if paired else 2) * (n_tasks - 1)
    quantiles = stats.t.ppf((1 + level) / 2, freedom) + stats.t.ppf(power, freedom)
    return float(quantiles * math.sqrt(variance / n_tasks))


def tasks_needed(
    variance: float, difference: float, *, paired: bool, level: float = 0.95, power: float = 0.8
) -> int:
    """Return the fewest tasks of each method by which a difference is found; see above.

    >>> tasks_needed(0.02, 0.0399, paired=False), tasks_needed(0.0, 0.01, paired=True)
    (100, 2)
    """
    high = 2
    while not detectable_difference(variance, high, paired=paired, level=level, power=power) <= (
        difference
    ):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        found = detectable_difference(variance, middle, paired=paired, level=level, power=power)
        low, high = (low, middle) if found <= difference else (middle, high)
    return high


@dataclass(frozen=True)
class Row:
    """What so many queries a class come to; shares of 1, NaN where nothing is known of it.

    Args:
        n_query: queries a class.
        n_tasks: that the data yield without replacement; ``left_over``: images not in them.
        variance: of the mean accuracy over these tasks, predicted.
        half_width: of its interval.
        unpaired: least difference that two methods on tasks of their own would show.
        paired: the same on equal tasks.
        needed_unpaired: tasks of each method that would show the difference asked for; 0 where
            none was asked for or the variance is not known. ``needed_paired`` likewise.
    """

    n_query: int
    n_tasks: int
    left_over: int
    variance: float
    half_width: float
    unpaired: float
    paired: float
    needed_unpaired: int = 0
    needed_paired: int = 0


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
class Plan:
    """How many queries and tasks to take of a data set.

    Args:
        class_sizes: images of each class.
        n_way: classes a task; ``n_shot``: support images a class.
        spread: what the pilot told of a method; ``None`` without one.
        other: of a second method on the same tasks; ``differences`` of the two.
        correlation: of two methods' accuracies on a task, instead of a second pilot.
        task_sd: standard deviation of a task's accuracy, share of 1, instead of any pilot.
        difference: that one wishes to find, share of 1.
        choose: how the sampler ``depleting`` is to pick classes.
        level: of intervals; ``power`` of tests.
        least_tasks: fewer are not advised, as far as the data yield so many.

    Raises:
        OptionError: an option is out of its range.
        InfeasibleTask: the data do not yield two tasks.
    """

    class_sizes: tuple[int, ...]
    n_way: int
    n_shot: int
    spread: Spread | None = None
    other: Spread | None = None
    differences: Spread | None = None
    correlation: float | None = None
    task_sd: float | None = None
    difference: float | None = None
    choose: Choose = "uniform"
    level: float = 0.95
    power: float = 0.8
    least_tasks: int = 10

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("level", self.level, 0, 1),
            ("power", self.power, 0, 1),
            ("correlation", self.correlation, -1, 1),
            ("difference", self.difference, 0, 1),
            ("task_sd", self.task_sd, 0, 1),
        ):
            if value is not None and not low < value < high:
                raise OptionError(f"{name} must lie between {low} and {high}, not {value}")
        if self.choose not in get_args(Choose):
            raise OptionError(f"choose must be one of {', '.join(get_args(Choose))}")
        if self.n_way < 2 or self.n_shot < 1 or self.least_tasks < 2:
            raise OptionError("a plan needs at least 2 ways, 1 shot and 2 tasks")
        if not self._most(1) >= 2:
            raise InfeasibleTask(
                f"{len(self.class_sizes)} classes of {min(self.class_sizes, default=0):,} to "
                f"{max(self.class_sizes, default=0):,} images do not yield two {self.n_way}-way "
                f"{self.n_shot}-shot tasks without replacement, even with 1 query a class"
            )

    def _most(self, n_query: int) -> int:
        return most_tasks(np.array(self.class_sizes), self.n_way, self.n_shot + n_query)

    @cached_property
    def candidates(self) -> tuple[int, ...]:
        """Numbers of queries that leave two tasks: each up to 200, thence in steps of 2 %."""
        largest = sorted(self.class_sizes)[-self.n_way] - self.n_shot
        dense = np.arange(1, min(largest, 200) + 1)
        sparse = np.geomspace(
            200, max(largest, 200), 1 + max(0, round(50 * math.log(max(largest, 200) / 200)))
        )
        numbers = np.unique(np.concatenate([dense, np.round(sparse).astype(int)]))
        return tuple(int(q) for q in numbers if q <= largest and self._most(int(q)) >= 2)

    @property
    def _judged(self) -> Spread | None:
        """What is to be told as closely as can be: the difference, if there are two methods."""
        return self.differences or self.spread

    @cached_property
    def n_query(self) -> int:
        """The number of queries advised: its tasks give the shortest interval.

        It differs from Q* by whole tasks and by Student's quantile, which is large for few tasks.
        Without a pilot, the paper's number for the shots.
        """
        enough = min(self.least_tasks, self._most(1))
        able = [q for q in self.candidates if self._most(q) >= enough]
        judged = self._judged
        if judged is None:
            wanted = queries_of_the_paper(self.n_shot)
            return min(able, key=lambda q: abs(q - wanted))

        def length(n_query: int) -> float:
            n_tasks = self._most(n_query)
            quantile = float(stats.t.ppf((1 + self.level) / 2, n_tasks - 1))
            return quantile * math.sqrt(float(judged.variance(n_query)) / n_tasks)

        return min(able, key=length)

    def row(self, n_query: int) -> Row:
        """Return what so many queries a class come to."""
        sizes, n_images = np.array(self.class_sizes), self.n_shot + n_query
        count = most_tasks if self.choose == "by-what-is-left" else uniform_tasks
        n_tasks = count(sizes, self.n_way, n_images)
        first = self._variance(self.spread, n_query)
        second = first if self.other is None else self._variance(self.other, n_query)
        both, pair = first + second, math.nan
        if self.differences is not None:
            pair = self._variance(self.differences, n_query)
        elif self.correlation is not None:
            pair = both - 2 * self.correlation * math.sqrt(first * second)
        how = {"level": self.level, "power": self.power}

        def needed(variance: float, paired: bool) -> int:
            if self.difference is None or math.isnan(variance):
                return 0
            return tasks_needed(variance, self.difference, paired=paired, **how)

        half = math.nan
        if n_tasks > 1:
            half = float(stats.t.ppf((1 + self.level) / 2, n_tasks - 1)) * math.sqrt(
                first / n_tasks
            )
        return Row(
            n_query,
            n_tasks,
            int(sizes.sum()) - n_tasks * self.n_way * n_images,
            first / n_tasks if n_tasks else math.nan,
            half,
            detectable_difference(both, n_tasks, paired=False, **how),
            detectable_difference(pair, n_tasks, paired=True, **how),
            needed(both, False),
            needed(pair, True),
        )

    def _variance(self, spread: Spread | None, n_query: int) -> float:
        if spread is not None:
            return float(spread.variance(n_query))
        return math.nan if self.task_sd is None else self.task_sd**2

    def rows(self) -> list[Row]:
        """Return rows from few queries to many, those of the number advised and of Q* included."""
        usual = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 75, 100, 200, 500, 1000)
        most = max(self.candidates)
        shown = {q for q in usual if q <= most} | {self.n_query}
        if self._judged is not None and self._judged.cautious <= most:
            shown.add(max(1, round(self._judged.cautious)))
        return [self.row(q) for q in sorted(shown)]

    def curve(self, most: int | None = None) -> list[tuple[int, float]]:
        """Return queries a class and predicted variance of the mean, by as many tasks as can be.

        The mean is that of the differences where there are two methods. Up to ``most`` queries, or
        four times the number advised and at least 20.
        """
        if self.spread is None:
            return []
        end = most or max(20, 4 * self.n_query)
        numbers = [q for q in self.candidates if q <= end]
        return [(q, self._variance(self._judged, q) / self._most(q)) for q in numbers]

    def advice(self) -> list[Advice]:
        """Return in sentences what to do and how sure that is."""
        row, most = self.row(self.n_query), self._most(self.n_query)
        tasks = (
            f"{row.n_tasks:,} {self.n_way}-way {self.n_shot}-shot tasks of "
            f"{_queries(self.n_query)} a class without replacement; {row.left_over:,} of "
            f"{sum(self.class_sizes):,} images left over"
        )
        found = [Advice("queries", sentence) for sentence in self._advice_on_queries()]
        found.append(Advice("tasks", tasks))
        if self.choose == "uniform" and most > row.n_tasks:
            more = f"{most:,} tasks with sampler.choose=by-what-is-left"
            found.append(Advice("sampler", more))
        return found

    def _advice_on_queries(self) -> list[str]:
        judged = self._judged
        what = "differences between the two methods" if self.differences else "accuracy"
        lines = []
        if judged is None:
            lines.append(
                f"{_queries(self.n_query)} a class, as the paper found best at {self.n_shot} shots "
                "with CLIP on nine data sets; a pilot run would tell of this method and these data"
            )
        else:
            lines.append(
                f"Q* = {_number(judged.best)} queries a class for {what}, "
                f"{100 * judged.level:g} % interval {_number(judged.best_low)} to "
                f"{_number(judged.best_high)}, from {judged.n_tasks:,} tasks"
            )
            if judged.alpha <= 0:
                lines.append(
                    "the pilot's tasks differ by no more than the noise of their queries: by them "
                    "alone Q* is unbounded, the more queries the better"
                )
            if judged.unseen > 0 and judged.cautious < 0.8 * judged.best:
                lines.append(
                    f"allowing for tasks in which two classes cannot be told apart, which so short "
                    f"a pilot may have missed, Q* = {_number(judged.cautious)}"
                )
            lines.append(
                f"advised: {_queries(self.n_query)} a class, the shortest interval that these data "
                "give"
            )
            enough = min(self.least_tasks, self._most(1))
            if self._most(self.n_query) == enough or judged.cautious > 1.5 * self.n_query:
                lines.append(
                    f"more queries would leave fewer than {enough} tasks: {self.n_query} are the "
                    "most to be advised"
                    if self._next_is_too_many()
                    else "fewer than Q*, since whole tasks and the interval of few tasks count too"
                )
        return lines

    def _next_is_too_many(self) -> bool:
        enough = min(self.least_tasks, self._most(1))
        after = [q for q in self.candidates if q > self.n_query]
        return not after or self._most(after[0]) < enough


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
