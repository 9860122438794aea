"""The headers of the framework's Parquet and safetensors files."""

from __future__ import annotations

import json
import reprlib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fsframework._files import atomic_path
from fsframework._reading import VersionError, check_file, check_version, parse_json
from fsframework.errors import DataError

__all__ = [
    "SCHEMA_VERSION",
    "is_text",
    "parquet_header",
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

Header = TypeVar("Header")


def read_parquet(path: Path) -> Any:
    """Read a Parquet file, whoever wrote it, as a table whose text is valid and columns differ.

    Raises:
        DataError: the file cannot be read, is damaged, or would be too large in memory.
    """
    import pyarrow.parquet as pq

    try:
        check_file(path)
        # Not read_table, which takes folders named like NAME=VALUE above the file for columns.
        with pq.ParquetFile(path) as file:
            _demand_sizes(file.metadata)
            table = file.read()
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


def _demand_sizes(metadata: Any) -> None:
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    unpacked = sum(group.total_byte_size for group in groups)
    if metadata.num_rows > _MOST_ROWS or unpacked > _MOST_BYTES:
        raise ValueError(
            f"it declares {metadata.num_rows:,} rows and {unpacked:,} bytes; at most "
            f"{_MOST_ROWS:,} rows and {_MOST_BYTES:,} bytes are read"
        )


def text_column(table: Any, name: str, path: Path, *, empty: str | None = None) -> tuple[str, ...]:
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
    if not (is_text(kind) or pa.types.is_null(kind)):
        raise DataError(f"{path}: the column {name!r} must contain text, not {kind}")
    cells: list[str | None] = table[name].to_pylist()
    if empty is None and None in cells:
        raise DataError(f"{path}: row {cells.index(None) + 1} has no {name}")
    return tuple(empty or "" if cell is None else cell for cell in cells)


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of text, also if each text is stored once."""
    import pyarrow as pa

    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(
        check(inner)
        for check in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    )


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
