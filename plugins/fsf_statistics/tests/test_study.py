"""Plans of studies: differences that are found as often as said, pairs, class sizes."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from fsf_statistics.query_variance import PilotAnswers, QueryVariance
from fsf_statistics.study import (
    detectable_difference,
    paired_pilot,
    parse_class_sizes,
    tasks_needed,
)
from fsframework.errors import DataError, OptionError

SEED = 20240904


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
