"""Plans of studies: differences that are found as often as said, pairs, class sizes."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from fsf_statistics.planning import TaskSupply
from fsf_statistics.queries import QueryPlan
from fsf_statistics.query_bounds import QueryBounds
from fsf_statistics.query_variance import PilotAnswers, QueryVariance
from fsf_statistics.study import (
    StudyPlan,
    detectable_difference,
    paired_pilot,
    parse_class_sizes,
    tasks_needed,
)
from fsframework.errors import DataError, OptionError

SEED = 20240904
SUPPLY = TaskSupply((600,) * 20, 5, 5)
# At chance, so that nothing is added for failed tasks.
MEASURED = QueryBounds(QueryVariance(5, 5, 600, 0.2, 0.004, 0.02), 0.003, 0.005, 0.95)


def pilot(rng: np.random.Generator, n_tasks: int, n_query: int) -> PilotAnswers:
    """Return 2-way 1-shot tasks of their own images, of a difficulty that differs by task."""
    images = np.arange(n_tasks * 2 * (1 + n_query)).reshape(n_tasks, 2, 1 + n_query)
    right = rng.random((n_tasks, 2, n_query)) < rng.beta(6, 2, (n_tasks, 1, 1))
    classes = np.tile(np.arange(2), (n_tasks, 1))
    return PilotAnswers(right.astype(float), classes, images[:, :, :1], images[:, :, 1:])


def test_quantiles_of_a_detectable_difference_are_scipys() -> None:
    quantiles = stats.t.ppf(0.975, 39) + stats.t.ppf(0.8, 39)
    found = detectable_difference(0.02, 40, paired=True)
    assert found == float(quantiles * math.sqrt(0.02 / 40))


def test_a_plan_tells_what_its_tasks_show() -> None:
    plan = StudyPlan(QueryPlan(SUPPLY, MEASURED, "by-what-is-left"), MEASURED)
    n_query = plan.queries.n_query
    widths = {q: plan.row(q).half_width for q in (1, 2, 4, n_query, 8, 15, 50)}
    assert min(widths, key=lambda q: widths[q]) == n_query
    row = plan.row(5)
    assert (row.n_tasks, row.left_over) == (240, 0)
    assert row.variance == pytest.approx((0.004 + 0.02 / 5) / 240)
    assert math.isnan(row.paired)
    assert n_query in [row.n_query for row in plan.rows()]
    least = min(plan.curve(), key=lambda point: point[1])[0]
    assert abs(least - n_query) <= 1


def test_without_a_pilot_nothing_is_known_of_differences() -> None:
    plan = StudyPlan(QueryPlan(TaskSupply((600,) * 20, 5, 1)))
    assert math.isnan(plan.row(1).half_width)
    assert plan.curve() == []
    with pytest.raises(OptionError, match="correlation must lie between -1 and 1, not 2"):
        StudyPlan(QueryPlan(SUPPLY), correlation=2.0)


def test_pairing_takes_out_what_two_methods_share() -> None:
    rng = np.random.default_rng(SEED)
    first = pilot(rng, 300, 20)
    flipped = np.where(rng.random(first.values.shape) < 0.05, 1 - first.values, first.values)
    second = dataclasses.replace(first, values=flipped)
    own = QueryVariance.of(first)
    pair = QueryVariance.of(paired_pilot(first, second))
    assert 0 <= pair.variance(5) < own.variance(5)
    assert pair.unseen == 0
    assert (own.of_differences, pair.of_differences) == (False, True)
    assert pair.mean == pytest.approx(float((first.values - flipped).mean()))
    with pytest.raises(DataError, match="on different tasks cannot be paired"):
        paired_pilot(first, pilot(rng, 300, 19))


def test_class_sizes_are_read() -> None:
    assert parse_class_sizes("600x2, 45") == (600, 600, 45)
    for wrong in ("6oo", "600x", "-3", ""):
        with pytest.raises(OptionError, match="class sizes"):
            parse_class_sizes(wrong)


def test_a_detectable_difference_is_found_as_often_as_said() -> None:
    rng = np.random.default_rng(SEED)
    for n_tasks, paired in ((12, True), (60, False)):
        shift = detectable_difference(0.02, n_tasks, paired=paired)
        noise = rng.normal(0, math.sqrt(0.02 if paired else 0.01), (4000, 2, n_tasks))
        if paired:
            mean, variance = noise[:, 0].mean(axis=1) + shift, noise[:, 0].var(axis=1, ddof=1)
        else:
            mean = shift + noise[:, 0].mean(axis=1) - noise[:, 1].mean(axis=1)
            variance = noise.var(axis=2, ddof=1).sum(axis=1)
        freedom = n_tasks - 1 if paired else 2 * n_tasks - 2
        found = mean / np.sqrt(variance / n_tasks) > stats.t.ppf(0.975, freedom)
        assert found.mean() == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("paired", [True, False])
def test_as_many_tasks_as_needed_and_no_more(paired: bool) -> None:
    for difference in (0.3, 0.05, 0.011):
        count = tasks_needed(0.013, difference, paired=paired)
        assert detectable_difference(0.013, count, paired=paired) <= difference
        assert count == 2 or detectable_difference(0.013, count - 1, paired=paired) > difference


def test_a_correlation_makes_paired_differences_smaller() -> None:
    queries = QueryPlan(SUPPLY, MEASURED)
    row = StudyPlan(queries, MEASURED, correlation=0.8, difference=0.01).row(5)
    assert row.paired < row.unpaired
    assert row.needed_paired == pytest.approx(0.2 * row.needed_unpaired, rel=0.05)
