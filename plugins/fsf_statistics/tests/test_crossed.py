"""Intervals over seeds and tasks: values worked by hand, simulations, and limits that must hold."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fsf_statistics.comparing import compare_methods
from fsf_statistics.crossed import crossed
from fsframework.errors import DataError, OptionError
from fsframework.statistics.differences import ComparisonOptions, differences
from fsframework.statistics.estimators import IntervalChoice
from fsframework.statistics.measures import Measure
from fsframework.statistics.task_values import TaskValues
from fsframework.values import FloatArray

# Two seeds of one method (first two columns) and two of another, on three tasks.
BY_HAND = np.array([[0.3, 0.5, 0.2, 0.2], [0.4, 0.6, 0.3, 0.5], [0.5, 0.7, 0.5, 0.7]])
A, B = ("a", "t"), ("b", "t")


def drawn(seeds: int, tasks: int, between: float, seed: int = 0, rest: float = 0.05) -> FloatArray:
    generator = np.random.default_rng(seed)
    values = generator.normal(0, between, (seeds, 1)) + generator.normal(0.6, 0.1, tasks)
    return np.asarray(values + generator.normal(0, rest, (seeds, tasks)))


def models(seeds: int, mean: float, between: float, seed: int) -> FloatArray:
    """Return accuracies ``(tasks, seeds)`` of models whose tasks are those of every other call."""
    tasks = np.random.default_rng(99).normal(0, 0.1, (80, 1))
    own = np.random.default_rng(seed)
    rest = own.normal(0, 0.02, (80, seeds))
    return np.asarray(mean + tasks + own.normal(0, between, seeds) + rest)


def compared(values: FloatArray, *seeds: int, method="student-t"):
    measured = TaskValues(Measure("acc", ("t",)), "t", (values,), "closed", seeds=seeds)
    labels = "abcd"[: len(seeds) or values.shape[1]]
    return compare_methods(list(labels), measured, ComparisonOptions(IntervalChoice(method=method)))


def test_a_mean_worked_by_hand() -> None:
    # Means per seed 0.4 and 0.6, per task 0.4, 0.5, 0.6; the rest is 0 throughout.
    found = crossed({A: BY_HAND[:, :2].T})
    seeds, tasks = 0.02 / 2, 0.01 / 3
    half = np.sqrt(stats.t.ppf(0.975, 1) ** 2 * seeds + stats.t.ppf(0.975, 2) ** 2 * tasks)
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5 - half, 0.5 + half))
    assert (found.seed_deviation, found.n_seeds) == (pytest.approx(np.sqrt(0.02)), 2)


def test_a_difference_worked_by_hand() -> None:
    [found] = differences([BY_HAND], np.array([[1.0, -1.0]]), n_seeds=[2, 2])
    # Means per task: 0.4, 0.5, 0.6 and 0.2, 0.4, 0.6, so differences 0.2, 0.1, 0 with variance
    # 0.01; means per seed: 0.4, 0.6 and 1/3, 7/15, each with a variance of its own. The rest of the
    # first method is 0; that of the second is 1/15, -1/30, -1/30 for one seed and the opposite for
    # the other, so 2 / 15^2 + 4 / 30^2 in squares, with 2 degrees of freedom.
    # The seeds keep it; the tasks give it up, as in the deviation between seeds.
    rest = (2 / 15**2 + 4 / 30**2) / 2 / 6
    tasks = 0.01 / 3 - rest
    seeds = np.array([0.02 / 2, np.var([1 / 3, 7 / 15], ddof=1) / 2])
    freedom = seeds.sum() ** 2 / (seeds**2).sum()
    half = np.sqrt(
        stats.t.ppf(0.975, 2) ** 2 * tasks + stats.t.ppf(0.975, freedom) ** 2 * seeds.sum()
    )
    assert (found.value, found.low, found.high) == pytest.approx((0.1, 0.1 - half, 0.1 + half))
    assert (found.estimator, found.n_seeds) == ("crossed-t", 2)
    assert found.seed_deviation == pytest.approx(np.sqrt(2 * (seeds.sum() - rest)))


def test_a_mean_with_a_residual_worked_by_hand() -> None:
    # Means per seed 0.2 and 0.4, per task 0.1, 0.3 and 0.5; the residual is 0.1, 0 and -0.1 for the
    # first seed and the opposite for the other: 0.04 in squares, with 2 degrees of freedom.
    found = crossed({A: np.array([[0.1, 0.2, 0.3], [0.1, 0.4, 0.7]])})
    seeds, tasks = 0.02 / 2, 0.04 / 3 - 0.02 / (2 * 3)
    half = np.sqrt(12.7062047**2 * seeds + 4.30265273**2 * tasks)
    assert (found.value, found.high) == pytest.approx((0.3, 0.3 + half))
    assert found.seed_deviation == pytest.approx(np.sqrt(0.02 - 0.02 / 3))
    # A residual beyond the variance of the tasks' means leaves these nothing, and not less: means
    # per task 0.3, 0.3, 0.3; per seed 0.2 and 0.4.
    found = crossed({A: np.array([[0.1, 0.2, 0.3], [0.5, 0.4, 0.3]])})
    assert found.low == pytest.approx(0.3 - 12.7062047 * np.sqrt(0.02 / 2))


def test_different_numbers_of_seeds_keep_their_own_quantiles() -> None:
    # Means per seed 0.4, 0.6 and 0.3, 0.4, 0.5; nothing else varies but the tasks of both.
    tasks = np.array([-0.1, 0.0, 0.1])
    first, second = (np.add.outer(means, tasks) for means in ([0.4, 0.6], [0.3, 0.4, 0.5]))
    found = crossed({A: first, B: -second})
    half = np.sqrt(12.7062047**2 * 0.02 / 2 + 4.30265273**2 * 0.01 / 3)
    assert (found.value, found.high) == pytest.approx((0.1, 0.1 + half))


def test_equal_tasks_count_as_pairs_and_equal_models_too() -> None:
    a = drawn(4, 80, 0.02, seed=1)
    found = [crossed({A: a, other: -a - 0.01}) for other in (("b", "u"), B, ("a", "u"))]
    apart, tasks, same = (one.high - one.low for one in found)
    assert apart > tasks
    assert apart > same


def test_the_interval_ends_at_zero_at_the_level_of_p() -> None:
    cells = {A: drawn(3, 60, 0.01), B: 0.02 - drawn(3, 60, 0.01, seed=3)}
    found = crossed(cells, level=1 - crossed(cells).p)
    assert min(abs(found.low), abs(found.high)) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seeds", [2, 3, 10])
@pytest.mark.parametrize("between", [0.0, 0.01, 0.03])
@pytest.mark.parametrize("rest", [0.05, 0.2])
def test_it_holds_the_truth_as_often_as_it_says(seeds: int, between: float, rest: float) -> None:
    found = [crossed({A: drawn(seeds, 60, between, seed, rest)}) for seed in range(400)]
    assert 0.93 <= np.mean([one.low <= 0.6 <= one.high for one in found]) <= 0.995


def test_cells_of_equal_names_must_fit() -> None:
    with pytest.raises(DataError, match="2 and 3 seeds"):
        crossed({A: np.ones((2, 5)), ("a", "u"): np.ones((3, 5))})
    with pytest.raises(DataError, match="at least 2 tasks, not 1"):
        crossed({A: np.ones((2, 1))})


def test_a_method_with_one_model_adds_nothing_for_seeds_but_the_other_does() -> None:
    several = drawn(4, 60, 0.05)
    both = crossed({A: several, B: 0.02 - several[:1]})
    fixed = crossed({A: several.mean(axis=0, keepdims=True), B: 0.02 - several[:1]})
    assert (both.n_seeds, both.seed_deviation) == (1, None)
    assert both.value == pytest.approx(fixed.value)
    assert both.high - both.low > 1.5 * (fixed.high - fixed.low)


def test_methods_with_one_seed_have_students_interval() -> None:
    values = np.column_stack([models(3, 0.6, 0.02, 1), models(1, 0.5, 0.0, 2)])
    part = compared(values, 3, 1)
    own, several = part.values["b"], part.values["a"]
    expected = stats.t.interval(0.95, 79, values[:, 3].mean(), stats.sem(values[:, 3]))
    assert (own.low, own.high) == pytest.approx(expected)
    assert (own.estimator, own.n_seeds, own.seed_deviation) == ("student-t", 1, None)
    assert (several.estimator, several.n_seeds) == ("crossed-t", 3)
    assert part.notes[0].startswith("b: one seed")
    assert (part.pairs[0].difference.n_seeds, part.pairs[0].difference.seed_deviation) == (1, None)


def test_seeds_that_vary_make_a_difference_that_tasks_show_inconclusive() -> None:
    values = np.column_stack([models(3, 0.60, 0.05, 3), models(3, 0.57, 0.05, 4)])
    over = compared(values, 3, 3).pairs[0]
    fixed = compared(np.column_stack([values[:, :3].mean(1), values[:, 3:].mean(1)])).pairs[0]
    assert over.difference.value == pytest.approx(fixed.difference.value)
    assert (fixed.paired, over.paired) == ("+", "0")
    assert over.p > 0.05
    # What seeds do not change, tasks still decide.
    alike = np.column_stack([models(3, 0.60, 0.0, 3), models(3, 0.57, 0.0, 4)])
    assert compared(alike, 3, 3).pairs[0].paired == "+"


def test_many_pairs_are_adjusted_by_the_p_over_seeds() -> None:
    part = compared(
        np.column_stack([models(3, 0.5 + 0.05 * i, 0.02, i) for i in range(4)]), *[3] * 4
    )
    least = min(pair.p for pair in part.pairs)
    assert min(pair.p_holm for pair in part.pairs) == pytest.approx(6 * least)
    assert part.letters["d"] == "a"
    assert set(part.letters["a"]).isdisjoint(part.letters["d"])


@pytest.mark.parametrize("method", ["bca", "percentile", "image-level", "class-level"])
def test_only_students_interval_is_over_seeds(method: str) -> None:
    with pytest.raises(OptionError, match=f"interval='{method}'"):
        compared(models(4, 0.6, 0.02, 1), 2, 2, method=method)


def test_what_does_not_vary_has_no_p() -> None:
    (pair,) = compared(np.tile(models(2, 0.6, 0.02, 1), 2), 2, 2).pairs
    assert pair.p is not None, "seeds of two methods are no pairs"
    constant = compared(np.full((5, 4), 0.5), 2, 2)
    assert "all 2 seeds are equal" in constant.notes[0]
    assert (constant.pairs[0].p, constant.values["a"].value) == (None, 0.5)
    assert np.isnan(constant.values["a"].low)
    shifted = compared(np.tile([0.5, 0.5, 0.6, 0.6], (5, 1)), 2, 2)
    assert np.isnan(shifted.pairs[0].difference.low)
    one = compared(BY_HAND[:1], 2, 2)
    assert np.isnan(one.values["a"].low)
    assert (one.values["a"].n_seeds, len(one.notes)) == (2, 1)
