"""The values that Lafargue et al. 2024 print, read from CSV files.

Source: "Oops, I Sampled it Again: Reinterpreting Confidence Intervals in Few-Shot Learning", Tables
1 to 6. Differences are in points, signs 1 where the first is higher, -1 where the second is, and 0
where neither can be said.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

from fsf_benchmarks._published import number_in, rows_of
from fsf_reports.values import Quantity

__all__ = ["printed_accuracies", "printed_differences", "printed_signs"]

_DATA = files("fsf_benchmarks") / "data"
_HALF = "ci95_half_width"


@functools.cache
def printed_differences() -> Mapping[tuple[str, int, str, str], Quantity]:
    """Return the values of Tables 4, 5 and 6 by data set, shot, baseline and method.

    Each is the baseline's accuracy minus the method's, in points, with the half-width of its
    paired 95 % interval.
    """
    columns = ("dataset", "shot", "baseline", "compared_with", "difference_percent", _HALF)
    return MappingProxyType(
        {
            (row["dataset"], int(row["shot"]), row["baseline"], row["compared_with"]): (
                Quantity.around(
                    number_in(row["difference_percent"], -100, 100, where),
                    number_in(row[_HALF], 0, 100, where),
                )
            )
            for name in ("ci_table_4.csv", "ci_tables_5_6.csv")
            for where, row in rows_of(_DATA / name, columns)
        }
    )


@functools.cache
def printed_accuracies() -> Mapping[tuple[str, str, str], Quantity]:
    """Return the values of Table 2 by data set, contestant and scope of the tasks."""
    columns = ("dataset", "model", "method", "interval", "accuracy_percent", _HALF)
    return MappingProxyType(
        {
            (row["dataset"], f"{row['model']} {row['method']}", row["interval"]): Quantity.around(
                number_in(row["accuracy_percent"], 0, 100, where),
                number_in(row[_HALF], 0, 100, where),
            )
            for where, row in rows_of(_DATA / "ci_table_2.csv", columns)
        }
    )


@functools.cache
def printed_signs() -> Mapping[tuple[str, str, str, str, str], int]:
    """Return the signs of Tables 1 and 3 by table, data set, the two contestants, and column.

    The columns are ``closed``, ``open`` and ``paired``; Table 3 has no ``closed``. Of each pair,
    both directions are there.
    """
    columns = ("table", "dataset", "first", "second", "closed", "open", "paired")
    found: dict[tuple[str, str, str, str, str], int] = {}
    for where, row in rows_of(_DATA / "ci_tables_1_3.csv", columns):
        for column in ("closed", "open", "paired"):
            if row[column]:
                sign = int(number_in(row[column], -1, 1, where))
                place = (row["table"], row["dataset"])
                found[(*place, row["first"], row["second"], column)] = sign
                found.setdefault((*place, row["second"], row["first"], column), -sign)
    return MappingProxyType(found)
