"""Two columns of a table: rank correlations over its rows, and how tables are read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fsf_statistics.ranking import rank, read_columns, spearman
from fsframework.errors import DataError


def test_both_coefficients_are_scipys_ties_included() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        first, second = rng.integers(0, 5, (2, 9)).astype(float)
        found = rank(first, second, n_replicates=5)
        assert found.rho == pytest.approx(stats.spearmanr(first, second).statistic)
        assert found.tau == pytest.approx(stats.kendalltau(first, second).statistic)


def test_the_interval_over_rows_is_the_percentile_interval_of_scipys_coefficients() -> None:
    rng = np.random.default_rng(0)
    first = rng.random(12)
    second = first + rng.normal(0, 0.2, 12)
    found = rank(first, second, n_replicates=300, level=0.9, seed=4)
    rows = np.random.default_rng(4).integers(12, size=(300, 12))
    taus = [stats.kendalltau(first[r], second[r]).statistic for r in rows]
    rhos = [stats.spearmanr(first[r], second[r]).statistic for r in rows]
    assert (found.tau_low, found.tau_high) == pytest.approx(np.quantile(taus, [0.05, 0.95]))
    assert (found.rho_low, found.rho_high) == pytest.approx(np.quantile(rhos, [0.05, 0.95]))
    assert found.n_undefined == 0


def test_replicates_of_one_row_drawn_again_and_again_are_left_out() -> None:
    found = rank(np.arange(3.0), np.arange(3.0), n_replicates=2000)
    assert 0.05 < found.n_undefined / 2000 < 0.17  # 3 of 27
    assert (found.rho_low, found.rho_high) == (1.0, 1.0)


WIDE = "method,shot,a,b\nx,1,1,3\ny,1,2,2\nz,1,3,\nx,5,1,1\n"
LONG = "method,metric,value\nx,A,1\nx,R,2\ny,A,3\ny,R,4\nz,A,5\n"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(text)
    return path


def test_a_table_is_parted_and_columns_may_be_values_of_a_column(tmp_path: Path) -> None:
    one, five = read_columns(written(tmp_path, WIDE), ("a", "b"), by=["shot"])
    assert (one.group, one.rows, one.left_out, five.rows) == (("1",), ("x", "y"), ("z",), ("x",))
    assert (one.first.tolist(), one.second.tolist()) == ([1, 2], [3, 2])
    (found,) = read_columns(written(tmp_path, LONG), ("A", "R"), pivot="metric", value="value")
    assert (found.rows, found.left_out) == (("x", "y"), ("z",))
    assert (found.first.tolist(), found.second.tolist()) == ([1, 3], [2, 4])


@pytest.mark.parametrize(
    ("text", "options", "part"),
    [
        (WIDE, {}, "line 5: x has 'a' twice"),
        (WIDE, {"by": ["shots"]}, "'shots' (did you mean 'shot'?)"),
        ("method,a,b\nx,1,ten\n", {}, "line 2: 'b' must be a number, not 'ten'"),
        ("method,a,b\nx,1,nan\n", {}, "line 2: 'b' must be a number, not 'nan'"),
        ("method,a,b\n", {}, "no rows"),
        (LONG, {"pivot": "metric", "value": "value"}, "'metric' contains A, R"),
    ],
)
def test_a_table_that_cannot_be_ranked(tmp_path: Path, text: str, options, part: str) -> None:
    with pytest.raises(DataError) as caught:
        read_columns(written(tmp_path, text), ("a", "b"), **options)
    assert part in str(caught.value)


def test_the_command_ranks_tables_and_runs(fsf, tmp_path):
    written(tmp_path, "method,a,b\nx,1,2\ny,2,4\nz,3,5\n")
    columns = ("--columns", "a", "b")
    done = fsf("rank", "table.csv", *columns)
    assert done.returncode == 0
    assert "1.00 [1.00 to 1.00]" in done.stdout
    assert "does not mean certainty" in done.stdout
    raw = json.loads(fsf("rank", "table.csv", *columns, "--json").stdout)
    assert raw["parts"][0]["rows"] == ["x", "y", "z"]
    two = fsf("rank", "table.csv", *columns, "--by", "method")
    assert (two.returncode, "at least 3 methods, not 1" in two.stderr) == (2, True)
    (tmp_path / "more.csv").write_text("x,y,z\n0.5,0.6,0.8\n0.6,0.6,0.7\n")
    assert fsf("import", "accuracies", "more.csv").returncode == 0
    ranked = fsf("rank", "x", "y", "z", "--columns", "acc-tasks", "acc-tasks")
    assert (ranked.returncode, "1.00" in ranked.stdout) == (0, True)
    lacking = fsf("rank", "x", "y", "z", "--columns", "acc-tasks", "wacc-biased")
    assert (lacking.returncode, "'wacc-biased'" in lacking.stderr) == (2, True)


def test_by_hand() -> None:
    # d = (0, 1, -1, 0): 1 - 6 * 2 / (4 * 15) = 0.8
    assert spearman(np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4])) == pytest.approx(0.8)
    assert spearman(np.array([1.0, 2, 3]), np.array([9.0, 8, 7])) == -1.0
    assert np.isnan(spearman(np.ones(4), np.arange(4.0)))
    for first, second, part in ((2, 2, "at least 3 methods, not 2"), (3, 4, "3.*4")):
        with pytest.raises(DataError, match=part):
            spearman(np.arange(float(first)), np.arange(float(second)))
