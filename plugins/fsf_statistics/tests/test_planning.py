"""The number of queries: moments without bias, intervals that cover, plans that hold."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from fsf_samplers import DepletingSampler
from fsf_statistics.planning import TaskSupply, best_queries
from fsf_statistics.queries import QueryPlan, uniform_tasks
from fsf_statistics.query_bounds import QueryBounds
from fsf_statistics.query_variance import PilotAnswers, PilotSums, QueryVariance, pilot_of
from fsf_statistics.study import StudyPlan
from fsframework.errors import DataError, InfeasibleTask, OptionError
from fsframework.values import ImagePool, Outcomes
from tests.gaussians import gaussian_answers, gaussian_pilot, gaussian_truth

SEED = 20240904


# -- The study of section 4: two Gaussians at -1 and 1, nearest centre -----------------------------


def test_variance_of_the_mean_follows_the_formula() -> None:
    rng = np.random.default_rng(SEED)
    numbers = np.array([1, 2, 3, 5, 7, 10, 15, 20, 28])
    for shot, least in ((1, 0.95), (5, 0.98)):
        alpha, within = gaussian_truth(shot)
        measured = []
        for n_query in numbers:
            n_tasks = 500 // (shot + int(n_query))
            right, _ = gaussian_answers(rng, shot, 1500 * n_tasks, int(n_query))
            means = right.reshape(1500, -1).mean(axis=1)
            measured.append(means.var(ddof=1))
        values = np.array(measured)
        predicted = (shot + numbers) / 500 * (alpha + within / numbers)
        error = ((values - predicted) ** 2).sum() / ((values - values.mean()) ** 2).sum()
        assert 1 - error >= least, (shot, 1 - error)


def test_best_number_grows_with_the_shots() -> None:
    best = [math.sqrt(s * w / a) for s in (1, 5, 10, 20) for a, w in [gaussian_truth(s)]]
    assert best == sorted(best)
    assert [int(b) for b in best] == [1, 24, 99, 277]


# -- Moments ---------------------------------------------------------------------------------------


def small_pilot(rng: np.random.Generator, n_query: int = 4) -> PilotAnswers:
    """Return five 2-way tasks of three classes of eight images, which recur."""
    classes = np.stack([rng.permutation(3)[:2] for _ in range(5)])
    images = np.stack([[8 * c + rng.permutation(8)[: 2 + n_query] for c in row] for row in classes])
    values = (rng.random((5, 2, n_query)) < 0.7).astype(float)
    return PilotAnswers(values, classes, images[:, :, :2], images[:, :, 2:])


def alpha_by_hand(pilot: PilotAnswers) -> float:
    """Return alpha from pairs of different images, one after the other."""
    n_tasks, n_way, n = pilot.values.shape
    places = list(itertools.product(range(n_way), repeat=2))
    same_task = []
    for t in range(n_tasks):
        total = 0.0
        for a, b in places:
            pairs = [
                pilot.values[t, a, i] * pilot.values[t, b, j]
                for i, j in itertools.product(range(n), repeat=2)
                if (a, i) != (b, j)
            ]
            total += float(np.mean(pairs)) / n_way**2
        same_task.append(total)
    pairs_of_tasks = list(itertools.permutations(range(n_tasks), 2))
    cross, of_class = 0.0, {c: ([], 0) for c in range(3)}  # type: ignore[var-annotated]
    for t, u in pairs_of_tasks:
        for a, b in places:
            products = np.outer(pilot.values[t, a], pilot.values[u, b])
            if pilot.classes[t, a] != pilot.classes[u, b]:
                cross += float(products.mean()) / n_way**2
                continue
            differ = pilot.query[t, a][:, None] != pilot.query[u, b]
            found, count = of_class[int(pilot.classes[t, a])]
            of_class[int(pilot.classes[t, a])] = (found + products[differ].tolist(), count + 1)
    cross += sum(float(np.mean(v)) * n / n_way**2 for v, n in of_class.values() if v)
    return float(np.mean(same_task)) - cross / len(pairs_of_tasks)


def test_alpha_is_that_of_pairs_of_different_images() -> None:
    rng = np.random.default_rng(SEED)
    for _ in range(5):
        pilot = small_pilot(rng)
        assert PilotSums(pilot).alpha == pytest.approx(alpha_by_hand(pilot), abs=1e-12)


def test_moments_of_counts_by_hand() -> None:
    right = np.array([[2, 3], [0, 1], [3, 3], [1, 2]])  # of 3 queries a class
    values = (np.arange(3) < right[:, :, None]).astype(float)
    images = np.arange(4 * 2 * 4).reshape(4, 2, 4)
    pilot = PilotAnswers(values, np.tile([0, 1], (4, 1)), images[:, :, :1], images[:, :, 1:])
    spread = QueryVariance.of(pilot)
    m1, m2 = (right / 3).mean(), (right * (right - 1) / 6).mean()
    m3 = 2 * (right / 3).prod(axis=1).mean() / 4
    means = (right / 3).mean(axis=1)
    squared = (means.sum() ** 2 - (means**2).sum()) / 12
    assert spread.mean == pytest.approx(m1)
    assert spread.within == pytest.approx((m1 - m2) / 2)
    assert spread.alpha == pytest.approx(m2 / 2 + m3 - squared)
    assert spread.beta == pytest.approx(1 * (m1 - m2) / 2)


@pytest.mark.parametrize("class_size", [0, 200])
def test_alpha_has_no_bias_whether_images_recur_or_not(class_size: int) -> None:
    rng, (alpha, within) = np.random.default_rng(SEED), gaussian_truth(2)
    found = [QueryVariance.of(gaussian_pilot(rng, 2, 20, 6, class_size)) for _ in range(1000)]
    for name, truth in (("alpha", alpha), ("within", within)):
        values = np.array([getattr(s, name) for s in found])
        # Supports recur too, which takes some 2 shot / class_size from alpha.
        error = 4 * values.std() / math.sqrt(len(values)) + 0.03 * truth * bool(class_size)
        assert values.mean() == pytest.approx(truth, abs=error), name


# -- What the data can yield -----------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(60,) * 8, (20, 74, 128, 182, 236, 290, 344, 400)])
def test_the_tasks_counted_are_those_drawn(sizes: tuple[int, ...]) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    names = tuple(f"class-{c}" for c in range(len(sizes)))
    pool = ImagePool(tuple(map(str, range(labels.size))), labels, names)
    most = DepletingSampler(n_query=5, choose="by-what-is-left").draw(pool, None, 0)
    assert TaskSupply(sizes, 5, 5).most_tasks(5) == len(most)
    uniform = [len(DepletingSampler(n_query=5).draw(pool, None, seed)) for seed in range(8)]
    counted = [uniform_tasks(np.array(sizes), 5, 10, seed) for seed in range(8)]
    assert abs(np.mean(counted) - np.mean(uniform)) <= 1


def test_tasks_of_very_large_data_are_counted_soon() -> None:
    sizes = np.full(1000, 20_000)
    most = 1000 * 20_000 // 5 // 2
    assert 0.99 * most < uniform_tasks(sizes, 5, 2) <= most


# -- The best number -------------------------------------------------------------------------------


MEASURED = QueryVariance(5, 5, 600, 0.7, 0.004, 0.02)
SUPPLY = TaskSupply((600,) * 20, 5, 5)
# At chance, so that nothing is added for failed tasks.
AT_CHANCE = QueryBounds(QueryVariance(5, 5, 600, 0.2, 0.004, 0.02), 0.003, 0.005, 0.95)


def test_the_best_number_gives_the_shortest_interval() -> None:
    assert MEASURED.best == pytest.approx(5)
    found = best_queries(SUPPLY, MEASURED)
    assert abs(found - 5) <= 1
    assert SUPPLY.most_tasks(5) == 240
    widths = {
        q: stats.t.ppf(0.975, n - 1) * math.sqrt(float(MEASURED.variance(q)) / n)
        for q in range(1, 60)
        for n in [SUPPLY.most_tasks(q)]
    }
    assert min(widths, key=lambda q: widths[q]) == found


def test_where_no_number_is_best_some_tasks_are_left() -> None:
    flat = QueryVariance(5, 5, 600, 0.7, -0.001, 0.02, True)
    assert math.isinf(flat.best)
    for least in (10, 40):
        assert SUPPLY.most_tasks(best_queries(SUPPLY, flat, least_tasks=least)) >= least
    plan = QueryPlan(SUPPLY, QueryBounds(flat, 0.0, 0.005, 0.95), "by-what-is-left")
    assert plan.n_tasks(plan.n_query) >= plan.least_tasks
    assert any("unbounded" in one.sentence for one in plan.advice())


def test_a_plan_takes_the_shortest_interval() -> None:
    plan = QueryPlan(SUPPLY, AT_CHANCE, "by-what-is-left")
    assert abs(plan.n_query - 5) <= 1
    assert (plan.n_tasks(5), plan.left_over(5, 240)) == (240, 0)
    advice = {one.topic: one.sentence for one in plan.advice()}
    assert set(advice) == {"queries", "tasks"}
    assert f"{plan.n_tasks(plan.n_query):,} 5-way 5-shot tasks" in advice["tasks"]
    # By what is left every image is used: 33 tasks of 3 x 2. Uniform choices leave some over.
    other = QueryPlan(TaskSupply((50, 50, 50, 50), 3, 1), choose="uniform")
    advice = {one.topic: one.sentence for one in other.advice()}
    assert (other.n_query, advice["sampler"].split()[0]) == (1, "33")


def test_without_a_pilot_the_papers_number() -> None:
    plan = QueryPlan(TaskSupply((600,) * 20, 5, 1))
    assert plan.n_query == 1
    few = TaskSupply((40,) * 5, 5, 10)  # two tasks of seven queries
    assert QueryPlan(few, least_tasks=2).n_query == 7
    study = StudyPlan(plan)
    assert (math.isnan(study.row(1).half_width), study.curve()) == (True, [])


def test_a_study_tells_what_its_tasks_show() -> None:
    plan = StudyPlan(QueryPlan(SUPPLY, AT_CHANCE, "by-what-is-left"), AT_CHANCE)
    n_query = plan.queries.n_query
    widths = {q: plan.row(q).half_width for q in (1, 2, 4, n_query, 8, 15, 50)}
    assert min(widths, key=lambda q: widths[q]) == n_query
    row = plan.row(5)
    assert (row.n_tasks, row.left_over, math.isnan(row.paired)) == (240, 0, True)
    assert row.variance == pytest.approx((0.004 + 0.02 / 5) / 240)
    assert n_query in [row.n_query for row in plan.rows()]
    least = min(plan.curve(), key=lambda point: point[1])[0]
    assert abs(least - n_query) <= 1
    row = StudyPlan(QueryPlan(SUPPLY, AT_CHANCE), AT_CHANCE, correlation=0.8, difference=0.01).row(
        5
    )
    assert row.paired < row.unpaired
    assert row.needed_paired == pytest.approx(0.2 * row.needed_unpaired, rel=0.05)


def test_what_cannot_be_planned_is_refused() -> None:
    rng = np.random.default_rng(SEED)
    pilot = gaussian_pilot(rng, 5, 9, 5)
    alike = dataclasses.replace(pilot, values=np.ones_like(pilot.values))
    for made, error, part in (
        (lambda: TaskSupply((11,) * 5, 5, 5), InfeasibleTask, "5-way 5-shot"),
        (lambda: TaskSupply((600,) * 5, 1, 5), OptionError, "at least 2 ways"),
        (lambda: gaussian_pilot(rng, 5, 20, 1), DataError, "at least 2 queries"),
        (lambda: gaussian_pilot(rng, 5, 1, 5), DataError, "at least 3 tasks"),
        (lambda: QueryVariance.of(alike), DataError, "answered alike"),
        (lambda: QueryPlan(SUPPLY, level=95), OptionError, "level .* 95"),
        (lambda: QueryPlan(SUPPLY, choose="all"), OptionError, "uniform, by-what-is-left"),
        (lambda: QueryPlan(SUPPLY, least_tasks=1), OptionError, "least_tasks .* 1"),
        (lambda: StudyPlan(QueryPlan(SUPPLY), correlation=2.0), OptionError, "correlation .* 2"),
    ):
        with pytest.raises(error, match=part):
            made()


def test_tasks_and_outcomes_must_belong_together() -> None:
    pool = ImagePool(tuple(map(str, range(90))), np.repeat(np.arange(3), 30), ("a", "b", "c"))
    sampler = DepletingSampler(n_way=2, n_shot=1, n_query=4)
    tasks, other = (sampler.draw(pool, None, seed) for seed in (0, 1))
    outcomes = Outcomes.of(tasks, np.zeros(tasks.query.shape, np.int16))
    assert pilot_of(tasks, outcomes).accuracies.tolist() == [0.5] * len(tasks)
    with pytest.raises(DataError, match="other tasks"):
        pilot_of(other, outcomes)
