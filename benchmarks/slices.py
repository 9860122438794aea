"""Whether slices and keywords that are reported truly fail, on ``planted``.

Run ``python benchmarks/slices.py``; a world takes about a minute on one core. The truth is known,
in two ways:

*rendered*: a model answers the queries of random tasks, and once more after each attribute of each
query was rendered with other values (``benchmarks/harmful_pairs.py``). An image truly fails if any
of its words costs its class more than 10 points.

*simulated*: answers are drawn for the same images and tasks. 15 % are wrong, and 30 points more
where the image's class and one of its words are among the pairs that fail, a share of all pairs. An
image truly fails if it has such a word.

For each finder (slices, keywords, ``present`` words that hurt): the images of what it reports, the
share of these that truly fail (precision) and of those that truly fail the share among them
(recall), as means over worlds with Student's intervals. Last the reports that show anything where
nothing can be found: answers permuted over the queries of a class in a task; images permuted within
each class, so that hard images stay hard but are anywhere in the embedding.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import harmful_pairs
import numpy as np
from _options import positive

import fsf_statistics
import fsframework as fsf
from fsframework.values import ArmOutcomes, Arms, BoolArray, FloatArray, Outcomes

LARGE = 0.1  # share of correct answers that a truly failing pair costs more than
ERROR, COST, PAIRS = 0.15, 0.3, 0.05  # of simulated answers; PAIRS is the share of pairs that fail
SHOWN = ("slices", "keywords", "words that hurt")


@dataclass
class Case:
    """Answers to random tasks, and which images truly fail."""

    outcomes: ArmOutcomes
    pool: fsf.ImagePool
    embeddings: FloatArray
    failing: BoolArray

    def reported(self, finder: str, seed: int = 0) -> BoolArray:
        """Return the images of everything that a finder reports."""
        if finder == "slices":
            found = fsf_statistics.slices(
                self.outcomes, pool=self.pool, embeddings=self.embeddings, seed=seed
            )
            return np.isin(self.pool.keys, [key for row in found.rows for key in row.images])
        if finder == "keywords":
            pairs = [
                row.names for row in fsf_statistics.keywords(self.outcomes, pool=self.pool).rows
            ]
        else:
            found = fsf_statistics.harmful_pairs(self.outcomes, "present", pool=self.pool)
            pairs = [row.names for row in found.rows]
        return having(self.pool, pairs)


def having(pool: fsf.ImagePool, pairs: list[tuple[str, str]]) -> BoolArray:
    """Return which images are of the class of a pair and have its word."""
    assert pool.attributes is not None
    numbers = {word: i for i, word in enumerate(pool.attributes.words)}
    wanted = np.zeros((len(pool.class_names), len(numbers)), bool)
    for name, word in pairs:
        wanted[pool.class_names.index(name), numbers[word]] = True
    has = pool.attributes.rows(np.arange(len(pool)))
    return np.asarray((has & wanted[pool.labels]).any(axis=1))


def random_arm(world: harmful_pairs.World) -> Arms:
    """Return the random tasks of a world, which have no tied words."""
    return Arms({"random": world.arms["random"]})


def rendered(world: harmful_pairs.World, seed: int) -> Case:
    """Return what a model answers."""
    del seed
    arms = random_arm(world)
    outcomes = Outcomes.of(arms["random"], world.predictions["random"])
    costs: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (_, name, word), cost in world.present():
        costs[name, word].append(cost)
    pairs = [pair for pair, of in costs.items() if np.mean(of) > LARGE]
    own = embedded(world)
    return Case(ArmOutcomes({"random": outcomes}, arms), world.pool, own, having(world.pool, pairs))


def simulated(world: harmful_pairs.World, seed: int) -> Case:
    """Return drawn answers."""
    rng, pool = np.random.default_rng(seed), world.pool
    assert pool.attributes is not None
    every = itertools.product(pool.class_names, pool.attributes.words)
    pairs = [pair for pair in every if rng.random() < PAIRS]
    failing = having(pool, pairs)
    return Case(drawn(world, ERROR + COST * failing, rng), pool, embedded(world), failing)


def drawn(world: harmful_pairs.World, wrong: FloatArray, rng: np.random.Generator) -> ArmOutcomes:
    """Return answers, of which each image has its share of wrong ones."""
    arms = random_arm(world)
    tasks = arms["random"]
    is_wrong = rng.random(tasks.query.shape) < wrong[tasks.query]
    other = rng.integers(1, tasks.n_way, size=tasks.query.shape)
    answers = (np.arange(tasks.n_way)[:, None] + is_wrong * other) % tasks.n_way
    return ArmOutcomes({"random": Outcomes.of(tasks, answers)}, arms)


def embedded(world: harmful_pairs.World) -> FloatArray:
    """Return the features of the images as they are, ``(images, D)``."""
    found = world.features[: len(world.pool)].numpy()
    return found.mean(axis=(2, 3)) if found.ndim == 4 else found.reshape(len(found), -1)


def placebos(case: Case, count: int) -> Iterator[tuple[str, str, int]]:
    """Yield how many of several reports show anything where nothing can be found."""
    tasks = case.outcomes.arms["random"]
    predictions = case.outcomes["random"].predictions
    for finder in SHOWN:
        shown = defaultdict(int)
        for seed in range(count):
            rng = np.random.default_rng(seed)
            answers = rng.permuted(predictions, axis=2)
            outcomes = ArmOutcomes({"random": Outcomes.of(tasks, answers)}, case.outcomes.arms)
            permuted = Case(outcomes, case.pool, case.embeddings, case.failing)
            shown["answers"] += bool(permuted.reported(finder, seed).any())
            if finder == "slices":
                order = np.lexsort((rng.random(len(case.pool)), case.pool.labels))
                place = np.empty_like(order)
                place[np.argsort(case.pool.labels, kind="stable")] = order
                moved = Case(case.outcomes, case.pool, case.embeddings[place], case.failing)
                shown["images"] += bool(moved.reported(finder, seed).any())
        for what, number in shown.items():
            yield finder, what, number


def told(values: list[float]) -> str:
    """Return a mean with the half-width of its interval, in percent."""
    known = np.array([value for value in values if np.isfinite(value)])
    if len(known) < 2:
        return f"{100 * known.mean():.0f}" if len(known) else "-"
    mean, low, _ = fsf_statistics.mean_interval(known)
    return f"{100 * mean:.0f} ± {100 * (mean - low):.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--method", nargs="+", default=["ncc"])
    parser.add_argument("--strength", nargs="+", type=float, default=[0.2, 0.5, 0.8])
    parser.add_argument("--seed", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--tasks", type=positive, default=600)
    parser.add_argument("--placebos", type=int, default=100, help="of the first world; 0 for none")
    parser.add_argument("--folder", default=None, help="of runs and cache; by default a new one")
    options = parser.parse_args()
    options.folder, options.others = options.folder or tempfile.mkdtemp(), "class"
    options.tasks = [options.tasks]
    kinds: dict[str, Callable[..., Case]] = {"rendered": rendered, "simulated": simulated}
    found: dict[tuple[str, float, str], list[tuple[float, ...]]] = defaultdict(list)
    first: Case | None = None
    for method, strength, seed in itertools.product(options.method, options.strength, options.seed):
        world = harmful_pairs.trained(method, strength, seed, options)
        for kind, make in kinds.items():
            case = make(world, seed)
            first = first or case
            for finder in SHOWN:
                named = case.reported(finder)
                hits = float((named & case.failing).sum())
                precision = hits / named.sum() if named.any() else np.nan
                recall = hits / case.failing.sum() if case.failing.any() else np.nan
                row = case.failing.mean(), named.mean(), precision, recall
                found[kind, strength, finder].append(row)
                numbers = " ".join(f"{100 * one:6.1f}" for one in row)
                print(f"{method} {strength} {seed} {kind:<10} {finder:<16} {numbers}", flush=True)
    print("\n% of images: truly failing, reported; precision, recall; mean over worlds")
    for (kind, strength, finder), rows in sorted(found.items(), key=str):
        columns = [told(list(column)) for column in zip(*rows, strict=True)]
        print(f"{kind:<10} {strength} {finder:<16} " + "  ".join(f"{one:>9}" for one in columns))
    if options.placebos and first is not None:
        for finder, what, number in placebos(first, options.placebos):
            print(f"{what} permuted: {finder} report anything in {number} of {options.placebos}")


if __name__ == "__main__":
    main()
