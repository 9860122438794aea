"""How often the interval of a relative drop contains the truth, beside Fieller's, in simulation.

Run ``python benchmarks/drop_coverage.py``; it takes about ten minutes. ``--tasks 60 --replicates
200`` chooses part of it.

A model answers each query of a 5-way task with 15 queries per class correctly with a probability
that differs between training seeds, tasks, and tasks of a seed, in both arms. The columns are the
share of replicates that have a drop, since none is given near guessing, and of these the share
whose interval contains the true drop: the delta method's, which is printed, and Fieller's.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
from _options import positive

from fsf_statistics import Accuracy, mean_interval
from fsf_statistics.crossed import crossed
from fsframework.statistics.estimation import estimates_of
from fsframework.statistics.results import MethodResult
from fsframework.values import Arms, Contrast, FloatArray, Outcomes, TaskSet

WAY, QUERIES, CHANCE = 5, 15, 0.2
LEVELS = ((0.9, 0.8), (0.6, 0.4), (0.35, 0.25))
"""Accuracies of both arms."""
BETWEEN_SEEDS, BETWEEN_TASKS, REST = (0.01, 0.04), 0.04, 0.04
"""Standard deviations of the probabilities."""


def arms_of(n_tasks: int) -> Arms:
    """Return tasks of both arms, whose images are never looked at."""
    classes = np.tile(np.arange(WAY), (n_tasks, 1))
    images = np.arange(n_tasks * WAY * (QUERIES + 1)).reshape(n_tasks, WAY, -1)
    made = {
        arm: TaskSet(
            classes, images[..., :1], images[..., 1:], np.full(classes.shape, -1),
            np.zeros(classes.shape, bool), (), "simulated", {}, 0, "keys", "pool", arm=arm,
        )
        for arm in ("random", "biased")
    }  # fmt: skip
    return Arms(made, Contrast("random", "biased"))


def answers(arms: Arms, means: tuple[float, float], seeds: int, between: float,
            rng: np.random.Generator) -> list[dict[str, Outcomes]]:  # fmt: skip
    """Draw the answers of one model per seed."""
    of_seeds = rng.normal(0, between * (seeds > 1), (2, seeds, 1))
    found: list[dict[str, Outcomes]] = [{} for _ in range(seeds)]
    for place, (arm, tasks) in enumerate(arms.items()):
        of_tasks = rng.normal(0, BETWEEN_TASKS, len(tasks))
        p = means[place] + of_seeds[place] + of_tasks + rng.normal(0, REST, (seeds, len(tasks)))
        for own, chance in zip(found, np.clip(p, 0, 1), strict=True):
            right = rng.random((len(tasks), WAY, QUERIES)) < chance[:, None, None]
            truth = np.arange(WAY)[None, :, None]
            own[arm] = Outcomes.of(tasks, np.where(right, truth, (truth + 1) % WAY))
    return found


def fieller_holds(models: list[dict[str, Outcomes]], left: float) -> bool:
    """Return whether Fieller's interval of the share that is left contains a value."""
    control, tested = (
        np.stack([one[arm].task_accuracy for one in models]) - CHANCE for arm in models[0]
    )
    parts: list[FloatArray] = [left * control, -tested]
    if len(models) == 1:
        _, low, high = mean_interval(*(part[0] for part in parts))
    else:
        found = crossed({("model", str(place)): part for place, part in enumerate(parts)})
        low, high = found.low, found.high
    return low <= 0 <= high


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=positive, nargs="+", default=[20, 100, 600])
    parser.add_argument("--seeds", type=positive, nargs="+", default=[1, 2, 3, 5])
    parser.add_argument("--replicates", type=positive, default=400)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    print("tasks  seeds  between seeds  Acc-R  Acc-A  with a drop  delta method  Fieller")
    settings = itertools.product(given.tasks, given.seeds, BETWEEN_SEEDS, LEVELS)
    for n_tasks, seeds, between, means in settings:
        if seeds == 1 and between != BETWEEN_SEEDS[0]:
            continue
        arms, holds = arms_of(n_tasks), []
        left = (means[1] - CHANCE) / (means[0] - CHANCE)
        for _ in range(given.replicates):
            models = answers(arms, means, seeds, between, rng)
            result = MethodResult("model", models[0], arms, other_seeds=tuple(models[1:]))
            drop = estimates_of({"acc": Accuracy()}, result).get("acc-drop")
            if drop is not None:
                inside = drop.low <= 1 - left <= drop.high
                holds.append((inside, fieller_holds(models, left)))
        shares = np.mean(holds, axis=0) if holds else (np.nan, np.nan)
        print(
            f"{n_tasks:5}  {seeds:5}  {100 * between * (seeds > 1):13.0f}  {100 * means[0]:5.0f}  "
            f"{100 * means[1]:5.0f}  {100 * len(holds) / given.replicates:11.0f}  "
            f"{100 * shares[0]:12.1f}  {100 * shares[1]:7.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
