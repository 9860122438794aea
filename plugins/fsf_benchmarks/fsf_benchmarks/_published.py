"""The values that FewSTAB prints, read from CSV files and checked.

Source: Zheng et al. 2024, "Benchmarking Spurious Bias in Few-Shot Image Classifiers", Tables 3, 4,
6, S5, S6, S7, S8 and S10.
"""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType

from fsf_reports.values import Quantity
from fsframework.errors import DataError

__all__ = [
    "AVERAGE",
    "BASES",
    "DATASETS",
    "DETECTORS",
    "METHODS",
    "SOURCES",
    "Key",
    "number_in",
    "printed_values",
    "read_table",
    "rows_of",
]

METHODS: Mapping[str, str] = MappingProxyType(
    {
        "anil": "ANIL",
        "leo": "LEO",
        "boil": "BOIL",
        "protonet": "ProtoNet",
        "dn4": "DN4",
        "r2d2": "R2D2",
        "can": "CAN",
        "renet": "RENet",
        "baseline-plus-plus": "Baseline++",
        "rfs": "RFS",
    }
)
"""The paper's ten methods: registry name and the paper's spelling, in the paper's order."""

BASES: Mapping[str, str] = MappingProxyType(
    {"maml": "MAML", "matchingnet": "MatchingNet", "sib": "SIB", "mtl": "MTL"}
)
"""The methods of Table S10, each without IFSL and with it."""

DETECTORS: Mapping[str, str] = MappingProxyType({"vit-gpt2": "ViT-GPT2", "blip": "BLIP"})
"""The paper's two vision-language models: registry name and the paper's spelling."""

DATASETS = ("miniImageNet", "tieredImageNet", "CUB-200")
"""The paper's data sets, in its spelling."""

AVERAGE = "AVERAGE"
"""In place of the method in rows that average over all ten."""

Key = tuple[str, str, int, str, str]
"""Table, data set, shot, method (``""`` if there is none) and column."""

_TIDY = ("dataset", "shot", "method")
_GAPS = (*_TIDY, "technique", "wacc_a_percent", "wacc_r_percent", "gap_percent")

SOURCES: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "3": ("fewstab_table_3.csv", (*_TIDY, "metric", "value_percent", "ci95_half_width")),
        "S7": ("fewstab_table_S7.csv", (*_TIDY, "metric", "value_percent", "ci95_half_width")),
        "S8": ("fewstab_table_S8.csv", (*_TIDY, "vlm", "wacc_a_percent", "ci95_half_width")),
        "S5": ("fewstab_table_S5.csv", _GAPS),
        "S6": ("fewstab_table_S6.csv", _GAPS),
        "4": ("fewstab_tables_4_6.csv", ("dataset", "shot", "wacc_a_vs_wacc_r")),
        "6": ("fewstab_tables_4_6.csv", ("dataset", "shot", "vit_gpt2_vs_blip")),
        "S10": (
            "fewstab_table_S10.csv",
            ("method", "shot", "base_wacc_a", "base_ci95", "ifsl_wacc_a", "ifsl_ci95"),
        ),
    }
)
"""The file and the columns that are read, by table."""


@functools.cache
def printed_values() -> Mapping[Key, Quantity]:
    """Return every printed value by table, data set, shot, method and column.

    Columns are the paper's: ``Acc``, ``wAcc-A``, ``wAcc-R`` (Tables 3 and S7), ``ViT-GPT2`` and
    ``BLIP`` (wAcc-A, Table S8), ``base`` and ``ifsl`` (wAcc-A, Table S10), ``SC1`` ... ``QC3``
    (accuracy gap wAcc-R - wAcc-A, Tables S5 and S6; the average over the ten methods under
    ``AVERAGE``), ``rho`` (Tables 4 and 6). All but the last are in percent. Tables 4, 6, S5 and S6
    print no intervals.

    Raises:
        DataError: a file lacks a column or contains an invalid value; see ``read_table``.

    >>> value = printed_values()["3", "miniImageNet", 5, "ProtoNet", "wAcc-A"]
    >>> value.value, value.half_width
    (32.07, 0.58)
    """
    folder = files("fsf_benchmarks") / "data"
    found: dict[Key, Quantity] = {}
    for table, (name, _) in SOURCES.items():
        found.update(read_table(table, folder / name))
    return MappingProxyType(found)


def read_table(table: str, path: Traversable) -> dict[Key, Quantity]:
    """Read the printed values of one table.

    Args:
        table: a key of ``SOURCES``, which names the columns that the file must have.
        path: a CSV file.

    Raises:
        DataError: a column is missing, a name is not one of the paper's, a value is not a number or
            is outside its range, or a row appears twice; the message names file and row.
    """
    found: dict[Key, Quantity] = {}
    for where, row in rows_of(path, SOURCES[table][1]):
        for key, value in _values(table, row, where):
            if key in found:
                raise DataError(f"{where}: {', '.join(map(str, key[1:]))} appears twice")
            found[key] = value
    return found


def rows_of(path: Traversable, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the rows of a CSV file, each with its location for messages.

    Args:
        path: the file.
        columns: columns that the file must have.

    Raises:
        DataError: a column is missing, a row has too few or too many cells, or there are no rows.
    """
    name, number = path.name, 1
    with path.open(encoding="utf-8") as file:
        reader = csv.DictReader(file)
        missing = [c for c in columns if c not in (reader.fieldnames or ())]
        if missing:
            raise DataError(f"{name}: row 1 lacks the column {' and '.join(missing)}")
        for number, row in enumerate(reader, start=2):
            where = f"{name}: row {number}"
            if None in row or None in row.values():
                raise DataError(f"{where} does not have as many cells as row 1")
            yield where, row
    if number == 1:
        raise DataError(f"{name}: has no rows")


def _values(table: str, row: Mapping[str, str], where: str) -> Iterator[tuple[Key, Quantity]]:
    # Table S10 is for one data set, which its caption names.
    dataset = _one_of(row.get("dataset", DATASETS[0]), DATASETS, f"{where}, dataset")
    shot = number_in(row["shot"], 1, 5, f"{where}, shot")
    if shot not in (1, 5):
        raise DataError(f"{where}, shot: must be 1 or 5, not {row['shot']}")
    place = table, dataset, int(shot)
    if table in ("4", "6"):
        (column,) = SOURCES[table][1][2:]
        rho = number_in(row[column], -1, 1, f"{where}, {column}")
        yield (*place, "", "rho"), Quantity(rho, unit="")
        return
    if table == "S10":
        base = _one_of(row["method"], tuple(BASES.values()), f"{where}, method")
        for column in ("base", "ifsl"):
            names = (f"{column}_wacc_a", f"{column}_ci95")
            mean, half = (number_in(row[name], 0, 100, f"{where}, {name}") for name in names)
            yield (*place, base, column), Quantity.around(mean, half)
        return
    averaged = (AVERAGE,) if table in ("S5", "S6") else ()
    method = _one_of(row["method"], (*METHODS.values(), *averaged), f"{where}, method")
    if averaged:
        prefix = "SC" if table == "S5" else "QC"
        known = tuple(f"{prefix}{i}" for i in (1, 2, 3))
        technique = _one_of(row["technique"], known, f"{where}, technique")
        gap = number_in(row["gap_percent"], -100, 100, f"{where}, gap_percent")
        yield (*place, method, technique), Quantity(gap)
        return
    if table == "S8":
        column = _one_of(row["vlm"], tuple(DETECTORS.values()), f"{where}, vlm")
        value = "wacc_a_percent"
    else:
        known = ("wAcc-A", "wAcc-R") if table == "3" else ("Acc", "wAcc-A")
        column, value = _one_of(row["metric"], known, f"{where}, metric"), "value_percent"
    half = number_in(row["ci95_half_width"], 0, 100, f"{where}, ci95_half_width")
    yield (
        (*place, method, column),
        Quantity.around(number_in(row[value], 0, 100, f"{where}, {value}"), half),
    )


def _one_of(text: str, known: tuple[str, ...], where: str) -> str:
    if text not in known:
        raise DataError(f"{where}: must be one of {', '.join(known)}, not {text!r}")
    return text


def number_in(text: str, least: float, most: float, where: str) -> float:
    """Read a number.

    Raises:
        DataError: the text is not a number, or the number is outside its range.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise DataError(f"{where}: must be a number from {least} to {most}, not {text!r}")
    return value
