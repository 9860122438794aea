"""Seconds to bootstrap all pairs of ten methods, and how often equal methods are called different.

Run ``python benchmarks/comparison.py``; it takes about five minutes on one thread.

The first table compares ten methods over 3,000 tasks: 45 pairs, 10,000 resamples. Ours draws the
tasks once for all pairs. The baseline is ``scipy.stats.bootstrap`` pair by pair, measured on a few
pairs and extrapolated to all. Seconds are wall-clock; the ratio hardly depends on the machine.

The second simulates five methods that are equal on average, which makes 10 pairs. The accuracy on a
task is its difficulty, the same for all methods, plus the binomial noise of each method's 75
queries, so the methods correlate as real ones do. It counts the replicates in which any pair is
called different: by the unadjusted p, by Benjamini and Hochberg's, and by Holm's, which must stay
at 5 % within twice the standard error of the simulation. The bootstraps use 2,000 resamples each;
their p is never below 2 / 2,001, which Holm multiplies by 10.

The third draws data sets of 10 classes of 40 images, with two nearest-class-mean classifiers on
noisy features and 5-way 1-shot tasks of 5 queries that share images. It counts the data sets whose
interval of the paired difference contains the difference on other images of the same source: closed
by Student's t, open by ``image-level``. The truth is the mean over 400 other data sets (standard
error 0.0007).
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from _options import positive
from scipy import stats

from fsf_statistics import mean_interval
from fsf_statistics.adjusting import benjamini_hochberg, holm
from fsf_statistics.comparing import compare_methods
from fsf_statistics.image_intervals import answers_of, interval_over
from fsframework.statistics.differences import ComparisonOptions, differences
from fsframework.statistics.estimators import IntervalChoice
from fsframework.statistics.measures import Measure
from fsframework.statistics.task_values import TaskValues
from fsframework.values import Outcomes, TaskSet

METHODS, TASKS, RESAMPLES = 10, 3_000, 10_000
EQUAL, QUERIES, ALPHA = 5, 75, 0.05
LIMIT_SECONDS = 5.0
CLASSES, IMAGES, WAY = 10, 40, 5
PAIRS = np.array([np.eye(EQUAL)[i] - np.eye(EQUAL)[j] for i in range(EQUAL) for j in range(i)])


def accuracies(
    rng: np.random.Generator, n_tasks: int, n_methods: int, mean: float = 0.7
) -> np.ndarray:
    """Return accuracies ``(tasks, methods)`` that are equal in expectation."""
    difficulty = rng.beta(10 * mean, 10 * (1 - mean), n_tasks)
    return rng.binomial(QUERIES, difficulty[:, None], (n_tasks, n_methods)) / QUERIES


def speed(n_pairs: int) -> None:
    """Print seconds for all pairs, ours and SciPy's."""
    values = accuracies(np.random.default_rng(0), TASKS, METHODS)
    labels = [f"method {i}" for i in range(METHODS)]
    measured = TaskValues(Measure("acc"), "simulated", (values,), "open")
    all_pairs = METHODS * (METHODS - 1) // 2
    print(f"{'':<32}{'seconds':>10}{'times ours':>12}")
    for interval, method in (("percentile", "percentile"), ("bca", "BCa")):
        start = time.perf_counter()
        how = ComparisonOptions(IntervalChoice(method=interval), RESAMPLES)
        found = compare_methods(labels, measured, how)
        ours = time.perf_counter() - start
        start = time.perf_counter()
        for pair in found.pairs[:n_pairs]:
            i, j = labels.index(pair.first), labels.index(pair.second)
            theirs = stats.bootstrap(
                (values[:, i] - values[:, j],),
                np.mean,
                n_resamples=RESAMPLES,
                batch=500,
                method=method,
                rng=np.random.default_rng(0),
            ).confidence_interval
            # The resamples differ, so the bounds differ by the noise of a quantile.
            width = theirs.high - theirs.low
            assert abs(theirs.low - pair.difference.low) < 0.05 * width
            assert abs(theirs.high - pair.difference.high) < 0.05 * width
        scipy = (time.perf_counter() - start) / n_pairs * all_pairs
        print(f"{f'{all_pairs} pairs, {interval}, ours':<32}{ours:>10.2f}{1:>12.1f}")
        print(f"{f'{all_pairs} pairs, {method}, SciPy':<32}{scipy:>10.1f}{scipy / ours:>12.1f}")
    print(f"limit: {LIMIT_SECONDS:g} seconds\n")


def discoveries(replicates: int) -> None:
    """Print how often any of ten pairs of equal methods is called different."""
    error = 2 * np.sqrt(ALPHA * (1 - ALPHA) / replicates)
    print(f"{'any of 10 equal pairs':<32}{'unadjusted':>12}{'BH':>8}{'Holm':>8}")
    settings = [
        ("student-t", 20, 0.7),
        ("student-t", 100, 0.7),
        ("student-t", 600, 0.7),
        ("student-t", 100, 0.95),
        ("percentile", 100, 0.7),
        ("bca", 100, 0.7),
    ]
    for interval, n_tasks, mean in settings:
        counts = np.zeros(3)
        for replicate in range(replicates):
            values = accuracies(np.random.default_rng([replicate, n_tasks]), n_tasks, EQUAL, mean)
            how = ComparisonOptions(IntervalChoice(method=interval), 2_000, replicate)
            p = differences((values,), PAIRS, how).p
            counts += [(q <= ALPHA).any() for q in (p, benjamini_hochberg(p), holm(p))]
        share = 100 * counts / replicates
        name = f"{interval}, {n_tasks} tasks, mean {mean}"
        print(f"{name:<32}{share[0]:>10.1f} %{share[1]:>6.1f} %{share[2]:>6.1f} %")
    print(f"limit for Holm: {100 * ALPHA:g} % + {100 * error:.1f} % ({replicates:,} replicates)")


def features(rng: np.random.Generator, centres: np.ndarray) -> list[np.ndarray]:
    """Return features ``(images, 4)`` of new images, as two models see them."""
    images = centres[:, None] + rng.normal(0, 1, (CLASSES, IMAGES, 4))
    return [(images + rng.normal(0, s, images.shape)).reshape(-1, 4) for s in (0.6, 0.75)]


def shared_tasks(rng: np.random.Generator, n_tasks: int) -> TaskSet:
    """Return uniform tasks that share images."""
    classes = rng.permuted(np.tile(np.arange(CLASSES), (n_tasks, 1)), axis=1)[:, :WAY]
    places = rng.permuted(np.tile(np.arange(IMAGES), (n_tasks, WAY, 1)), axis=2)[..., :6]
    images = places + IMAGES * classes[..., None]
    return TaskSet(
        classes=classes,
        support=images[..., :1],
        query=images[..., 1:],
        attribute=np.full(classes.shape, -1),
        relaxed=np.zeros(classes.shape, bool),
        words=(),
        sampler="random",
        options={},
        seed=0,
        key_digest="",
        pool_fingerprint="",
        attributes_fingerprint=None,
    )


def answered(seen: np.ndarray, tasks: TaskSet) -> Outcomes:
    """Return the answers of a nearest-class-mean classifier."""
    means = seen[tasks.support].mean(axis=2)
    distances = ((seen[tasks.query][..., None, :] - means[:, None, None]) ** 2).sum(axis=-1)
    return Outcomes.of(tasks, distances.argmin(axis=-1))


def coverage(replicates: int) -> None:
    """Print how often intervals of a paired difference contain it."""
    centres = np.random.default_rng(9).normal(0, 1, (CLASSES, 4))

    def difference(rng: np.random.Generator, n_tasks: int) -> tuple[TaskSet, list[Outcomes]]:
        seen, tasks = features(rng, centres), shared_tasks(rng, n_tasks)
        return tasks, [answered(one, tasks) for one in seen]

    def accuracy(outcomes: Outcomes) -> np.ndarray:
        return outcomes.task_accuracy

    rng = np.random.default_rng(1)
    found = (difference(rng, 250)[1] for _ in range(400))
    truth = np.mean([(accuracy(a) - accuracy(b)).mean() for a, b in found])
    sizes = np.full(CLASSES, IMAGES)
    print(f"\n{'difference of two, 400 images':<32}{'closed':>10}{'image-level':>14}{'widths':>9}")
    for n_tasks in (20, 100, 600):
        held, widths = np.zeros(2), np.zeros(2)
        for replicate in range(replicates):
            tasks, pair = difference(np.random.default_rng([5, n_tasks, replicate]), n_tasks)
            values = accuracy(pair[0]) - accuracy(pair[1])
            answers = [answers_of(accuracy, tasks, one, sizes) for one in pair]
            _, low, high = mean_interval(values)
            over = interval_over(values, answers[0] - answers[1], tasks, sizes)
            held += [low <= truth <= high, over.low <= truth <= over.high]
            widths += [high - low, over.high - over.low]
        share = 100 * held / replicates
        row = f"{f'{n_tasks} tasks':<32}{share[0]:>8.1f} %{share[1]:>12.1f} %"
        print(f"{row}{widths[1] / widths[0]:>9.1f}")
    print(f"nominal: 95 % ({replicates:,} data sets per row)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--replicates",
        type=positive,
        default=2_000,
        metavar="N",
        help="simulations (default: 2000)",
    )
    parser.add_argument(
        "--scipy-pairs", type=positive, default=3, metavar="N", help="pairs for SciPy (default: 3)"
    )
    options = parser.parse_args()
    speed(options.scipy_pairs)
    discoveries(options.replicates)
    coverage(options.replicates)


if __name__ == "__main__":
    main()
