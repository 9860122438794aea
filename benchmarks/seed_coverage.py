"""How often intervals over training seeds and tasks hold the true mean.

Simulates experiments in which models of several seeds answer the same tasks: each accuracy is the
sum of a mean, a term of the seed, one of the task and a rest. Prints, for each number of seeds and
each spread between seeds, how often the interval of ``fsframework.statistics.crossed`` holds the
true mean and how often it holds the true difference of two methods on the same tasks.

    python benchmarks/seed_coverage.py --replicates 2000
"""

from __future__ import annotations

import argparse

import numpy as np
from _options import positive

from fsframework.statistics.crossed import crossed


def covered(
    seeds: int, tasks: int, between: float, replicates: int, generator: np.random.Generator
) -> tuple[float, float]:
    """Return the shares of intervals that hold the mean of one method and a difference of two."""
    held = np.zeros(2)
    for _ in range(replicates):
        difficulty = generator.normal(0.6, 0.1, tasks)
        methods = [
            generator.normal(0, between, (seeds, 1))
            + difficulty
            + generator.normal(0, 0.05, tasks)
            + generator.normal(0, 0.08, (seeds, tasks))
            for _ in range(2)
        ]
        one = crossed({("a", "t"): methods[0]})
        two = crossed({("a", "t"): methods[0], ("b", "t"): -methods[1]})
        held += one.low <= 0.6 <= one.high, two.low <= 0 <= two.high
    return tuple(held / replicates)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=positive, default=2000, help="experiments per row")
    parser.add_argument("--tasks", type=positive, default=600, help="tasks per experiment")
    given = parser.parse_args()
    generator = np.random.default_rng(0)
    print(f"{given.replicates:,} experiments of {given.tasks} tasks per row, level 95 %")
    print("seeds  deviation between seeds  mean held  difference held")
    for seeds in (2, 3, 5, 10):
        for between in (0.0, 0.003, 0.01, 0.03):
            mean, difference = covered(seeds, given.tasks, between, given.replicates, generator)
            cells = f"{100 * mean:7.1f} %  {100 * difference:13.1f} %"
            print(f"{seeds:5}  {100 * between:20.1f} %   {cells}")


if __name__ == "__main__":
    main()
