"""Rank correlations, by hand and against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fsframework.errors import DataError
from fsframework.statistics.ranking import spearman


def test_by_hand() -> None:
    # d = (0, 1, -1, 0): 1 - 6 * 2 / (4 * 15) = 0.8
    assert spearman(np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4])) == pytest.approx(0.8)
    assert spearman(np.array([1.0, 2, 3]), np.array([9.0, 8, 7])) == -1.0


def test_ties_share_their_mean_rank() -> None:
    first, second = np.array([1.0, 2, 2, 4]), np.array([3.0, 1, 5, 5])
    assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic)


def test_no_correlation_with_a_constant() -> None:
    assert np.isnan(spearman(np.ones(4), np.arange(4.0)))


def test_too_few_or_unequal_methods() -> None:
    with pytest.raises(DataError, match="at least 3 methods, not 2"):
        spearman(np.arange(2.0), np.arange(2.0))
    with pytest.raises(DataError, match=r"\(3,\) against \(4,\)"):
        spearman(np.arange(3.0), np.arange(4.0))
