"""Data sets that the user has added: where each is stored, listed in one file of the user.

A name given to ``fsf data add`` stands for a plugin with options, wherever a data set is named. The
file is read when a data set is resolved, never by a plugin.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsframework._files import atomic_write, explain_os_error, locked
from fsframework._reading import parse_json, read_file
from fsframework.errors import DataError

__all__ = [
    "ADDED_VERSION",
    "Added",
    "added_folder",
    "change_added",
    "declaration_folder",
    "read_added",
    "replaced_files",
]

ADDED_VERSION = 1
_FILE = "datasets.json"
_DECLARATIONS = "declarations"
"""Folder next to that file with the copies of users' own declarations."""


@dataclass(frozen=True)
class Added:
    """A data set that was added.

    Args:
        plugin: name of the plugin that reads it.
        options: of the plugin, as JSON values; paths are absolute.
        counts: classes and images of each split when it was added.
        problems: what was wrong with it then, one sentence per problem.
        fingerprint: of the data then.
        when: date and time when it was added, ISO 8601.
        about: what is published about it, as JSON values; ``None`` for the user's own.
        columns: of its metadata then; empty if an earlier version added it.
        place: its path; if an earlier version added it, its option ``path``, else its first
            option.
    """

    plugin: str
    options: Mapping[str, Any]
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    fingerprint: str = ""
    when: str = ""
    about: Mapping[str, Any] | None = None
    columns: tuple[str, ...] = ()
    place: str = ""

    def __post_init__(self) -> None:
        if not self.place:
            place = self.options.get("path") or next(iter(self.options.values()), "")
            object.__setattr__(self, "place", str(place))

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return dataclasses.asdict(self)


def added_folder(folder: Path | None = None) -> Path:
    """Return the given folder, else ``FSF_DATA``, else the user's data folder."""
    home = os.environ.get("XDG_DATA_HOME")
    usual = (Path(home) if home else Path.home() / ".local" / "share") / "fsframework"
    return folder or Path(os.environ.get("FSF_DATA") or usual)


def read_added(folder: Path | None = None) -> dict[str, Added]:
    """Return every added data set by name, sorted.

    Raises:
        DataError: the file that lists them is damaged, or of a newer version.
    """
    path = added_folder(folder) / _FILE
    try:
        raw = parse_json(read_file(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: the list of added data sets cannot be read ({error})") from None
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if isinstance(version, int) and version > ADDED_VERSION:
        raise DataError(
            f"{path}: schema_version {version} was written by a newer fsframework; this one reads "
            f"versions up to {ADDED_VERSION}"
        )
    try:
        return {name: _entry(one) for name, one in sorted(raw["datasets"].items())}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(
            f"{path}: the list of added data sets is damaged ({type(error).__name__}: {error}); "
            "delete it and add them again"
        ) from None


def change_added(
    change: Callable[[dict[str, Added]], None],
    folder: Path | None = None,
    beside: AbstractContextManager[None] | None = None,
) -> dict[str, Added]:
    """Let ``change`` edit the added data sets; concurrent processes wait for one another.

    Args:
        beside: what must change together with the list: a context entered before the list is
            written, and left with the error if that fails.

    Returns:
        The new entries.

    Raises:
        DataError: see ``read_added``.
        FsfError: the file cannot be written.
    """
    folder = added_folder(folder)
    with locked(folder):
        entries = read_added(folder)
        change(entries)
        raw = {
            "schema_version": ADDED_VERSION,
            "datasets": {name: entries[name].to_json() for name in sorted(entries)},
        }
        text = json.dumps(raw, indent=2, ensure_ascii=False) + "\n"
        with beside or nullcontext():
            atomic_write(folder / _FILE, text)
    return entries


def _entry(raw: Mapping[str, Any]) -> Added:
    return Added(
        plugin=str(raw["plugin"]),
        options=dict(raw["options"]),
        counts={split: (int(c), int(n)) for split, (c, n) in raw.get("counts", {}).items()},
        problems=tuple(map(str, raw.get("problems", ()))),
        fingerprint=str(raw.get("fingerprint", "")),
        when=str(raw.get("when", "")),
        about=None if raw.get("about") is None else dict(raw["about"]),
        columns=tuple(map(str, raw.get("columns", ()))),
        place=str(raw.get("place", "")),
    )


def declaration_folder(name: str, folder: Path | None = None) -> Path:
    """Return the folder with the copies of the declaration of an added data set."""
    return (added_folder(folder) / _DECLARATIONS / name).absolute()


@contextmanager
def replaced_files(folder: Path, content: Mapping[str, bytes]) -> Iterator[None]:
    """Replace a folder's content by these files, or remove it; undone if the block fails.

    For one process at a time. Remains of a killed process are removed.
    """
    fresh, former = (folder.with_name(f".{folder.name}.{which}") for which in ("new", "old"))
    placed = False
    try:
        if former.exists() and not folder.exists():
            former.rename(folder)
        for left in (fresh, former):
            shutil.rmtree(left, ignore_errors=True)
        for name, data in content.items():
            atomic_write(fresh / name, data)
        if folder.exists():
            folder.rename(former)
        if content:
            fresh.rename(folder)
            placed = True
        yield
    except BaseException as error:
        if placed:
            shutil.rmtree(folder, ignore_errors=True)
        if former.exists():
            former.rename(folder)
        if isinstance(error, OSError):
            raise explain_os_error(error, folder) from error
        raise
    finally:
        for left in (fresh, former):
            shutil.rmtree(left, ignore_errors=True)
