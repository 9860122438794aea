"""Uniform tasks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from fsf_samplers import RandomSampler
from fsframework.interfaces import InfeasibleTask, OptionError
from fsframework.testing import Check, Make, parametrize_with_checks, toy_pool
from fsframework.values import ImagePool

SEED = 20240611


@parametrize_with_checks([RandomSampler])
def test_conformance(make: Make, check: Check) -> None:
    check(make)


def pool_of_sizes(*sizes: int) -> ImagePool:
    labels = np.random.default_rng(SEED).permutation(np.repeat(np.arange(len(sizes)), sizes))
    keys = tuple(f"{i}.png" for i in range(labels.size))
    return ImagePool(keys, labels, tuple(f"class-{c}" for c in range(len(sizes))))


def fits_uniform(counts: Counter[object], n_outcomes: int) -> None:
    assert len(counts) == n_outcomes
    p = chisquare(list(counts.values())).pvalue
    print(f"seed {SEED}: p = {p:.3g}")
    assert p > 1e-3


def test_classes_and_images_are_uniform() -> None:
    pool = pool_of_sizes(3, 3, 4, 5)
    tasks = RandomSampler(n_way=2, n_shot=1, n_query=2).draw(pool, 6000, SEED)
    tasks.verify(pool)
    assert not tasks.relaxed.any()
    assert np.all(tasks.attribute == -1)
    fits_uniform(Counter(map(tuple, tasks.classes.tolist())), 4 * 3)
    of_largest = tasks.classes == 3
    fits_uniform(Counter(tasks.support[of_largest].reshape(-1).tolist()), 5)
    pairs = np.sort(tasks.query[of_largest], axis=1)
    fits_uniform(Counter(map(tuple, pairs.tolist())), 5 * 4 // 2)


def test_a_whole_class_can_be_drawn() -> None:
    tasks = RandomSampler(n_way=2, n_shot=2, n_query=1).draw(pool_of_sizes(3, 3), 5, SEED)
    assert np.all(np.sort(tasks.images, axis=1) == np.arange(6))


def test_a_shorter_draw_begins_a_longer_one() -> None:
    sampler, pool = RandomSampler(), toy_pool()
    assert sampler.draw(pool, 100, 1)[:30].digest == sampler.draw(pool, 30, 1).digest


def test_requests_are_checked() -> None:
    pool = pool_of_sizes(9, 7)
    with pytest.raises(OptionError, match="'random' never runs out of tasks"):
        RandomSampler(n_way=2).draw(pool, None, 0)
    with pytest.raises(OptionError, match="n_tasks must be at least 1, not -1"):
        RandomSampler(n_way=2).draw(pool, -1, 0)
    with pytest.raises(InfeasibleTask, match="at most the number of classes, 2, not 5"):
        RandomSampler().draw(pool, 1, 0)


@pytest.mark.parametrize(
    ("n_shot", "n_query", "remedy"),
    [
        (3, 5, r"(n_shot at most 2 for n_query = 5 or n_query at most 4 for n_shot = 3)"),
        (1, 15, r"(n_query at most 6 for n_shot = 1)"),
        (7, 7, ""),
    ],
)
def test_a_class_too_small_is_named(n_shot: int, n_query: int, remedy: str) -> None:
    sampler = RandomSampler(n_way=2, n_shot=n_shot, n_query=n_query)
    with pytest.raises(InfeasibleTask) as caught:
        sampler.draw(pool_of_sizes(9, 7), 1, 0)
    assert str(caught.value) == (
        "n_shot + n_query must be at most the size of the smallest class, 'class-1' with 7 "
        f"images, not {n_shot} + {n_query}" + (f" {remedy}" if remedy else "")
    )
