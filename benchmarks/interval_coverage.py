"""How often intervals contain the true accuracy, in simulation.

Run ``python benchmarks/interval_coverage.py``; it takes about forty minutes. Options choose part of
it: ``--world query --accuracy mid --tasks 100 600 --replicates 500``.

There are two worlds. In ``support``, the images of a class are normally distributed around its
centre in eight dimensions, and the method takes the nearest class mean of the support. In
``query``, an image is classified correctly or not, whatever the support is. The truth is the
accuracy on images that never occur twice. Each replicate draws a new data set and evaluates 5-way
tasks with ``--shot`` images and ``--queries`` queries per class: random tasks, which share images,
on 20 classes of 50 images (``unbalanced``: of 30 to 100), and depleting tasks on a data set that is
large enough for them. The columns are the share of replicates whose interval contains the truth,
and the mean half-width of the intervals in points. ``closed`` is Student's interval over tasks that
share images, read as if it were about more than the data set.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from _options import positive

from fsf_samplers import DepletingSampler, RandomSampler
from fsf_statistics import mean_interval
from fsf_statistics.image_intervals import answers_of, interval_over
from fsframework.statistics.differences import ComparisonOptions
from fsframework.statistics.estimators import IntervalChoice
from fsframework.values import FloatArray, ImagePool, IntArray, Outcomes, TaskSet

WAY, N_CLASSES, SIZE, DIMENSIONS = 5, 20, 50, 8
TASK_SETS, TRUTH_TASKS = 40, 400_000
SPREADS = {"mid": 1.9, "high": 0.62}
"""Standard deviation of the images around their class's centre: accuracies of 47 and 95 %."""
SHARES = {"mid": (0.3, 0.7), "high": (0.9, 0.99)}
"""Share of correct images of the hardest and the easiest class, where only the query counts."""


class World(Protocol):
    """Where images come from, and what a method answers."""

    def images(self, labels: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw images of these classes, ``(*labels.shape, d)``."""

    def answers(self, support: FloatArray, query: FloatArray) -> IntArray:
        """Return the answered ways, ``(T, way, n_query)``."""


@dataclass(frozen=True)
class SupportWorld:
    """Features around the centres of classes, and the nearest class mean of the support."""

    centres: FloatArray
    spread: float

    def images(self, labels: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw features."""
        noise = rng.standard_normal((*labels.shape, DIMENSIONS), dtype=np.float32)
        drawn: FloatArray = self.centres[labels] + self.spread * noise
        return drawn

    def answers(self, support: FloatArray, query: FloatArray) -> IntArray:
        """Return the way of the nearest class mean."""
        means = support.mean(axis=2)
        flat = query.reshape(len(query), -1, DIMENSIONS)
        scores = flat @ means.transpose(0, 2, 1) - (means**2).sum(axis=2)[:, None] / 2
        found: IntArray = scores.argmax(axis=2).reshape(query.shape[:3])
        return found


@dataclass(frozen=True)
class QueryWorld:
    """Images that are classified correctly or not, whatever the support is."""

    shares: FloatArray

    def images(self, labels: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw which images are classified correctly."""
        right: FloatArray = (rng.random(labels.shape) < self.shares[labels])[..., None]
        return right

    def answers(self, support: FloatArray, query: FloatArray) -> IntArray:
        """Return a query's own way where it is correct, else the next way."""
        own = np.arange(WAY)[:, None]
        found: IntArray = np.where(query[..., 0], own, (own + 1) % WAY)
        return found


def world_of(name: str, accuracy: str) -> World:
    """Return a world of 20 classes."""
    if name == "query":
        return QueryWorld(np.linspace(*SHARES[accuracy], N_CLASSES))
    centres = np.random.default_rng(0).standard_normal((N_CLASSES, DIMENSIONS))
    return SupportWorld(centres.astype(np.float32), SPREADS[accuracy])


def truth_of(world: World, shot: int, n_query: int, n_tasks: int = TRUTH_TASKS) -> list[float]:
    """Return accuracy and worst-class accuracy over tasks of new images."""
    rng, by_class = np.random.default_rng(1), []
    for _ in range(n_tasks // 4000):
        order = rng.random((4000, N_CLASSES)).argsort(axis=1)[:, :WAY]
        images = world.images(np.repeat(order[:, :, None], shot + n_query, axis=2), rng)
        answers = world.answers(images[:, :, :shot], images[:, :, shot:])
        by_class.append((answers == np.arange(WAY)[:, None]).mean(axis=2))
    found = np.concatenate(by_class)
    return [float(found.mean()), float(found.min(axis=1).mean())]


def pool_of(sizes: IntArray) -> ImagePool:
    """Return a pool with these numbers of images per class."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    keys = tuple(f"{i}" for i in range(len(labels)))
    return ImagePool(keys, labels, tuple(f"class {c}" for c in range(len(sizes))))


def accuracy(outcomes: Outcomes) -> FloatArray:
    """Return Acc of each task."""
    return outcomes.class_accuracy.mean(axis=1)


def worst(outcomes: Outcomes) -> FloatArray:
    """Return wAcc of each task."""
    return outcomes.class_accuracy.min(axis=1)


STATISTICS = (accuracy, worst)
ACC, WACC = 0, 1
Interval = Callable[[int, TaskSet, Outcomes, IntArray], tuple[float, float]]


def of_images(
    which: int, tasks: TaskSet, outcomes: Outcomes, sizes: IntArray
) -> tuple[float, float]:
    """Return the interval over images."""
    per_task = STATISTICS[which]
    answers = answers_of(per_task, tasks, outcomes, sizes)
    found = interval_over(per_task(outcomes), answers, tasks, sizes)
    return found.low, found.high


def of_tasks(estimator: str) -> Interval:
    """Return an interval that treats tasks as independent draws."""
    how = ComparisonOptions(IntervalChoice(method=estimator), n_resamples=1000)  # type: ignore[arg-type]

    def interval(
        which: int, tasks: TaskSet, outcomes: Outcomes, sizes: IntArray
    ) -> tuple[float, float]:
        return mean_interval(STATISTICS[which](outcomes), how=how)[1:]

    return interval


INTERVALS: dict[str, dict[str, tuple[int, Interval]]] = {
    "random": {
        "closed": (ACC, of_tasks("student-t")),
        "image": (ACC, of_images),
        "image, wAcc": (WACC, of_images),
    },
    "depleting": {
        "student-t": (ACC, of_tasks("student-t")),
        "percentile": (ACC, of_tasks("percentile")),
        "bca": (ACC, of_tasks("bca")),
        "t, wAcc": (WACC, of_tasks("student-t")),
    },
}


def sizes_of(sampler: str, balance: str, n_tasks: int, n_images: int) -> IntArray:
    """Return the images of each class, for tasks with this many images per class."""
    if sampler == "random":
        sizes = np.full(N_CLASSES, SIZE)
        return np.linspace(30, 100, N_CLASSES).astype(int) if balance == "unbalanced" else sizes
    most = 0.2 if balance == "unbalanced" else 0.0
    share = np.linspace(1 - most, 1 + most, N_CLASSES)
    found: IntArray = (share * (1.35 * n_tasks * WAY * n_images / N_CLASSES + 100)).astype(int)
    return found


def coverage(
    world: World, sets: list[TaskSet], sizes: IntArray, truth: list[float], replicates: int
) -> Iterator[tuple[float, float]]:
    """Yield for each interval the share that contains the truth, and the mean half-width."""
    labels = pool_of(sizes).labels
    intervals = INTERVALS[sets[0].sampler]
    bounds = np.empty((replicates, len(intervals), 2))
    for replicate in range(replicates):
        tasks = sets[replicate % len(sets)]
        images = world.images(labels, np.random.default_rng([len(tasks), replicate]))
        answers = world.answers(images[tasks.support], images[tasks.query])
        outcomes = Outcomes.of(tasks, answers)
        for place, (which, interval) in enumerate(intervals.values()):
            bounds[replicate, place] = interval(which, tasks, outcomes, sizes)
    for place, (which, _) in enumerate(intervals.values()):
        low, high = bounds[:, place].T
        held = (low <= truth[which]) & (truth[which] <= high)
        yield float(held.mean()), float((high - low).mean() / 2)


def rows(options: argparse.Namespace, sampler: str, world_name: str) -> Iterator[str]:
    """Yield the lines of a table."""
    make = DepletingSampler if sampler == "depleting" else RandomSampler
    draw = make(n_way=WAY, n_shot=options.shot, n_query=options.queries).draw
    for level in options.accuracy:
        world = world_of(world_name, level)
        truth = truth_of(world, options.shot, options.queries)
        for balance in options.classes:
            for count in options.tasks:
                sizes = sizes_of(sampler, balance, count, options.shot + options.queries)
                pool = pool_of(sizes)
                sets = [draw(pool, count, seed) for seed in range(TASK_SETS)]
                found = coverage(world, sets, sizes, truth, options.replicates)
                cells = [f"{100 * held:>7.1f} % {100 * half:>6.2f}" for held, half in found]
                yield (
                    f"{sampler:<10}{world_name:<9}{100 * truth[ACC]:>6.2f}{100 * truth[WACC]:>7.2f}"
                    f" {balance:<11}{count:>5} " + "  ".join(cells)
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--replicates", type=positive, default=2000)
    several = {
        "sampler": tuple(INTERVALS),
        "world": ("support", "query"),
        "accuracy": tuple(SPREADS),
        "classes": ("balanced", "unbalanced"),
    }
    for name, known in several.items():
        parser.add_argument(f"--{name}", nargs="+", choices=known, default=known)
    parser.add_argument("--tasks", nargs="+", type=positive, default=(5, 20, 100, 600))
    parser.add_argument("--shot", type=positive, default=5)
    parser.add_argument("--queries", type=positive, default=15)
    options = parser.parse_args()
    for sampler in options.sampler:
        heads = "  ".join(f"{name:>16}" for name in INTERVALS[sampler])
        print(f"{'tasks':<10}{'world':<9}{'Acc':>6}{'wAcc':>7} {'classes':<11}{'T':>5} {heads}")
        for world in options.world:
            for line in rows(options, sampler, world):
                print(line, flush=True)


if __name__ == "__main__":
    main()
