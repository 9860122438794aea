"""How often intervals over training seeds and tasks hold the truth.

Simulates experiments in which models of several seeds answer the same tasks. Each accuracy is the
sum of a mean, a term of the seed, one of the task and a rest; worlds differ in the size of the rest
and in how the terms are distributed. Prints how often the 95 % interval of
``fsf_statistics.crossed`` holds the mean of a method, its gap between two arms, and the
difference of two methods on the same tasks, with the mean half-width of each in percentage points;
then the lowest and the highest of them for each number of seeds, where one training in ten
collapses and in the other worlds.

All experiments of a setting are computed at once; in each setting, one is compared with what
``crossed`` itself returns.

    python benchmarks/seed_coverage.py
    python benchmarks/seed_coverage.py --worlds collapse wacc --replicates 10000
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from _options import positive
from scipy import special, stats

from fsf_statistics.crossed import crossed

Array = np.ndarray
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]
LEVEL = 0.95
AT_ONCE = 1_000_000
"""Accuracies of one method and arm held in memory."""


def normal(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return standard normal numbers."""
    return generator.standard_normal(shape, dtype=np.float32)


def skewed(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return numbers of mean 0 and deviation 1 with a long lower tail."""
    return 1 - generator.standard_exponential(shape, dtype=np.float32)


def heavy_tailed(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return Student's t with 3 degrees of freedom, brought to deviation 1."""
    return generator.standard_t(3, shape) / np.sqrt(3)


def collapsing(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return numbers of mean 0 of which one in ten is 10 below the others."""
    return normal(generator, shape) + 1 - 10 * (generator.random(shape) < 0.1)


def identity(terms: Array) -> Array:
    """Return the terms themselves."""
    return terms


@dataclass(frozen=True)
class World:
    """How accuracies come about.

    Args:
        tasks: standard deviation between tasks; ``rest`` that of the rest.
        seed: distribution of the seeds' terms; ``other`` of those of tasks and rest.
        second: how large the spread between the second method's seeds is, in that of the first's.
        uneven: whether the rest of each seed, and of each task, has a deviation of its own, from a
            third to three times as large as that of others.
        link: what turns the sum of a centre and the terms into an accuracy; its derivative at the
            centre is ``slope``.
    """

    tasks: float
    rest: float
    seed: Draw = normal
    other: Draw = normal
    second: float = 1.0
    uneven: bool = False
    centre: float = 0.6
    link: Callable[[Array, np.random.Generator], Array] | None = None
    slope: float = 1.0

    def accuracies(
        self,
        generator: np.random.Generator,
        seed_terms: Array,
        task_terms: Array,
    ) -> Array:
        """Return accuracies ``(experiments, seeds, tasks)`` from the terms of seeds and tasks."""
        shape = (*seed_terms.shape, task_terms.shape[1])
        rest = self.rest * self.other(generator, shape)
        if self.uneven:
            rest *= np.exp(generator.uniform(-1.1, 1.1, (*shape[:2], 1)))
            rest *= np.exp(generator.uniform(-1.1, 1.1, (shape[0], 1, shape[2])))
        terms = self.centre + seed_terms[:, :, None] + task_terms[:, None, :] + rest
        return terms if self.link is None else self.link(terms, generator)


def sigmoid(terms: Array, _: np.random.Generator) -> Array:
    """Return accuracies whose logits are the terms."""
    return np.asarray(special.expit(terms))


GRID = np.linspace(-8, 8, 1601)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
CLASS_SPREAD = 0.7
"""Standard deviation of the logits of the classes of a task."""


def _worst_of_five() -> Array:
    """Return, for each logit of the grid, the chances that at most k of 15 are right in the worst.

    The logits of five classes are normal around it, and 15 queries of each are answered.
    """
    share = special.expit(GRID[:, None] + CLASS_SPREAD * NODES)
    own = stats.binom.cdf(np.arange(15)[:, None, None], 15, share) @ (WEIGHTS / WEIGHTS.sum())
    return np.asarray(1 - (1 - own.T) ** 5)


WORST = _worst_of_five()


def worst_class(terms: Array, generator: np.random.Generator) -> Array:
    """Return the smallest of five class accuracies of 15 queries each."""
    chances = WORST[np.clip((terms + 8) * 100, 0, 1600).astype(np.int32)]
    drawn = generator.random((*terms.shape, 1), dtype=np.float32)
    return (drawn > chances).sum(axis=-1) / np.float32(15)


WORLDS: Mapping[str, World] = {
    "small rest": World(0.10, 0.05),
    "large rest": World(0.08, 0.15),
    "one steady": World(0.08, 0.15, second=0.1),
    "skewed": World(0.08, 0.15, skewed, skewed),
    "heavy-tailed": World(0.08, 0.15, heavy_tailed, heavy_tailed),
    "uneven rest": World(0.08, 0.10, uneven=True),
    "collapse": World(0.08, 0.15, collapsing),
    "bounded": World(0.6, 1.0, centre=3.0, link=sigmoid, slope=0.045),
    "wacc": World(0.45, 0.3, centre=1.0, link=worst_class, slope=0.19),
}  # fmt: skip


def truth(world: World, centre: Array, spread: float = 0.0) -> Array:
    """Return the mean accuracy over tasks, and over seeds with this spread of their terms."""
    if world.link is None:
        return centre
    spread = float(np.sqrt(spread**2 + world.tasks**2 + world.rest**2))
    terms = centre[:, None] + spread * NODES
    if world.link is sigmoid:
        means = special.expit(terms)
    else:
        at_least = [np.interp(terms, GRID, 1 - column) for column in WORST.T]
        means = np.sum(at_least, axis=0) / 15
    return np.asarray(means @ WEIGHTS / WEIGHTS.sum())


@dataclass(frozen=True)
class Cell:
    """Accuracies ``(experiments, seeds, tasks)`` of the models and tasks with these names."""

    models: str
    tasks: str
    values: Array


def intervals(cells: list[Cell]) -> tuple[Array, Array]:
    """Return the values and half-widths of all experiments; the formula of ``crossed``."""
    value = sum(cell.values.mean(axis=(1, 2)) for cell in cells)
    square = np.zeros_like(value)
    for over in ("models", "tasks"):
        sums: dict[str, Array] = {}
        rests: dict[str, Array] = {}
        for cell in cells:
            name = getattr(cell, over)
            sums[name] = sums.get(name, 0) + cell.values.mean(axis=2 if over == "models" else 1)
            rests[name] = rests.get(name, 0) + rest_of(cell.values)
        parts = []
        for name, one in sums.items():
            n = one.shape[1]
            if n > 1:
                own = one.var(axis=1, ddof=1) / n
                own = own if over == "models" else np.maximum(own - rests[name], 0)
                parts.append((own, n - 1))
        if parts:
            if over == "models" and len({n for _, n in parts}) > 1:
                for own, n in parts:
                    square = square + special.stdtrit(n, (1 + LEVEL) / 2) ** 2 * own
                continue
            total = sum(own for own, _ in parts)
            # Where nothing varies, any number of degrees of freedom gives 0.
            squares = np.maximum(sum(own**2 / n for own, n in parts), 1e-300)
            freedom = np.maximum(total**2 / squares, 1.0)
            square = square + special.stdtrit(freedom, (1 + LEVEL) / 2) ** 2 * total
    return value, np.sqrt(square)


def rest_of(values: Array) -> Array:
    """Return what the rest adds to the variance of the mean of each experiment."""
    _, seeds, tasks = values.shape
    if seeds == 1:
        return np.zeros(len(values))
    mean = values.mean(axis=(1, 2), keepdims=True)
    total = np.square(values - mean).sum(axis=(1, 2))
    total -= tasks * np.square(values.mean(axis=2) - mean[:, 0]).sum(axis=1)
    total -= seeds * np.square(values.mean(axis=1) - mean[:, 0]).sum(axis=1)
    return total / ((seeds - 1) * (tasks - 1) * seeds * tasks)


def experiments(
    world: World,
    between: float,
    seeds: tuple[int, int],
    tasks: int,
    n: int,
    generator: np.random.Generator,
) -> dict[str, tuple[list[Cell], Array]]:
    """Return the cells of each question and their true values.

    The first method has ``seeds[0]`` models and two arms; the second has ``seeds[1]`` models.
    """
    spread = between / world.slope
    of_each = spread, spread * world.second
    own = [
        one * world.seed(generator, (n, count)) for one, count in zip(of_each, seeds, strict=True)
    ]
    # Tasks are hard for both methods, and harder for one of them.
    common, *each = (world.other(generator, (n, tasks)) for _ in range(3))
    both = [world.tasks * (np.sqrt(0.75) * common + np.sqrt(0.25) * one) for one in each]
    if world.other is not normal:
        both = [world.tasks * common] * 2
    first, second = (
        world.accuracies(generator, *terms).astype(np.float64)
        for terms in zip(own, both, strict=True)
    )
    arm = world.accuracies(generator, own[0], world.tasks * world.other(generator, (n, tasks)))
    centre = np.full(n, world.centre)
    mean, other = (truth(world, centre, one) for one in of_each)
    if seeds[1] == 1:  # then the interval is about these weights
        other = truth(world, centre + own[1][:, 0])
    return {
        "mean": ([Cell("a", "t", first)], mean),
        "gap": ([Cell("a", "t", first), Cell("a", "u", -arm.astype(np.float64))], np.zeros(n)),
        "difference": ([Cell("a", "t", first), Cell("b", "t", -second)], mean - other),
    }


@dataclass
class Held:
    """How often intervals held the truth, and the sum of their half-widths."""

    times: float = 0.0
    length: float = 0.0


def measured(
    world: World,
    between: float,
    seeds: tuple[int, int],
    tasks: int,
    replicates: int,
    generator: np.random.Generator,
) -> dict[str, Held]:
    """Return the results of one setting, by the question."""
    found: dict[str, Held] = {}
    block = max(1, AT_ONCE // (max(seeds) * tasks))
    for start in range(0, replicates, block):
        n = min(block, replicates - start)
        made = experiments(world, between, seeds, tasks, n, generator)
        for question, (cells, true) in made.items():
            value, half = intervals(cells)
            if start == 0:
                _agrees(cells, float(value[0]), float(half[0]))
            held = found.setdefault(question, Held())
            held.times += float((np.abs(value - true) <= half).sum()) / replicates
            held.length += float(half.sum()) / replicates
    return found


def _agrees(cells: list[Cell], value: float, half: float) -> None:
    """Check the first experiment against the function that runs use."""
    one = crossed({(cell.models, cell.tasks): cell.values[0] for cell in cells}, LEVEL)
    if not np.allclose((one.value, one.high - one.value), (value, half), rtol=1e-6):
        raise SystemExit(f"crossed gives {one.value} ± {one.high - one.value}, not ± {half}")


SEEDS = ((2, 2), (3, 3), (5, 5), (10, 10), (2, 3), (2, 10), (10, 2), (3, 10), (3, 1))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=positive, default=2000, help="experiments per row")
    parser.add_argument("--tasks", type=positive, nargs="+", default=[100, 600])
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS))
    given = parser.parse_args()
    print(f"{given.replicates:,} experiments per row, level {LEVEL:.0%}; in percent, with the mean")
    print("half-width in points\n")
    print("world         between  tasks  seeds      mean          gap           difference")
    worst: dict[tuple[bool, str, tuple[int, int]], list[tuple[float, str]]] = {}
    settings = itertools.product(given.worlds, (0.0, 0.003, 0.01, 0.03), given.tasks, SEEDS)
    for place, (name, between, tasks, seeds) in enumerate(settings):
        generator = np.random.Generator(np.random.SFC64([0, place]))
        of = measured(WORLDS[name], between, seeds, tasks, given.replicates, generator)
        row = f"{name:12}  {100 * between:5.1f}    {tasks:5}"
        cells = (f"{100 * one.times:5.1f} ±{100 * one.length:5.2f}" for one in of.values())
        print(f"{row}  {seeds[0]:2}, {seeds[1]:2}  {'  '.join(cells)}", flush=True)
        for question, one in of.items():
            if question == "difference" or seeds[0] == seeds[1]:
                key = name == "collapse", question, seeds
                worst.setdefault(key, []).append((one.times, row))
    print("\nlowest and highest\nseeds   question    lowest  highest  lowest in")
    for (_, question, seeds), rows in sorted(worst.items()):
        low, high = min(rows), max(rows)
        print(
            f"{seeds[0]:2}, {seeds[1]:2}  {question:10}  {100 * low[0]:6.1f}  {100 * high[0]:7.1f}"
            f"  {low[1]}"
        )


if __name__ == "__main__":
    main()
