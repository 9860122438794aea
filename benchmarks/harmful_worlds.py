"""Whether reports of words that hurt are right, in simulated worlds whose costs are known.

Run ``python benchmarks/harmful_worlds.py``; nothing is trained. FewSTAB's tasks are drawn from
images with simulated words, and each answer is right with a probability that depends on the class,
the image, the task, the words of the image (*present*), the word that the class is tied to (*tied*)
and the words of the image that other classes of the task are tied to. Wrong answers are any other
class, but a query that another class's word costs is answered as that class.

Columns: pairs looked at and reported; the share of reported ones that cost nothing; the share of
their intervals that contain the truth; the share of pairs that cost at least 10 points that is
reported; and the same share if the same number of false pairs is reported by a plain least-squares
regression per class with the uniform errors of a textbook. Placebos last: reports that show any
pair where no word costs anything.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from _options import one_of, positive

import fsf_statistics
import fsframework as fsf
from fsf_statistics.harm import PairRow
from fsframework.values import (
    ArmOutcomes,
    Arms,
    AttributeTable,
    BoolArray,
    FloatArray,
    ImagePool,
    Outcomes,
    TaskSet,
)

LARGE = 0.1


@dataclass(frozen=True)
class World:
    """What is true.

    Args:
        words: number; ``share`` of a class's images that have each word.
        correlation: of words in threes (the first with the second and third).
        present: share of the pairs that cost, and the least and most that they cost; ``tied`` the
            same of tied words, ``lured`` of words tied to other classes.
        helping: share of the effects that have the other sign.
        anywhere: whether a query that another class's word costs is answered as any class.
        base: accuracy of the hardest and of the easiest class without any word.
        image: standard deviation between images, ``task`` between tasks.
        clutter: how much an image's difficulty grows with each of its words.
        images: of each class.
    """

    words: int = 15
    share: tuple[float, float] = (0.2, 0.4)
    correlation: float = 0.0
    present: tuple[float, float, float] = (0.0, 0.0, 0.0)
    tied: tuple[float, float, float] = (0.0, 0.0, 0.0)
    lured: tuple[float, float, float] = (0.0, 0.0, 0.0)
    helping: float = 0.0
    anywhere: bool = False
    base: tuple[float, float] = (0.8, 0.95)
    image: float = 0.1
    task: float = 0.1
    clutter: float = 0.0
    images: int = 120
    classes: int = 20
    shot: int = 5
    queries: int = 15
    frequent: float = 0.0
    issue: bool = False
    logistic: bool = False


SOME, STRONG, WEAK, FEW = (0.2, 0.05, 0.3), (0.2, 0.2, 0.4), (0.3, 0.03, 0.08), (0.02, 0.1, 0.3)

WORLDS: Mapping[str, World] = MappingProxyType(
    {
        "independent": World(present=SOME, tied=SOME),
        "correlated 0.5": World(present=SOME, tied=SOME, correlation=0.5),
        "correlated 0.8": World(present=SOME, tied=SOME, correlation=0.8),
        "strong": World(present=STRONG, tied=STRONG),
        "weak": World(present=WEAK, tied=WEAK),
        "sparse": World(present=FEW, tied=FEW),
        "both signs": World(present=(0.4, 0.05, 0.3), tied=(0.4, 0.05, 0.3), helping=0.5),
        "rare": World(present=SOME, tied=SOME, share=(0.05, 0.1)),
        "own ties": World(tied=SOME),
        "own ties, all": World(tied=(1.0, 0.05, 0.3)),
        "others' ties": World(lured=SOME),
        "others' ties, all": World(lured=(1.0, 0.1, 0.3)),
        "others' ties, anywhere": World(lured=(1.0, 0.1, 0.3), anywhere=True),
        "own and others' ties": World(lured=(1.0, 0.1, 0.3), tied=SOME, present=SOME),
        "nothing": World(),
        "a word everywhere": World(issue=True),
        "frequent": World(present=SOME, tied=SOME, frequent=0.92),
        "few images": World(present=SOME, tied=SOME, images=40, shot=2, queries=5),
        "near 1": World(present=SOME, tied=SOME, base=(0.97, 1.0), image=0.2),
        "near 0": World(present=SOME, tied=SOME, base=(0.25, 0.4)),
        "clutter": World(clutter=0.03),
        "unlike tasks": World(present=SOME, tied=SOME, task=0.3),
        "unlike images": World(present=SOME, tied=SOME, image=0.3),
        "logistic": World(present=SOME, tied=SOME, lured=SOME, logistic=True, correlation=0.5),
    }
)


Costs = dict[tuple[str, int, int], float]
"""What a word truly costs, by question, class and word."""


@dataclass(frozen=True, eq=False)
class Truth:
    """The images of a world, and what words cost, each float ``(classes, words)``."""

    pool: ImagePool
    has: BoolArray
    present: FloatArray
    tied: FloatArray
    lured: FloatArray
    base: FloatArray


def truth(world: World, seed: int) -> Truth:
    """Draw the words of images and what they cost."""
    rng = np.random.default_rng([seed, 0])
    labels = np.repeat(np.arange(world.classes), world.images)
    names = np.array([f"w{i:02}" for i in range(world.words)])
    first = 3 * (np.arange(world.words) // 3)
    share = rng.uniform(*world.share, (world.classes, world.words))
    if world.correlation:
        share = share[:, first]
    if world.frequent:
        share[:, 0] = world.frequent
    has = rng.random((len(labels), world.words)) < share[labels]
    copied = rng.random(has.shape) < world.correlation
    has = np.where(copied, has[:, first], has)
    costs = [
        _costs(rng, of, world.helping, share.shape)
        for of in (world.present, world.tied, world.lured)
    ]
    if world.issue:
        costs[0][:, 0] = 0.25
        has[:, 5] = rng.random(len(has)) < np.where(has[:, 0], 0.8, 0.2)
    keys = tuple(f"{i:05}" for i in range(len(labels)))
    table = AttributeTable.from_words(keys, [names[row] for row in has])
    pool = ImagePool(keys, labels, tuple(f"c{i:02}" for i in range(world.classes)), {}, table)
    return Truth(pool, has, *costs, rng.uniform(*world.base, world.classes))


def _costs(
    rng: np.random.Generator, of: tuple[float, float, float], helping: float, shape: tuple[int, int]
) -> FloatArray:
    share, least, most = of
    sign = np.where(rng.random(shape) < helping, -1.0, 1.0)
    return np.where(rng.random(shape) < share, sign * rng.uniform(least, most, shape), 0.0)


def drawn(world: World, true: Truth, n_tasks: int, seed: int) -> Arms:
    """Draw FewSTAB's tasks and uniform ones."""
    return fsf.draw(
        "fewstab", true.pool, tasks=n_tasks, seed=seed, shot=world.shot, queries=world.queries
    )


@dataclass(frozen=True, eq=False)
class Chances:
    """How likely the answers to the queries of some tasks are right.

    Args:
        level: float ``(T, way, n_query)``, before other classes draw queries to them.
        lured: float ``(T, way, n_query, way)``, the chance to be drawn to each class.
        tied: float ``(T, way)``, the cost of the tied word, part of ``level``.
    """

    world: World
    level: FloatArray
    lured: FloatArray
    tied: FloatArray

    def right(self, without: FloatArray | float = 0.0) -> FloatArray:
        """Return the chance of a right answer, also if it were not for some of the costs."""
        level = self.level + without
        if self.world.logistic:
            level = 1 / (1 + np.exp(-6 * (level - 0.6)))
        return np.clip(level - self.lured.sum(axis=3), 0.01, 0.99)


def chances(
    world: World, true: Truth, tasks: TaskSet, hard: FloatArray, rng: np.random.Generator
) -> Chances:
    """Return the chances of the answers, given how hard each image is."""
    label, (n_tasks, n_way) = tasks.classes[:, :, None], tasks.classes.shape
    own = np.where(tasks.attribute >= 0, true.tied[tasks.classes, tasks.attribute], 0.0)
    cost = (true.present[label] * true.has[tasks.query]).sum(axis=3)
    cost = cost + own[:, :, None] + hard[tasks.query]
    cost += world.task * rng.standard_normal((n_tasks, n_way, 1))
    lured = np.zeros((*tasks.query.shape, n_way))
    for way in range(n_way):
        word = tasks.attribute[:, way, None, None]
        there = (word >= 0) & (np.arange(n_way)[:, None] != way)
        lured[..., way] = there * true.has[tasks.query, word] * true.lured[label, word]
    return Chances(world, true.base[label] - cost, lured, own)


def answered(world: World, true: Truth, arms: Arms, seed: int) -> tuple[ArmOutcomes, Costs]:
    """Draw the answers to all queries of some tasks; return them and what words truly cost."""
    rng = np.random.default_rng([seed, 1])
    hard = world.image * rng.standard_normal(len(true.pool))
    hard += world.clutter * (true.has.sum(axis=1) - true.has.sum(axis=1).mean())
    found, costs = {}, {}
    for arm, tasks in arms.items():
        chance = chances(world, true, tasks, hard, rng)
        n_way, drawn_at = tasks.n_way, rng.random(tasks.query.shape)
        right, own = chance.right(), np.arange(n_way)[:, None]
        other = (own + rng.integers(1, n_way, tasks.query.shape)) % n_way
        if not world.anywhere:
            beyond = drawn_at[..., None] - right[..., None] > chance.lured.cumsum(axis=3)
            drawn = beyond.sum(axis=3)
            other = np.where(drawn < n_way, drawn, other)
        found[arm] = Outcomes.of(tasks, np.where(drawn_at < right, own, other))
        costs |= _present(true, tasks, chance) if tasks.uniform else _tied(tasks, chance)
    return ArmOutcomes(found, arms), costs


def _present(true: Truth, tasks: TaskSet, chance: Chances) -> Costs:
    """Return what words cost the queries that have them, on average."""
    found = {}
    right = chance.right()
    for word in range(true.has.shape[1]):
        cost = true.present[tasks.classes, word][:, :, None]
        more = chance.right(cost) - right
        has = true.has[tasks.query, word]
        label = np.broadcast_to(tasks.classes[:, :, None], has.shape)[has]
        n = np.bincount(label, minlength=len(true.base))
        mean = np.bincount(label, more[has], minlength=len(true.base)) / np.maximum(n, 1)
        found |= {("present", one, word): float(of) for one, of in enumerate(mean)}
    return found


def _tied(tasks: TaskSet, chance: Chances) -> Costs:
    """Return what tied words cost the classes that are tied to them, on average."""
    more = (chance.right(chance.tied[:, :, None]) - chance.right()).mean(axis=2)
    sums: dict[tuple[str, int, int], list[float]] = {}
    for (t, way), cost in np.ndenumerate(more):
        pair = "tied", int(tasks.classes[t, way]), int(tasks.attribute[t, way])
        sums.setdefault(pair, []).append(float(cost))
    return {pair: float(np.mean(costs)) for pair, costs in sums.items()}


def plain(true: Truth, outcomes: ArmOutcomes) -> Costs:
    """Return t of least squares per class, for each question, class and word."""
    found: Costs = {}
    tasks, answers = outcomes.arms["random"], outcomes["random"]
    right = (answers.predictions == np.arange(tasks.n_way)[:, None]).ravel()
    asked = np.bincount(tasks.query.ravel(), minlength=len(true.pool))
    mean = np.bincount(tasks.query.ravel(), right, minlength=len(true.pool)) / np.maximum(asked, 1)
    for label in range(len(true.base)):
        rows = np.flatnonzero((asked > 0) & (true.pool.labels == label))
        ts = _least_squares(true.has[rows].astype(float), -mean[rows])
        found |= {("present", label, word): float(t) for word, t in enumerate(ts)}
        value, tied = [], []
        for arm, own in outcomes.arms.items():
            task, way = np.nonzero(own.classes == label)
            value.append(outcomes[arm].class_accuracy[task, way])
            tied.append(own.attribute[task, way])
        columns = np.concatenate(tied)[:, None] == np.arange(true.has.shape[1])
        ts = _least_squares(columns.astype(float), -np.concatenate(value))
        found |= {("tied", label, word): float(t) for word, t in enumerate(ts)}
    return found


def _least_squares(columns: FloatArray, value: FloatArray) -> FloatArray:
    design = np.hstack([np.ones((len(value), 1)), columns])
    inverse = np.linalg.pinv(design.T @ design)
    effect = inverse @ design.T @ value
    rest = value - design @ effect
    variance = rest @ rest / max(len(value) - design.shape[1], 1)
    return (effect / np.sqrt(np.maximum(variance * np.diag(inverse), 1e-12)))[1:]


@dataclass
class Count:
    """What the reports of a world and question said."""

    looked: int = 0
    reported: int = 0
    false: int = 0
    covered: int = 0
    large: int = 0
    found: int = 0
    shown: int = 0
    plain: list[tuple[float, float]] = dataclasses.field(default_factory=list)

    def add(self, rows: Sequence[PairRow], costs: Costs, ts: Costs) -> None:
        """Count the rows of one report."""
        for row in rows:
            label, words = int(row.class_name[1:]), (row.word, *row.inseparable)
            pairs = [(row.question, label, int(word[1:])) for word in words]
            # Of words that cannot be told apart, the cost is that of all together.
            cost, estimate = sum(costs.get(pair, 0.0) for pair in pairs), row.estimate
            pair = pairs[0]
            self.looked += 1
            self.large += cost >= LARGE
            self.plain.append((ts[pair], cost))
            if row.harmful:
                self.reported += 1
                self.false += cost <= 0
                self.covered += estimate.low - 1e-9 <= cost <= estimate.high + 1e-9
                self.found += cost >= LARGE
        self.shown += any(row.harmful for row in rows)

    def found_by_plain(self) -> int:
        """Return the large pairs that the plain regression finds with as many false ones."""
        costs = np.array([cost for _, cost in sorted(self.plain, reverse=True)])
        allowed = np.cumsum(costs <= 0) <= self.false
        return int((costs[allowed] >= LARGE).sum())

    def line(self, title: str) -> str:
        """Return a row of the table."""
        named, large = max(self.reported, 1), max(self.large, 1)
        return (
            f"{title:<40} {self.looked:>7} {self.reported:>8} {self.false / named:>7.2f}"
            f" {self.covered / named:>8.2f} {self.large:>6} {self.found / large:>6.2f}"
            f" {self.found_by_plain() / large:>6.2f} {self.shown:>6}"
        )


def counted(name: str, n_tasks: int, reports: int) -> dict[str, Count]:
    """Return what several reports of a world said, by question."""
    found = {question: Count() for question in ("tied", "present")}
    for seed in range(reports):
        true = truth(WORLDS[name], seed)
        arms = drawn(WORLDS[name], true, n_tasks, seed)
        outcomes, costs = answered(WORLDS[name], true, arms, seed)
        rows = fsf_statistics.harmful_pairs(outcomes, pool=true.pool).tested
        ts = plain(true, outcomes)
        for question, count in found.items():
            count.add([row for row in rows if row.question == question], costs, ts)
    return found


def placebos(count: int) -> int:
    """Return how many of several reports of placebos show any pair."""
    shown = 0
    for seed in range(count):
        true = truth(WORLDS["independent"], 1000 + seed)
        arms = drawn(WORLDS["nothing"], true, 600, seed)
        nothing = {arm: dataclasses.replace(of, placebo=True) for arm, of in arms.items()}
        world = dataclasses.replace(WORLDS["nothing"], image=0.2)
        outcomes, _ = answered(world, truth(world, 1000 + seed), arms, seed)
        marked = {arm: Outcomes.of(nothing[arm], of.predictions) for arm, of in outcomes.items()}
        report = fsf_statistics.harmful_pairs(
            ArmOutcomes(marked, Arms(nothing, arms.contrast)), pool=true.pool
        )
        shown += len(report) > 0
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--world", nargs="+", type=one_of(WORLDS), default=list(WORLDS))
    parser.add_argument("--tasks", nargs="+", type=positive, default=[600, 3000])
    parser.add_argument("--reports", type=positive, default=20)
    parser.add_argument("--placebos", type=int, default=200, help="0 for none")
    options = parser.parse_args()
    print(
        f"{'':<40} {'looked':>7} {'reported':>8} {'false':>7} {'covered':>8} {'large':>6}"
        f" {'found':>6} {'plain':>6} {'shown':>6}"
    )
    for n_tasks, name in itertools.product(options.tasks, options.world):
        for question, count in counted(name, n_tasks, options.reports).items():
            print(count.line(f"{name}, {question}, {n_tasks:,}"), flush=True)
    if options.placebos:
        print(f"placebos that show any pair: {placebos(options.placebos)} of {options.placebos}")


if __name__ == "__main__":
    main()
