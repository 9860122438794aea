"""Declarations of data sets: TOML files that describe the layout of the files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fsf_tools.data.catalogue import DatasetRow
from fsframework.errors import DataError, PluginError
from fsframework.values import parse_toml, read_file

__all__ = ["content_of", "declared_name", "reader_of"]


def reader_of(declaration: Path, rows: Sequence[DatasetRow]) -> tuple[str, str]:
    """Return the data set that reads declarations, and its option that takes one.

    Raises:
        PluginError: no plugin reads declarations, or several do.
    """
    found = [(row.name, row.declared_by) for row in rows if row.declared_by is not None]
    if not found:
        raise PluginError(f"{declaration}: no plugin that reads declarations is installed")
    if len(found) > 1:
        names = " and ".join(name for name, _ in found)
        raise PluginError(
            f"{declaration}: the plugins {names} all read declarations; uninstall all but one"
        )
    return found[0]


def declared_name(declaration: Path) -> str:
    """Return the name of the data set in a declaration.

    Raises:
        DataError: the file is missing, is not TOML, or gives no name.
    """
    name = _read(declaration).get("name")
    if not isinstance(name, str):
        raise DataError(f"{declaration}: must give the data set a name, such as name = 'my-birds'")
    return name


def content_of(declaration: Path, called: str) -> dict[str, bytes]:
    """Return the contents of a declaration, named after its data set, and of the files it names.

    Raises:
        DataError: it names a file outside its folder.
    """
    home = declaration.absolute().parent
    named = _files_named(_read(declaration), home)
    for name in named:
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise DataError(f"{declaration}: names {name}, which must be in its folder or below")
    # Read before anything is written: the declaration may be the copy that will be replaced.
    found = {f"{called}.toml": read_file(declaration)}
    return found | {name: read_file(home / name) for name in named}


def _read(declaration: Path) -> dict[str, Any]:
    try:
        return parse_toml(read_file(declaration))
    except FileNotFoundError:
        raise DataError(f"{declaration}: no such file") from None
    except ValueError as error:
        raise DataError(f"{declaration}: not TOML ({error})") from None
    except OSError as error:
        raise DataError(f"{declaration}: cannot be read ({error.strerror})") from None


def _files_named(value: Any, home: Path) -> list[str]:
    """Return the files that a declaration names by ``file``, relative to its folder."""
    if isinstance(value, list):
        return [name for inner in value for name in _files_named(inner, home)]
    if not isinstance(value, Mapping):
        return []
    found = [name for inner in value.values() for name in _files_named(inner, home)]
    name = value.get("file")
    there = isinstance(name, str) and os.path.isfile(home / name)  # noqa: PTH113 - for long names
    return [*found, name] if there else found
