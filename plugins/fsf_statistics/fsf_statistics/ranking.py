"""Rank agreement of two rankings of methods, and reading tables of them."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fsframework.errors import DataError, OptionError, close_matches
from fsframework.values import FloatArray, open_file, parse_number, text_lines

__all__ = [
    "FEWEST_RANKED",
    "RankAgreement",
    "RankedColumns",
    "rank",
    "rank_correlations",
    "read_columns",
    "spearman",
]

FEWEST_RANKED = 3
"""For two methods the rank correlation is always 1 or -1."""


@dataclass(frozen=True)
class RankAgreement:
    """Spearman's and Kendall's rank correlation of two columns of results.

    Args:
        rho: Spearman's, -1..1; NaN if a column is constant. ``rho_low`` and ``rho_high`` bound
            its interval.
        tau: Kendall's tau-b, likewise.
        level: level of the intervals.
        n_rows: number of ranked rows.
    """

    rho: float
    rho_low: float
    rho_high: float
    tau: float
    tau_low: float
    tau_high: float
    level: float
    n_rows: int


def rank(first: FloatArray, second: FloatArray, *, level: float = 0.95) -> RankAgreement:
    """Return both rank correlations of two columns with intervals over the rows.

    The intervals are about other methods like these, with values taken as exact. They are
    symmetric on Fisher's scale, ``atanh(r) ± t(n-2) s``, with ``s^2 = (1 + rho^2 / 2) / (n - 3)``
    for rho and ``0.437 / (n - 4)`` for tau. Student's quantile is not in the sources; it allows
    for few rows. A perfect order, whose ``atanh`` is infinite, counts as if half a pair of
    neighbours were exchanged, so that its interval does not claim certainty. Three rows, for tau
    also four, say nothing: the interval is -1 to 1.

    Caveat: ten rows are few, and values that are measured with error lower both correlations.
    ``docs/guides/comparing.md`` has the measured coverage.

    Args:
        first: float ``(rows,)``; ``second`` likewise.
        level: above 0 and below 1.

    Raises:
        DataError: the shapes do not fit, or there are fewer than three rows.
        OptionError: ``level`` is out of range.

    Source: Bonett and Wright 2000, Sample size requirements for estimating Pearson, Kendall and
    Spearman correlations (rho); Fieller, Hartley and Pearson 1957, Tests for rank correlation
    coefficients (tau).

    >>> found = rank(np.array([1.0, 2, 3, 4, 5]), np.array([1.0, 3, 2, 4, 5]))
    >>> round(found.rho, 6), round(found.tau, 6)
    (0.9, 0.8)
    """
    from scipy import stats

    if not 0 < level < 1:
        raise OptionError(f"level must lie between 0 and 1, not {level}")
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    rho = spearman(first, second)
    tau = float(stats.kendalltau(first, second).statistic)
    n = len(first)
    # Two neighbours that change places lower rho by 12 / (n^3 - n) and tau by 4 / (n^2 - n).
    variance = (1 + rho**2 / 2) / (n - 3) if n > 3 else math.inf
    of_rho = _on_fishers_scale(rho, variance, 1 - 6 / (n**3 - n), (level, n))
    variance = 0.437 / (n - 4) if n > 4 else math.inf
    of_tau = _on_fishers_scale(tau, variance, 1 - 2 / (n**2 - n), (level, n))
    return RankAgreement(rho, *of_rho, tau, *of_tau, level, n)


def _on_fishers_scale(
    value: float, variance: float, most: float, of: tuple[float, int]
) -> tuple[float, float]:
    """Return the interval of a correlation of so many rows, at a level; 1 counts as ``most``."""
    from scipy import stats

    if math.isnan(value):
        return value, value
    level, n = of
    half = float(stats.t.ppf((1 + level) / 2, n - 2)) * math.sqrt(variance)
    middle = math.atanh(min(max(value, -most), most))
    low, high = math.tanh(middle - half), math.tanh(middle + half)
    return min(low, value), max(high, value)


@dataclass(frozen=True, eq=False)
class RankedColumns:
    """Two columns of a table, over the rows that have both values.

    Args:
        group: values of the columns ``by`` in this part of the table.
        rows: name of each row; ``first`` and ``second`` float ``(rows,)``.
        left_out: rows that lack one of the two values.
        n_seeds: training seeds behind each row, for runs.
    """

    group: tuple[str, ...]
    rows: tuple[str, ...]
    first: FloatArray
    second: FloatArray
    left_out: tuple[str, ...] = ()
    n_seeds: tuple[int, ...] = ()


def read_columns(
    path: Path,
    columns: tuple[str, str],
    *,
    row: str = "method",
    by: Sequence[str] = (),
    pivot: str | None = None,
    value: str | None = None,
) -> list[RankedColumns]:
    """Read two columns of a CSV file, part by part.

    Args:
        columns: names of two columns; with ``pivot``, two values of that column, whose numbers
            are in the column ``value``.
        row: the column that names the rows.
        by: columns whose values divide the table into parts, which are ranked separately.

    Raises:
        DataError: the file cannot be read, lacks a column, has a row twice or a value that is not a
            number; the message names the line.
        OptionError: only one of ``pivot`` and ``value`` is given.
    """
    if (pivot is None) != (value is None):
        raise OptionError(
            "--pivot names the column with the names, --value the column with the numbers; give "
            "both or neither"
        )
    lines, names = _lines(path)
    wanted = [row, *by, *(columns if pivot is None or value is None else (pivot, value))]
    for name in wanted:
        if name not in names:
            raise DataError(f"{path}: has no column {name!r}{close_matches(name, names)}")
    if not lines:
        raise DataError(f"{path}: has no rows")
    cells: dict[tuple[str, ...], dict[str, dict[str, float]]] = {}
    for number, line in enumerate(lines, start=2):
        part = cells.setdefault(tuple(line[name] or "" for name in by), {})
        here = part.setdefault(line[row] or "", {})
        for column, text in _texts(line, columns, pivot, value):
            if column in here:
                raise DataError(
                    f"{path}, line {number}: {line[row]} has {column!r} twice (--by splits it)"
                )
            if text and text.strip():
                here[column] = _finite(text, f"{path}, line {number}: {column!r}")
    found = [_columns(group, part, columns) for group, part in cells.items()]
    if pivot is not None and all(not one.rows for one in found):
        known = sorted({line[pivot] or "" for line in lines})
        raise DataError(
            f"{path}: no row has both {columns[0]!r} and {columns[1]!r}; the column {pivot!r} "
            f"contains {', '.join(known[:8])}"
        )
    return found


def _lines(path: Path) -> tuple[list[dict[str, str | None]], list[str]]:
    """Return the rows of a CSV file by column, and the names of its columns."""
    try:
        reader = csv.DictReader(text_lines(open_file(path)))
        return list(reader), list(reader.fieldnames or ())
    except (OSError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read as CSV ({reason})") from None


def _texts(
    line: Mapping[str, str | None], columns: tuple[str, str], pivot: str | None, value: str | None
) -> Iterator[tuple[str, str | None]]:
    """Yield those of the two columns that a row has, with their text."""
    for column in columns:
        if pivot is None or value is None:
            yield column, line[column]
        elif line[pivot] == column:
            yield column, line[value]


def _columns(
    group: tuple[str, ...], part: Mapping[str, Mapping[str, float]], columns: tuple[str, str]
) -> RankedColumns:
    whole = [name for name, here in part.items() if all(c in here for c in columns)]
    first, second = (np.array([part[name][c] for name in whole]) for c in columns)
    return RankedColumns(
        group, tuple(whole), first, second, tuple(name for name in part if name not in whole)
    )


def _finite(text: str, where: str) -> float:
    number = parse_number(text)
    if number is None:
        raise DataError(f"{where} must be a number, not {text!r}")
    return number


def spearman(first: FloatArray, second: FloatArray) -> float:
    """Return Spearman's rank correlation of two vectors, tied values sharing their mean rank.

    Args:
        first: ``(methods,)``, one value per method; ``second`` likewise.

    Returns:
        The correlation in -1..1; NaN if all values of one vector are equal.

    Raises:
        DataError: the vectors differ in length or have fewer than three values.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0]))
    0.5
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        raise DataError(f"cannot rank values of shape {first.shape} against {second.shape}")
    if len(first) < FEWEST_RANKED:
        raise DataError(
            f"a rank correlation needs at least {FEWEST_RANKED} methods, not {len(first)}"
        )
    return float(rank_correlations(first[None], second[None])[0])


def rank_correlations(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return Spearman's correlation of each row of ``first`` with that row of ``second``."""
    from scipy import stats

    x, y = (stats.rankdata(values, axis=1) for values in (first, second))
    x, y = (ranks - ranks.mean(axis=1, keepdims=True) for ranks in (x, y))
    spread = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    product = (x * y).sum(axis=1)
    undefined = np.full_like(product, np.nan)
    correlations = np.divide(product, spread, out=undefined, where=spread > 0)
    return np.asarray(np.clip(correlations, -1.0, 1.0))
