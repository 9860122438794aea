"""Tasks without regard to attributes: uniform ones, and those without replacement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from fsf_samplers import (
    ContextSampler,
    DepletingSampler,
    FewStabPublishedSampler,
    FewStabSampler,
    RandomSampler,
)
from fsframework.interfaces import InfeasibleTask, OptionError
from fsframework.testing import Check, Make, parametrize_with_checks
from fsframework.values import ImagePool, task_rng

SEED = 20240611
PoolOf = Callable[..., ImagePool]
FitsUniform = Callable[[Counter[object], int], None]
UNBALANCED = (20, 74, 128, 182, 236, 290, 344, 400)


@parametrize_with_checks(
    [
        RandomSampler,
        DepletingSampler,
        partial(DepletingSampler, choose="by-what-is-left"),
        partial(ContextSampler, n_shot=2, n_query=3, n_contexts=2),
        FewStabSampler,
        partial(FewStabSampler, control="matched"),
        FewStabPublishedSampler,
        partial(FewStabPublishedSampler, control="matched"),
    ]
)
def test_conformance(make: Make, check: Check) -> None:
    check(make)


@pytest.mark.parametrize(
    ("make", "n_tasks", "seed", "message"),
    [
        (RandomSampler, None, 0, "'random' never runs out of tasks"),
        (FewStabSampler, None, 0, "'fewstab' never runs out of tasks"),
        *(
            (make, *request)
            for make in (
                RandomSampler, DepletingSampler, ContextSampler, FewStabSampler,
                FewStabPublishedSampler,
            )
            for request in (
                (0, 0, "n_tasks must be at least 1, not 0"),
                (1, -3, "seed must be at least 0, not -3"),
            )
        ),
    ],
)  # fmt: skip
def test_a_number_of_tasks_and_a_seed_are_checked(
    make: Any, n_tasks: int | None, seed: int, message: str, pool_of_sizes: PoolOf
) -> None:
    with pytest.raises(OptionError, match=message):
        make(n_way=2).draw(pool_of_sizes(30, 30), n_tasks, seed)


@pytest.mark.parametrize(
    ("make", "option", "value"),
    [
        (DepletingSampler, "choose", "x"),
        (ContextSampler, "n_contexts", 0),
        (ContextSampler, "n_contexts", 6),
        (FewStabSampler, "max_restarts", -1),
        (FewStabSampler, "support", "mixed"),
        (FewStabSampler, "query", "least"),
        (FewStabPublishedSampler, "max_restarts", -1),
    ],
)
def test_options_are_checked(make: Any, option: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"{option} must be .*not '?{value}'?"):
        make(**{option: value})


@pytest.mark.parametrize(
    ("make", "shape", "sizes", "message"),
    [
        (RandomSampler, (5, 1, 1), (9, 7), "5-way tasks need 5 classes, and there are only 2"),
        (RandomSampler, (2, 3, 5), (9, 7), "at most 2 shots with 5 queries or at most 4 "),
        (
            RandomSampler,
            (2, 1, 15),
            (9, 7),
            r"need 2 classes of 16 images.*; at most 6 queries with 1 shot$",
        ),
        (
            RandomSampler,
            (2, 7, 7),
            (9, 7),
            r"'class-1', .* has 7 images; at most 6 shots with 1 query$",
        ),
        (DepletingSampler, (5, 5, 15), (9, 7), "5-way tasks need 5 classes, and there are only 2"),
        (
            DepletingSampler,
            (2, 5, 5),
            (30, 9),
            "2 classes of 10 images.*; at most 4 shots with 5 q",
        ),
    ],
)
def test_requests_that_cannot_be_met(
    make: Any, shape: tuple[int, int, int], sizes: tuple[int, ...], message: str,
    pool_of_sizes: PoolOf,
) -> None:  # fmt: skip
    n_way, n_shot, n_query = shape
    with pytest.raises(InfeasibleTask, match=message):
        make(n_way=n_way, n_shot=n_shot, n_query=n_query).draw(pool_of_sizes(*sizes), 1, 0)


# -- Uniform tasks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "n_way", "n_images"),
    [((3, 3, 4, 5), 2, 3), ((20, 21, 20), 3, 20), ((600,) * 20, 5, 20), ((250, 240), 2, 230)],
)
@pytest.mark.parametrize("seed", [0, 2**33 + 5, 2**70])
def test_random_tasks_are_those_of_one_generator_per_task(
    sizes: tuple[int, ...], n_way: int, n_images: int, seed: int, pool_of_sizes: PoolOf
) -> None:
    pool = pool_of_sizes(*sizes)
    tasks = RandomSampler(n_way=n_way, n_shot=1, n_query=n_images - 1).draw(pool, 300, seed)
    for t in (*range(20), 299):
        rng = task_rng(seed, t, "random")
        classes = rng.choice(len(sizes), n_way, replace=False)
        assert tasks.classes[t].tolist() == classes.tolist()
        drawn = np.concatenate([tasks.support[t], tasks.query[t]], axis=1)
        for label, images in zip(classes, drawn, strict=True):
            expected = rng.choice(pool.members(label), n_images, replace=False)
            assert images.tolist() == expected.tolist()


def test_classes_and_images_of_random_tasks_are_uniform(
    pool_of_sizes: PoolOf, fits_uniform: FitsUniform
) -> None:
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


def test_a_whole_class_can_be_drawn(pool_of_sizes: PoolOf) -> None:
    tasks = RandomSampler(n_way=2, n_shot=2, n_query=1).draw(pool_of_sizes(3, 3), 5, SEED)
    assert np.all(np.sort(tasks.images, axis=1) == np.arange(6))


# -- Tasks without replacement ---------------------------------------------------------------------


def most_tasks(sizes: tuple[int, ...], n_way: int, size: int) -> int:
    """Return the most tasks that any choice of classes can yield, by trying every number."""
    groups = np.array(sizes) // size
    numbers = range(groups.sum() // n_way + 1)
    return max(t for t in numbers if np.minimum(groups, t).sum() >= n_way * t)


@pytest.mark.parametrize("choose", ["uniform", "by-what-is-left"])
@pytest.mark.parametrize("sizes", [(60,) * 6, UNBALANCED, (3, 500, 500, 500)])
def test_no_image_recurs_and_nothing_more_can_be_drawn(
    choose: str, sizes: tuple[int, ...], pool_of_sizes: PoolOf
) -> None:
    pool = pool_of_sizes(*sizes)
    sampler = DepletingSampler(n_way=3, n_shot=2, n_query=5, choose=choose)  # type: ignore[arg-type]
    tasks = sampler.draw(pool, None, SEED)
    tasks.verify(pool)
    assert not tasks.reuses_images
    assert tasks.n_images == len(tasks) * 3 * 7
    left = pool.class_sizes - 7 * np.bincount(tasks.classes.ravel(), minlength=len(sizes))
    assert left.min() >= 0
    assert (left >= 7).sum() < 3


def test_by_what_is_left_yields_as_many_tasks_as_any_choice_can(pool_of_sizes: PoolOf) -> None:
    rng = np.random.default_rng(SEED)
    for _ in range(40):
        sizes = tuple(int(s) for s in rng.integers(8, 200, rng.integers(3, 9)))
        sampler = DepletingSampler(n_way=3, n_shot=1, n_query=3, choose="by-what-is-left")
        found = len(sampler.draw(pool_of_sizes(*sizes), None, int(rng.integers(99))))
        assert found == most_tasks(sizes, 3, 4), sizes


def test_it_yields_more_than_uniform_where_sizes_differ(pool_of_sizes: PoolOf) -> None:
    pool = pool_of_sizes(*UNBALANCED)
    uniform = [len(DepletingSampler().draw(pool, None, seed)) for seed in range(5)]
    most = len(DepletingSampler(choose="by-what-is-left").draw(pool, None, 0))
    assert most == most_tasks(UNBALANCED, 5, 20) > 1.2 * max(uniform)


def test_classes_and_images_without_replacement_are_uniform(
    pool_of_sizes: PoolOf, fits_uniform: FitsUniform
) -> None:
    pool = pool_of_sizes(4, 4, 4)
    first: Counter[object] = Counter()
    images: Counter[object] = Counter()
    for seed in range(1200):
        tasks = DepletingSampler(n_way=2, n_shot=1, n_query=1).draw(pool, None, seed)
        first[tuple(tasks.classes[0].tolist())] += 1
        images[int(tasks.support[0, 0, 0])] += 1
    fits_uniform(first, 6)
    fits_uniform(images, 12)


def test_a_shorter_draw_begins_a_longer_one(pool_of_sizes: PoolOf) -> None:
    # More than the contract requires: it lets a run be extended without repeating tasks.
    pool, sampler = pool_of_sizes(*UNBALANCED), DepletingSampler(n_way=3)
    assert sampler.draw(pool, None, 1)[:7].digest == sampler.draw(pool, 7, 1).digest


def test_more_tasks_than_there_are(pool_of_sizes: PoolOf) -> None:
    sampler = DepletingSampler(n_way=2, n_shot=1, n_query=4)
    pool = pool_of_sizes(21, 19)
    assert len(sampler.draw(pool, 3, 0)) == len(sampler.draw(pool, None, 0)) == 3
    with pytest.raises(InfeasibleTask, match=r"40 images yield 3 tasks of 2 x \(1 \+ 4\)") as error:
        sampler.draw(pool, 4, 0)
    assert str(error.value).endswith("not 4; ask for at most that many or for all")
