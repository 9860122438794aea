"""Whether the pairs of class and word that a report names are truly harmful, on ``planted``.

Run ``python benchmarks/harmful_pairs.py``; it trains a model per method, strength and seed as the
grid of ``methods.toml`` does (``ncc`` keeps random weights), some three minutes each on one core,
or takes it from the cache where that grid has trained it. ``--placebos 0`` leaves out the placebo.

The truth about a pair is known, because the same images can be rendered with that attribute
changed. *Present*: the queries of the class that have the word are rendered with other values of
its kind, and the model answers them again in the same tasks. *Tied*: the images of a support that
is tied to the word are. What the word costs is the mean accuracy with other values minus that with
the word, over all tasks of the largest number. Other values are drawn as often as the class's
images without the word have them (``--others class``), which is what the report estimates, or
equally often (``equal``).

Columns: pairs looked at and reported; the shares of the reported ones that cost more than 0, 2 and
10 points; pairs looked at that truly cost more than 10 points, and the share of these that is
reported. The sums over methods and seeds come last, then the placebos whose report shows any pair:
the images of each class permuted in every task.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from _options import positive

import fsf_statistics
import fsframework as fsf
from fsf_datasets import Planted
from fsframework.values import ArmOutcomes, Arms, FloatArray, IntArray, Outcomes, TaskSet

MARGINS = (0.0, 0.02, 0.1)
LARGE = 0.1  # share of correct answers that a truly harmful pair costs more than
IMAGES_AT_ONCE, TASKS_AT_ONCE = 256, 50
DRAWS = 3  # other values of each kind that each image is rendered with
TASKS_CHANGED = 600  # random tasks whose queries are answered again with other values
KINDS = [*Planted.kinds]
KIND_OF = {word: k for k, kind in enumerate(KINDS) for word in Planted.kinds[kind]}

Costs = dict[tuple[str, str, str], float]
"""What a word costs, by question, class and word."""


@dataclass
class World:
    """A trained model, and the images of the test classes as they are and as they could be."""

    run: fsf.Run
    data: Planted
    tasks: int
    others: str

    @cached_property
    def pool(self) -> fsf.ImagePool:
        """The images of the test classes, with their words."""
        return fsf.pool(self.data)

    @cached_property
    def model(self) -> fsf.Model:
        """The trained model."""
        return self.run.model(device="cpu")

    @cached_property
    def arms(self) -> Arms:
        """The tasks of both arms."""
        return fsf.draw("fewstab", self.pool, tasks=self.tasks, seed=1)

    @cached_property
    def values(self) -> IntArray:
        """The value of each kind in each image, ``(kinds, n)``."""
        return np.array(
            [[Planted.kinds[k].index(word) for word in self.pool.metadata[k]] for k in KINDS]
        )

    @cached_property
    def drawn(self) -> IntArray:
        """Other values than an image's own, ``(kinds, DRAWS, n)``."""
        rng, labels = np.random.default_rng(0), self.pool.labels
        found = np.zeros((len(KINDS), DRAWS, len(self.pool)), np.int64)
        for k, kind in enumerate(KINDS):
            n_values = len(Planted.kinds[kind])
            counts = np.full((labels.max() + 1, n_values), 1e-6)
            np.add.at(counts, (labels, self.values[k]), 1.0)
            weights = counts[labels] if self.others == "class" else np.ones((len(labels), n_values))
            weights[np.arange(len(labels)), self.values[k]] = 0
            reached = (weights / weights.sum(axis=1, keepdims=True)).cumsum(axis=1)
            chosen = (rng.random((DRAWS, len(labels), 1)) > reached).sum(axis=2)
            found[k] = np.minimum(chosen, n_values - 1)
        return found

    @cached_property
    def features(self) -> torch.Tensor:
        """Features of all images as they are, then with each draw of each kind."""
        rows, size = self.data.split_indices("test"), self.model.image_size
        parts = [self._embedded(self.data.images(rows, size))]
        for kind, draws in zip(KINDS, self.drawn, strict=True):
            for values in draws:
                pixels = np.zeros((len(rows), size, size, 3), np.uint8)
                for value in np.unique(values).tolist():
                    own = np.flatnonzero(values == value)
                    word = Planted.kinds[kind][value]
                    pixels[own] = self.data.changed_images(rows[own], kind, word, size)
                parts.append(self._embedded(pixels))
        return torch.from_numpy(np.concatenate(parts))

    def changed(self, image: IntArray, kind: IntArray, draw: IntArray) -> IntArray:
        """Return where the features of images with another value of a kind are."""
        return (1 + kind * DRAWS + draw) * len(self.pool) + image

    def _embedded(self, pixels: np.ndarray) -> FloatArray:
        starts = range(0, len(pixels), IMAGES_AT_ONCE)
        return np.concatenate([self.model.embed(pixels[i : i + IMAGES_AT_ONCE]) for i in starts])

    @torch.no_grad()
    def answers(self, support: IntArray, query: IntArray, at_once: int) -> IntArray:
        """Return the ways answered: of ``(T, way, shot)`` and ``(T, m)``, ``(T, m)``."""
        found = []
        for start in range(0, len(support), at_once):
            some = slice(start, start + at_once)
            torch.manual_seed(0)
            shown, asked = (self.features[torch.tensor(of[some])] for of in (support, query))
            found.append(self.model.network.method.scores(shown, asked).argmax(dim=2).numpy())
        return np.concatenate(found)

    @cached_property
    def predictions(self) -> dict[str, IntArray]:
        """The way answered for each query, by arm, ``(T, way, n_query)``."""
        self.model.network.eval()
        return {
            arm: self.answers(
                tasks.support.copy(), tasks.query.reshape(len(tasks), -1), TASKS_AT_ONCE
            ).reshape(tasks.query.shape)
            for arm, tasks in self.arms.items()
        }

    def outcomes(self, n_tasks: int) -> ArmOutcomes:
        """Return the answers to the first tasks."""
        arms = fsf.draw("fewstab", self.pool, tasks=n_tasks, seed=1)
        found = {arm: Outcomes.of(arms[arm], self.predictions[arm][:n_tasks]) for arm in arms}
        return ArmOutcomes(found, arms)

    @cached_property
    def costs(self) -> Costs:
        """What each word truly costs each class, in both roles."""
        sums: dict[tuple[str, str, str], list[float]] = {}
        for pair, cost in itertools.chain(self.present(), self._tied()):
            sums.setdefault(pair, []).append(cost)
        return {pair: float(np.mean(costs)) for pair, costs in sums.items()}

    def present(self) -> Iterator[tuple[tuple[str, str, str], float]]:
        """Yield what the words of each query cost, by rendering it with other values."""
        tasks = self.arms["random"][:TASKS_CHANGED]
        own = _right(tasks, self.predictions["random"][:TASKS_CHANGED])
        kind, draw = np.divmod(np.arange(len(KINDS) * DRAWS), DRAWS)
        asked = self.changed(
            tasks.query.reshape(len(tasks), 1, -1), kind[:, None], draw[:, None]
        )  # (T, kinds and draws, way and n_query)
        ways = self.answers(tasks.support.copy(), asked.reshape(len(tasks), -1), 4)
        shape = (len(tasks), len(KINDS), DRAWS, *tasks.query.shape[1:])
        right = ways.reshape(shape) == np.arange(tasks.n_way)[:, None]
        cost = right.mean(axis=2) - own[:, None]
        for k, words in enumerate(Planted.kinds.values()):
            for (t, way, q), of in np.ndenumerate(cost[:, k]):
                word = words[self.values[k, tasks.query[t, way, q]]]
                yield ("present", self.pool.class_names[tasks.classes[t, way]], word), float(of)

    def _tied(self) -> Iterator[tuple[tuple[str, str, str], float]]:
        """Yield what the tied word costs in each task, by rendering the support with others."""
        tasks, rng = self.arms["biased"], np.random.default_rng(0)
        own = _right(tasks, self.predictions["biased"]).mean(axis=2)
        kind = np.array([KIND_OF[word] for word in tasks.words])[tasks.attribute]
        cost = -own
        for _ in range(DRAWS):
            draw = rng.integers(DRAWS, size=tasks.support.shape)
            other = self.changed(tasks.support, kind[:, :, None], draw)
            for way in range(tasks.n_way):
                support = tasks.support.copy()
                support[:, way] = other[:, way]
                ways = self.answers(support, tasks.query[:, way], 4 * TASKS_AT_ONCE)
                cost[:, way] += (ways == way).mean(axis=1) / DRAWS
        for (t, way), of in np.ndenumerate(cost):
            word = tasks.words[tasks.attribute[t, way]]
            yield ("tied", self.pool.class_names[tasks.classes[t, way]], word), float(of)


def _right(tasks: TaskSet, predictions: IntArray) -> FloatArray:
    return (predictions == np.arange(tasks.n_way)[:, None]).astype(float)


def counted(world: World, n_tasks: int, question: str) -> IntArray:
    """Return pairs looked at, reported, those above each margin, large ones, those reported."""
    rows = fsf_statistics.harmful_pairs(world.outcomes(n_tasks), question, pool=world.pool).tested
    rows = [row for row in rows if (question, *row.names) in world.costs]
    cost = np.array([world.costs[question, *row.names] for row in rows])
    named, large = np.array([row.harmful for row in rows], bool), cost > LARGE
    above = [(cost[named] > margin).sum() for margin in MARGINS]
    return np.array([len(rows), named.sum(), *above, large.sum(), (large & named).sum()])


def line(title: str, counts: IntArray) -> str:
    """Return a row of the table."""
    looked, named, *above, large, found = counts.tolist()
    shares = "".join(f"{one / named:>7.2f}" if named else f"{'-':>7}" for one in above)
    share = f"{found / large:>7.2f}" if large else f"{'-':>7}"
    return f"{title:<42} {looked:>7} {named:>8}{shares} {large:>6}{share}"


def trained(method: str, strength: float, seed: int, options: argparse.Namespace) -> World:
    """Return a trained model and its images."""
    how = {"epochs": 0} if method == "ncc" else {"precision": "bf16"}
    data = {"size": 32, "strength": strength, "seed": seed}
    run = fsf.run(
        method=method, sampler="random", tasks=20, seed=seed, progress=False, training=how,
        dataset={"name": "planted", **data}, runs_dir=options.folder,
    )  # fmt: skip
    return World(run, Planted(**data), max(options.tasks), options.others)


def placebos(world: World, count: int, folder: str) -> int:
    """Return how many of several placebo runs of 600 tasks report any pair."""
    shown = 0
    for seed in range(count):
        run = fsf.run(
            model=world.run.folder, sampler="fewstab", tasks=600, task_seed=1000 + seed,
            placebo=True, runs_dir=folder, progress=False,
        )  # fmt: skip
        shown += len(fsf_statistics.harmful_pairs(run)) > 0
    return shown


def main() -> None:
    methods = ["protonet", "rfs", "baseline-plus-plus", "r2d2", "matchingnet", "feat", "ncc"]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--method", nargs="+", default=methods)
    parser.add_argument("--strength", nargs="+", type=float, default=[0.2, 0.5, 0.8])
    parser.add_argument("--seed", nargs="+", type=int, default=[0])
    parser.add_argument("--tasks", nargs="+", type=positive, default=[150, 600, 3000])
    parser.add_argument("--others", choices=("class", "equal"), default="class")
    parser.add_argument("--placebos", type=int, default=200, help="of the first model; 0 for none")
    parser.add_argument("--folder", default=None, help="of runs; by default a new one")
    options = parser.parse_args()
    options.folder = options.folder or tempfile.mkdtemp()
    above = "".join(f"{f'>{100 * margin:g}':>7}" for margin in MARGINS)
    head = f"{'':<42} {'looked':>7} {'reported':>8}{above} {'large':>6}{'found':>7}"
    print(head)
    first: World | None = None
    sums: dict[tuple[str, float, int], IntArray] = {}
    for strength, seed, method in itertools.product(options.strength, options.seed, options.method):
        world = trained(method, strength, seed, options)
        first = first or world
        for question, n_tasks in itertools.product(("tied", "present"), options.tasks):
            counts = counted(world, n_tasks, question)
            key = (question, strength, n_tasks)
            sums[key] = sums.get(key, 0) + counts
            title = f"{method} {strength} seed {seed}, {question}, {n_tasks}"
            print(line(title, counts), flush=True)
    print(f"\nall methods and seeds\n{head}")
    for (question, strength, n_tasks), counts in sorted(sums.items()):
        print(line(f"{question}, strength {strength}, {n_tasks} tasks", counts))
    if options.placebos and first is not None:
        shown = placebos(first, options.placebos, options.folder)
        print(f"placebos that report any pair: {shown} of {options.placebos}")


if __name__ == "__main__":
    main()
