"""How often intervals of effective robustness hold the truth, and what misleads the values.

Simulates tables of models whose true accuracies in the control arm lie between 30 and 85 %, and in
the tested arm on a logit line, around it (deviation 0.3), or on it but for one model that is a
logit better. A task has a deviation of 8 points that all models share, and a rest of 15 points for
each; seeds differ by the deviation given. The first table has the share of 95 % intervals that hold
the value of the line through the true accuracies, the same of the differences of all pairs, their
mean half-width, and in how many tables without any difference a pair is called different.

The second is about the values themselves, with 600 tasks: where one model is a logit better, or all
lose 20 points, which is no line over logits, how far the values of the other models are from 0 on
average, the largest distance, and how often the notes say so.

The third is about guessing, at 8.8 %: all models lose the same of what they know beyond it, in
logits, so that those that know little end near guessing in the tested arm. It has the share of
models that are left out for that, and in how many tables without any difference a pair is called
different, without these models on the line and with them; 600 tasks.

    python benchmarks/robustness_coverage.py
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math

import numpy as np
from _options import positive
from scipy import special

from fsf_statistics import effective_robustness, mean_interval
from fsf_statistics.adjusting import holm
from fsf_statistics.robustness import CellsOfModel, Line, contrasts_of
from fsframework.values import ArmOutcomes, Arms, Contrast, Estimate, ImagePool, Outcomes, TaskSet

Array = np.ndarray
SHAPES = ("line", "scatter", "one better", "curve")
GUESSING = 0.088


def true_shares(rng: np.random.Generator, n: int, shape: str) -> tuple[Array, Array]:
    """Return the true accuracies of models in both arms."""
    control = rng.uniform(0.3, 0.85, n)
    logits = 0.9 * special.logit(control) - 0.8
    if shape == "scatter":
        logits += rng.normal(0, 0.3, n)
    elif shape == "one better":
        logits[0] += 1.0
    elif shape == "curve":
        # All lose 20 points, which is no line over logits.
        logits = special.logit(control - 0.2)
    return control, special.expit(logits)


def cells_of(
    rng: np.random.Generator, shares: tuple[Array, Array], seeds: int, tasks: int, between: float
) -> list[CellsOfModel]:
    """Return accuracies of models on the same tasks."""
    common = [rng.normal(0, 0.08, (1, tasks)) for _ in shares]
    cells = []
    for number, own in enumerate(zip(*shares, strict=True)):
        seed = rng.normal(0, between, (seeds, 1)) if seeds > 1 else 0.0
        values = [
            share + seed + task + rng.normal(0, 0.15, (seeds, tasks))
            for share, task in zip(own, common, strict=True)
        ]
        cells.append(CellsOfModel(str(number), *values))
    return cells


def line_of(cells: list[CellsOfModel]) -> Line:
    """Return the line through the means."""
    return Line(
        np.array([one.control.mean() for one in cells]),
        np.array([one.tested.mean() for one in cells]),
    )


def coverage(
    n: int, shape: str, seeds: int, tasks: int, between: float, replicates: int
) -> tuple[float, ...]:
    """Return the coverage of values and pairs, the half-width, and the share of false reports."""
    rng = np.random.default_rng([n, SHAPES.index(shape), seeds, tasks, round(1000 * between)])
    pairs = list(itertools.combinations(range(n), 2))
    rows = np.eye(n)
    contrasts = np.vstack([rows, *(rows[i] - rows[j] for i, j in pairs)])
    sums = np.zeros(4)
    for _ in range(replicates):
        shares = true_shares(rng, n, shape)
        cells = cells_of(rng, shares, seeds, tasks, between)
        found = contrasts_of(line_of(cells), contrasts, cells, paired=False, level=0.95)
        true = contrasts @ Line(*shares).residuals
        held = np.array([f.low <= t <= f.high for f, t in zip(found, true, strict=True)])
        p = holm(np.array([one.p for one in found[n:]]))
        half = np.mean([one.high - one.value for one in found[:n]])
        sums += held[:n].mean(), held[n:].mean(), half, (p < 0.05).any()
    return tuple(sums / replicates)


def arms_of() -> Arms:
    """Return two arms of 600 tasks of five classes."""
    keys = tuple(f"{image:04}" for image in range(5 * 100))
    pool = ImagePool(keys, np.repeat(np.arange(5), 100), tuple("abcde"))
    made, rng = {}, np.random.default_rng(0)
    for arm in ("random", "biased"):
        drawn = np.argsort(rng.random((600, 5, 100)), axis=2) + 100 * np.arange(5)[:, None]
        classes = np.tile(np.arange(5), (600, 1))
        support, query = drawn[:, :, :1], drawn[:, :, 1:16]
        tasks = TaskSet.of(pool, classes, support, query, sampler="toy", options={}, seed=0)
        made[arm] = dataclasses.replace(tasks, arm=arm)
    return Arms(made, Contrast("random", "biased", paired=False))


def answers(
    rng: np.random.Generator, shares: tuple[Array, Array], arms: Arms
) -> dict[str, ArmOutcomes]:
    """Return answers with these accuracies, which differ between tasks by 8 points."""
    hard = [rng.normal(0, 0.08, (600, 1, 1)) for _ in shares]
    found = {}
    for number, own in enumerate(zip(*shares, strict=True)):
        made = {}
        for (name, tasks), share, task in zip(arms.items(), own, hard, strict=True):
            truth = np.arange(5)[None, :, None]
            right = rng.random(tasks.query.shape) < share + task
            made[name] = Outcomes.of(tasks, np.where(right, truth, (truth + 1) % 5))
        found[f"model {number}"] = ArmOutcomes(made, arms)
    return found


def misled(n: int, shape: str, replicates: int, arms: Arms) -> tuple[float, float, float]:
    """Return the mean and the largest distance of the other models from 0, and the share noted."""
    rng = np.random.default_rng([n, SHAPES.index(shape), 7])
    away, farthest, noted = 0.0, 0.0, 0
    for _ in range(replicates):
        shares = true_shares(rng, n, shape)
        others = Line(*shares).residuals[1 if shape == "one better" else 0 :]
        away += float(np.abs(others).mean()) / replicates
        farthest += float(np.abs(others).max()) / replicates
        noted += bool(effective_robustness(answers(rng, shares, arms), "acc").notes)
    return away, farthest, noted / replicates


def near_guessing(values: Array, *, in_doubt: bool) -> bool:
    """Return whether the mean of values per task is near guessing, or in doubt may be."""
    mean, low, high = mean_interval(values) if in_doubt else (values.mean(), math.nan, math.nan)
    one = Estimate("wacc", mean, low, high, 0.95, "closed", paired=False, estimator="student-t",
                   n_tasks=len(values), n_images=0, share=True, guessing=GUESSING)  # fmt: skip
    return one.near_guessing


def at_guessing(n: int, loss: float, replicates: int) -> tuple[float, float, float]:
    """Return the share left out, and those of tables with a false report, without and with them."""
    rng = np.random.default_rng([n, round(10 * loss), 8])
    left_out, tables, false = 0, 0, np.zeros(2)
    while tables < replicates:
        known = rng.uniform(0.1, 0.75, n)
        lost = special.expit(0.9 * special.logit(known) - loss)
        control, tested = (GUESSING + (1 - GUESSING) * share for share in (known, lost))
        every = cells_of(rng, (control, tested), 1, 600, 0.0)
        every = [one for one in every if not near_guessing(one.control[0], in_doubt=True)]
        kept = [one for one in every if not near_guessing(one.tested[0], in_doubt=False)]
        if len(kept) < 6:
            continue
        tables += 1
        left_out += len(every) - len(kept)
        for place, cells in enumerate((kept, every)):
            pairs = itertools.combinations(np.eye(len(cells)), 2)
            contrasts = np.array([one - other for one, other in pairs])
            found = contrasts_of(line_of(cells), contrasts, cells, paired=False, level=0.95)
            false[place] += (holm(np.array([one.p for one in found])) < 0.05).any()
    without, along = (false / tables).tolist()
    return left_out / n / tables, without, along


def main() -> None:
    """Print the three tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=positive, default=400, help="tables per row")
    given = parser.parse_args()
    print(f"{given.replicates:,} tables per row, level 95 %, half-widths in points\n")
    print("models  shape       seeds  between  tasks   value    pairs   half-width  false")
    for n, (seeds, tasks, between) in itertools.product(
        (3, 5, 10, 20),
        (
            (1, 20, 0.0),
            (1, 100, 0.0),
            (1, 600, 0.0),
            (2, 600, 0.01),
            (3, 600, 0.01),
            (3, 600, 0.03),
        ),
    ):
        for shape in SHAPES[:3]:
            own, pairs, half, false = coverage(n, shape, seeds, tasks, between, given.replicates)
            setting = f"{n:6}  {shape:10}  {seeds:5}  {100 * between:5.1f}    {tasks:5}"
            found = f"{100 * own:5.1f} %  {100 * pairs:5.1f} %  {100 * half:8.2f}"
            reported = f"{100 * false:8.1f} %" if shape == "line" else ""
            print(f"{setting}  {found}{reported}", flush=True)
    arms = arms_of()
    print("\nmodels  shape       others away from 0   farthest   notes")
    for n, shape in itertools.product((4, 6, 10, 20, 40), SHAPES[2:]):
        away, farthest, noted = misled(n, shape, 1 + given.replicates // 10, arms)
        print(
            f"{n:6}  {shape:10}  {100 * away:14.1f}  {100 * farthest:12.1f}  {100 * noted:6.0f} %"
        )
    print("\nmodels  loss (logits)   left out   false without them   with them")
    for n, loss in itertools.product((10, 20), (1.0, 1.5, 2.0)):
        out, without, kept = at_guessing(n, loss, given.replicates)
        cells = f"{100 * out:9.0f} %  {100 * without:17.0f} %  {100 * kept:8.0f} %"
        print(f"{n:6}  {loss:13}  {cells}", flush=True)


if __name__ == "__main__":
    main()
