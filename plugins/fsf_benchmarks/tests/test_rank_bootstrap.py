"""Bootstraps of rank correlations, on data whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fsf_benchmarks._rank_bootstrap import bootstrap_spearman
from fsframework.errors import DataError, OptionError


def evaluated(means: list[float], n_tasks: int, noise: float, seed: int) -> np.ndarray:
    """A row per method: its mean, and the same noise per task for all, plus some of its own."""
    rng = np.random.default_rng(seed)
    common = rng.normal(0, noise, n_tasks)
    own = rng.normal(0, noise / 4, (len(means), n_tasks))
    return np.array(means)[:, None] + common + own


def test_too_few_methods_or_no_task() -> None:
    with pytest.raises(DataError, match="at least 3"):
        bootstrap_spearman(np.ones((2, 9)), np.ones((2, 9)))
    with pytest.raises(DataError, match="at least one task"):
        bootstrap_spearman(np.ones((3, 0)), np.ones((3, 5)))


@pytest.mark.parametrize("options", [{"level": 1.0}, {"level": 0.0}, {"n_replicates": 0}])
def test_options_out_of_range(options: dict[str, float]) -> None:
    with pytest.raises(OptionError, match="must"):
        bootstrap_spearman(np.eye(3), np.eye(3), **options)  # type: ignore[arg-type]


def test_methods_share_their_tasks() -> None:
    # The noise common to a task moves all methods alike, so it must not disturb their order.
    means = [0.45, 0.50, 0.55]
    rng = np.random.default_rng(0)
    values = [np.array(means)[:, None] + rng.normal(0, 1.0, 40) for _ in range(2)]
    found = bootstrap_spearman(values[0], values[1], n_replicates=500)
    assert (found.low, found.high) == (1.0, 1.0)


def test_replicates_are_what_a_plain_loop_gives() -> None:
    values = [evaluated([0.5, 0.52, 0.55, 0.5], n, 0.2, n) for n in (25, 40)]
    found = bootstrap_spearman(values[0], values[1], n_replicates=60, level=0.8, seed=3)
    draws = [
        np.random.default_rng([3, place]).integers(v.shape[1], size=(60, v.shape[1]))
        for place, v in enumerate(values)
    ]
    plain = [
        stats.spearmanr(
            values[0][:, draws[0][i]].mean(axis=1), values[1][:, draws[1][i]].mean(axis=1)
        ).statistic
        for i in range(60)
    ]
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(plain, [0.1, 0.9])))


def test_equal_methods_stay_tied_in_every_replicate() -> None:
    rng = np.random.default_rng(0)
    row = rng.integers(0, 16, 500) / 15
    values = np.stack([row, row, row, row + 0.5])
    found = bootstrap_spearman(values, values, n_replicates=300)
    assert (found.low, found.high) == (1.0, 1.0)
    tied = bootstrap_spearman(values[:3], values[:3], n_replicates=50)
    assert np.isnan([tied.rho, tied.low, tied.high]).all()
    assert tied.n_undefined == 50


def test_the_seed_decides() -> None:
    values = [evaluated([0.5] * 9, 50, 0.2, seed) for seed in (0, 1)]
    again = [bootstrap_spearman(*values, n_replicates=200, seed=seed) for seed in (0, 0, 1)]
    assert again[0] == again[1]
    assert again[0] != again[2]
