"""Rank correlations and their bootstraps, on data whose answer is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fsframework.errors import DataError, OptionError
from fsframework.pipeline.ranking import (
    bootstrap_spearman,
    rank_agreement,
    read_columns,
    spearman,
)


def contestants(means: list[float], n_tasks: int, noise: float, seed: int) -> np.ndarray:
    """A row a contestant: its mean, and the same noise a task for all, plus some of its own."""
    rng = np.random.default_rng(seed)
    common = rng.normal(0, noise, n_tasks)
    own = rng.normal(0, noise / 4, (len(means), n_tasks))
    return np.array(means)[:, None] + common + own


def test_by_hand() -> None:
    # d = (0, 1, -1, 0): 1 - 6 * 2 / (4 * 15) = 0.8
    assert spearman(np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4])) == pytest.approx(0.8)
    assert spearman(np.array([1.0, 2, 3]), np.array([9.0, 8, 7])) == -1.0


def test_ties_share_their_mean_rank() -> None:
    first, second = np.array([1.0, 2, 2, 4]), np.array([3.0, 1, 5, 5])
    assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic)


def test_no_correlation_with_a_constant() -> None:
    assert np.isnan(spearman(np.ones(4), np.arange(4.0)))


def test_too_few_or_unequal_contestants() -> None:
    with pytest.raises(DataError, match="at least 3 contestants, not 2"):
        spearman(np.arange(2.0), np.arange(2.0))
    with pytest.raises(DataError, match=r"\(3,\) against \(4,\)"):
        spearman(np.arange(3.0), np.arange(4.0))
    with pytest.raises(DataError, match="at least 3"):
        bootstrap_spearman(np.ones((2, 9)), np.ones((2, 9)))
    with pytest.raises(DataError, match="at least one task"):
        bootstrap_spearman(np.ones((3, 0)), np.ones((3, 5)))


@pytest.mark.parametrize("options", [{"level": 1.0}, {"level": 0.0}, {"n_replicates": 0}])
def test_options_out_of_range(options: dict[str, float]) -> None:
    with pytest.raises(OptionError, match="must"):
        bootstrap_spearman(np.eye(3), np.eye(3), **options)  # type: ignore[arg-type]


def test_perfect_agreement() -> None:
    means = [0.1, 0.4, 0.6, 0.9]
    found = bootstrap_spearman(
        contestants(means, 200, 0.02, 0), contestants(means, 300, 0.02, 1), n_replicates=500
    )
    assert (found.rho, found.low, found.high, found.n_undefined) == (1.0, 1.0, 1.0, 0)


def test_noise_leaves_the_interval_wide() -> None:
    same = [0.5] * 6
    found = bootstrap_spearman(
        contestants(same, 100, 0.2, 0), contestants(same, 100, 0.2, 1), n_replicates=1000
    )
    assert found.high - found.low > 1.0
    assert found.low < 0 < found.high


def test_more_tasks_narrow_it() -> None:
    means = list(np.linspace(0.40, 0.60, 8))
    widths = []
    for n_tasks in (30, 3000):
        values = [contestants(means, n_tasks, 0.4, seed) for seed in (0, 1)]
        found = bootstrap_spearman(values[0], values[1], n_replicates=500)
        widths.append(found.high - found.low)
    assert widths[1] < widths[0] / 2


def test_contestants_share_their_tasks() -> None:
    # The noise common to a task moves all contestants alike, so it must not disturb their order.
    means = [0.45, 0.50, 0.55]
    rng = np.random.default_rng(0)
    values = [np.array(means)[:, None] + rng.normal(0, 1.0, 40) for _ in range(2)]
    found = bootstrap_spearman(values[0], values[1], n_replicates=500)
    assert (found.low, found.high) == (1.0, 1.0)


def test_replicates_are_what_a_plain_loop_gives() -> None:
    values = [contestants([0.5, 0.52, 0.55, 0.5], n, 0.2, n) for n in (25, 40)]
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


def test_equal_contestants_stay_tied_in_every_replicate() -> None:
    rng = np.random.default_rng(0)
    row = rng.integers(0, 16, 500) / 15
    values = np.stack([row, row, row, row + 0.5])
    found = bootstrap_spearman(values, values, n_replicates=300)
    assert (found.low, found.high) == (1.0, 1.0)
    tied = bootstrap_spearman(values[:3], values[:3], n_replicates=50)
    assert np.isnan([tied.rho, tied.low, tied.high]).all()
    assert tied.n_undefined == 50


def test_the_seed_decides() -> None:
    values = [contestants([0.5] * 9, 50, 0.2, seed) for seed in (0, 1)]
    again = [bootstrap_spearman(*values, n_replicates=200, seed=seed) for seed in (0, 0, 1)]
    assert again[0] == again[1]
    assert again[0] != again[2]


# --- two columns of a table ---------------------------------------------------------------------


def test_both_coefficients_are_scipys_ties_included() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        first, second = rng.integers(0, 5, (2, 9)).astype(float)
        found = rank_agreement(first, second, n_replicates=5)
        assert found.rho == pytest.approx(stats.spearmanr(first, second).statistic)
        assert found.tau == pytest.approx(stats.kendalltau(first, second).statistic)


def test_the_interval_over_rows_is_the_percentile_interval_of_scipys_coefficients() -> None:
    rng = np.random.default_rng(0)
    first = rng.random(12)
    second = first + rng.normal(0, 0.2, 12)
    found = rank_agreement(first, second, n_replicates=300, level=0.9, seed=4)
    rows = np.random.default_rng(4).integers(12, size=(300, 12))
    taus = [stats.kendalltau(first[r], second[r]).statistic for r in rows]
    rhos = [stats.spearmanr(first[r], second[r]).statistic for r in rows]
    assert (found.tau_low, found.tau_high) == pytest.approx(np.quantile(taus, [0.05, 0.95]))
    assert (found.rho_low, found.rho_high) == pytest.approx(np.quantile(rhos, [0.05, 0.95]))
    assert found.n_undefined == 0


def test_replicates_of_one_row_drawn_again_and_again_are_left_out() -> None:
    found = rank_agreement(np.arange(3.0), np.arange(3.0), n_replicates=2000)
    assert 0.05 < found.n_undefined / 2000 < 0.17  # 3 of 27
    assert (found.rho_low, found.rho_high) == (1.0, 1.0)


WIDE = "method,shot,a,b\nx,1,1,3\ny,1,2,2\nz,1,3,\nx,5,1,1\n"
LONG = "method,metric,value\nx,A,1\nx,R,2\ny,A,3\ny,R,4\nz,A,5\n"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(text)
    return path


def test_a_table_is_parted_and_rows_without_a_value_are_named(tmp_path: Path) -> None:
    one, five = read_columns(written(tmp_path, WIDE), ("a", "b"), by=["shot"])
    assert (one.group, one.rows, one.left_out) == (("1",), ("x", "y"), ("z",))
    assert (one.first.tolist(), one.second.tolist()) == ([1, 2], [3, 2])
    assert five.rows == ("x",)


def test_columns_may_be_values_of_a_column(tmp_path: Path) -> None:
    (found,) = read_columns(written(tmp_path, LONG), ("A", "R"), pivot="metric", value="value")
    assert (found.rows, found.left_out) == (("x", "y"), ("z",))
    assert (found.first.tolist(), found.second.tolist()) == ([1, 3], [2, 4])


@pytest.mark.parametrize(
    ("text", "options", "part"),
    [
        (WIDE, {}, "line 5: x has 'a' twice (--by parts a table)"),
        (WIDE, {"by": ["shots"]}, "has no column 'shots' (did you mean 'shot'?)"),
        ("method,a,b\nx,1,ten\n", {}, "line 2: 'b' must be a number, not 'ten'"),
        ("method,a,b\nx,1,nan\n", {}, "line 2: 'b' must be a number, not 'nan'"),
        ("method,a,b\n", {}, "has no rows"),
        (LONG, {"pivot": "metric", "value": "value"}, "the column 'metric' holds A, R"),
    ],
)
def test_a_table_that_cannot_be_ranked(tmp_path: Path, text: str, options, part: str) -> None:
    with pytest.raises(DataError) as caught:
        read_columns(written(tmp_path, text), ("a", "b"), **options)
    assert part in str(caught.value)


def test_the_command_ranks_tables_and_runs_and_says_what_a_perfect_order_means(fsf, tmp_path):
    written(tmp_path, "method,a,b\nx,1,2\ny,2,4\nz,3,5\n")
    done = fsf("rank", "table.csv", "--columns", "a", "b")
    assert done.returncode == 0
    assert "1.00 [1.00 to 1.00]" in done.stdout
    assert "does not mean certainty" in done.stdout
    raw = json.loads(fsf("rank", "table.csv", "--columns", "b", "a", "--json").stdout)
    assert raw["parts"][0]["rows"] == ["x", "y", "z"]
    two = fsf("rank", "table.csv", "--columns", "a", "b", "--by", "method")
    assert (two.returncode, two.stderr) == (
        2,
        "fsf: x: a rank correlation needs at least 3 contestants, not 1\n",
    )
    (tmp_path / "more.csv").write_text("x,y,z\n0.5,0.6,0.8\n0.6,0.6,0.7\n")
    assert fsf("import", "accuracies", "more.csv").returncode == 0
    ranked = fsf("rank", "x", "y", "z", "--columns", "acc-R", "acc-R")
    assert ranked.returncode == 0
    assert "1.00" in ranked.stdout
    lacking = fsf("rank", "x", "y", "z", "--columns", "acc-R", "wacc-A")
    assert lacking.returncode == 2
    assert "has no estimate 'wacc-A'; it has acc-R" in lacking.stderr
