"""Coverage of the true accuracy by intervals, in simulation.

Run ``python benchmarks/interval_coverage.py``, with ``--replicates`` (default 2,000); it takes
about ten minutes. Images of a class are normal about its centre in eight dimensions, the method
takes the nearest class mean of the support, and the truth is its accuracy on images of which none
is ever seen twice. Each replicate draws a new data set and evaluates 5-way 5-shot tasks with 15
queries a class: random ones, which share images, on 20 classes of 50 (``unbalanced``: of 30 to
100), and depleting ones on a data set large enough for as many. The columns are the share of
replicates whose interval holds the truth, and how long the intervals are on average. ``closed`` is
Student's over tasks that share images, read as if it spoke of more than the data set.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from fsf_samplers import DepletingSampler, RandomSampler
from fsframework.statistics.differences import mean_interval
from fsframework.statistics.intervals import image_interval
from fsframework.values import FloatArray, ImagePool, IntArray, Outcomes, TaskSet

WAY, SHOT, N_QUERY, N_CLASSES, SIZE, DIMENSIONS = 5, 5, 15, 20, 50, 8
TASKS = (5, 20, 100, 600)
TASK_SETS, TRUTH_TASKS = 40, 400_000
SPREADS = {"near 0.5": 1.9, "near 1": 0.62}
"""Standard deviation of the images about their class's centre, by the accuracy it gives."""


@dataclass(frozen=True)
class World:
    """Classes and what a nearest-mean classifier is truly worth on them."""

    centres: FloatArray
    spread: float

    def images(self, labels: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw features ``(n, dimensions)``."""
        noise = rng.standard_normal((*labels.shape, DIMENSIONS), dtype=np.float32)
        drawn: FloatArray = self.centres[labels] + self.spread * noise
        return drawn

    def truth(self, rng: np.random.Generator) -> tuple[float, float]:
        """Return accuracy and worst-class accuracy over tasks of fresh images."""
        by_class = []
        for _ in range(TRUTH_TASKS // 4000):
            order = rng.random((4000, N_CLASSES)).argsort(axis=1)[:, :WAY]
            labels = np.repeat(order[:, :, None], SHOT + N_QUERY, axis=2)
            features = self.images(labels, rng)
            answers = nearest(features[:, :, :SHOT], features[:, :, SHOT:])
            by_class.append((answers == np.arange(WAY)[:, None]).mean(axis=2))
        found = np.concatenate(by_class)
        return float(found.mean()), float(found.min(axis=1).mean())


def nearest(support: FloatArray, query: FloatArray) -> IntArray:
    """Return the way of the nearest class mean, ``(T, way, n_query)``."""
    means = support.mean(axis=2)
    flat = query.reshape(len(query), -1, DIMENSIONS)
    scores = flat @ means.transpose(0, 2, 1) - (means**2).sum(axis=2)[:, None] / 2
    answers: IntArray = scores.argmax(axis=2).reshape(query.shape[:3])
    return answers


def pool_of(sizes: IntArray) -> ImagePool:
    """Return a pool with so many images per class."""
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


def of_images(over: str) -> Interval:
    """Return the interval over images, or over classes."""

    def interval(
        which: int, tasks: TaskSet, outcomes: Outcomes, sizes: IntArray
    ) -> tuple[float, float]:
        found = image_interval(STATISTICS[which], tasks, outcomes, sizes, over=over)  # type: ignore[arg-type]
        return found.low, found.high

    return interval


def of_tasks(estimator: str) -> Interval:
    """Return an interval that takes tasks for independent draws."""

    def interval(
        which: int, tasks: TaskSet, outcomes: Outcomes, sizes: IntArray
    ) -> tuple[float, float]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = mean_interval(STATISTICS[which](outcomes), 0.95, estimator, n_resamples=1000)  # type: ignore[arg-type]
        return found[1:]

    return interval


RANDOM: dict[str, tuple[int, Interval]] = {
    "closed": (ACC, of_tasks("student-t")),
    "image": (ACC, of_images("image-level")),
    "image, wAcc": (WACC, of_images("image-level")),
}
DEPLETING: dict[str, tuple[int, Interval]] = {
    "student-t": (ACC, of_tasks("student-t")),
    "percentile": (ACC, of_tasks("percentile")),
    "bca": (ACC, of_tasks("bca")),
    "t, wAcc": (WACC, of_tasks("student-t")),
}


def simulated(
    world: World, task_sets: list[TaskSet], pool: ImagePool, replicates: int, seed: int
) -> Iterator[tuple[TaskSet, Outcomes]]:
    """Yield tasks and outcomes of data sets drawn anew."""
    for replicate in range(replicates):
        tasks = task_sets[replicate % len(task_sets)]
        rng = np.random.default_rng([seed, replicate])
        features = world.images(pool.labels, rng)
        yield tasks, Outcomes.of(tasks, nearest(features[tasks.support], features[tasks.query]))


def rows(replicates: int, which: str) -> Iterator[str]:
    """Yield the lines of the table."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((N_CLASSES, DIMENSIONS)).astype(np.float32)
    for accuracy, spread in SPREADS.items():
        world = World(centres, spread)
        truth = world.truth(rng)
        for balance in ("balanced", "unbalanced"):
            for count in TASKS:
                sizes = np.full(N_CLASSES, SIZE)
                if balance == "unbalanced":
                    sizes = np.linspace(30, 100, N_CLASSES).astype(np.int64)
                if which == "depleting":
                    most = 0.2 if balance == "unbalanced" else 0.0
                    share = np.linspace(1 - most, 1 + most, N_CLASSES)
                    need = count * WAY * (SHOT + N_QUERY) / N_CLASSES
                    sizes = (share * (1.35 * need + 100)).astype(np.int64)
                pool = pool_of(sizes)
                make = DepletingSampler if which == "depleting" else RandomSampler
                sampler = make(n_way=WAY, n_shot=SHOT, n_query=N_QUERY)
                sets = [sampler.draw(pool, count, seed) for seed in range(TASK_SETS)]
                intervals = DEPLETING if which == "depleting" else RANDOM
                held = dict.fromkeys(intervals, 0)
                length = dict.fromkeys(intervals, 0.0)
                for tasks, outcomes in simulated(world, sets, pool, replicates, count):
                    for name, (statistic, interval) in intervals.items():
                        low, high = interval(statistic, tasks, outcomes, sizes)
                        held[name] += low <= truth[statistic] <= high
                        length[name] += high - low
                cells = [
                    f"{100 * held[n] / replicates:>7.1f} % {100 * length[n] / replicates / 2:>6.2f}"
                    for n in intervals
                ]
                yield (
                    f"{which:<10}{accuracy:<10}{100 * truth[ACC]:>6.2f} {balance:<11}{count:>5} "
                    + ("  ".join(cells))
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=2000)
    options = parser.parse_args()
    for which, intervals in (("random", RANDOM), ("depleting", DEPLETING)):
        heads = "  ".join(f"{name:>16}" for name in intervals)
        print(f"{'tasks':<10}{'accuracy':<10}{'truth':>6} {'classes':<11}{'T':>5} {heads}")
        for line in rows(options.replicates, which):
            print(line, flush=True)


if __name__ == "__main__":
    main()
