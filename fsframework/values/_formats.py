"""The headers of the framework's Parquet and safetensors files."""

from __future__ import annotations

import collections
import csv
import json
import reprlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
import numpy as np

from fsframework._files import atomic_path
from fsframework._reading import (
    VersionError,
    check_file,
    check_version,
    open_file,
    parse_json,
    text_lines,
)
from fsframework.errors import DataError
from fsframework.values._arrays import BoolArray, IntArray
from fsframework.values._texts import Texts, normalize

__all__ = [
    "SCHEMA_VERSION",
    "is_text",
    "parquet_header",
    "read_csv",
    "read_header",
    "read_parquet",
    "text_column",
    "write_parquet",
]


SCHEMA_VERSION = 2
"""Version of the file formats written by this module."""


_MOST_ROWS = 100_000_000
_MOST_BYTES = 1 << 33
"""Rows, and bytes of unpacked columns, up to which a Parquet file is read."""

_CSV_BLOCK = 1 << 22
"""Bytes of a CSV file that are parsed at once; a row may not be longer."""

Header = TypeVar("Header")


def read_parquet(path: Path) -> Any:
    """Read a Parquet file, whoever wrote it, as a table whose text is valid and columns differ.

    Raises:
        DataError: the file cannot be read, is damaged, or would be too large in memory.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        check_file(path)
        # Not read_table, which takes folders named like NAME=VALUE above the file for columns.
        with pq.ParquetFile(path) as file:
            _demand_sizes(file.metadata)
            batches = file.iter_batches(use_threads=False)  # ``read`` would need memory twice
            table = pa.Table.from_batches(batches, file.schema_arrow)
        table.validate(full=True)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except Exception as error:  # a damaged file can fail anywhere in Arrow
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise DataError(f"{path}: not a Parquet file, or damaged ({reason})") from None
    for name in table.column_names:
        if table.column_names.count(name) > 1:
            raise DataError(f"{path}: has the column {name!r} twice")
    return table


def read_csv(
    path: Path, demand_header: Callable[[list[str]], None]
) -> tuple[dict[str, Any], IntArray, dict[int, str]]:
    """Read a CSV file in UTF-8; spaces around cells and rows without text are left out.

    Args:
        path: the file.
        demand_header: refuses the cells of row 1 unless they are names of columns, all different.

    Returns:
        Arrow columns of text by name, the number of each row in the file (the header is row 1), and
        by their number what is wrong with the rows that are left out.

    Raises:
        DataError: the file cannot be read, or is not a CSV file.
    """
    try:
        with open_file(path) as file:
            header = next(rows := csv.reader(text_lines(file), strict=True), [])
        names = [normalize(cell.strip()) for cell in header]
        demand_header(names)
        with open_file(path) as file:
            quoted = any(b'"' in block for block in iter(lambda: file.read(_CSV_BLOCK), b""))
        if quoted:  # Arrow takes text after a closing mark, and a mark that is never closed.
            rows = csv.reader(text_lines(open_file(path)), strict=True)
            collections.deque(rows, maxlen=0)
        with open_file(path) as file:
            return _arrow_csv(file, names, quoted)
    except FileNotFoundError:
        raise DataError(f"{path}: cannot be read (no such file)") from None
    except (OSError, csv.Error, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        why = why.replace("unexpected end of data", "a quotation mark is not closed")
        if "field larger" in why:
            why = f"line {rows.line_num} has a cell of over {csv.field_size_limit():,} characters"
        why = "it is not UTF-8 text; save it as CSV in UTF-8" if "UTF8" in why else why
        raise DataError(f"{path}: not a CSV file, or cannot be read ({why})") from None


def _arrow_csv(
    file: BinaryIO, names: Sequence[str], quoted: bool
) -> tuple[dict[str, Any], IntArray, dict[int, str]]:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow

    skipped: dict[int, str] = {}

    def skip(row: Any) -> str:
        blank = row.actual_columns == 1 and not row.text.strip()
        why = f"has {row.actual_columns} cells but the header has {row.expected_columns}"
        skipped[row.number] = "" if blank else why
        return "skip"

    kept: list[BoolArray] = []
    parts = []
    for batch in arrow.open_csv(
        file,
        arrow.ReadOptions(use_threads=False, block_size=_CSV_BLOCK, column_names=names),
        arrow.ParseOptions(
            newlines_in_values=quoted, ignore_empty_lines=False, invalid_row_handler=skip
        ),
        arrow.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    ):
        cells = [pc.utf8_trim_whitespace(column) for column in batch.columns]
        any_text = np.any([pc.not_equal(column, "") for column in cells], axis=0)
        any_text[0] &= bool(kept)  # the first row is the header
        kept.append(any_text)
        parts.append(pa.record_batch(cells, names).filter(pa.array(any_text)))
    table, places = pa.Table.from_batches(parts), np.flatnonzero(np.concatenate(kept))
    before = np.array([*skipped], np.int64) - 1 - np.arange(len(skipped))
    numbers = places + 1 + np.searchsorted(before, places, side="right")
    wrong = {number: why for number, why in skipped.items() if why}
    return {name: table[name] for name in names}, numbers, wrong


def _demand_sizes(metadata: Any) -> None:
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    unpacked = sum(group.total_byte_size for group in groups)
    if metadata.num_rows > _MOST_ROWS or unpacked > _MOST_BYTES:
        raise ValueError(
            f"it declares {metadata.num_rows:,} rows and {unpacked:,} bytes; at most "
            f"{_MOST_ROWS:,} rows and {_MOST_BYTES:,} bytes are read"
        )


def text_column(table: Any, name: str, path: Path, *, empty: str | None = None) -> Texts:
    """Return a column of text.

    Args:
        table: the Arrow table; ``path`` is its file, for messages.
        name: name of the column.
        empty: the text for empty cells; ``None`` allows no empty cell.

    Raises:
        DataError: the file lacks the column, it contains something else, or a cell is empty.
    """
    import pyarrow as pa

    if name not in table.column_names:
        raise DataError(f"{path}: has no column {name!r}; it has {table.column_names}")
    kind = table[name].type
    if not is_text(kind):
        raise DataError(f"{path}: the column {name!r} must contain text, not {kind}")
    cells = table[name].cast(pa.large_string())
    if empty is None and cells.null_count:
        raise DataError(f"{path}: row {cells.is_null().index(True).as_py() + 1} has no {name}")
    return Texts([cells.fill_null(empty or "")])


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of text or of nothing, also if each text is stored once."""
    import pyarrow as pa

    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return inner in (pa.string(), pa.large_string(), pa.string_view(), pa.null())


def parquet_header(path: Path, form: type[Header], *what: str) -> tuple[Any, Header]:
    """Read one of the framework's Parquet files; return its table and the header in its schema."""
    table = read_parquet(path)
    raw = (table.schema.metadata or {}).get(b"fsframework")
    return table, read_header(raw, path, form, *what)


def read_header(raw: str | bytes | None, path: Path, form: type[Header], *what: str) -> Header:
    """Return the header of one of the framework's files as a ``TypedDict``.

    Args:
        raw: the header, JSON; ``None`` where the file has none.
        path: the file, for messages.
        form: the ``TypedDict``, which decides what the header must contain.
        what: what the file may hold.

    Raises:
        DataError: the header is missing or damaged, or belongs to something else.
    """
    if raw is None:
        raise DataError(f"{path}: not {what[0]} written by fsframework (its header is missing)")
    try:
        header = parse_json(raw)
        if not isinstance(header, dict):
            raise ValueError("it is not a JSON object")
        if header.get("what") not in what:
            raise DataError(f"{path}: holds {reprlib.repr(header.get('what'))}, not {what[0]}")
        check_version(header.get("schema_version"), SCHEMA_VERSION)
        return msgspec.convert(header, form)
    except VersionError as error:
        raise DataError(f"{path}: {error}") from None
    except ValueError as error:
        raise DataError(f"{path}: its header is damaged ({error})") from None


def write_parquet(path: Path, columns: dict[str, Any], header: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(columns)
    raw = json.dumps({"schema_version": SCHEMA_VERSION, **header}, sort_keys=True)
    table = table.replace_schema_metadata({"fsframework": raw})
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")
