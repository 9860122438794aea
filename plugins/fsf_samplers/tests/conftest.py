from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from fsframework.values import ImagePool


@pytest.fixture
def fits_uniform() -> Callable[[Counter[Any], int], None]:
    """Assert by a chi-square test that all of so many outcomes are equally likely."""

    def test(counts: Counter[Any], n_outcomes: int) -> None:
        assert len(counts) == n_outcomes
        p = chisquare(list(counts.values())).pvalue
        print(f"p = {p:.3g} of {dict(counts)}")
        assert p > 1e-3

    return test


@pytest.fixture
def pool_of_sizes() -> Callable[..., ImagePool]:
    """Make a pool from the number of images of each class, images shuffled."""

    def pool(*sizes: int) -> ImagePool:
        rng = np.random.default_rng(20240611)
        labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
        keys = tuple(f"{i}.png" for i in range(labels.size))
        return ImagePool(keys, labels, tuple(f"class-{c}" for c in range(len(sizes))))

    return pool
