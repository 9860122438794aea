"""Reading CSV files, with row numbers as a spreadsheet shows them."""

from __future__ import annotations

import csv
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fsf_datasets._messages import first_few, reason
from fsframework.interfaces import DataError
from fsframework.values import open_file, text_lines

__all__ = ["Table", "csv_lines", "is_missing", "read_table"]

_MISSING = frozenset(("", "NaT", "<NA>", "#N/A"))
"""Spellings of a missing value in the tables of pandas, R and spreadsheets, besides NaN."""


@dataclass(frozen=True)
class Table:
    """Columns of text by name, and the number of each row in the file (the header is row 1)."""

    columns: dict[str, tuple[str, ...]]
    rows: tuple[int, ...]


def csv_lines(stream: BinaryIO, place: str | Path, **how: Any) -> list[list[str]]:
    """Return the cells of each row of a CSV file, and close the stream.

    Args:
        stream: the content.
        place: the file, for messages.
        how: arguments of ``csv.reader``.

    Raises:
        DataError: it is not a CSV file or not UTF-8 text.
    """
    try:
        return list(csv.reader(text_lines(stream), strict=True, **how))
    except OSError as error:
        raise DataError(f"{place}: not a CSV file ({reason(error)})") from None
    except csv.Error as error:
        why = str(error).replace("unexpected end of data", "a quotation mark is not closed")
        raise DataError(f"{place}: not a CSV file ({why})") from None


def read_table(file: Path, needed: Sequence[str]) -> Table:
    """Read a CSV file that has the ``needed`` columns; spaces around cells are removed.

    Raises:
        DataError: the file or a column is missing, or rows are wrong; the message lists the first
            of them.
    """
    try:
        stream = open_file(file)
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from None
    lines = csv_lines(stream, file)
    stripped = [[cell.strip() for cell in line] for line in lines]
    header = stripped[0] if stripped else []
    _demand_header(header, needed, file)
    numbered = [(number, row) for number, row in enumerate(stripped[1:], start=2) if any(row)]
    wrong = [text for number, row in numbered if (text := _fault(number, row, header, needed))]
    if wrong:
        raise DataError(f"{file}: {first_few(wrong, joint='; ')}")
    if not numbered:
        raise DataError(f"{file}: has no rows below its header")
    cells = zip(*(row for _, row in numbered), strict=True)
    return Table(dict(zip(header, cells, strict=True)), tuple(number for number, _ in numbered))


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


def _fault(
    number: int, row: Sequence[str], header: Sequence[str], needed: Sequence[str]
) -> str | None:
    """Return what is wrong with a row; ``None`` if nothing is."""
    if len(row) != len(header):
        return f"row {number} has {len(row)} cells but the header has {len(header)}"
    empty = [name for name in needed if not row[header.index(name)]]
    if empty:
        return f"row {number} has no {' and no '.join(empty)}"
    for name in needed:
        if is_missing(cell := row[header.index(name)]):
            return f"row {number} has {cell!r} for its {name}, which stands for a missing value"
    return None


def is_missing(cell: str) -> bool:
    """Return whether a cell is empty or holds what programs write for a missing value.

    >>> is_missing("NaN"), is_missing("<NA>"), is_missing("naan")
    (True, True, False)
    """
    return cell in _MISSING or cell.lstrip("+-").casefold() == "nan"
