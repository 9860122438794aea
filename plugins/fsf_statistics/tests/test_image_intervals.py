"""Intervals over tasks, and over the images that tasks share."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fsf_samplers import RandomSampler
from fsf_statistics import mean_interval
from fsf_statistics.image_intervals import ImageLevel, answers_of, interval_over
from fsframework.errors import DataError
from fsframework.statistics.differences import ComparisonOptions
from fsframework.statistics.estimators import ESTIMATORS, IntervalChoice, Level
from fsframework.values import FloatArray, ImagePool, IntArray, Outcomes, TaskSet

SIZES = np.array([30, 40, 50, 60])


def by(method: Any, level: float = 0.95) -> ComparisonOptions:
    return ComparisonOptions(IntervalChoice(level, method))


def pool_of(sizes: IntArray) -> ImagePool:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    keys = tuple(str(i) for i in range(len(labels)))
    return ImagePool(keys, labels, tuple(f"c{i}" for i in range(len(sizes))))


def drawn(count: int, seed: int = 0, sizes: IntArray = SIZES, **shape: Any) -> TaskSet:
    sampler = RandomSampler(**{"n_way": 2, "n_shot": 3, "n_query": 5, **shape})
    return sampler.draw(pool_of(sizes), count, seed)


def accuracy(outcomes: Outcomes) -> FloatArray:
    return outcomes.class_accuracy.mean(axis=1)


def worst(outcomes: Outcomes) -> FloatArray:
    return outcomes.class_accuracy.min(axis=1)


def answered(tasks: TaskSet, right: FloatArray) -> tuple[FloatArray, Outcomes]:
    """Return values and outcomes where whether an image is right depends on nothing else."""
    way = np.arange(tasks.n_way)[None, :, None]
    outcomes = Outcomes.of(tasks, np.where(right[tasks.query], way, (way + 1) % tasks.n_way))
    return accuracy(outcomes), outcomes


def image_interval(
    per_task: Callable[[Outcomes], FloatArray],
    tasks: TaskSet,
    outcomes: Outcomes,
    sizes: IntArray,
    over: Level = "image-level",
) -> ImageLevel:
    """Return the interval of a statistic over images or classes."""
    answers = answers_of(per_task, tasks, outcomes, sizes) if over == "image-level" else None
    return interval_over(per_task(outcomes), answers, tasks, sizes, over=over)


def test_student_is_worked_by_hand() -> None:
    mean, low, high = mean_interval(np.array([0.0, 0.5, 1.0]))
    half = 4.302652729911275 * 0.5 / 3**0.5
    assert (mean, low, high) == pytest.approx((0.5, 0.5 - half, 0.5 + half))


@pytest.mark.parametrize("estimator", ["percentile", "bca"])
def test_bootstraps_repeat_and_follow_a_skewed_distribution(estimator: Any) -> None:
    values = np.random.default_rng(0).exponential(size=40)
    mean, low, high = mean_interval(values, how=by(estimator, 0.9))
    assert mean_interval(values, how=by(estimator, 0.9)) == (mean, low, high)
    assert high - mean > mean - low
    _, least, most = mean_interval(values, how=by(estimator, 0.99))
    assert least < low < mean < high < most


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_one_value_has_no_interval_nor_have_equal_ones(estimator: Any) -> None:
    for values in (np.array([0.5]), np.full(9, 0.5), np.ones(2), np.zeros(600)):
        mean, *bounds = mean_interval(values, how=by(estimator))
        assert mean == values[0]
        assert np.isnan(bounds).all()


@pytest.mark.parametrize("interval", ["percentile", "bca"])
def test_differences_by_bootstrap_are_about_those_of_welch(interval: Any) -> None:
    rng = np.random.default_rng(1)
    first, second = rng.normal(1, 1, 300), rng.normal(0, 2, 500)
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    assert mean_interval(first, -second)[1:] == pytest.approx(tuple(expected))
    assert mean_interval(first, -second, how=by(interval))[1:] == pytest.approx(expected, abs=0.02)


def test_where_images_hardly_recur_the_image_level_is_students() -> None:
    sizes = np.full(4, 20_000)
    tasks = drawn(60, 0, sizes)
    values, outcomes = answered(tasks, np.random.default_rng(0).random(80_000) < 0.7)
    found = image_interval(accuracy, tasks, outcomes, sizes)
    assert found.units_variance < 0.05 * found.tasks_variance
    assert (found.mean, found.low, found.high) == pytest.approx(mean_interval(values), rel=0.01)
    assert found.freedom == pytest.approx(59, rel=0.1)


@pytest.mark.parametrize("weights", [(0.5, 0.5), (1.0, 0.0)])
def test_the_variance_over_images_is_that_of_the_mean_of_class_means(
    weights: tuple[float, float],
) -> None:
    # Where an image is right or wrong whatever surrounds it, the complete mean over tasks is the
    # mean over classes of their shares of right images, whose variance is known: also if a
    # statistic counts the first way alone.
    def statistic(outcomes: Outcomes) -> FloatArray:
        return outcomes.class_accuracy @ np.array(weights)

    share = np.array([0.5, 0.6, 0.7, 0.8])
    known = float((share * (1 - share) / SIZES).sum()) / len(SIZES) ** 2
    rng = np.random.default_rng(2)
    found = []
    for replicate in range(60):
        tasks = drawn(150, replicate)
        _, outcomes = answered(tasks, rng.random(180) < np.repeat(share, SIZES))
        found.append(image_interval(statistic, tasks, outcomes, SIZES).units_variance)
    error = float(np.std(found)) / len(found) ** 0.5
    assert np.mean(found) == pytest.approx(known, abs=4 * error)
    assert error < 0.15 * known


@pytest.mark.slow
def test_reused_tasks_cover_the_truth_at_the_image_level_alone() -> None:
    # Nearest class mean on one number, classes at -1 and 1, whose accuracy on fresh images of
    # variance 1 with 3 shots is Phi(1 / sqrt(1 + 1/3 ...)), here simulated.
    def answers(tasks: TaskSet, x: FloatArray) -> tuple[FloatArray, Outcomes]:
        means = x[tasks.support].mean(axis=2)
        away = np.abs(x[tasks.query][..., None] - means[:, None, None, :])
        outcomes = Outcomes.of(tasks, away.argmin(axis=3))
        return accuracy(outcomes), outcomes

    sizes = np.full(2, 40)
    rng = np.random.default_rng(3)
    support = rng.normal(size=(200_000, 2, 3)) + np.array([-1, 1])[:, None]
    query = rng.normal(size=200_000) - 1
    away = np.abs(query[:, None] - support.mean(axis=2))
    truth = float((away[:, 0] < away[:, 1]).mean())
    sets = [drawn(300, seed, sizes) for seed in range(10)]
    held = {"image-level": 0, "student-t": 0}
    for replicate in range(300):
        tasks = sets[replicate % len(sets)]
        x = rng.normal(size=80) + np.repeat([-1, 1], 40)
        values, outcomes = answers(tasks, x)
        found = image_interval(accuracy, tasks, outcomes, sizes)
        held["image-level"] += found.low <= truth <= found.high
        _, low, high = mean_interval(values)
        held["student-t"] += low <= truth <= high
    assert held["student-t"] < 0.6 * 300
    assert 0.91 * 300 < held["image-level"] < 0.985 * 300


@pytest.mark.slow
@pytest.mark.parametrize("statistic", [accuracy, worst], ids=["acc", "wacc"])
def test_the_freedom_counts_the_noise_of_the_tasks_that_were_drawn(statistic: Any) -> None:
    """Where only the query image counts, support images tell nothing but noise."""
    sizes, share = np.full(10, 40), np.linspace(0.5, 0.8, 10)
    sets = [drawn(300, seed, sizes, n_way=3, n_shot=5, n_query=1) for seed in range(20)]
    rng = np.random.default_rng(5)
    truth = float(share.mean())
    if statistic is worst:
        ways = np.array(list(itertools.combinations(share, 3)))
        truth = float(ways.prod(axis=1).mean())
    held, variances, freedom = 0, [], []
    for replicate in range(300):
        tasks = sets[replicate % len(sets)]
        _, outcomes = answered(tasks, rng.random(400) < np.repeat(share, sizes))
        found = image_interval(statistic, tasks, outcomes, sizes)
        held += found.low <= truth <= found.high
        variances.append(found.units_variance + found.tasks_variance)
        freedom.append(found.freedom)
    assert 0.92 * 300 <= held <= 0.98 * 300
    # Of a chi-squared variable over its mean, the variance is 2 over the degrees of freedom.
    counted = 2 * np.mean(variances) ** 2 / np.var(variances)
    assert 0.5 < np.median(freedom) / counted < 2.5


def test_the_class_level_is_wider_and_needs_classes_that_differ_between_tasks() -> None:
    sizes = np.full(12, 40)
    share = np.linspace(0.3, 0.95, 12)
    tasks = drawn(300, 0, sizes, n_way=3)
    _, outcomes = answered(tasks, np.random.default_rng(4).random(480) < np.repeat(share, sizes))
    images = image_interval(accuracy, tasks, outcomes, sizes)
    classes = image_interval(accuracy, tasks, outcomes, sizes, over="class-level")
    # The mean of twelve shares, drawn anew, by far the most of what there is.
    assert classes.units_variance == pytest.approx(share.var(ddof=1) / 12, rel=0.35)
    assert classes.units_variance > 5 * images.units_variance
    assert classes.freedom < 13
    few = np.full(2, 40)
    tasks = drawn(10, 0, few)
    _, outcomes = answered(tasks, np.arange(80) % 3 > 0)
    with pytest.raises(DataError, match="more classes than the 2 of a task"):
        image_interval(accuracy, tasks, outcomes, few, over="class-level")


def test_a_single_task_is_refused() -> None:
    tasks = drawn(1)
    _, outcomes = answered(tasks, np.ones(180, bool))
    with pytest.raises(DataError, match="at least 2 tasks, not 1"):
        image_interval(accuracy, tasks, outcomes, SIZES)
