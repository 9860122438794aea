"""The best number of queries: the variance of the mean against Eq. 7, and pilots against the truth.

Run ``python benchmarks/query_number.py``; it takes about three minutes. The study is that of
section 4 of Lafargue et al. 2024: 1,000 images of two classes, drawn from Gaussians at -1 and 1
with standard deviation 1, the nearest class centre as the classifier, and tasks without replacement
(two classes of equal size are simply cut into tasks). The truth is an integral over the positions
of the centres.

The first table compares the variance of the mean accuracy over ``REPLICATES`` data sets with K/(NC)
(alpha Q + beta/Q + gamma): R^2 of that curve with the true alpha and beta, and of the curve fitted
to the variances; Q* by the truth, by the fit, and at the lowest measured variance; and how far the
variance at one query is above the lowest.

The second is about single pilots. A pilot of T tasks with n queries per class has its own data set
of 1,000 images, which its tasks share; with ``new images``, every task has images of its own.
``unbiased`` is Q* by the moments, and ``cautious`` allows for failed tasks that the pilot may have
missed. For both there is the share within a factor of 1.5 of the truth, and the 90th percentile of
how much longer than the shortest the interval is at them. ``covers`` is the share of 95 % intervals
that contain the truth. Shares have a standard error of about 1 in 100.

The last rows are pilots of five ways at 5 shots, where no task fails: the accuracy on a class is
Phi(0.6 + c + t + e) with normal c of 20 given classes (standard deviation 0.4), t of the task
(0.25) and e of the class in the task (0.4); images are new for every task.

The third table is about what a plan promises for 20 classes of 60 images, from pilots of the same
five ways: how far the estimates of m1, alpha and beta are off on average, with the standard error
of that, and how often alpha is not positive; the number advised; the interval that the plan
promises for it and the one that the tasks drawn by ``depleting`` have (means), how often that one
contains the accuracy, and how much longer it is than with the best number of queries; and how
often the smallest detectable difference of two methods on equal tasks is found, which the plan
promises for 80 %.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from _options import positive
from scipy.stats import norm, t

import fsframework as fsf
from fsf_statistics.planning import TaskSupply
from fsf_statistics.queries import QueryPlan
from fsf_statistics.query_bounds import bounds_of
from fsf_statistics.query_variance import PilotAnswers, QueryVariance
from fsf_statistics.study import StudyPlan, paired_pilot
from fsframework.values import ImagePool

CLASS_SIZE, REPLICATES, LEVEL = 500, 6000, 0.95
QUERIES = {
    1: (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40),
    5: (1, 2, 3, 4, 5, 7, 10, 13, 15, 17, 20, 24, 28, 33, 40, 45, 57, 66, 78),
    10: (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 52, 61, 73, 90, 115, 157),
    20: (1, 2, 3, 5, 7, 10, 15, 20, 30, 42, 51, 63, 80, 105, 146, 230, 480),
}
Floats = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Truth(NamedTuple):
    """alpha and noise of a query as in ``QueryVariance``, and the Q* and variance they give."""

    shot: int
    alpha: float
    within: float

    @property
    def best(self) -> float:
        """Q*."""
        return math.sqrt(self.shot * self.within / self.alpha)

    def variance(self, n_query: npt.ArrayLike) -> Floats:
        """Return Eq. 7 for the mean over all tasks, whose number need not be whole."""
        q = np.asarray(n_query, np.float64)
        return (self.shot + q) / CLASS_SIZE * (self.alpha + self.within / q)


def truth(shot: int) -> Truth:
    """Integrate over the midpoint of the two centres and over which of them is on the left."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    weights = weights / weights.sum()
    midpoint, crossed = nodes / math.sqrt(2 * shot), norm.cdf(-math.sqrt(2 * shot))
    right = np.stack([norm.cdf(1 + midpoint), norm.cdf(1 - midpoint)])

    def expected(straight: Floats, swapped: Floats) -> float:
        return float(((1 - crossed) * straight + crossed * swapped) @ weights)

    mean = expected(right.mean(axis=0), 1 - right.mean(axis=0))
    square = expected(right.mean(axis=0) ** 2, (1 - right.mean(axis=0)) ** 2)
    m2 = expected((right**2).mean(axis=0), ((1 - right) ** 2).mean(axis=0))
    return Truth(shot, square - mean**2, (mean - m2) / 2)


def accuracies(rng: np.random.Generator, n: int, shot: int, n_query: int) -> Floats:
    """Return the accuracies of n tasks that share no image."""
    means = np.array([-1.0, 1.0])[:, None]
    support = (rng.normal(size=(n, 2, shot)) + means).mean(axis=2)
    query = rng.normal(size=(n, 2, n_query)) + means
    return answers(support, query).mean(axis=(1, 2))


def answers(centres: Floats, query: Floats) -> Floats:
    """Return 1 for each query ``(n, 2, m)`` that is nearer to its own class's centre, else 0."""
    midpoint = centres.mean(axis=1)[:, None, None]
    straight = (centres[:, 1] > centres[:, 0])[:, None, None]
    above = query > midpoint
    above[:, 0] = ~above[:, 0]
    return (above == straight).astype(np.float64)


def measured(shot: int, n_query: int, rng: np.random.Generator) -> float:
    """Return the variance of the mean over the tasks of a data set, over many data sets."""
    n_tasks = CLASS_SIZE // (shot + n_query)
    means = []
    for _ in range(10):
        found = accuracies(rng, REPLICATES // 10 * n_tasks, shot, n_query)
        means.append(found.reshape(-1, n_tasks).mean(axis=1))
    return float(np.concatenate(means).var(ddof=1))


def agreement(values: Floats, curve: Floats) -> float:
    """Return R^2."""
    return float(1 - ((values - curve) ** 2).sum() / ((values - values.mean()) ** 2).sum())


def fitted(q: Floats, values: Floats) -> tuple[Floats, float]:
    """Return the curve of Eq. 7 fitted by least squares, and its Q*."""
    terms = np.stack([q, 1 / q, np.ones_like(q)], axis=1)
    found, *_ = np.linalg.lstsq(terms, values, rcond=None)
    best = math.sqrt(found[1] / found[0]) if found[0] > 0 < found[1] else math.inf
    return terms @ found, best


def pilot(
    rng: np.random.Generator, shot: int, n_tasks: int, n_query: int, new: bool
) -> PilotAnswers:
    """Return a pilot on a new data set, or with new images for every task."""
    shape = (n_tasks, 2, shot + n_query)
    own = np.arange(2)[:, None]
    if new:
        images = np.arange(math.prod(shape)).reshape(shape)
        values = rng.normal(size=shape) + 2 * own - 1
    else:
        drawn = rng.random((n_tasks, 2, CLASS_SIZE))
        order = np.argsort(drawn, axis=2)[:, :, : shot + n_query]
        images = order + CLASS_SIZE * own
        values = (rng.normal(size=(2, CLASS_SIZE)) + 2 * own - 1).ravel()[images]
    right = answers(values[:, :, :shot].mean(axis=2), values[:, :, shot:])
    classes = np.tile(np.arange(2), (n_tasks, 1))
    return PilotAnswers(right, classes, images[:, :, :shot], images[:, :, shot:])


class FiveWays:
    """Tasks of five of twenty classes of different difficulty."""

    def __init__(self) -> None:
        self._difficulty = 0.4 * np.random.default_rng(5).normal(size=20)
        accuracy, _ = self.draw(400_000, np.random.default_rng(6))
        within = float((accuracy * (1 - accuracy)).mean()) / 5
        self.truth = Truth(5, float(accuracy.mean(axis=1).var()), within)
        self.mean = float(accuracy.mean())

    def draw(
        self, n_tasks: int, rng: np.random.Generator, classes: IntArray | None = None
    ) -> tuple[Floats, IntArray]:
        """Return the accuracies of the classes of tasks, and which classes they are."""
        if classes is None:
            classes = np.argsort(rng.random((n_tasks, 20)), axis=1)[:, :5]
        shift = 0.25 * rng.normal(size=(n_tasks, 1)) + 0.4 * rng.normal(size=(n_tasks, 5))
        return np.asarray(norm.cdf(0.6 + self._difficulty[classes] + shift)), classes

    def pilot(self, n_tasks: int, n_query: int, rng: np.random.Generator) -> PilotAnswers:
        """Return a pilot with new images for every task."""
        accuracy, classes = self.draw(n_tasks, rng)
        return self.answered(accuracy, classes, n_query, rng)

    def answered(
        self, accuracy: Floats, classes: IntArray, n_query: int, rng: np.random.Generator
    ) -> PilotAnswers:
        """Return the answers to queries of tasks with these accuracies."""
        n_tasks = len(classes)
        right = rng.random((n_tasks, 5, n_query)) < accuracy[:, :, None]
        images = np.arange(n_tasks * 5 * (5 + n_query)).reshape(n_tasks, 5, 5 + n_query)
        return PilotAnswers(right.astype(float), classes, images[:, :, :5], images[:, :, 5:])

    def beside(self, accuracy: Floats, rng: np.random.Generator) -> Floats:
        """Return the accuracies of another method on the same tasks, on average equal ones."""
        own = norm.ppf(accuracy) - 0.6
        shift = rng.normal(size=accuracy.shape)
        return np.asarray(norm.cdf(0.6 + 0.8 * own + 0.25 * shift))


class Promises:
    """What plans for 20 classes of 60 images promise, and what the tasks give."""

    def __init__(self, five: FiveWays) -> None:
        self._five, self._drawn = five, dict[tuple[int, int], IntArray]()
        keys = tuple(f"{image:04}" for image in range(20 * 60))
        names = tuple(f"class {number:02}" for number in range(20))
        self._pool = ImagePool(keys, np.repeat(np.arange(20), 60), names)
        self._supply = TaskSupply((60,) * 20, 5, 5)
        both = five.draw(400_000, np.random.default_rng(8))[0]
        other = five.beside(both, np.random.default_rng(9))
        self._bias = float(both.mean() - other.mean())

    def _classes(self, n_query: int, seed: int) -> IntArray:
        """Return the classes of tasks without replacement."""
        key = n_query, seed % 20
        if key not in self._drawn:
            arms = fsf.draw(
                "depleting", self._pool, tasks="all", seed=key[1], way=5, shot=5, queries=n_query
            )
            [tasks] = arms.values()
            self._drawn[key] = tasks.classes
        return self._drawn[key]

    def _tasks(self, n_query: int, seed: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Return the accuracies of both methods on tasks without replacement."""
        classes = self._classes(n_query, seed)
        first, _ = self._five.draw(len(classes), rng, classes)
        second = self._five.beside(first, rng)
        return tuple(rng.binomial(n_query, own).mean(axis=1) / n_query for own in (first, second))

    def row(self, n_tasks: int, n_query: int, n_pilots: int) -> tuple[str, ...]:
        """Return a row on so many pilots."""
        rng = np.random.default_rng([n_tasks, n_query, 3])
        five, of = self._five, self._five.truth
        found, sums = [], np.zeros(5)
        for seed in range(n_pilots):
            accuracy, classes = five.draw(n_tasks, rng)
            first = five.answered(accuracy, classes, n_query, rng)
            second = five.answered(five.beside(accuracy, rng), classes, n_query, rng)
            spread = QueryVariance.of(first)
            found.append((spread.mean, spread.alpha, spread.within))
            plan = StudyPlan(
                QueryPlan(self._supply, bounds_of(first, spread, LEVEL)),
                bounds_of(first, spread, LEVEL),
                bounds_of(second, QueryVariance.of(second), LEVEL),
            )
            best = plan.queries.n_query
            paired = paired_pilot(first, second)
            differences = bounds_of(paired, QueryVariance.of(paired), LEVEL)
            both = StudyPlan(QueryPlan(self._supply, differences), plan.pilot, plan.other)
            own, other = self._tasks(best, seed, rng)
            half = _half_width(own)
            difference = own - other - self._bias + both.row(best).paired
            sums += (
                best,
                plan.row(best).half_width,
                half,
                abs(own.mean() - five.mean) <= half,
                abs(difference.mean()) > _half_width(difference),
            )
        best, promised, given, covers, power = sums / n_pilots
        true = five.mean, of.alpha, of.within
        estimates = np.array(found)
        off = 100 * (estimates.mean(axis=0) / true - 1)
        error = 100 * estimates.std(axis=0, ddof=1) / true / math.sqrt(n_pilots)
        cells = [f"{o:+.1f} ± {e:.1f}" for o, e in zip(off, error, strict=True)]
        return (
            *cells,
            f"{100 * (estimates[:, 1] <= 0).mean():.0f} %",
            f"{best:.1f}",
            f"{100 * promised:.2f}",
            f"{100 * given:.2f}",
            f"{100 * covers:.1f} %",
            f"{100 * (given / self._shortest() - 1):+.1f} %",
            f"{100 * power:.0f} %",
        )

    def _shortest(self) -> float:
        """Return the expected half-width with the best number of queries."""
        of, found = self._five.truth, []
        for n_query in self._supply.leaving(10):
            n_tasks = self._supply.most_tasks(n_query)
            variance = (of.alpha + of.within / n_query) / n_tasks
            found.append(t.ppf((1 + LEVEL) / 2, n_tasks - 1) * math.sqrt(variance))
        return min(found)


def _half_width(values: Floats) -> float:
    """Return the half-width of Student's interval of the mean."""
    quantile = t.ppf((1 + LEVEL) / 2, len(values) - 1)
    return float(quantile * values.std(ddof=1) / math.sqrt(len(values)))


def judged(of: Truth, make: Callable[[], PilotAnswers], n_pilots: int) -> tuple[str, ...]:
    """Return a row on so many pilots."""
    pilots = [make() for _ in range(n_pilots)]
    spreads = [QueryVariance.of(pilot) for pilot in pilots]
    cells = []
    for name in ("best", "cautious"):
        found = np.array([getattr(s, name) for s in spreads])
        near = np.abs(np.log(found / of.best)) <= math.log(1.5)
        # An unbounded number is the largest there is.
        taken = np.clip(found, 1, CLASS_SIZE - of.shot)
        longer = np.quantile(of.variance(taken) / of.variance(of.best) - 1, 0.9)
        middle = float(np.median(found))
        cells += [f"{middle:.1f}", f"{100 * near.mean():.0f} %", f"{100 * longer:.1f} %"]
    bounds = [bounds_of(p, s, LEVEL) for p, s in zip(pilots, spreads, strict=True)]
    covers = np.mean([b.low <= of.best <= b.high for b in bounds])
    low, high = (float(np.median([getattr(b, n) for b in bounds])) for n in ("low", "high"))
    return (*cells, f"{100 * covers:.1f} %", f"{low:.1f} to {high:.1f}")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--pilots",
        type=positive,
        default=600,
        metavar="N",
        help="pilots per row (default: 600); a third and a sixth for those of many tasks",
    )
    options = parser.parse_args()
    print(f"Var(mean accuracy) over {REPLICATES:,} data sets of 1,000 images")
    print(
        f"{'shots':>5} {'R2 truth':>9} {'R2 fit':>7} {'Q* true':>8} {'fitted':>7} "
        f"{'measured':>8} {'at Q = 1':>9}"
    )
    for shot, numbers in QUERIES.items():
        of, q = truth(shot), np.array(numbers, np.float64)
        rng = np.random.default_rng(shot)
        values = np.array([measured(shot, n, rng) for n in numbers])
        curve, best = fitted(q, values)
        more = 100 * (values[0] / values.min() - 1)
        print(
            f"{shot:5} {agreement(values, of.variance(q)):9.4f} {agreement(values, curve):7.4f} "
            f"{of.best:8.2f} {best:7.2f} {numbers[int(values.argmin())]:8} {more:+8.1f} %",
            flush=True,
        )
    print()
    heads = ("unbiased", "in 1.5", "longer", "cautious", "in 1.5", "longer", "covers", "interval")
    print(f"{'shots':>5} {'true':>6} {'pilot':42}" + "".join(f"{h:>10}" for h in heads))
    for shot in (1, 5, 10):
        of = truth(shot)
        everything = CLASS_SIZE - shot
        for n_tasks, n_query, new, n_pilots in (
            (200, everything, False, options.pilots),
            (200, 15, False, options.pilots),
            (200, 15, True, options.pilots),
            (200, 100, True, options.pilots),
            (2000, 100, True, -(-options.pilots // 3)),
            (10000, 15, True, -(-options.pilots // 6)),
        ):
            rng = np.random.default_rng([shot, n_tasks, n_query, new])
            cells = judged(of, lambda: pilot(rng, shot, n_tasks, n_query, new), n_pilots)  # noqa: B023
            images = "new images" if new else "1,000 images"
            name = f"{n_tasks:,} tasks, {n_query} queries, {images}"
            show(shot, of, name, cells)
    five = FiveWays()
    for n_tasks, n_query in ((50, 15), (200, 15), (600, 15), (200, 100)):
        rng = np.random.default_rng([n_tasks, n_query])
        cells = judged(five.truth, lambda: five.pilot(n_tasks, n_query, rng), options.pilots)  # noqa: B023
        show(5, five.truth, f"five ways, {n_tasks:,} tasks, {n_query} queries", cells)
    print()
    heads = ("m1, %", "alpha, %", "beta, %", "<= 0", "advised", "promised", "given")
    print(f"{'pilot':24}" + "".join(f"{h:>14}" for h in (*heads, "covers", "longer", "power")))
    promises = Promises(five)
    for n_tasks, n_query in ((10, 5), (20, 15), (50, 5), (50, 15), (200, 15), (600, 15)):
        cells = promises.row(n_tasks, n_query, options.pilots)
        name = f"{n_tasks:,} tasks, {n_query} queries"
        print(f"{name:24}" + "".join(f"{cell:>14}" for cell in cells), flush=True)


def show(shot: int, of: Truth, name: str, cells: tuple[str, ...]) -> None:
    """Print a row on pilots."""
    row = "".join(f"{cell:>10}" for cell in cells[:-1])
    print(f"{shot:5} {of.best:6.1f} {name:42}{row}   {cells[-1]}", flush=True)


if __name__ == "__main__":
    main()
