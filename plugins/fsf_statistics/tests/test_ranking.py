"""Two columns of a table: rank correlations over its rows, and how tables are read."""

from __future__ import annotations

import json
import math
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
        found = rank(first, second)
        assert found.rho == pytest.approx(stats.spearmanr(first, second).statistic)
        assert found.tau == pytest.approx(stats.kendalltau(first, second).statistic)


def test_intervals_worked_by_hand() -> None:
    # d = 0, 1, -1, 0, 0, 0, 0: rho = 1 - 6 * 2 / (7 * 48) = 27 / 28, one of 21 pairs discordant.
    second = np.array([1.0, 3, 2, 4, 5, 6, 7])
    found = rank(np.arange(7.0), second)
    quantile = 2.570582  # Student's t with 5 degrees of freedom
    half = quantile * math.sqrt((1 + (27 / 28) ** 2 / 2) / 4)
    bounds = [math.tanh(math.atanh(27 / 28) + sign * half) for sign in (-1, 1)]
    assert (found.rho, found.rho_low, found.rho_high) == pytest.approx((27 / 28, *bounds))
    half = quantile * math.sqrt(0.437 / 3)
    bounds = [math.tanh(math.atanh(19 / 21) + sign * half) for sign in (-1, 1)]
    assert (found.tau, found.tau_low, found.tau_high) == pytest.approx((19 / 21, *bounds))


def test_a_perfect_order_is_no_certainty_and_few_rows_say_nothing() -> None:
    three, four, ten, fifty = (rank(np.arange(n), np.arange(n)) for n in (3, 4, 10, 50))
    assert (three.rho, three.rho_low, three.rho_high, three.tau_low) == (1, -1, 1, -1)
    assert (four.tau_low, four.tau_high) == (-1, 1)
    assert 0.5 < ten.rho_low < fifty.rho_low < 1
    assert (ten.rho_high, ten.tau_high) == pytest.approx((1, 1))
    other = rank(np.arange(10.0), -np.arange(10.0))
    assert (other.rho_low, other.rho_high) == pytest.approx((-1, -ten.rho_low))
    constant = rank(np.ones(10), np.arange(10.0))
    assert np.isnan([constant.rho, constant.rho_low, constant.tau_high]).all()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("rows", [6, 12])
@pytest.mark.parametrize("correlation", [0.0, 0.8, 0.97])
def test_intervals_hold_the_truth_as_often_as_they_say(rows: int, correlation: float) -> None:
    rng = np.random.default_rng(rows)
    rho, tau = 6 / np.pi * np.arcsin(correlation / 2), 2 / np.pi * np.arcsin(correlation)
    held = np.zeros(2)
    for _ in range(300):
        first = rng.normal(size=rows)
        second = correlation * first + math.sqrt(1 - correlation**2) * rng.normal(size=rows)
        found = rank(first, second)
        held += found.rho_low <= rho <= found.rho_high, found.tau_low <= tau <= found.tau_high
    assert held.min() / 300 > 0.91


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
    assert "1.00 [−1.00 to 1.00]" in done.stdout
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
