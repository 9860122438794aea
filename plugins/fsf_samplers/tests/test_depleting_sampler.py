"""Tasks without replacement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from fsf_samplers import DepletingSampler
from fsframework.interfaces import InfeasibleTask, OptionError
from fsframework.values import ImagePool

SEED = 20240904
PoolOf = Callable[..., ImagePool]
UNBALANCED = (20, 74, 128, 182, 236, 290, 344, 400)


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


def test_classes_and_images_are_uniform(
    pool_of_sizes: PoolOf, fits_uniform: Callable[[Counter[object], int], None]
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
    # More than the contract requires; it lets a run be extended without repeating tasks.
    pool, sampler = pool_of_sizes(*UNBALANCED), DepletingSampler(n_way=3)
    assert sampler.draw(pool, None, 1)[:7].digest == sampler.draw(pool, 7, 1).digest


def test_more_tasks_than_there_are(pool_of_sizes: PoolOf) -> None:
    sampler = DepletingSampler(n_way=2, n_shot=1, n_query=4)
    pool = pool_of_sizes(21, 19)
    assert len(sampler.draw(pool, 3, 0)) == len(sampler.draw(pool, None, 0)) == 3
    with pytest.raises(InfeasibleTask, match=r"40 images yield 3 tasks of 2 x \(1 \+ 4\)") as error:
        sampler.draw(pool, 4, 0)
    assert str(error.value).endswith("not 4; ask for at most that many or for all")


def test_requests_are_checked(pool_of_sizes: PoolOf) -> None:
    with pytest.raises(InfeasibleTask, match="at most the number of classes, 2, not 5"):
        DepletingSampler().draw(pool_of_sizes(9, 7), None, 0)
    with pytest.raises(InfeasibleTask, match="there are only 1; 'class-1' has 9: n_query at"):
        DepletingSampler(n_way=2, n_shot=5, n_query=5).draw(pool_of_sizes(30, 9), None, 0)
    with pytest.raises(OptionError, match="n_tasks must be at least 1, not 0"):
        DepletingSampler(n_way=2).draw(pool_of_sizes(30, 30), 0, 0)
    with pytest.raises(OptionError, match="choose must be one of uniform, by-what-is-left, not x"):
        DepletingSampler(choose="x")  # type: ignore[arg-type]
