"""Intervals of the best number of queries, which cover the truth."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from scipy.stats import norm

from fsf_statistics.query_bounds import (
    QueryBounds,
    answer_parts,
    bounds_of,
    ratios_without_each_task,
)
from fsf_statistics.query_variance import PilotAnswers, PilotSums, QueryVariance
from fsframework.values import FloatArray, IntArray
from tests.gaussians import gaussian_pilot, gaussian_truth

SEED = 20240904


def bounded(pilot: PilotAnswers) -> QueryBounds:
    return bounds_of(pilot, QueryVariance.of(pilot))


def test_a_single_pilot_of_200_tasks() -> None:
    # All images that are not in the support are its queries: 1,000 images, each task asks 990.
    alpha, within = gaussian_truth(5)
    best = math.sqrt(5 * within / alpha)
    rng = np.random.default_rng(SEED)
    spreads = [bounded(gaussian_pilot(rng, 5, 200, 495, 500)) for _ in range(100)]
    near = [abs(math.log(s.found.cautious / best)) <= math.log(1.5) for s in spreads]
    assert np.mean(near) >= 0.75  # 86 % of 600 in benchmarks/query_number.py
    covers = [s.low <= best <= s.high for s in spreads]
    assert np.mean(covers) >= 0.93


def test_intervals_cover_in_pilots_with_images_of_their_own() -> None:
    rng = np.random.default_rng(SEED)
    for shot, n_tasks, n_query in ((1, 100, 15), (5, 400, 60), (5, 200, 10)):
        alpha, within = gaussian_truth(shot)
        best = math.sqrt(shot * within / alpha)
        found = [bounded(gaussian_pilot(rng, shot, n_tasks, n_query)) for _ in range(200)]
        assert np.mean([s.low <= best <= s.high for s in found]) >= 0.93


def test_intervals_cover_in_five_ways_of_unlike_classes() -> None:
    rng = np.random.default_rng(SEED)
    difficulty = 0.4 * rng.normal(size=20)

    def drawn(n_tasks: int) -> tuple[FloatArray, IntArray]:
        classes = np.argsort(rng.random((n_tasks, 20)), axis=1)[:, :5]
        shift = 0.25 * rng.normal(size=(n_tasks, 1)) + 0.4 * rng.normal(size=(n_tasks, 5))
        return np.asarray(norm.cdf(0.6 + difficulty[classes] + shift)), classes

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
