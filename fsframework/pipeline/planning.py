"""How many queries, how many tasks: what a pilot run says of the runs to come."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from scipy import stats

from fsframework.errors import DataError, InfeasibleTask, OptionError, RecordError
from fsframework.records import RunRecord
from fsframework.values import AccuracyOutcomes, FloatArray, IntArray, Outcomes, TaskSet

__all__ = [
    "Choose",
    "Pilot",
    "Plan",
    "Row",
    "Spread",
    "detectable_difference",
    "load_pilot",
    "most_tasks",
    "paired_pilot",
    "parse_class_sizes",
    "pilot_of",
    "queries_of_the_paper",
    "tasks_needed",
    "uniform_tasks",
]

Choose = Literal["uniform", "by-what-is-left"]

_MISSED = 0.5
"""Failed tasks that a pilot is taken to have missed: Jeffreys' prior of their share."""


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
        sure = int(left[able].min())
        picks = np.argsort(rng.random((sure, able.size)), axis=1)[:, :n_way]
        left[able] -= np.bincount(picks.ravel(), minlength=able.size)
        count += sure
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


# -- What a pilot tells ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pilot:
    """The queries of a pilot run, each with the image it is.

    Args:
        values: float64 ``(T, way, n_query)``: 1 for a right answer, 0 for a wrong one; of two
            methods on equal tasks, the differences of these.
        classes: int ``(T, way)``; ``support`` int ``(T, way, shot)`` and ``query`` int
            ``(T, way, n_query)``: images.
        paired: whether the values are differences.

    Raises:
        DataError: one task, or one query a class: the spread cannot be told from the noise.
    """

    values: FloatArray
    classes: IntArray
    support: IntArray
    query: IntArray
    paired: bool = False

    def __post_init__(self) -> None:
        n_tasks, _, n_query = self.values.shape
        if n_tasks < 3:
            raise DataError(
                f"a pilot needs at least 3 tasks, and this has {n_tasks}: how far tasks lie apart "
                "cannot be told from so few"
            )
        if n_query < 2:
            raise DataError(
                "a pilot needs at least 2 queries a class, and this has 1: how far the accuracies "
                "of tasks lie apart cannot be told from the noise of single queries"
            )

    @cached_property
    def accuracies(self) -> FloatArray:
        """Mean value of each task, float64 ``(T,)``."""
        return np.asarray(self.values.mean(axis=(1, 2)))


def pilot_of(tasks: TaskSet, outcomes: Outcomes) -> Pilot:
    """Return what tasks and their outcomes tell.

    Raises:
        DataError: the outcomes are of other tasks, hold no answers of single queries, or are too
            few.
    """
    if tasks.digest != outcomes.task_digest:
        raise DataError("the outcomes of the pilot belong to other tasks")
    ways = np.arange(outcomes.n_way)[None, :, None]
    right = (outcomes.predictions == ways).astype(np.float64)
    return Pilot(right, tasks.classes, tasks.support, tasks.query)


def load_pilot(folder: Path, kind: str = "") -> tuple[Pilot, TaskSet, RunRecord]:
    """Read a finished run as a pilot.

    Args:
        folder: of the run.
        kind: ``R`` for its random tasks, ``A`` for its attribute-biased ones; by default the
            first of them that it has.

    Raises:
        DataError: it tells of no single answers, or of too few.
        RecordError: it is no run, or not finished.
    """
    record = RunRecord.load(folder)
    there = [k for k in ("R", "A") if (folder / f"outcomes-{k}.parquet").exists()]
    if kind and there and kind not in there:
        raise RecordError(f"{folder}: has no {kind} tasks, only {', '.join(there)}")
    if not there:
        raise RecordError(f"{folder}: is not finished; give the command that made it again")
    name = kind or there[0]
    outcomes = Outcomes.load(folder / f"outcomes-{name}.parquet")
    if isinstance(outcomes, AccuracyOutcomes):
        raise DataError(
            f"{folder}: holds accuracies of whole tasks made elsewhere, and a plan needs the "
            "counts of right answers of each class: how far tasks lie apart cannot be told from "
            "the noise of their queries otherwise; without RUN, --task-sd and --correlation take "
            "what you know of them"
        )
    tasks = TaskSet.load(folder / f"tasks-{name}.safetensors")
    try:
        return pilot_of(tasks, outcomes), tasks, record
    except DataError as error:
        raise DataError(f"{folder}: {error}") from None


def paired_pilot(first: Pilot, second: Pilot) -> Pilot:
    """Return the differences of two pilots on equal tasks.

    Raises:
        DataError: the tasks differ.
    """
    equal = first.query.shape == second.query.shape and np.array_equal(first.query, second.query)
    if not equal or not np.array_equal(first.support, second.support):
        raise DataError("two pilots on different tasks cannot be paired")
    return Pilot(first.values - second.values, first.classes, first.support, first.query, True)


@dataclass(frozen=True)
class Spread:
    """How far accuracies of tasks lie apart: Var(A_t) = alpha + within / Q for Q queries a class.

    With mu_c the accuracy on class c at fixed support, m1 = E[mu], m2 = E[mu^2] and
    m3 = (1/K^2) sum_{c != c'} E[mu_c mu_c']: alpha = m2/K + m3 - m1^2 is the variance between
    tasks were Q unbounded, and within = (m1 - m2)/K the noise of a single query a class, so that
    beta = shot * within, Q* = sqrt(beta/alpha) and, in a data set of C classes of N images,
    Var(mean) = K/(NC) (alpha Q + beta/Q + beta/shot + shot alpha).

    Source: Lafargue et al. 2024, Eq. 7 and appendix A, where they hold that these moments cannot
    easily be estimated: from counts of right queries they can, without bias.

    Args:
        n_way: classes a task; ``n_shot``: support images a class; ``n_tasks``: of the pilot.
        mean: m1; ``alpha`` and ``within`` as above, estimated without bias, so that ``alpha`` may
            come out negative.
        alpha_low: lower bound of ``alpha``, 0 at the least; ``alpha_high`` upper bound.
        level: of the two bounds together.
        unseen: what failed tasks that the pilot may have missed would add to ``alpha``, 0 for
            differences.
    """

    n_way: int
    n_shot: int
    n_tasks: int
    mean: float
    alpha: float
    within: float
    alpha_low: float
    alpha_high: float
    level: float
    unseen: float

    @property
    def m2(self) -> float:
        """E[mu^2]; of differences, m1 - K within."""
        return self.mean - self.n_way * self.within

    @property
    def m3(self) -> float:
        """(1/K^2) sum_{c != c'} E[mu_c mu_c'], for m1^2 the square of the mean."""
        return self.alpha + self.mean**2 - self.m2 / self.n_way

    @property
    def beta(self) -> float:
        """Shot times ``within``: what each further query takes from the variance of the mean."""
        return self.n_shot * self.within

    @property
    def best(self) -> float:
        """Q* = sqrt(beta/alpha), infinite where alpha is not positive."""
        return _ratio(self.beta, self.alpha)

    @property
    def best_low(self) -> float:
        """Lower bound of Q*."""
        return _ratio(self.beta, self.alpha_high)

    @property
    def best_high(self) -> float:
        """Upper bound of Q*, infinite where alpha may be 0."""
        return _ratio(self.beta, self.alpha_low)

    @property
    def cautious(self) -> float:
        """Q* were ``unseen`` a part of alpha: the number that is best on the average.

        Tasks that fail are rare and weigh much. Of two one-dimensional Gaussians at 5 shots, in one
        task of 1,200 the classes change places, and such tasks make up three fifths of alpha. A
        pilot that has none does not prove that there are none. A failed task is taken to be one
        in which two classes cannot be told apart, which costs it (m1 - 1/K) / (K - 1), and the
        pilot to have missed half a one: the mean of their share under Jeffreys' prior.
        """
        return _ratio(self.beta, max(self.alpha, 0.0) + self.unseen)

    def variance(self, n_query: float | FloatArray) -> FloatArray:
        """Return the variance of a task's accuracy at so many queries a class, ``unseen`` in it."""
        return np.asarray(
            max(self.alpha, 0.0) + self.unseen + self.within / np.asarray(n_query, np.float64)
        )

    @classmethod
    def of(cls, pilot: Pilot, level: float = 0.95) -> Spread:
        """Estimate the spread of a pilot.

        alpha is the mean over tasks of what estimates E[A_t]^2 at fixed support without bias, less
        the mean over pairs of tasks of the products of their accuracies. Where two tasks were
        asked the same image, its product with itself is left out, so that tasks may share their
        queries: a pilot may ask all images that are not in its support.

        The bounds: the error of alpha/beta is that of a jackknife over tasks, with what images
        add that stand in several tasks as query or support (a sandwich clustered in several ways:
        Cameron, Gelbach & Miller 2011). It is laid on the variance of the accuracies as they were
        measured, on a log scale, and their noise then taken off; the upper bound allows besides
        for tasks that the pilot has missed in which two classes change places, by the upper
        quantile of their share under Jeffreys' prior: these are few and decide much (see
        ``cautious``), and without it a short pilot's interval misses the truth.

        Caveats: the images are taken for draws from the distribution, the classes as given. Where
        tasks share support images they are more alike than tasks of other data would be, which
        takes about a share of 2 shot / N from alpha in classes of N images.

        Raises:
            DataError: every answer is the same, so that there is no spread to speak of.
        """
        found = _Sums(pilot)
        n_tasks, n_way = pilot.classes.shape
        alpha, within = found.alpha, found.within
        mean = float(pilot.accuracies.mean())
        if within <= 0:
            raise DataError(
                "every query of every task of the pilot was answered alike, so that there is no "
                "spread to plan by"
            )
        error = math.sqrt(found.variance_of_ratio())
        ratio = alpha / within
        measured = max(float(pilot.accuracies.var(ddof=1)) / within, ratio, 1e-12)
        noise = measured - ratio
        wide = float(stats.t.ppf((1 + level) / 2, n_tasks - 1)) * error / measured
        low = measured * math.exp(-wide) - noise
        high = measured * math.exp(min(wide, 50.0)) - noise
        # Of a task in which two classes cannot be told apart; twice that where they change places.
        fall = 0.0 if pilot.paired else max(0.0, mean - 1 / n_way) / (n_way - 1)
        missed = float(stats.beta.ppf((1 + level) / 2, _MISSED, n_tasks + _MISSED))
        return cls(
            n_way,
            pilot.support.shape[2],
            n_tasks,
            mean,
            alpha,
            within,
            max(0.0, low * within),
            max(0.0, high * within) + missed * (2 * fall) ** 2,
            level,
            _MISSED / (n_tasks + 1) * fall**2,
        )


def _ratio(beta: float, alpha: float) -> float:
    return math.sqrt(beta / alpha) if alpha > 0 else math.inf


class _Sums:
    """Sums over the tasks of a pilot, with the part that each task and each query has in them.

    Products of different tasks' accuracies hold products of single answers; those of an image with
    itself are taken out class by class: of the products of a class with itself, the mean is taken
    over pairs of different images.
    """

    def __init__(self, pilot: Pilot) -> None:
        self._pilot, y = pilot, pilot.values
        n_tasks, n_way, n = y.shape
        self._total = y.sum(axis=2)
        squares = (y * y).sum(axis=2)
        self._pairs = (self._total**2 - squares) / (n * (n - 1))
        self._mean_square = squares / n
        self._noise = self._mean_square - self._pairs
        self._mean = self._total.mean(axis=1) / n
        self._square = self._mean**2 - self._noise.sum(axis=1) / (n * n_way**2)
        ids, labels = pilot.query.ravel(), pilot.classes.ravel()
        sums, counts = np.bincount(ids, y.ravel()), np.bincount(ids)
        # Of each answer: the sum of the other answers to its image, and their number.
        self._others, self._n_others = sums[pilot.query] - y, counts[pilot.query] - 1.0
        self._class_total, times = np.bincount(labels, self._total.ravel()), np.bincount(labels)
        self._rest = self._class_total[pilot.classes] - self._total
        self._n_rest = n * (times[pilot.classes] - 1.0)
        # Of each class of each task, sums over its pairs of answers with other tasks: of products
        # and their number, then the same of pairs of an image with itself.
        self._rows: FloatArray = np.stack(
            [
                self._total * self._rest,
                n * self._n_rest,
                (y * self._others).sum(axis=2),
                self._n_others.sum(axis=2),
            ]
        )
        self._classes: FloatArray = np.stack(
            [np.bincount(labels, row.ravel()) for row in self._rows]
        ).astype(np.float64)
        excess = float(_excess(self._classes).sum()) / (n * n_way) ** 2
        sum_of_means = float(self._mean.sum())
        self._products = self._mean * (sum_of_means - self._mean)
        cross = (float(self._products.sum()) - excess) / (n_tasks * (n_tasks - 1))
        self.alpha = float(self._square.mean()) - cross
        self.within = float(self._noise.mean()) / n_way
        self._excess = excess

    def variance_of_ratio(self) -> float:
        """Return the variance of the estimate of alpha / within."""
        pilot = self._pilot
        n_tasks = len(pilot.values)
        parts = self._without_each_task()
        parts = (n_tasks - 1) / n_tasks * (parts.mean() - parts)
        by_task = float((parts**2).sum()) * n_tasks / (n_tasks - 1)
        # An image asked in one task only is in that task's part already.
        ids = pilot.query.ravel()
        images = np.bincount(ids, self._part_of_each_answer().ravel())
        shared = 1 - 1 / np.maximum(np.bincount(ids), 1)
        by_query = float((shared * images**2).sum())
        taken = pilot.support[0].size
        supports = np.bincount(pilot.support.ravel(), np.repeat(parts, taken))
        by_support = float((supports**2).sum() - taken * (parts**2).sum())
        return by_task + by_query + max(0.0, by_support)  # products of pairs: may be below 0

    def _without_each_task(self) -> FloatArray:
        """Return alpha / within of all tasks but one, float64 ``(T,)``."""
        n_tasks, n_way, n = self._pilot.values.shape
        of_class = self._classes[:, self._pilot.classes]
        change = (_excess(of_class - 2 * self._rows) - _excess(of_class)).sum(axis=1)
        excess = self._excess + change / (n * n_way) ** 2
        cross = self._products.sum() - 2 * self._products - excess
        square = (self._square.sum() - self._square) / (n_tasks - 1)
        noise = self._noise.mean(axis=1)
        within = (noise.sum() - noise) / (n_tasks - 1) / n_way
        alpha = square - cross / ((n_tasks - 1) * (n_tasks - 2))
        return np.asarray(alpha / np.maximum(within, 1e-12))

    def _part_of_each_answer(self) -> FloatArray:
        """Return what alpha / within changes by with the weight of an answer, as the values."""
        y = self._pilot.values
        n_tasks, n_way, n = y.shape
        total, pairs = self._total[..., None], self._pairs[..., None]
        away = (y - total / n) / n
        d_pairs = 2 * y * (total - y) / (n * (n - 1)) - 2 * pairs / n
        d_noise = (y * y - self._mean_square[..., None]) / n - d_pairs
        means = self._mean[:, None, None]
        d_square = 2 * means * away / n_way - (2 * total / n * away - d_pairs) / n_way**2
        products, n_products, same, n_same = self._classes[:, self._pilot.classes][..., None]
        different = np.maximum(n_products - n_same, 1.0)
        d_mean = (2 * self._rest[..., None] * y - 2 * y * self._others) / different
        d_number = 2 * self._n_rest[..., None] - 2 * self._n_others
        d_mean -= (products - same) / different**2 * d_number
        d_excess = 2 * self._rest[..., None] / n * away - n_products / n**2 * d_mean
        d_cross = 2 * (means.sum() - means) * away / n_way - d_excess / n_way**2
        d_alpha = d_square / n_tasks - d_cross / (n_tasks * (n_tasks - 1))
        d_within = d_noise / (n_tasks * n_way**2)
        return np.asarray((d_alpha - self.alpha / self.within * d_within) / self.within)


def _excess(sums: FloatArray) -> FloatArray:
    """Return by how much sums of products differ from those over pairs of different images."""
    products, n_products, same, n_same = sums
    different = n_products - n_same
    with np.errstate(divide="ignore", invalid="ignore"):
        clean = (products - same) / different * n_products
    return np.asarray(np.where(different > 0, products - clean, 0.0))


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

    def advice(self) -> list[str]:
        """Return in sentences what to do and how sure that is."""
        row, judged = self.row(self.n_query), self._judged
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
        lines.append(
            f"{row.n_tasks:,} {self.n_way}-way {self.n_shot}-shot tasks of "
            f"{_queries(self.n_query)} a class without replacement; {row.left_over:,} of "
            f"{sum(self.class_sizes):,} images left over"
        )
        most = self._most(self.n_query)
        if self.choose == "uniform" and most > row.n_tasks:
            lines.append(f"{most:,} tasks with sampler.choose=by-what-is-left")
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
