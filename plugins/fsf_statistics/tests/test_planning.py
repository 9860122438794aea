"""The number of queries and the size of a study: moments without bias, intervals that cover."""

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
from fsf_statistics.query_bounds import (
    QueryBounds,
    answer_parts,
    bounds_of,
    ratios_without_each_task,
)
from fsf_statistics.query_variance import PilotAnswers, PilotSums, QueryVariance, pilot_of
from fsf_statistics.study import StudyPlan, detectable_difference, paired_pilot, tasks_needed
from fsframework.errors import DataError
from fsframework.values import FloatArray, ImagePool, IntArray, Outcomes
from tests.gaussians import gaussian_answers, gaussian_pilot, gaussian_truth

SEED = 20240904


# -- The study of section 4: two Gaussians at -1 and 1, nearest centre -----------------------------


def in_the_limit(shot: int) -> QueryVariance:
    """Return what endlessly many tasks of the study would measure."""
    alpha, within = gaussian_truth(shot)
    return QueryVariance(2, shot, 10**9, 0.8, alpha, within)


def test_variance_of_the_mean_follows_the_formula() -> None:
    rng = np.random.default_rng(SEED)
    numbers = np.array([1, 2, 3, 5, 7, 10, 15, 20, 28])
    for shot, least in ((1, 0.95), (5, 0.98)):
        measured = []
        for n_query in numbers:
            n_tasks = 500 // (shot + int(n_query))
            right, _ = gaussian_answers(rng, shot, 1500 * n_tasks, int(n_query))
            means = right.reshape(1500, -1).mean(axis=1)
            measured.append(means.var(ddof=1))
        values = np.array(measured)
        predicted = (shot + numbers) / 500 * in_the_limit(shot).variance(numbers)
        error = ((values - predicted) ** 2).sum() / ((values - values.mean()) ** 2).sum()
        assert 1 - error >= least, (shot, 1 - error)
    assert [int(in_the_limit(shot).best) for shot in (1, 5, 10, 20)] == [1, 24, 99, 277]


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
    sizes = np.full(1000, 4_000)
    most = 1000 * 4_000 // 5 // 2
    assert 0.99 * most < uniform_tasks(sizes, 5, 2) <= most


# -- The best number -------------------------------------------------------------------------------


SUPPLY = TaskSupply((600,) * 20, 5, 5)
# At chance, so that nothing is added for failed tasks.
AT_CHANCE = QueryBounds(QueryVariance(5, 5, 600, 0.2, 0.004, 0.02), 0.003, 0.005, 0.95)


def test_the_best_number_gives_the_shortest_interval() -> None:
    pilot = AT_CHANCE.found
    assert pilot.best == pytest.approx(5)
    assert SUPPLY.most_tasks(5) == 240
    widths = {
        q: stats.t.ppf(0.975, n - 1) * math.sqrt(float(pilot.variance(q)) / n)
        for q in range(1, 60)
        for n in [SUPPLY.most_tasks(q)]
    }
    found = best_queries(SUPPLY, pilot)
    assert min(widths, key=lambda q: widths[q]) == found
    assert abs(found - 5) <= 1
    plan = QueryPlan(SUPPLY, AT_CHANCE, "by-what-is-left")
    assert (plan.n_query, plan.n_tasks(5), plan.left_over(5, 240)) == (found, 240, 0)
    advice = {one.topic: one.sentence for one in plan.advice()}
    assert set(advice) == {"queries", "tasks"}
    assert f"{plan.n_tasks(plan.n_query):,} 5-way 5-shot tasks" in advice["tasks"]
    # By what is left every image is used: 33 tasks of 3 x 2. Uniform choices leave some over.
    other = QueryPlan(TaskSupply((50, 50, 50, 50), 3, 1), choose="uniform")
    advice = {one.topic: one.sentence for one in other.advice()}
    assert (other.n_query, advice["sampler"].split()[0]) == (1, "33")


def test_where_no_number_is_best_some_tasks_are_left() -> None:
    flat = QueryVariance(5, 5, 600, 0.7, -0.001, 0.02, True)
    assert math.isinf(flat.best)
    for least in (10, 40):
        assert SUPPLY.most_tasks(best_queries(SUPPLY, flat, least_tasks=least)) >= least
    plan = QueryPlan(SUPPLY, QueryBounds(flat, 0.0, 0.005, 0.95), "by-what-is-left")
    assert plan.n_tasks(plan.n_query) >= plan.least_tasks
    assert any("unbounded" in one.sentence for one in plan.advice())


def test_without_a_pilot_the_papers_number() -> None:
    plan = QueryPlan(TaskSupply((600,) * 20, 5, 1))
    assert plan.n_query == 1
    few = TaskSupply((40,) * 5, 5, 10)  # two tasks of seven queries
    assert QueryPlan(few, least_tasks=2).n_query == 7
    study = StudyPlan(plan)
    assert (math.isnan(study.row(1).half_width), study.curve()) == (True, [])


def test_what_is_no_pilot_is_refused() -> None:
    rng = np.random.default_rng(SEED)
    pilot = gaussian_pilot(rng, 5, 9, 5)
    alike = dataclasses.replace(pilot, values=np.ones_like(pilot.values))
    for made, part in (
        (lambda: gaussian_pilot(rng, 5, 20, 1), "at least 2 queries"),
        (lambda: gaussian_pilot(rng, 5, 1, 5), "at least 3 tasks"),
        (lambda: QueryVariance.of(alike), "answered alike"),
    ):
        with pytest.raises(DataError, match=part):
            made()
    pool = ImagePool(tuple(map(str, range(90))), np.repeat(np.arange(3), 30), ("a", "b", "c"))
    sampler = DepletingSampler(n_way=2, n_shot=1, n_query=4)
    tasks, other = (sampler.draw(pool, None, seed) for seed in (0, 1))
    outcomes = Outcomes.of(tasks, np.zeros(tasks.query.shape, np.int16))
    assert pilot_of(tasks, outcomes).accuracies.tolist() == [0.5] * len(tasks)
    with pytest.raises(DataError, match="other tasks"):
        pilot_of(other, outcomes)


# -- Intervals of the best number ------------------------------------------------------------------


def bounded(pilot: PilotAnswers) -> QueryBounds:
    return bounds_of(pilot, QueryVariance.of(pilot))


@pytest.mark.slow
def test_a_single_pilot_of_200_tasks() -> None:
    # All images that are not in the support are its queries: 1,000 images, each task asks 990.
    best = in_the_limit(5).best
    rng = np.random.default_rng(SEED)
    spreads = [bounded(gaussian_pilot(rng, 5, 200, 495, 500)) for _ in range(100)]
    near = [abs(math.log(s.found.cautious / best)) <= math.log(1.5) for s in spreads]
    assert np.mean(near) >= 0.75  # 86 % of 600 in benchmarks/query_number.py
    assert np.mean([s.low <= best <= s.high for s in spreads]) >= 0.93


@pytest.mark.slow
def test_intervals_cover_in_pilots_with_images_of_their_own() -> None:
    rng = np.random.default_rng(SEED)
    for shot, n_tasks, n_query in ((1, 100, 15), (5, 400, 60), (5, 200, 10)):
        best = in_the_limit(shot).best
        found = [bounded(gaussian_pilot(rng, shot, n_tasks, n_query)) for _ in range(200)]
        assert np.mean([s.low <= best <= s.high for s in found]) >= 0.93


def test_intervals_cover_in_five_ways_of_unlike_classes() -> None:
    rng = np.random.default_rng(SEED)
    difficulty = 0.4 * rng.normal(size=20)

    def drawn(n_tasks: int) -> tuple[FloatArray, IntArray]:
        classes = np.argsort(rng.random((n_tasks, 20)), axis=1)[:, :5]
        shift = 0.25 * rng.normal(size=(n_tasks, 1)) + 0.4 * rng.normal(size=(n_tasks, 5))
        return np.asarray(stats.norm.cdf(0.6 + difficulty[classes] + shift)), classes

    accuracy, _ = drawn(200_000)
    noise = (accuracy * (1 - accuracy)).mean() / 5
    best = math.sqrt(5 * noise / accuracy.mean(axis=1).var())
    spreads = []
    for _ in range(300):
        accuracy, classes = drawn(100)
        right = (rng.random((100, 5, 15)) < accuracy[:, :, None]).astype(float)
        images = np.arange(100 * 5 * 20).reshape(100, 5, 20)
        spreads.append(bounded(PilotAnswers(right, classes, images[:, :, :5], images[:, :, 5:])))
    assert np.mean([s.low <= best <= s.high for s in spreads]) >= 0.92
    assert np.mean([best / 1.5 <= s.found.best <= best * 1.5 for s in spreads]) >= 0.95


def test_tasks_and_answers_have_the_part_that_leaving_them_out_shows() -> None:
    rng = np.random.default_rng(SEED)
    pilot = gaussian_pilot(rng, 1, 12, 30, 31)
    sums = PilotSums(pilot)
    fields = ("values", "classes", "support", "query")
    left = [
        dataclasses.replace(pilot, **{f: np.delete(getattr(pilot, f), t, axis=0) for f in fields})
        for t in range(12)
    ]
    ratios = [s.alpha / s.within for s in map(PilotSums, left)]
    np.testing.assert_allclose(ratios_without_each_task(sums), ratios)
    # Scaling every answer's weight changes nothing.
    assert abs(answer_parts(sums).sum()) < 1e-9


# -- What a study shows ----------------------------------------------------------------------------


def test_a_study_tells_what_its_tasks_show() -> None:
    plan = StudyPlan(QueryPlan(SUPPLY, AT_CHANCE, "by-what-is-left"), AT_CHANCE)
    n_query = plan.queries.n_query
    row = plan.row(5)
    assert (row.n_tasks, row.left_over, math.isnan(row.paired)) == (240, 0, True)
    assert row.variance == pytest.approx((0.004 + 0.02 / 5) / 240)
    assert row.half_width == pytest.approx(stats.t.ppf(0.975, 239) * math.sqrt(row.variance))
    assert n_query in [row.n_query for row in plan.rows()]
    least = min(plan.curve(), key=lambda point: point[1])[0]
    assert abs(least - n_query) <= 1
    queries = QueryPlan(SUPPLY, AT_CHANCE)
    row = StudyPlan(queries, AT_CHANCE, correlation=0.8, difference=0.01).row(5)
    assert row.paired < row.unpaired
    assert row.needed_paired == pytest.approx(0.2 * row.needed_unpaired, rel=0.05)


def test_pairing_takes_out_what_two_methods_share() -> None:
    rng = np.random.default_rng(SEED)
    images = np.arange(300 * 2 * 21).reshape(300, 2, 21)
    right = rng.random((300, 2, 20)) < rng.beta(6, 2, (300, 1, 1))
    classes = np.tile(np.arange(2), (300, 1))
    first = PilotAnswers(right.astype(float), classes, images[:, :, :1], images[:, :, 1:])
    flipped = np.where(rng.random(first.values.shape) < 0.05, 1 - first.values, first.values)
    own = QueryVariance.of(first)
    pair = QueryVariance.of(paired_pilot(first, dataclasses.replace(first, values=flipped)))
    assert 0 <= pair.variance(5) < own.variance(5)
    assert pair.unseen == 0
    assert (own.of_differences, pair.of_differences) == (False, True)
    assert pair.mean == pytest.approx(float((first.values - flipped).mean()))


def test_a_detectable_difference_is_found_as_often_as_said() -> None:
    quantiles = stats.t.ppf(0.975, 39) + stats.t.ppf(0.8, 39)
    exact = float(quantiles * math.sqrt(0.02 / 40))
    assert detectable_difference(0.02, 40, paired=True) == exact
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
