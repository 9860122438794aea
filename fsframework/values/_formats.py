"""The headers of the framework's Parquet and safetensors files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fsframework._files import atomic_path, parse_json
from fsframework.errors import DataError

__all__ = ["SCHEMA_VERSION", "check_header", "parquet_header", "parsed_header", "write_parquet"]


SCHEMA_VERSION = 2
"""Version of the file formats written by this module."""


def parquet_header(path: Path, *what: str) -> tuple[Any, dict[str, Any]]:
    """Read one of the framework's Parquet files; return its table and the header in its schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: not a Parquet file ({error})") from None
    raw = (table.schema.metadata or {}).get(b"fsframework")
    if raw is None:
        raise DataError(f"{path}: not {what[0]} written by fsframework (its header is missing)")
    return table, check_header(parsed_header(raw, path), path, *what)


def parsed_header(raw: str | bytes, path: Path) -> Any:
    """Parse the header of a file; a damaged one is an error."""
    try:
        return parse_json(raw)
    except ValueError as error:
        raise DataError(f"{path}: its header is damaged ({error})") from None


def check_header(header: Any, path: Path, *what: str) -> dict[str, Any]:
    if not isinstance(header, dict):
        raise DataError(f"{path}: its header is not a JSON object")
    if header.get("what") not in what:
        raise DataError(f"{path}: holds {header.get('what')!r}, not {what[0]}")
    version = header.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise DataError(
            f"{path}: schema_version {version} was written by a newer fsframework; "
            f"this one reads versions up to {SCHEMA_VERSION}"
        )
    return header


def write_parquet(path: Path, columns: dict[str, Any], header: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(columns)
    raw = json.dumps({"schema_version": SCHEMA_VERSION, **header}, sort_keys=True)
    table = table.replace_schema_metadata({"fsframework": raw})
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")
