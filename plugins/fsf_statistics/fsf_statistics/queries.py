"""The number of queries per class to take from a data set, from a pilot run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

import fsframework as fsf
from fsf_statistics.planning import LEAST_TASKS, TaskSupply, best_queries
from fsf_statistics.query_bounds import QueryBounds, bounds_of
from fsf_statistics.query_variance import PilotAnswers, QueryVariance, pilot_of
from fsframework.errors import DataError, OptionError, argument
from fsframework.values import IntArray, TaskSet

__all__ = [
    "Advice",
    "Choose",
    "QueryPlan",
    "pilot_of_run",
    "plan_queries",
    "queries_of_the_paper",
    "uniform_tasks",
]

Choose = Literal["uniform", "by-what-is-left"]

_TASKS_AT_LEAST, _TASKS_AT_ONCE = 16, 1 << 18


def uniform_tasks(class_sizes: IntArray, n_way: int, n_images: int, seed: int = 0) -> int:
    """Return how many tasks one draw of ``depleting`` yields if classes are picked uniformly.

    The number varies between draws by a few tasks.

    Args:
        class_sizes: images of each class.
        n_way: classes per task.
        n_images: images that a task takes from each of its classes, shots and queries together.
        seed: of the draw.

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
        supply: the tasks that the data yield.
        pilot: variances of a method, or of the difference of two; ``None`` without a pilot.
        choose: how the sampler ``depleting`` picks classes.
        level: of intervals.
        least_tasks: fewer tasks are not advised, if the data yield this many.

    Raises:
        OptionError: an option is out of its range.
    """

    supply: TaskSupply
    pilot: QueryBounds | None = None
    choose: Choose = "uniform"
    level: float = 0.95
    least_tasks: int = LEAST_TASKS

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise OptionError(f"{argument('level')} must lie between 0 and 1, not {self.level}")
        if self.choose not in get_args(Choose):
            known = ", ".join(get_args(Choose))
            raise OptionError(f"{argument('choose')} must be one of {known}, not {self.choose!r}")
        if self.least_tasks < 2:
            raise OptionError(
                f"{argument('least_tasks')} must be at least 2, not {self.least_tasks}"
            )

    @cached_property
    def n_query(self) -> int:
        """The advised number of queries; without a pilot, the paper's number for the shots."""
        if self.pilot is not None:
            return best_queries(self.supply, self.pilot.found, self.level, self.least_tasks)
        wanted = queries_of_the_paper(self.supply.n_shot)
        return min(self.supply.leaving(self.least_tasks), key=lambda q: abs(q - wanted))

    def n_tasks(self, n_query: int) -> int:
        """Return how many tasks with ``n_query`` queries per class the sampler draws."""
        supply = self.supply
        if self.choose == "by-what-is-left":
            return supply.most_tasks(n_query)
        return uniform_tasks(np.array(supply.class_sizes), supply.n_way, supply.n_shot + n_query)

    def left_over(self, n_query: int, n_tasks: int) -> int:
        """Return how many images are in none of ``n_tasks`` tasks."""
        supply = self.supply
        return sum(supply.class_sizes) - n_tasks * supply.n_way * (supply.n_shot + n_query)

    @property
    def arguments(self) -> dict[str, Any]:
        """The tasks of the plan as arguments of ``fsframework.run``."""
        choose = {} if self.choose == "uniform" else {"choose": self.choose}
        return {
            "sampler": {"name": "depleting", **choose},
            "way": self.supply.n_way,
            "shot": self.supply.n_shot,
            "queries": self.n_query,
            "tasks": "all",
        }

    @property
    def command(self) -> str:
        """The same as options of ``fsf run``."""
        shape = f"--way {self.supply.n_way} --shot {self.supply.n_shot} --queries {self.n_query}"
        choose = "" if self.choose == "uniform" else f" -o sampler.choose={self.choose}"
        return f"--sampler depleting {shape} --tasks all{choose}"

    def advice(self) -> list[Advice]:
        """Return sentences on what to do and how certain that is."""
        supply = self.supply
        n_tasks, most = self.n_tasks(self.n_query), supply.most_tasks(self.n_query)
        tasks = (
            f"{n_tasks:,} {supply.n_way}-way {supply.n_shot}-shot tasks of "
            f"{_queries(self.n_query)} per class without replacement; "
            f"{self.left_over(self.n_query, n_tasks):,} of {sum(supply.class_sizes):,} images "
            "left over"
        )
        found = [Advice("queries", sentence) for sentence in self._advice_on_queries()]
        found.append(Advice("tasks", tasks))
        if self.choose == "uniform" and most > n_tasks:
            more = f"{most:,} tasks with sampler.choose=by-what-is-left"
            found.append(Advice("sampler", more))
        return found

    def _advice_on_queries(self) -> list[str]:
        if self.pilot is None:
            return [
                f"{_queries(self.n_query)} per class, as the paper found best at "
                f"{self.supply.n_shot} shots with CLIP on nine data sets; a pilot run would give "
                "the number for this method and these data"
            ]
        judged, found = self.pilot, self.pilot.found
        what = "differences between the two methods" if found.of_differences else "accuracy"
        lines = [
            f"Q* = {_number(found.best)} queries per class for {what}, "
            f"{100 * judged.level:g} % interval {_number(judged.low)} to "
            f"{_number(judged.high)}, from {found.n_tasks:,} tasks"
        ]
        if found.alpha <= 0:
            lines.append(
                "the pilot's tasks differ by no more than the noise of their queries: judged "
                "by them, Q* is unbounded, the more queries the better"
            )
        if found.unseen > 0 and found.cautious < 0.8 * found.best:
            lines.append(
                f"allowing for tasks that confuse two classes, which such a "
                f"short pilot may have missed, Q* = {_number(found.cautious)}"
            )
        lines.append(
            f"advised: {_queries(self.n_query)} per class, the shortest interval that these "
            "data give"
        )
        enough = min(self.least_tasks, self.supply.most_tasks(1))
        if self.supply.most_tasks(self.n_query) == enough or found.cautious > 1.5 * self.n_query:
            lines.append(
                f"more queries would leave fewer than {enough} tasks: {self.n_query} is the "
                "largest number advised"
                if self.n_query == max(self.supply.leaving(self.least_tasks))
                else "fewer than Q*, because tasks are whole, and few tasks give wide intervals"
            )
        return lines


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


def pilot_of_run(run: fsf.Run, arm: str | None = None) -> tuple[PilotAnswers, TaskSet]:
    """Return the answers of a run's arm and its tasks; by default those of the control arm.

    Raises:
        DataError: the run holds accuracies of whole tasks, or too few answers.
        OptionError: it has no such arm.
    """
    arms = list(run.record.arms)
    if arm is not None and arm not in arms:
        raise OptionError(f"{run.folder}: has no arm {arm!r}, only {', '.join(arms)}")
    if run.record.imported is not None:
        raise DataError(
            f"{run.folder}: holds accuracies of whole tasks measured elsewhere, and a plan needs "
            "the counts of correct answers per class, to separate the spread of tasks from the "
            "noise of their queries; without a run, give --task-sd and --correlation"
        )
    # The first arm is the control, if any is.
    tasks, outcomes = run.tasks[arm or arms[0]], run.outcomes[arm or arms[0]]
    try:
        return pilot_of(tasks, outcomes), tasks
    except DataError as error:
        raise DataError(f"{run.folder}: {error}") from None


def plan_queries(
    pilot: fsf.Run | str | Path,
    class_sizes: Sequence[int] = (),
    *,
    arm: str | None = None,
    choose: Choose = "uniform",
    level: float = 0.95,
    least_tasks: int = LEAST_TASKS,
    runs_dir: str | Path | None = None,
) -> QueryPlan:
    """Return the best number of queries per class for tasks without replacement.

    More queries per class measure a task better but leave fewer tasks. The pilot is any run of the
    method on such data with the same ways and shots; random tasks with many queries are best.

    Args:
        pilot: a run, or its folder or name.
        class_sizes: images of each class of the data to plan for; by default those of the pilot.
        arm: of the pilot whose tasks are used; by default the control.
        choose: how the sampler ``depleting`` picks classes.
        level: of intervals, 0 < level < 1.
        least_tasks: advise no number of queries that leaves fewer tasks.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.

    Returns:
        The plan, with ``n_query`` and, for ``fsframework.run``, ``arguments``.

    Raises:
        DataError: the pilot has too few answers.
        InfeasibleTask: the data do not yield two tasks.
        OptionError: an option is out of range.
        RecordError: the run does not exist.

    Source: Lafargue et al. 2024, Eq. 7.
    """
    run = pilot if isinstance(pilot, fsf.Run) else fsf.load_run(pilot, runs_dir)
    answers, tasks = pilot_of_run(run, arm)
    sizes = tuple(class_sizes) or run.record.arms[arm or tasks.arm].class_sizes
    supply = TaskSupply(tuple(int(n) for n in sizes), tasks.n_way, tasks.n_shot)
    judged = bounds_of(answers, QueryVariance.of(answers), level)
    return QueryPlan(supply, judged, choose, level, least_tasks)
