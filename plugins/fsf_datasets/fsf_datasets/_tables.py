"""Reading CSV files, with row numbers as a spreadsheet shows them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fsf_datasets._messages import first_few
from fsframework.interfaces import DataError

__all__ = ["Table", "is_missing", "read_table", "read_text"]

_MISSING = frozenset(("", "NaN", "nan", "NAN", "NaT", "<NA>"))
"""Spellings of a missing value in the tables of pandas, R and spreadsheets."""


@dataclass(frozen=True)
class Table:
    """Columns of text by name, and the number of each row in the file (the header is row 1)."""

    columns: dict[str, tuple[str, ...]]
    rows: tuple[int, ...]


def read_text(file: Path) -> str:
    """Return the text of a UTF-8 file with its line ends unchanged.

    Raises:
        DataError: the file is missing or not UTF-8.
    """
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            return stream.read()
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise DataError(f"{file}: is not UTF-8 text") from None


def read_table(file: Path, needed: Sequence[str]) -> Table:
    """Read a CSV file that has the ``needed`` columns; spaces around cells are removed.

    Raises:
        DataError: the file or a column is missing, or rows are wrong; the message lists the first
            of them.
    """
    try:
        lines = list(csv.reader(io.StringIO(read_text(file), newline=""), strict=True))
    except csv.Error as error:
        raise DataError(f"{file}: not a CSV file ({error})") from None
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
            f"it lacks {' and '.join(missing)}: {', '.join(header) or 'an empty row'}"
        )
    for number, name in enumerate(header, start=1):
        if not name:
            raise DataError(f"{file}: column {number} has no name in row 1")
        if name in header[: number - 1]:
            raise DataError(f"{file}: row 1 names the column {name!r} twice")


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
    return cell in _MISSING
