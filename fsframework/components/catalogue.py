"""Data sets that the user has added: where each is stored, listed in one file of the user.

A name given to ``fsf data add`` stands for a plugin with options, wherever a data set is named. The
file is read when a data set is resolved, never by a plugin.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from fsframework._reading import check_version, parse_json, read_file
from fsframework.errors import DataError

__all__ = ["ADDED_VERSION", "Added", "added_folder", "options_added", "read_added"]

ADDED_VERSION = 1
_FILE = "datasets.json"


class Added(msgspec.Struct, frozen=True):
    """A data set that was added.

    Args:
        plugin: name of the plugin that reads it.
        options: of the plugin, as JSON values; paths are absolute.
        counts: classes and images of each split when it was added.
        problems: what was wrong with it then, one sentence per problem.
        fingerprint: of the data then.
        when: date and time when it was added, ISO 8601.
        about: what is published about it, as JSON values; ``None`` for the user's own.
        columns: of its metadata then.
        place: its path.
    """

    plugin: str
    options: dict[str, Any]
    counts: dict[str, tuple[int, int]] = {}
    problems: tuple[str, ...] = ()
    fingerprint: str = ""
    when: str = ""
    about: dict[str, Any] | None = None
    columns: tuple[str, ...] = ()
    place: str = ""


class _File(msgspec.Struct):
    """The file that lists the added data sets."""

    schema_version: int
    datasets: dict[str, Added] = {}


def added_folder(folder: Path | None = None) -> Path:
    """Return the given folder, else ``FSF_DATA``, else the user's data folder."""
    home = os.environ.get("XDG_DATA_HOME")
    usual = (Path(home) if home else Path.home() / ".local" / "share") / "fsframework"
    return folder or Path(os.environ.get("FSF_DATA") or usual)


def read_added(folder: Path | None = None) -> dict[str, Added]:
    """Return every added data set by name, sorted.

    Raises:
        DataError: the file that lists them is damaged, or of another version.
    """
    path = added_folder(folder) / _FILE
    try:
        file = msgspec.convert(parse_json(read_file(path)), _File)
        check_version(file.schema_version, ADDED_VERSION)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: the list of added data sets cannot be read ({error}); if it is damaged or of "
            "another version, delete it and add them again"
        ) from None
    return dict(sorted(file.datasets.items()))


def options_added(
    name: str, entry: Added, given: Mapping[str, Any], target: str | None
) -> dict[str, Any]:
    """Return the options that a data set was added with, without those that are given.

    Args:
        target: the option that is its path.

    Raises:
        DataError: its path no longer exists.
    """
    found = {key: value for key, value in entry.options.items() if key not in given}
    if target in found and not Path(str(found[target])).exists():
        raise DataError(
            f"{name} was added from {found[target]}, which no longer exists; add it again from its "
            f"new place, or remove it: fsf data remove {name}"
        )
    return found
