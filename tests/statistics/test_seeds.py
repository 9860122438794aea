"""Contrasts and comparisons over training seeds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fsframework.errors import OptionError
from fsframework.statistics.comparison import TaskValues, compare_methods
from fsframework.statistics.differences import ComparisonOptions
from fsframework.statistics.estimators import IntervalChoice
from fsframework.statistics.measures import Measure
from fsframework.statistics.seeds import differences_over_seeds
from fsframework.values import FloatArray

# Two seeds of one method (first two columns) and two of another, on three tasks.
BY_HAND = np.array([[0.3, 0.5, 0.2, 0.2], [0.4, 0.6, 0.3, 0.5], [0.5, 0.7, 0.5, 0.7]])


def measured(values: FloatArray, seeds: tuple[int, ...]) -> TaskValues:
    return TaskValues(Measure("acc", ("t",)), "t", (values,), "closed", seeds=seeds)


def models(seeds: int, mean: float, between: float, seed: int) -> FloatArray:
    """Return accuracies ``(tasks, seeds)`` of models whose tasks are those of every other call."""
    tasks = np.random.default_rng(99).normal(0, 0.1, (80, 1))
    own = np.random.default_rng(seed)
    rest = own.normal(0, 0.02, (80, seeds))
    return np.asarray(mean + tasks + own.normal(0, between, seeds) + rest)


def test_a_difference_worked_by_hand() -> None:
    found = differences_over_seeds([BY_HAND], np.array([[1.0, -1.0]]), [2, 2])
    # Means per task: 0.4, 0.5, 0.6 and 0.2, 0.4, 0.6, so differences 0.2, 0.1, 0 with variance
    # 0.01; means per seed: 0.4, 0.6 and 1/3, 7/15, each with a variance of its own. The rest of the
    # first method is 0; that of the second is 1/15, -1/30, -1/30 for one seed and the opposite for
    # the other, so 2 / 15^2 + 4 / 30^2 in squares, with 2 degrees of freedom.
    tasks = 0.01 / 3
    rest = (2 / 15**2 + 4 / 30**2) / 2 / 6
    seeds = np.array([0.02 / 2, np.var([1 / 3, 7 / 15], ddof=1) / 2 - rest]).clip(0)
    freedom = seeds.sum() ** 2 / (seeds**2).sum()
    half = np.sqrt(
        stats.t.ppf(0.975, 2) ** 2 * tasks + stats.t.ppf(0.975, freedom) ** 2 * seeds.sum()
    )
    assert found.value[0] == pytest.approx(0.1)
    assert (found.low[0], found.high[0]) == pytest.approx((0.1 - half, 0.1 + half))
    assert (found.estimators, found.n_seeds) == (("crossed-t",), (2,))
    assert found.seed_deviation[0] == pytest.approx(np.sqrt(2 * seeds.sum()))


def test_methods_with_one_seed_have_students_interval() -> None:
    values = np.column_stack([models(3, 0.6, 0.02, 1), models(1, 0.5, 0.0, 2)])
    part = compare_methods(["many", "one"], measured(values, (3, 1)))
    own = part.values["one"]
    expected = stats.t.interval(0.95, 79, values[:, 3].mean(), stats.sem(values[:, 3]))
    assert (own.low, own.high) == pytest.approx(expected)
    assert (own.estimator, own.n_seeds, own.seed_deviation) == ("student-t", 1, None)
    assert (part.values["many"].estimator, part.values["many"].n_seeds) == ("crossed-t", 3)
    assert part.notes == (
        "one: one seed, so intervals and differences speak of these weights only, and not of the "
        "method trained again",
    )
    (pair,) = part.pairs
    assert (pair.difference.n_seeds, pair.difference.seed_deviation) == (1, None)


def test_seeds_that_vary_make_a_difference_that_tasks_show_inconclusive() -> None:
    values = np.column_stack([models(3, 0.60, 0.05, 3), models(3, 0.57, 0.05, 4)])
    over = compare_methods(["a", "b"], measured(values, (3, 3))).pairs[0]
    means = np.column_stack([values[:, :3].mean(axis=1), values[:, 3:].mean(axis=1)])
    fixed = compare_methods(["a", "b"], measured(means, ())).pairs[0]
    assert over.difference.value == pytest.approx(fixed.difference.value)
    assert fixed.paired == "+"
    assert (over.paired, over.p is not None and over.p > 0.05) == ("0", True)
    # What seeds do not change, tasks still decide.
    alike = np.column_stack([models(3, 0.60, 0.0, 3), models(3, 0.57, 0.0, 4)])
    assert compare_methods(["a", "b"], measured(alike, (3, 3))).pairs[0].paired == "+"


def test_many_pairs_are_adjusted_by_the_p_over_seeds() -> None:
    values = np.column_stack([models(3, 0.5 + 0.05 * i, 0.02, i) for i in range(4)])
    part = compare_methods(list("abcd"), measured(values, (3, 3, 3, 3)))
    p = sorted(pair.p for pair in part.pairs if pair.p is not None)
    assert min(pair.p_holm for pair in part.pairs) == pytest.approx(6 * p[0])
    assert part.groups["d"] == "a"
    assert set(part.groups["a"]).isdisjoint(part.groups["d"])


def test_only_students_interval_is_over_seeds() -> None:
    values = np.column_stack([models(2, 0.6, 0.02, 1), models(2, 0.5, 0.02, 2)])
    for method in ("bca", "percentile", "image-level", "class-level"):
        how = ComparisonOptions(IntervalChoice(method=method))
        with pytest.raises(OptionError, match=f"interval='{method}' is for one model per method"):
            compare_methods(["a", "b"], measured(values, (2, 2)), how)


def test_equal_models_and_single_tasks_have_no_p() -> None:
    same = np.tile(models(2, 0.6, 0.02, 1), 2)
    (pair,) = compare_methods(["a", "b"], measured(same + 0.0, (2, 2))).pairs
    assert (pair.difference.value, pair.p) != (0.0, None), "seeds of two methods are no pairs"
    constant = compare_methods(["a", "b"], measured(np.full((5, 4), 0.5), (2, 2)))
    assert (constant.pairs[0].p, constant.values["a"].half_width) == (None, 0.0)
    shifted = np.tile([0.5, 0.5, 0.6, 0.6], (5, 1))
    assert np.isnan(compare_methods(["a", "b"], measured(shifted, (2, 2))).pairs[0].difference.low)
    one = compare_methods(["a", "b"], measured(BY_HAND[:1], (2, 2)))
    assert np.isnan(one.values["a"].low)
    assert one.notes == ("one task says nothing about others: there is no interval and no p",)
