"""The worst group of class and word: by hand, in simulated worlds, and beside wAcc."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import fsframework as fsf
from fsf_statistics import breakdown, worst_groups
from fsframework.errors import DataError, OptionError
from fsframework.values import (
    ArmOutcomes,
    Arms,
    AttributeTable,
    Contrast,
    ImagePool,
    Outcomes,
    TaskSet,
)

CLASSES, IMAGES, QUERIES, WORDS = 3, 24, 6, 4
N = CLASSES * IMAGES
KEYS = tuple(f"{i:03}" for i in range(N))
HAVE = np.arange(N)[:, None] % np.array([2, 3, 4, 5]) == 0
TABLE = AttributeTable.from_words(KEYS, [{f"w{w}" for w in np.flatnonzero(row)} for row in HAVE])
LABELS = np.repeat(np.arange(CLASSES), IMAGES)
POOL = ImagePool(KEYS, LABELS, ("a", "b", "c"), {}, TABLE)


def tasks_of(n_tasks: int, seed: int, arm: str = "random") -> TaskSet:
    """Tasks of all classes, with one support image and six queries each."""
    rng = np.random.default_rng(seed)
    drawn = np.argsort(rng.random((n_tasks, CLASSES, IMAGES)), axis=2)[..., : QUERIES + 1]
    drawn = drawn + IMAGES * np.arange(CLASSES)[:, None]
    made: Any = TaskSet.of(
        POOL, np.tile(np.arange(CLASSES), (n_tasks, 1)), drawn[..., :1], drawn[..., 1:],
        sampler="toy", options={}, seed=seed,
    )  # fmt: skip
    return dataclasses.replace(made, arm=arm)


def answered(tasks: TaskSet, chance: np.ndarray, seed: int, spread: float = 0.0) -> Outcomes:
    """Answers that are right with a chance per image, which tasks raise and lower together."""
    rng = np.random.default_rng(seed)
    shift = spread * rng.normal(size=(len(tasks), 1, 1))
    right = rng.random(tasks.query.shape) < np.clip(chance[tasks.query] + shift, 0, 1)
    truth = np.arange(CLASSES)[:, None]
    return Outcomes.of(tasks, np.where(right, truth, (truth + 1) % CLASSES))


def one_arm(chance: np.ndarray, n_tasks: int, seed: int, spread: float = 0.0) -> ArmOutcomes:
    tasks = tasks_of(n_tasks, seed)
    return ArmOutcomes(
        {"random": answered(tasks, chance, seed + 1, spread)}, Arms({"random": tasks})
    )


def test_the_worst_of_equal_groups_is_not_reported_as_worse_than_they_are() -> None:
    equal = np.full(N, 0.6)
    values, lowest = [], []
    for seed in range(0, 60, 2):
        outcomes = one_arm(equal, 40, seed)
        [row] = worst_groups(outcomes, pool=POOL, least=20).rows
        values.append(row.estimate.value)
        found = breakdown(outcomes, "pair", question="present", pool=POOL).rows
        lowest.append(min(r.estimate.value for r in found if r.n_queries >= 20))
        assert row.estimate.low <= row.estimate.value <= row.estimate.high
    assert np.mean(values) == pytest.approx(0.6, abs=0.015)
    assert np.mean(lowest) < 0.55  # what is chosen by its own answers is low by chance


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.0, 0.15])
def test_intervals_contain_the_worst_groups_accuracy(spread: float) -> None:
    for bad in (0.0, 0.1, 0.3):
        chance = np.where((LABELS == 1) & HAVE[:, 2], 0.6 - bad, 0.6)
        # Clipping and the tasks' common shift do not move a mean that is far from 0 and 1.
        group = (LABELS[:, None] == np.arange(3))[:, :, None] & HAVE[:, None]
        truth = min(chance[group[:, c, w]].mean() for c in range(CLASSES) for w in range(WORDS))
        inside = 0
        for seed in range(0, 200, 2):
            [row] = worst_groups(one_arm(chance, 60, seed, spread), pool=POOL, least=20).rows
            inside += row.estimate.low <= truth <= row.estimate.high
        assert inside >= 93  # of 100 at 95 %, and simultaneous bounds are wider than they need be


def test_the_worst_group_its_arms_and_wacc() -> None:
    arms = {arm: tasks_of(80, seed, arm) for seed, arm in enumerate(("random", "biased"))}
    chance = {"random": np.full(N, 0.8), "biased": np.full(N, 0.8)}
    chance["biased"][(LABELS == 2) & HAVE[:, 1]] = 0.2
    outcomes = ArmOutcomes(
        {arm: answered(arms[arm], chance[arm], 9) for arm in arms},
        Arms(arms, Contrast("random", "biased", paired=False)),
    )
    rows = {row.arm: row for row in worst_groups(outcomes, pool=POOL).rows}
    assert list(rows) == ["random", "biased", "gap"]
    assert rows["biased"].group == ("c", "w1")
    pairs = breakdown(outcomes, "pair", question="present", pool=POOL).rows
    [same] = [r for r in pairs if r.names == ("c", "w1") and r.arm == "biased"]
    # The same group is the worst in every tenth of the tasks.
    assert rows["biased"].estimate.value == pytest.approx(same.estimate.value)
    assert rows["biased"].estimate.half_width > same.estimate.half_width
    assert rows["biased"].n_queries == same.n_queries
    one, other, gap = (rows[arm].estimate for arm in rows)
    assert gap.value == pytest.approx(one.value - other.value)
    assert 0 < gap.low < gap.value < gap.high
    below = np.hypot(one.value - one.low, other.high - other.value)
    assert gap.value - gap.low == pytest.approx(below)
    assert rows["biased"].statistic == fsf.estimate(outcomes, "wacc")["wacc-biased"]


def test_several_models_and_groups_without_errors() -> None:
    perfect = one_arm(np.ones(N), 30, 0)
    [row] = worst_groups(perfect, pool=POOL, least=20).rows
    assert row.estimate.value == row.estimate.high == 1.0
    assert 0.6 < row.estimate.low < 1.0
    models = [
        ArmOutcomes({"random": answered(perfect.arms["random"], np.full(N, p), s)}, perfect.arms)
        for s, p in enumerate((0.5, 0.6, 0.7))
    ]
    [row] = worst_groups(models, pool=POOL, least=20).rows
    assert row.estimate.n_seeds == 3
    assert row.estimate.value == pytest.approx(0.6, abs=0.08)


def test_bad_options_are_refused() -> None:
    outcomes = one_arm(np.full(N, 0.6), 12, 0)
    with pytest.raises(DataError, match="no class and word has 9000 queries in 10 tasks"):
        worst_groups(outcomes, pool=POOL, least=9000)
    for wrong in ({"least": 0}, {"level": 1.0}, {"question": "near"}):
        with pytest.raises(OptionError):
            worst_groups(outcomes, pool=POOL, **wrong)  # type: ignore[arg-type]
