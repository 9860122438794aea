"""What is accounted for beside a word, by values worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fsf_statistics.adjusting import Answers, OtherWords, cost_of_tied_words, drawn_away
from fsf_statistics.breakdowns import tied_words
from fsf_statistics.tails import no_difference
from fsframework.values import (
    ArmOutcomes,
    Arms,
    AttributeTable,
    Contrast,
    ImagePool,
    Outcomes,
    TaskSet,
)

KEYS = tuple("0123456789")
WORDS = ((), ("x",), ("y",), ("x",), (), (), ("x", "y"), (), (), ())
TABLE = AttributeTable.from_words(KEYS, WORDS)
POOL = ImagePool(KEYS, np.repeat([0, 1], 5), ("a", "b"), {}, TABLE)


def tasks_of(support: list, query: list, sampler: str) -> TaskSet:
    classes = np.tile([0, 1], (len(query), 1))
    return TaskSet.of(
        POOL, classes, np.array(support), np.array(query), sampler=sampler, options={}, seed=0
    )


def uniform() -> tuple[TaskSet, Outcomes]:
    """Two tasks with the same images; in the second, image 2 is answered wrongly as well."""
    tasks = tasks_of([[[0], [5]]] * 2, [[[1, 2, 3, 4], [6, 7, 8, 9]]] * 2, "random")
    answers = np.array([[[1, 0, 0, 0], [1, 1, 1, 1]], [[1, 1, 0, 0], [1, 1, 1, 1]]])
    return tasks, Outcomes.of(tasks, answers)


def tied(answers: list[list[int]]) -> tuple[TaskSet, Outcomes]:
    """A task whose class a is tied to x and b to y."""
    tasks = tasks_of([[[0], [5]]], [[[2, 3, 4], [6, 7, 8]]], "biased")
    tasks = tasks.with_attributes(POOL.attributes, np.array([[0, 1]]))
    return tasks, Outcomes.of(tasks, np.array([answers]))


def test_queries_are_drawn_away_by_the_word_of_another_class() -> None:
    tasks, outcomes = tied([[1, 0, 0], [1, 0, 1]])
    away = drawn_away(tasks, POOL, outcomes.predictions, tied_words(tasks, POOL))
    # a: its query with y is answered as b, the two without are not: 1 - 0, one of three queries.
    # b: its query with x is answered as b, one of two without as a: 0 - 1/2 is no attraction.
    assert away == pytest.approx([1 / 3, 0])


def test_cost_of_tied_words_is_for_the_same_images() -> None:
    (free, free_answers), (bound, bound_answers) = uniform(), tied([[1, 0, 0], [1, 1, 1]])
    arms = Arms({"random": free, "biased": bound}, Contrast("random", "biased"))
    outcomes = ArmOutcomes({"random": free_answers, "biased": bound_answers}, arms)
    value = Answers.of(outcomes, {"random": free.query}, len(POOL)).value
    # Image 2: right where 3/4 are (1/3 above the other queries), wrong where 1/2 are (2/3 below).
    assert value[[1, 2, 3, 4]] == pytest.approx([-5 / 6, -1 / 6, 1 / 2, 1 / 2])
    cost, variance = cost_of_tied_words(outcomes, POOL, "biased", ["random"])
    # Expected 5/8 + 5/18, found 2/3; half of the third that b draws to itself is left out.
    assert cost == pytest.approx([5 / 8 + 5 / 18 - 2 / 3 - 1 / 6, 0])
    assert variance == pytest.approx([1 / 64, 0])
    alone = cost_of_tied_words(outcomes, POOL, "biased", [])
    assert [part.tolist() for part in alone] == [[0, 0], [0, 0]]


def test_a_word_that_comes_with_a_costly_one_costs_nothing_itself() -> None:
    rng = np.random.default_rng(0)
    costly = np.arange(80) < 40
    comes_along = (np.arange(80) < 30) | (np.arange(80) >= 70)
    value = -1.0 * costly + 0.1 * rng.standard_normal(80)
    units = np.concatenate([np.flatnonzero(costly), np.flatnonzero(comes_along)])
    words = np.repeat([0, 1], [40, 40])
    found = OtherWords.of((np.zeros(80, np.int64), value), (units, words), (1, 2))
    raw = [value[~has].mean() - value[has].mean() for has in (costly, comes_along)]
    assert raw == pytest.approx([1, 0.5], abs=0.06)
    assert raw - found.explained[0] == pytest.approx([1, 0], abs=0.06)
    assert found.left[0, 1] < 0.1 < found.left[0, 0]


def test_a_word_is_not_to_blame_for_the_absence_of_a_better_one() -> None:
    rng = np.random.default_rng(0)
    words = np.repeat([0, 1, 2], [60, 20, 20])  # each unit has one of three words
    value = 0.5 * (words == 0) + 0.1 * rng.standard_normal(100)
    label, units = np.zeros(100, np.int64), np.arange(100)
    found = OtherWords.of((label, value), (units, words), (1, 3))
    raw = [value[words != w].mean() - value[words == w].mean() for w in range(3)]
    # Of the 80 others, 60 have the better word: 0.5 * 60 / 80. Against the mean of the three words,
    # 1/6, the better one is worth 1/3, and each of the rest costs 1/6.
    assert raw == pytest.approx([-0.5, 0.375, 0.375], abs=0.06)
    assert raw - found.explained[0] == pytest.approx([-1 / 3, 1 / 6, 1 / 6], abs=0.06)
    same = OtherWords.of((label, np.ones(100)), (units, words), (1, 3))
    assert (same.explained.tolist(), same.left.tolist()) == ([[0, 0, 0]], [[1, 1, 1]])


def test_many_small_differences_are_seen_together_and_none_where_there_are_none() -> None:
    rng = np.random.default_rng(0)
    label, words, units = np.repeat(np.arange(5), 60), np.tile(np.arange(12), 25), np.arange(300)
    effect = 0.5 * rng.standard_normal((5, 12))
    assert no_difference(label, effect[label, words] + rng.random(300), units, words) < 1e-3
    values = [(rng.random(300) < 0.9).astype(float) for _ in range(60)]
    small = sum(no_difference(label, value, units, words) < 0.1 for value in values)
    # 6 are expected; 14 or more have a chance of 0.2 %.
    assert small < 14
    assert no_difference(label, np.ones(300), units, words) == 1.0
