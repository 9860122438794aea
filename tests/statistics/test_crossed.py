"""Intervals over seeds and tasks: values worked by hand, and limits that must hold."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fsframework.errors import DataError
from fsframework.statistics.crossed import Cell, crossed
from fsframework.values import FloatArray


def _values(seeds: int, tasks: int, between: float, seed: int = 0) -> FloatArray:
    generator = np.random.default_rng(seed)
    values = generator.normal(0, between, (seeds, 1)) + generator.normal(0.6, 0.1, tasks)
    return np.asarray(values + generator.normal(0, 0.05, (seeds, tasks)))


def test_a_table_worked_by_hand() -> None:
    # Means per seed 0.4 and 0.6, per task 0.4, 0.5, 0.6; the rest is 0 throughout.
    found = crossed([Cell(np.array([[0.3, 0.4, 0.5], [0.5, 0.6, 0.7]]))])
    seeds, tasks = 0.02 / 2, 0.01 / 3
    half = np.sqrt(stats.t.ppf(0.975, 1) ** 2 * seeds + stats.t.ppf(0.975, 2) ** 2 * tasks)
    assert found.value == pytest.approx(0.5)
    assert (found.low, found.high) == pytest.approx((0.5 - half, 0.5 + half))
    assert found.seed_deviation == pytest.approx(np.sqrt(0.02))
    assert (found.n_seeds, found.n_tasks) == (2, 3)


def test_one_seed_gives_students_interval_over_tasks() -> None:
    values = _values(1, 50, 0.0)
    found = crossed([Cell(values)])
    mean, error = values.mean(), stats.sem(values[0])
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.95, 49, mean, error))
    assert np.isnan(found.seed_deviation)


def test_equal_tasks_count_as_pairs_and_equal_models_too() -> None:
    a, b = _values(4, 80, 0.02, seed=1), _values(4, 80, 0.02, seed=1) + 0.01
    apart = crossed([Cell(a, "a", "s"), Cell(b, "b", "t", -1.0)])
    tasks = crossed([Cell(a, "a", "t"), Cell(b, "b", "t", -1.0)])
    both = crossed([Cell(a, "a", "t"), Cell(b, "a", "t", -1.0)])
    widths = [one.high - one.low for one in (apart, tasks, both)]
    assert widths[0] > widths[1] > widths[2]
    assert widths[2] == pytest.approx(0.0, abs=1e-9)


def test_the_interval_ends_at_zero_at_the_level_of_p() -> None:
    cells = [
        Cell(_values(3, 60, 0.01), "a"),
        Cell(_values(3, 60, 0.01, seed=3) - 0.02, "b", "", -1),
    ]
    p = crossed(cells).p
    found = crossed(cells, level=1 - p)
    assert min(abs(found.low), abs(found.high)) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("seeds", [3, 10])
@pytest.mark.parametrize("between", [0.0, 0.03])
def test_it_holds_the_truth_as_often_as_it_says(seeds: int, between: float) -> None:
    held = [
        one.low <= 0.6 <= one.high
        for seed in range(400)
        for one in [crossed([Cell(_values(seeds, 60, between, seed=seed))])]
    ]
    assert 0.93 <= np.mean(held) <= 0.98


def test_cells_of_equal_names_must_fit() -> None:
    with pytest.raises(DataError, match="cells with the same models have 2 and 3 seeds"):
        crossed([Cell(np.ones((2, 5))), Cell(np.ones((3, 5)))])
    with pytest.raises(DataError, match="at least 2 tasks, not 1"):
        crossed([Cell(np.ones((2, 1)))])


def test_a_method_with_one_model_adds_nothing_for_seeds_but_the_other_does() -> None:
    several = _values(4, 60, 0.05)
    single = several[:1] - 0.02
    both = crossed([Cell(several, "a"), Cell(single, "b", "", -1.0)])
    fixed = crossed([Cell(several.mean(axis=0, keepdims=True), "a"), Cell(single, "b", "", -1.0)])
    assert (both.n_seeds, np.isnan(both.seed_deviation)) == (1, True)
    assert both.value == pytest.approx(fixed.value)
    assert both.high - both.low > 1.5 * (fixed.high - fixed.low)


def test_without_spread_nothing_varies() -> None:
    found = crossed([Cell(np.full((3, 4), 0.25))])
    assert (found.low, found.high, found.varies) == (0.25, 0.25, False)
    assert np.isnan(found.p)
