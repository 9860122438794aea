"""Plan a study: how many tasks the data yield and which differences they can show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from fsf_statistics.queries import QueryPlan
from fsf_statistics.query_bounds import QueryBounds
from fsf_statistics.query_variance import PilotAnswers
from fsframework.errors import DataError, OptionError, argument

if TYPE_CHECKING:
    from fsf_reports.values import FigureDeclaration

__all__ = [
    "PlanRow",
    "StudyPlan",
    "detectable_difference",
    "paired_pilot",
    "parse_class_sizes",
    "tasks_needed",
]


def parse_class_sizes(text: str) -> tuple[int, ...]:
    """Read class sizes: numbers of images, or ``IMAGESxCLASSES``, separated by commas.

    Raises:
        OptionError: the text has another form.

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


def paired_pilot(first: PilotAnswers, second: PilotAnswers) -> PilotAnswers:
    """Return the differences of two pilots on equal tasks.

    Raises:
        DataError: the tasks differ.
    """
    equal = first.query.shape == second.query.shape and np.array_equal(first.query, second.query)
    if not equal or not np.array_equal(first.support, second.support):
        raise DataError("two pilots on different tasks cannot be paired")
    return PilotAnswers(
        first.values - second.values, first.classes, first.support, first.query, True
    )


def detectable_difference(
    variance: float, n_tasks: int, *, paired: bool, level: float = 0.95, power: float = 0.8
) -> float:
    """Return the smallest true difference of two means over tasks that a test detects.

    Args:
        variance: if paired, of the difference on a task; if unpaired, sum of both accuracies'.
        n_tasks: tasks per method, at least 2; fewer give NaN.
        paired: whether both methods have the same tasks.
        level: level of the interval that must not contain 0.
        power: probability of detecting it.

    >>> round(detectable_difference(0.02, 100, paired=False), 4)
    0.0398
    """
    if n_tasks < 2:
        return math.nan
    freedom = (1 if paired else 2) * (n_tasks - 1)
    quantiles = special.stdtrit(freedom, (1 + level) / 2) + special.stdtrit(freedom, power)
    return float(quantiles * math.sqrt(variance / n_tasks))


def tasks_needed(
    variance: float, difference: float, *, paired: bool, level: float = 0.95, power: float = 0.8
) -> int:
    """Return the smallest number of tasks per method that detects a difference; see above.

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
class PlanRow:
    """The plan for one number of queries per class; shares of 1, NaN if unknown.

    Args:
        n_query: queries per class.
        n_tasks: tasks that the data yield without replacement.
        left_over: images that are in no task.
        variance: predicted variance of the mean accuracy over these tasks.
        half_width: half-width of its interval.
        unpaired: smallest detectable difference of two methods on separate tasks.
        paired: the same on equal tasks.
        needed_unpaired: tasks per method that show the difference asked for; 0 if none was asked
            for or the variance is unknown.
        needed_paired: the same on equal tasks.
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
class StudyPlan:
    """What the tasks of a data set can show about one method, or the difference of two.

    Args:
        queries: the advised number of queries per class; with two methods, its pilot is for
            their differences.
        pilot: variance measured by the pilot of a method; ``None`` without a pilot.
        other: the same for a second method on the same tasks.
        correlation: correlation of two methods' accuracies on a task, instead of a second pilot.
        task_sd: standard deviation of a task's accuracy, share of 1, instead of any pilot.
        difference: the difference to detect, share of 1.
        power: power of tests.

    Raises:
        OptionError: an option is out of its range.
    """

    queries: QueryPlan
    pilot: QueryBounds | None = None
    other: QueryBounds | None = None
    correlation: float | None = None
    task_sd: float | None = None
    difference: float | None = None
    power: float = 0.8

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("power", self.power, 0, 1),
            ("correlation", self.correlation, -1, 1),
            ("difference", self.difference, 0, 1),
            ("task_sd", self.task_sd, 0, 1),
        ):
            if value is not None and not low < value < high:
                raise OptionError(
                    f"{argument(name)} must lie between {low} and {high}, not {value}"
                )

    @property
    def differences(self) -> QueryBounds | None:
        """The variance of the difference of two methods, from their pilots on the same tasks."""
        found = self.queries.pilot
        return found if found is not None and found.found.of_differences else None

    def row(self, n_query: int) -> PlanRow:
        """Return the plan for a number of queries per class."""
        n_tasks, level = self.queries.n_tasks(n_query), self.queries.level
        first = self._variance(self.pilot, n_query)
        second = first if self.other is None else self._variance(self.other, n_query)
        both, pair = first + second, math.nan
        if self.differences is not None:
            pair = self._variance(self.differences, n_query)
        elif self.correlation is not None:
            pair = both - 2 * self.correlation * math.sqrt(first * second)

        def least(variance: float, *, paired: bool) -> float:
            return detectable_difference(
                variance, n_tasks, paired=paired, level=level, power=self.power
            )

        def needed(variance: float, *, paired: bool) -> int:
            if self.difference is None or math.isnan(variance):
                return 0
            return tasks_needed(
                variance, self.difference, paired=paired, level=level, power=self.power
            )

        half = math.nan
        if n_tasks > 1:
            quantile = float(special.stdtrit(n_tasks - 1, (1 + level) / 2))
            half = quantile * math.sqrt(first / n_tasks)
        return PlanRow(
            n_query,
            n_tasks,
            self.queries.left_over(n_query, n_tasks),
            first / n_tasks if n_tasks else math.nan,
            half,
            least(both, paired=False),
            least(pair, paired=True),
            needed(both, paired=False),
            needed(pair, paired=True),
        )

    def _variance(self, measured: QueryBounds | None, n_query: int) -> float:
        if measured is not None:
            return float(measured.found.variance(n_query))
        return math.nan if self.task_sd is None else self.task_sd**2

    def rows(self) -> list[PlanRow]:
        """Return rows from few queries to many, including the advised number and Q*."""
        usual = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 75, 100, 200, 500, 1000)
        most, judged = max(self.queries.supply.candidates), self.queries.pilot
        shown = {q for q in usual if q <= most} | {self.queries.n_query}
        if judged is not None and judged.found.cautious <= most:
            shown.add(max(1, round(judged.found.cautious)))
        return [self.row(q) for q in sorted(shown)]

    @property
    def what(self) -> str:
        """What the plan is for: the accuracy of a method, or the difference of two."""
        return "difference" if self.differences is not None else "accuracy"

    def drawn(self) -> FigureDeclaration:
        """Declare the curve as a figure of ``fsf-reports``, in squared points.

        Raises:
            DataError: there is no pilot, so the variance is unknown.
        """
        from fsf_reports.values import FigureDeclaration, Panel, Point, Quantity, Series

        curve = self.curve()
        if not curve:
            raise DataError("without a pilot RUN the variance is unknown, and there is no curve")
        points = tuple(Point(float(q), Quantity(1e4 * var, unit="")) for q, var in curve)
        best = self.queries.n_query
        return FigureDeclaration(
            "Queries",
            f"Variance of the mean {self.what} over all tasks without replacement.",
            "queries per class",
            "variance of the mean (squared points)",
            (Panel("", (Series(f"mean {self.what}", points),)),),
            mark="lines",
            notes=(
                f"{best} queries per class give the shortest interval. The steps come from the "
                "number of tasks, which is whole.",
            ),
        )

    def curve(self, most: int | None = None) -> list[tuple[int, float]]:
        """Return queries per class and the predicted variance of the mean over all possible tasks.

        With two methods, the mean is that of their differences. Up to ``most`` queries, by default
        four times the advised number and at least 20.
        """
        if self.pilot is None:
            return []
        end = most or max(20, 4 * self.queries.n_query)
        numbers = [q for q in self.queries.supply.candidates if q <= end]
        judged = self.queries.pilot
        return [(q, self._variance(judged, q) / self.queries.supply.most_tasks(q)) for q in numbers]
