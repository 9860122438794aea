"""How often intervals of rank correlations hold the truth.

Of the intervals of ``fsf rank``: two columns of normal values with a given correlation, as
many rows as there are methods, and the share of 95 % intervals that hold Spearman's and Kendall's
correlation of all methods like these, with their mean lengths; also where values are rounded, so
that rows are tied (``ties`` is the number of distinct values in most rows), and the share of
columns in perfect order.

    python benchmarks/rank_coverage.py
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from _options import positive
from scipy import stats

from fsf_statistics import rank, rank_correlations


def over_rows(n: int, r: float, steps: float, replicates: int) -> str:
    """Return the coverage and length of both intervals over rows."""
    rng = np.random.default_rng([n, round(100 * r), round(10 * steps)])
    rho, tau = 6 / np.pi * np.arcsin(r / 2), 2 / np.pi * np.arcsin(r)
    if steps:
        many = columns(rng, 100_000, r, steps)
        rho = float(rank_correlations(*(column[None] for column in many))[0])
        tau = float(stats.kendalltau(*many).statistic)
    found = [rank(*columns(rng, n, r, steps)) for _ in range(replicates)]
    held = (
        np.mean([one.rho_low <= rho <= one.rho_high for one in found]),
        np.mean([one.tau_low <= tau <= one.tau_high for one in found]),
    )
    long = (
        np.nanmean([one.rho_high - one.rho_low for one in found]),
        np.nanmean([one.tau_high - one.tau_low for one in found]),
    )
    cells = (f"{100 * h:8.1f} % ({length:.2f})" for h, length in zip(held, long, strict=True))
    perfect = np.mean([one.rho == 1 for one in found])
    ties = round(4 * steps) + 1 if steps else "none"
    return f"{n:4} {r:12} {ties:>6} {100 * perfect:8.0f} %  {'  '.join(cells)}"


def columns(rng: np.random.Generator, n: int, r: float, steps: float) -> list[np.ndarray]:
    """Return two columns of normal values, rounded if there are steps."""
    first = rng.normal(size=n)
    second = r * first + math.sqrt(1 - r * r) * rng.normal(size=n)
    return [np.round(one * steps) if steps else one for one in (first, second)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=positive, default=1000, help="tables per row")
    given = parser.parse_args()
    print(f"{given.replicates:,} tables per row, level 95 %\n")
    print("rows  correlation   ties   perfect    Spearman          Kendall")
    for n in (4, 5, 6, 8, 10, 20, 40):
        for r in (0.0, 0.5, 0.8, 0.95, 0.99):
            print(over_rows(n, r, 0, given.replicates), flush=True)
    for n in (6, 10, 20):
        for r in (0.5, 0.9):
            for steps in (1, 2):
                print(over_rows(n, r, steps, given.replicates), flush=True)


if __name__ == "__main__":
    main()
