"""Tables: declared as values, written into files by a plugin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fsframework.api.formats import writer_of, written
from fsframework.errors import DataError
from fsframework.interfaces.table import TableWriter
from fsframework.values import TableDeclaration

__all__ = ["check_tables", "save_tables"]


def save_tables(
    tables: TableDeclaration | Sequence[TableDeclaration],
    path: str | Path,
    *,
    writer: str | Mapping[str, Any] | TableWriter | type[TableWriter] | None = None,
) -> Path:
    """Write tables into a file whose suffix says the format, and return its path.

    Args:
        tables: one or several, which come in this order.
        path: of the file, which is replaced if it exists.
        writer: what writes them, such as ``plain-tables``, also with options, a class or an
            instance; by default the first installed writer, by name, that writes the format.

    Raises:
        OptionError: no writer writes the format.
        PluginError: no writer is installed, or it cannot be loaded.
        DataError: there are no tables.
        FsfError: the file cannot be written.
    """
    several = [tables] if isinstance(tables, TableDeclaration) else list(tables)
    if not several:
        raise DataError(f"{path}: there are no tables to write")
    made: TableWriter = writer_of("table", Path(path), writer, "table")
    return written(Path(path), lambda file: made.write(several, file))


def check_tables(path: str | Path) -> None:
    """Check, before any long computation, that tables can be written to a file of this name.

    Raises:
        OptionError: no writer writes the format.
        PluginError: no writer is installed, or it cannot be loaded.
    """
    writer_of("table", Path(path), None, "table")
