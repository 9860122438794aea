"""How fast all pairs of ten methods are bootstrapped, and how often equal methods are told apart.

Run ``python benchmarks/comparison.py``; it takes about a minute on one thread.

The first table compares ten methods over 3,000 tasks, 45 pairs, 10,000 resamples: ours draws tasks
once for all pairs, the baseline is ``scipy.stats.bootstrap`` pair by pair, on a few of the pairs,
counted up to all of them. Seconds are wall-clock; the ratio hardly depends on the machine.

The second draws, again and again, five methods that are equal on average, of 10 pairs: the accuracy
of a task is its difficulty, common to all, and the binomial noise of each method's 75 queries, so
that methods correlate as real ones do. It counts the replicates in which any pair is told apart: by
unadjusted p, by Benjamini and Hochberg's and by Holm's, which must stay at 5 % within the error of
the simulation (twice its standard error). The bootstraps use 2,000 resamples each; no p of theirs
is below 2 / 2,001, which Holm's multiplies by 10.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from scipy import stats

from fsframework.pipeline.comparison import Measure, benjamini_hochberg, compare, differences, holm

METHODS, TASKS, RESAMPLES = 10, 3_000, 10_000
EQUAL, QUERIES, ALPHA = 5, 75, 0.05
LIMIT_SECONDS = 5.0
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
    measure = Measure("acc", "simulated", ((1, values),), "open", 0, True, "task")
    all_pairs = METHODS * (METHODS - 1) // 2
    print(f"{'':<32}{'seconds':>10}{'times ours':>12}")
    for interval, method in (("percentile", "percentile"), ("bca", "BCa")):
        start = time.perf_counter()
        found = compare(labels, measure, interval=interval, n_resamples=RESAMPLES)
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
            # Of resamples of their own the bounds differ by the noise of a quantile.
            width = theirs.high - theirs.low
            assert abs(theirs.low - pair.difference.low) < 0.05 * width
            assert abs(theirs.high - pair.difference.high) < 0.05 * width
        scipy = (time.perf_counter() - start) / n_pairs * all_pairs
        print(f"{f'{all_pairs} pairs, {interval}, ours':<32}{ours:>10.2f}{1:>12.1f}")
        print(f"{f'{all_pairs} pairs, {method}, SciPy':<32}{scipy:>10.1f}{scipy / ours:>12.1f}")
    print(f"limit: {LIMIT_SECONDS:g} seconds\n")


def discoveries(replicates: int) -> None:
    """Print how often any of ten pairs of equal methods is told apart."""
    error = 2 * np.sqrt(ALPHA * (1 - ALPHA) / replicates)
    print(f"{'any of 10 pairs of equals':<32}{'unadjusted':>12}{'BH':>8}{'Holm':>8}")
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
            p = differences(
                ((1, values),), PAIRS, interval=interval, n_resamples=2_000, seed=replicate
            ).p
            counts += [(q <= ALPHA).any() for q in (p, benjamini_hochberg(p), holm(p))]
        share = 100 * counts / replicates
        name = f"{interval}, {n_tasks} tasks, mean {mean}"
        print(f"{name:<32}{share[0]:>10.1f} %{share[1]:>6.1f} %{share[2]:>6.1f} %")
    print(f"limit of Holm: {100 * ALPHA:g} % + {100 * error:.1f} % ({replicates:,} replicates)")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--replicates", type=int, default=2_000, metavar="N")
    options.add_argument("--scipy-pairs", type=int, default=3, metavar="N")
    chosen = options.parse_args()
    speed(chosen.scipy_pairs)
    discoveries(chosen.replicates)


if __name__ == "__main__":
    main()
