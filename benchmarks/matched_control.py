"""What unbalanced classes do to the gap of FewSTAB, with the usual and with the matched control.

Run ``python benchmarks/matched_control.py``; it takes about half an hour. Images have eight of
forty words, drawn at random, so that biased tasks tie classes to words that mean nothing. A model
answers a query of a class correctly with a probability that depends on the class alone, less
``lean`` in biased tasks. The true gap of Acc that is due to leaning is therefore ``lean``.

Pools have 14 classes: of 60 images each (``balanced``), or of 23 to 480. Classes are equally easy
(``flat``), or the larger ones are easier (``sloped``), or ease is drawn at random (``drawn``). The
columns are the mean gap with each control in points, the share of replicates whose 95 % interval
contains ``lean`` (with the matched control also Welch's interval, which ignores that tasks are
pairs), and the share in which the note on shares of the classes appears.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice

import numpy as np
from _options import positive

import fsframework as fsf
from fsf_statistics import Accuracy
from fsframework.values import (
    ArmOutcomes,
    Arms,
    AttributeTable,
    Contrast,
    Estimate,
    FloatArray,
    ImagePool,
    Outcomes,
    TaskSet,
)

N_WORDS, PER_IMAGE = 40, 8
SIZES = {
    "balanced": (60,) * 14,
    "unbalanced": (23, 29, 37, 46, 59, 74, 94, 118, 150, 189, 239, 302, 381, 480),
}
EASE: dict[str, FloatArray] = {
    "flat": np.full(14, 0.7),
    "sloped": np.linspace(0.45, 0.9, 14),
    "drawn": np.random.default_rng(1).uniform(0.45, 0.9, 14),
}


def pool_of(sizes: tuple[int, ...]) -> ImagePool:
    """Return images with random words."""
    rng = np.random.default_rng(0)
    keys = tuple(f"{i:05}" for i in range(sum(sizes)))
    words = [{f"w{w}" for w in rng.choice(N_WORDS, PER_IMAGE, replace=False)} for _ in keys]
    names = tuple(f"c{c}" for c in range(len(sizes)))
    pool = ImagePool(keys, np.repeat(np.arange(len(sizes)), sizes), names)
    return pool.with_attributes(AttributeTable.from_words(keys, words))


def answers(tasks: TaskSet, ease: FloatArray, rng: np.random.Generator) -> Outcomes:
    """Return answers that are right with the ease of their class."""
    way = np.arange(tasks.n_way)[:, None]
    right = rng.random(tasks.query.shape) < ease[tasks.classes][:, :, None]
    return Outcomes.of(tasks, np.where(right, way, (way + 1) % tasks.n_way))


def replicates(arms: Arms, n_tasks: int) -> Iterator[dict[str, TaskSet]]:
    """Yield disjoint runs of tasks, which are independent draws."""
    for start in range(0, len(arms.tested), n_tasks):
        yield {arm: tasks[start : start + n_tasks] for arm, tasks in arms.items()}


def gaps(
    arms: Arms, n_tasks: int, ease: FloatArray, lean: float
) -> Iterator[tuple[Estimate, Estimate, bool]]:
    """Yield the gap as declared, the gap of unpaired arms, and whether the note appears."""
    assert arms.contrast is not None
    unpaired = Contrast(*arms.contrast.arms)
    for number, drawn in enumerate(replicates(arms, n_tasks)):
        rng = np.random.default_rng(number)
        control, tested = drawn.values()
        answered = dict(
            zip(
                drawn, (answers(control, ease, rng), answers(tested, ease - lean, rng)), strict=True
            )
        )
        outcomes = [
            ArmOutcomes(answered, Arms(drawn, contrast)) for contrast in (arms.contrast, unpaired)
        ]
        declared, welch = (fsf.estimate(one, "acc")["acc-gap"] for one in outcomes)
        yield declared, welch, bool(Accuracy().notes(outcomes[0], declared))


def main() -> None:
    """Print a row for each world."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--replicates", type=positive, default=200)
    parser.add_argument("--tasks", type=positive, nargs="+", default=[100, 600])
    options = parser.parse_args()
    heads = (
        "pool",
        "ease",
        "lean",
        "tasks",
        "random",
        "holds",
        "matched",
        "holds",
        "Welch",
        "note",
    )
    print("".join(f"{head:>11}" for head in heads))
    for name, sizes in SIZES.items():
        pool, most = pool_of(sizes), max(options.tasks) * options.replicates
        drawn = [
            fsf.draw({"name": "fewstab", "control": control}, pool, tasks=most)
            for control in ("random", "matched")
        ]
        for n_tasks in options.tasks:
            for kind, ease in EASE.items():
                for lean in (0.0, 0.15):
                    usual, matched = (
                        list(islice(gaps(arms, n_tasks, ease, lean), options.replicates))
                        for arms in drawn
                    )
                    columns = [
                        100 * np.mean([gap.value for gap, _, _ in usual]),
                        np.mean([gap.low <= lean <= gap.high for gap, _, _ in usual]),
                        100 * np.mean([gap.value for gap, _, _ in matched]),
                        np.mean([gap.low <= lean <= gap.high for gap, _, _ in matched]),
                        np.mean([gap.low <= lean <= gap.high for _, gap, _ in matched]),
                        np.mean([note for _, _, note in usual]),
                    ]
                    row = f"{name:>11}{kind:>11}{lean:11.2f}{n_tasks:11,}"
                    print(row + "".join(f"{value:11.3f}" for value in columns), flush=True)


if __name__ == "__main__":
    main()
