"""Plans of the number of queries, and what they advise."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fsf_samplers import DepletingSampler
from fsf_statistics.planning import TaskSupply
from fsf_statistics.queries import QueryPlan, uniform_tasks
from fsf_statistics.query_bounds import QueryBounds
from fsf_statistics.query_variance import QueryVariance
from fsframework.errors import OptionError
from fsframework.values import ImagePool

# At chance, so that nothing is added for failed tasks.
MEASURED = QueryBounds(QueryVariance(5, 5, 600, 0.2, 0.004, 0.02), 0.003, 0.005, 0.95)


@pytest.mark.parametrize("sizes", [(60,) * 8, (20, 74, 128, 182, 236, 290, 344, 400)])
def test_the_tasks_counted_are_those_drawn(sizes: tuple[int, ...]) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    names = tuple(f"class-{c}" for c in range(len(sizes)))
    pool = ImagePool(tuple(map(str, range(labels.size))), labels, names)
    uniform = [len(DepletingSampler(n_query=5).draw(pool, None, seed)) for seed in range(8)]
    counted = [uniform_tasks(np.array(sizes), 5, 10, seed) for seed in range(8)]
    assert abs(np.mean(counted) - np.mean(uniform)) <= 1


def test_tasks_of_very_large_data_are_counted_soon() -> None:
    sizes = np.full(1000, 20_000)
    most = TaskSupply(tuple(sizes), 5, 1).most_tasks(1)
    found = uniform_tasks(sizes, 5, 2)
    assert 0.99 * most < found <= most


def test_a_plan_takes_the_shortest_interval() -> None:
    plan = QueryPlan(TaskSupply((600,) * 20, 5, 5), MEASURED, "by-what-is-left")
    assert MEASURED.found.best == pytest.approx(5)
    assert abs(plan.n_query - 5) <= 1
    assert (plan.n_tasks(5), plan.left_over(5, 240)) == (240, 0)
    advice = plan.advice()
    assert any("Q* = 5.0 queries per class for accuracy" in one.sentence for one in advice)
    [tasks] = [one.sentence for one in advice if one.topic == "tasks"]
    assert f"{plan.n_tasks(plan.n_query):,} 5-way 5-shot tasks" in tasks
    assert {one.topic for one in advice} == {"queries", "tasks"}


def test_unbounded_is_said_and_tasks_are_left() -> None:
    flat = QueryBounds(dataclasses.replace(MEASURED.found, alpha=-0.001), 0.0, 0.005, 0.95)
    plan = QueryPlan(TaskSupply((600,) * 20, 5, 5), flat, "by-what-is-left")
    assert plan.n_tasks(plan.n_query) >= plan.least_tasks
    assert any("unbounded" in one.sentence for one in plan.advice())


def test_more_tasks_by_another_choice_are_advice_on_the_sampler() -> None:
    # By what is left every image is used: 33 tasks of 3 x 2. Uniform choices leave some over.
    plan = QueryPlan(TaskSupply((50, 50, 50, 50), 3, 1), choose="uniform")
    assert plan.n_query == 1
    [more] = [one.sentence for one in plan.advice() if one.topic == "sampler"]
    assert more == "33 tasks with sampler.choose=by-what-is-left"


def test_without_a_pilot_the_papers_number() -> None:
    plan = QueryPlan(TaskSupply((600,) * 20, 5, 1))
    assert plan.n_query == 1
    assert "give the number for this method" in plan.advice()[0].sentence
    few = TaskSupply((40,) * 5, 5, 10)  # two tasks of seven queries
    assert QueryPlan(few, least_tasks=2).n_query == 7


def test_options_of_a_plan_are_checked() -> None:
    supply = TaskSupply((600,) * 20, 5, 5)
    with pytest.raises(OptionError, match="level must lie between 0 and 1, not 95"):
        QueryPlan(supply, level=95)
    with pytest.raises(OptionError, match="choose must be one of uniform, by-what-is-left"):
        QueryPlan(supply, choose="all")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="least_tasks must be at least 2, not 1"):
        QueryPlan(supply, least_tasks=1)
