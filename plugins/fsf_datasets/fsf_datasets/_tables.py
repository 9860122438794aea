"""Reading CSV files, with row numbers as a spreadsheet shows them."""

from __future__ import annotations

import contextlib
import csv
import functools
import re
import reprlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fsf_datasets._messages import first_few, reason
from fsf_datasets._trees import Tree
from fsframework.interfaces import DataError
from fsframework.values import IntArray, Texts, parse_json, read_csv, text_lines

__all__ = ["Table", "is_missing", "read_table", "table_lines"]

_MISSING = r"^([+-]*[nN][aA][nN]|NaT|<NA>|#N/A)?$"
"""Spellings of a missing value in the tables of pandas, R and spreadsheets."""


@dataclass(frozen=True)
class Table:
    """Columns of text by name, and the number of each row in the file (the header is row 1)."""

    columns: dict[str, Texts]
    rows: IntArray


def table_lines(tree: Tree, name: str) -> Generator[list[str]]:
    """Yield the cells of each row of a table in a CSV, JSON lines or text file.

    Objects give their keys first; text is separated by white space.

    Raises:
        DataError: the file cannot be read, or is not what its name says.
    """
    place = tree.place(name)
    ending = name.casefold().rpartition(".")[2]
    what, read = _READERS.get(ending, ("a text file", _text_cells))
    try:
        with contextlib.closing(text_lines(tree.open(name))) as lines:
            yield from read(lines)
    except (OSError, ValueError) as error:
        raise DataError(f"{place}: not {what} ({reason(error)})") from None
    except csv.Error as error:
        why = str(error).replace("unexpected end of data", "a quotation mark is not closed")
        raise DataError(f"{place}: not {what} ({why})") from None


def _csv_cells(lines: Iterable[str]) -> Iterator[list[str]]:
    for cells in csv.reader(lines, strict=True, skipinitialspace=True):
        yield [cell.strip() for cell in cells]


def _json_cells(lines: Iterable[str]) -> Iterator[list[str]]:
    header: list[str] = []
    for line in lines:
        row = parse_json(line)
        if not isinstance(row, dict):
            raise ValueError("each line must be an object")
        if not header:
            header = [*row]
            yield header
        yield [str(row.get(name, "")) for name in header]


def _text_cells(lines: Iterable[str]) -> Iterator[list[str]]:
    return (line.split() for line in lines if line.strip())


_READERS: dict[str, tuple[str, Callable[[Iterable[str]], Iterator[list[str]]]]] = {
    "csv": ("a CSV file", _csv_cells),
    "jsonl": ("JSON lines", _json_cells),
}


def read_table(file: Path, needed: Sequence[str]) -> Table:
    """Read a CSV file that has the ``needed`` columns; spaces around cells are removed.

    Raises:
        DataError: the file or a column is missing, or rows are wrong; the message lists the first
            of them.
    """
    demand = functools.partial(_demand_header, needed=needed, file=file)
    columns, rows, faults = read_csv(file, demand)
    faults |= _missing({name: columns[name] for name in needed}, rows)
    if faults:
        wrong = [f"row {number} {faults[number]}" for number in sorted(faults)]
        raise DataError(f"{file}: {first_few(wrong, joint='; ')}")
    if not rows.size:
        raise DataError(f"{file}: has no rows below its header")
    return Table({name: Texts([columns[name]]) for name in columns}, rows)


def _demand_header(header: Sequence[str], needed: Sequence[str], file: Path) -> None:
    missing = [name for name in needed if name not in header]
    if missing:
        raise DataError(
            f"{file}: row 1 must name the columns {' and '.join(needed)}, separated by commas; "
            f"it lacks {' and '.join(missing)}: {first_few(header, most=20) or 'an empty row'}"
        )
    for number, name in enumerate(header, start=1):
        if not name:
            raise DataError(f"{file}: column {number} has no name in row 1")
        if name in header[: number - 1]:
            raise DataError(f"{file}: row 1 names the column {reprlib.repr(name)} twice")


def _missing(needed: Mapping[str, Any], rows: IntArray) -> dict[int, str]:
    """Return by its number what is wrong with each row that lacks a needed cell."""
    import pyarrow.compute as pc

    missing = [np.asarray(pc.match_substring_regex(own, _MISSING)) for own in needed.values()]
    places = np.flatnonzero(np.any(missing, axis=0)).tolist()
    found = [{name: own[place].as_py() for name, own in needed.items()} for place in places]
    return dict(zip(rows[places].tolist(), map(_fault, found), strict=True))


def _fault(cells: Mapping[str, str]) -> str:
    """Return what is wrong with a row that lacks a needed cell."""
    empty = [name for name, cell in cells.items() if not cell]
    if empty:
        return f"has no {' and no '.join(empty)}"
    name, cell = next((name, cell) for name, cell in cells.items() if is_missing(cell))
    return f"has {cell!r} for its {name}, which stands for a missing value"


def is_missing(cell: str) -> bool:
    """Return whether a cell is empty or holds what programs write for a missing value.

    >>> is_missing("NaN"), is_missing("<NA>"), is_missing("naan")
    (True, True, False)
    """
    return re.search(_MISSING, cell) is not None
