"""Arms that draw classes in different shares: when it is said, and the matched control."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import fsframework as fsf
from fsf_statistics import Accuracy, WorstClassAccuracy
from fsframework.interfaces import Statistic
from fsframework.values import ArmOutcomes, Arms, Estimate, ImagePool, Outcomes, TaskSet
from tests.toys import pool_of

EASE = np.linspace(0.45, 0.9, 14)
"""The accuracy of each class, the small ones first; the model does not lean on any word."""


@cache
def pool(*sizes: int) -> ImagePool:
    """Return images with 8 of 40 words each, drawn at random."""
    rng = np.random.default_rng(0)

    def words() -> str:
        return " ".join(f"w{word}" for word in rng.choice(40, 8, replace=False))

    return pool_of({f"c{c}": [words() for _ in range(n)] for c, n in enumerate(sizes)})


UNBALANCED = (23, 29, 37, 46, 59, 74, 94, 118, 150, 189, 239, 302, 381, 480)


@cache
def arms(sizes: tuple[int, ...], control: str) -> Arms:
    return fsf.draw({"name": "fewstab", "control": control}, pool(*sizes), tasks=600)


def answered(arms: Arms, lean: float = 0.0) -> ArmOutcomes:
    """Return answers of a model whose accuracy depends on the class, and is lower if it leans."""

    def outcomes(tasks: TaskSet, loss: float, seed: int) -> Outcomes:
        rng = np.random.default_rng(seed)
        way = np.arange(tasks.n_way)[:, None]
        right = rng.random(tasks.query.shape) < (EASE[tasks.classes] - loss)[:, :, None]
        return Outcomes.of(tasks, np.where(right, way, (way + 1) % tasks.n_way))

    found = {arm: outcomes(tasks, 0.0, 1) for arm, tasks in arms.items()}
    found["biased"] = outcomes(arms["biased"], lean, 2)
    return ArmOutcomes(found, arms)


def said(outcomes: ArmOutcomes, statistic: Statistic, name: str) -> tuple[Estimate, list[str]]:
    gap = fsf.estimate(outcomes, name)[f"{name}-gap"]
    return gap, statistic.notes(outcomes, gap)


@pytest.mark.parametrize(
    ("name", "statistic"), [("acc", Accuracy()), ("wacc", WorstClassAccuracy())]
)
def test_classes_alone_make_a_gap_that_a_matched_control_does_not_have(
    name: str, statistic: Statistic
) -> None:
    usual = answered(arms(UNBALANCED, "random"))
    gap, notes = said(usual, statistic, name)
    assert gap.high < -0.02  # no leaning: biased tasks have fewer of the small classes
    assert "sampler={'control': 'matched'}" in notes[0]
    drawn = [np.mean(np.any(usual.arms[arm].classes == 0, axis=1)) for arm in gap.arms]
    assert all(f"{100 * share:.1f} %" in notes[0] for share in drawn)
    made = float(notes[1].partition(f"{name}-gap ")[2].split()[0].replace("−", "-")) / 100
    assert gap.low < made < gap.high

    matched = answered(arms(UNBALANCED, "matched"))
    gap, notes = said(matched, statistic, name)
    assert gap.paired
    assert gap.low < 0 < gap.high
    assert not notes


def test_a_leaning_model_keeps_its_gap() -> None:
    gap, _ = said(answered(arms(UNBALANCED, "matched"), 0.15), Accuracy(), "acc")
    assert gap.low < 0.15 < gap.high
    gap, _ = said(answered(arms(UNBALANCED, "random"), 0.15), Accuracy(), "acc")
    assert gap.high < 0.13


def test_nothing_is_said_where_shares_are_equal_or_classes_equally_easy() -> None:
    for control in ("random", "matched"):
        _, notes = said(answered(arms((60,) * 14, control), 0.15), Accuracy(), "acc")
        assert not notes
    unbalanced = arms(UNBALANCED, "random")
    same = {
        arm: Outcomes.of(tasks, np.random.default_rng(3).integers(0, 5, tasks.query.shape))
        for arm, tasks in unbalanced.items()
    }
    _, notes = said(ArmOutcomes(same, unbalanced), Accuracy(), "acc")
    assert not notes


def test_few_tasks_of_many_classes_say_nothing() -> None:
    few = fsf.draw("fewstab", pool(*UNBALANCED), tasks=5)
    _, notes = said(answered(few), Accuracy(), "acc")
    assert not notes
