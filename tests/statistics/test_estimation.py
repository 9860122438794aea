"""Intervals against values worked by hand and by simulation; scopes decided from the tasks."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

import fsframework as fsf
from fsf_statistics import mean_interval
from fsframework.errors import DataError, PluginError
from fsframework.interfaces import Statistic
from fsframework.statistics.estimation import saturation
from fsframework.values import (
    ArmOutcomes,
    Arms,
    Contrast,
    Estimate,
    FloatArray,
    ImagePool,
    Outcomes,
    TaskSet,
)


class Mean(Statistic):
    """Mean class accuracy."""

    def per_task(self, outcomes: Outcomes) -> FloatArray:
        return outcomes.class_accuracy.mean(axis=1)


def tasks_of(n_tasks: int, *, reuse: bool, start: int = 0) -> TaskSet:
    """2-way 1-shot tasks of 2 queries; each task has images of its own unless they are reused."""
    images = np.arange(start, start + n_tasks * 6).reshape(n_tasks, 2, 3)
    if reuse:
        images = np.broadcast_to(images[:1], images.shape)
    classes = np.tile([0, 1], (n_tasks, 1))
    return TaskSet(
        classes, images[:, :, :1], images[:, :, 1:], np.full((n_tasks, 2), -1),
        np.zeros((n_tasks, 2), bool), (), "toy", {}, 0, "keys", "pool",
    )  # fmt: skip


def answered(tasks: TaskSet, right: list[int]) -> Outcomes:
    """Outcomes whose task t has `right[t]` of its 4 queries right."""
    truth = np.broadcast_to(np.arange(2)[:, None], tasks.query.shape).copy()
    flat = truth.reshape(len(tasks), -1)
    for t, count in enumerate(right):
        flat[t, count:] = 1 - flat[t, count:]
    return Outcomes.of(tasks, flat.reshape(tasks.query.shape))


def estimated(statistic: Statistic, tasks: TaskSet, right: list[int]) -> Estimate:
    outcomes = ArmOutcomes({"random": answered(tasks, right)}, Arms({"random": tasks}))
    [found] = fsf.estimate(outcomes, statistic).values()
    return found


def test_an_interval_is_open_only_if_no_image_appears_in_two_tasks() -> None:
    right = [1, 2, 3]
    fresh, reused = (estimated(Mean(), tasks_of(3, reuse=reuse), right) for reuse in (False, True))
    assert (fresh.scope, fresh.n_images, fresh.n_tasks) == ("open", 18, 3)
    assert (reused.scope, reused.n_images) == ("closed", 6)
    assert fresh.value == reused.value == 0.5
    assert fresh.share


def arms_of(random: TaskSet, biased: TaskSet, paired: bool = False) -> Arms:
    contrast = Contrast("random", "biased", paired)
    return Arms({"random": random, "biased": biased}, contrast)


def gap_of(
    statistic: Statistic, arms: Arms, right: tuple[list[int], list[int]], method: str = "student-t"
) -> Estimate:
    answers = {name: answered(arms[name], r) for name, r in zip(arms, right, strict=True)}
    outcomes = ArmOutcomes(answers, arms)
    return list(fsf.estimate(outcomes, statistic, interval=method).values())[-1]  # type: ignore[arg-type]


def test_gap_is_welchs_interval_and_closed_when_the_two_sets_share_images() -> None:
    random, biased = tasks_of(4, reuse=False), tasks_of(3, reuse=False, start=100)
    found = gap_of(Mean(), arms_of(random, biased), ([4, 3, 4, 3], [1, 0, 2]))
    reference = stats.ttest_ind([1, 0.75, 1, 0.75], [0.25, 0, 0.5], equal_var=False)
    interval = reference.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.value == pytest.approx(0.875 - 0.25)
    assert (found.scope, found.n_tasks, found.n_images) == ("open", 7, 42)
    assert (found.name, found.estimator) == ("mean-gap", "welch-t")
    assert found.arms == ("random", "biased")
    constant = gap_of(Mean(), arms_of(random, biased), ([4] * 4, [0] * 3))
    assert (constant.value, str(constant)) == (1.0, "100.0 % (no interval)")
    overlapping = tasks_of(3, reuse=False, start=6)
    shared = gap_of(Mean(), arms_of(random, overlapping), ([4, 3, 4, 3], [1, 0, 2]))
    assert shared.scope == "closed"


def test_paired_arms_are_compared_task_by_task() -> None:
    arms = arms_of(tasks_of(3, reuse=False), tasks_of(3, reuse=False, start=50), paired=True)
    found = gap_of(Mean(), arms, ([4, 3, 4], [3, 2, 2]))
    # Differences 0.25, 0.25, 0.5.
    assert found.value == pytest.approx(1 / 3)
    assert found.half_width == pytest.approx(4.302653 * np.std([1, 1, 2], ddof=1) / 4 / 3**0.5)
    assert (found.paired, found.n_tasks, found.n_images) == (True, 3, 36)
    assert (found.scope, found.estimator) == ("open", "student-t")
    # An image of both tasks of one pair counts once: the same support does not close an interval.
    tasks = tasks_of(3, reuse=False)
    same = gap_of(Mean(), arms_of(tasks, tasks, paired=True), ([4, 3, 4], [3, 2, 2]))
    assert (same.scope, same.n_images) == ("open", 18)
    uneven = arms_of(tasks_of(3, reuse=False), tasks_of(2, reuse=False, start=50), paired=True)
    with pytest.raises(DataError, match="cannot be paired task by task; they have 3 and 2 tasks"):
        gap_of(Mean(), uneven, ([4, 3, 4], [3, 2]))


class RangeGap(Mean):
    """Share of wrong answers."""

    higher_is_better = False

    def per_task(self, outcomes: Outcomes) -> FloatArray:
        return 1 - super().per_task(outcomes)


def test_estimates_are_named_after_statistic_and_arm() -> None:
    """A statistic whose own name ends in -gap is no gap, and is not taken for one."""
    arms = arms_of(tasks_of(3, reuse=False), tasks_of(3, reuse=False, start=50))
    outcomes = ArmOutcomes({name: answered(arms[name], [1, 2, 3]) for name in arms}, arms)
    found = fsf.estimate(outcomes, RangeGap)
    assert list(found) == ["range-gap-random", "range-gap-biased", "range-gap-gap"]
    assert {e.statistic for e in found.values()} == {"range-gap"}
    assert [e.arms for e in found.values()] == [("random",), ("biased",), ("random", "biased")]
    # It is positive where the tested arm is worse, whatever the direction of the statistic.
    gaps = [gap_of(one, arms, ([4, 3, 4], [1, 0, 1])).value for one in (Mean(), RangeGap())]
    assert gaps == pytest.approx([0.75, 0.75])
    alone = ArmOutcomes({"random": outcomes["random"]}, Arms({"random": arms["random"]}))
    assert list(fsf.estimate(alone, Mean)) == ["mean-random"]


def test_intervals_over_images_are_for_tasks_that_say_they_are_uniform() -> None:
    def made(*, uniform: bool, reuse: bool, pool: ImagePool | None = None) -> str:
        tasks = dataclasses.replace(tasks_of(3, reuse=reuse), uniform=uniform)
        outcomes = ArmOutcomes({"random": answered(tasks, [1, 2, 3])}, Arms({"random": tasks}))
        [found] = fsf.estimate(outcomes, Mean, interval="image-level", pool=pool).values()
        return found.estimator

    keys = tuple(f"{i}" for i in range(12))
    pool = ImagePool(keys, np.repeat([0, 1], 6), ("a", "b"), {})
    assert made(uniform=False, reuse=True) == "student-t"
    assert made(uniform=True, reuse=False) == "student-t"
    assert made(uniform=True, reuse=True, pool=pool) == "image-level"
    with pytest.raises(DataError, match="needs the sizes of the classes: give pool"):
        made(uniform=True, reuse=True)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.5, float("nan"), 0.5], "the value of task 1 is nan"),
        ([0.5, 0.5], "values for 3 tasks"),
        ([0.5, 2.0, 0.5], r"must lie in 0\.0\.\.1\.0"),
    ],
)
def test_a_broken_statistic_is_named(values: list[float], message: str) -> None:
    class Broken(Statistic):
        """Broken."""

        def per_task(self, outcomes: Outcomes) -> FloatArray:
            return np.array(values)

    with pytest.raises(DataError, match=message):
        estimated(Broken(), tasks_of(3, reuse=False), [1, 2, 3])


class Wilson(Mean):
    """Mean class accuracy, with Wilson's (1927) interval of all answers."""

    def interval(self, outcomes: Outcomes, level: float) -> tuple[float, float]:
        count, z = outcomes.predictions.size, stats.norm.ppf((1 + level) / 2)
        centre = self.per_task(outcomes).mean() + z**2 / (2 * count)
        share = self.per_task(outcomes).mean()
        half = z * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
        return tuple((centre + sign * half) / (1 + z**2 / count) for sign in (-1, 1))


class Beside(Mean):
    """Mean class accuracy, with an interval that does not hold it."""

    def interval(self, outcomes: Outcomes, level: float) -> tuple[float, float]:
        return 0.8, 0.9


def test_a_statistic_may_bring_its_own_interval_which_must_hold_its_mean() -> None:
    """9 of 12 answers are right."""
    tasks = tasks_of(3, reuse=False)
    outcomes = ArmOutcomes({"random": answered(tasks, [2, 3, 4])}, Arms({"random": tasks}))
    found = fsf.estimate(outcomes, Wilson)["wilson-random"]
    expected = stats.binomtest(9, 12).proportion_ci(0.95, "wilson")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert (found.value, found.estimator, found.scope) == (0.75, "own", "open")

    with pytest.raises(PluginError, match="interval returned 0.8"):
        fsf.estimate(outcomes, Beside)


def test_intervals_cover_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    truth, count, covered = 0.6, 400, 0
    for _ in range(count):
        values = rng.binomial(15, truth, size=30) / 15
        _, low, high = mean_interval(values)
        covered += low <= truth <= high
    # 95 % of 400 is 380; four standard deviations are 17.
    assert 363 <= covered <= 397


@pytest.mark.parametrize(("right", "small"), [(0, False), (38, False), (96, True), (162, False)])
def test_a_small_sample_is_not_called_close_to_the_end_of_the_scale(
    right: int, *, small: bool
) -> None:
    predictions = np.repeat([0, 1], 100).reshape(1, 2, 100)
    predictions.reshape(-1)[right:] = 1 - predictions.reshape(-1)[right:]
    warning = saturation(Outcomes(predictions, "digest", 200, False))
    assert warning is not None
    assert ("so small a sample" in warning) == small
    assert ("end of the scale" in warning) != small


@pytest.mark.parametrize(("wrong", "told"), [(0, True), (99, True), (100, False), (501, True)])
def test_few_wrong_or_few_right_answers_are_told(wrong: int, told: bool) -> None:
    predictions = np.repeat([0, 1], 150)[None, :].repeat(2, axis=0).reshape(2, 2, 150)
    flat = predictions.reshape(-1).copy()
    flat[:wrong] = 1 - flat[:wrong]
    outcomes = Outcomes(flat.reshape(2, 2, 150), "digest", 600, False)
    warning = saturation(outcomes)
    assert (warning is not None) == told
    if warning is not None:
        fewer = min(wrong, 600 - wrong)
        assert f"{fewer} of 600 answers are {'wrong' if wrong < 300 else 'right'}" in warning
