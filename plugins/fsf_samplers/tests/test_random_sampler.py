"""Uniform tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from fsf_samplers import RandomSampler
from fsframework.interfaces import InfeasibleTask, OptionError
from fsframework.values import ImagePool

SEED = 20240611
PoolOf = Callable[..., ImagePool]
FitsUniform = Callable[[Counter[object], int], None]


def test_classes_and_images_are_uniform(pool_of_sizes: PoolOf, fits_uniform: FitsUniform) -> None:
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


@pytest.mark.parametrize(
    ("shape", "n_tasks", "error", "message"),
    [
        ((2, 1, 1), None, OptionError, "'random' never runs out of tasks"),
        ((2, 1, 1), -1, OptionError, "n_tasks must be at least 1, not -1"),
        ((5, 1, 1), 1, InfeasibleTask, "at most the number of classes, 2, not 5"),
        ((2, 3, 5), 1, InfeasibleTask, "n_shot at most 2 for n_query = 5 or n_query at most 4 for"),
        ((2, 1, 15), 1, InfeasibleTask, r"not 1 \+ 15 \(n_query at most 6 for n_shot = 1\)$"),
        ((2, 7, 7), 1, InfeasibleTask, r"'class-1' with 7 images, not 7 \+ 7$"),
    ],
)
def test_requests_are_checked(
    shape: tuple[int, int, int],
    n_tasks: int | None,
    error: type[Exception],
    message: str,
    pool_of_sizes: PoolOf,
) -> None:
    n_way, n_shot, n_query = shape
    with pytest.raises(error, match=message):
        RandomSampler(n_way=n_way, n_shot=n_shot, n_query=n_query).draw(
            pool_of_sizes(9, 7), n_tasks, 0
        )
