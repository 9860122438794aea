"""The list of added data sets, changed, and copies of users' own declarations beside it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from fsframework.api.components import ADDED_VERSION, Added, added_folder, read_added
from fsframework.errors import DataError
from fsframework.values import atomic_write, locked

__all__ = ["changed_list", "copies_folder", "replaced_files"]


@contextmanager
def changed_list(
    folder: Path | None = None,
) -> Iterator[tuple[dict[str, Added], Callable[[], None]]]:
    """Let a block change the added data sets; concurrent processes wait for one another.

    Yields:
        The entries by name, and what writes them.

    Raises:
        DataError: the list is damaged, or of another version.
        FsfError: it cannot be written.
    """
    folder = added_folder(folder)

    def write() -> None:
        datasets = {name: msgspec.to_builtins(entries[name]) for name in sorted(entries)}
        raw = {"schema_version": ADDED_VERSION, "datasets": datasets}
        text = json.dumps(raw, indent=2, ensure_ascii=False) + "\n"
        atomic_write(folder / "datasets.json", text)

    with locked(folder):
        entries = read_added(folder)
        yield entries, write


def copies_folder(name: str, folder: Path | None = None) -> Path:
    """Return the folder with the copies of the declaration of an added data set."""
    return (added_folder(folder) / "declarations" / name).absolute()


@contextmanager
def replaced_files(folder: Path, content: Mapping[str, bytes]) -> Iterator[None]:
    """Replace a folder's content by these files, or remove it; undone if the block fails.

    For one process at a time. Remains of a killed process are removed.

    Raises:
        DataError: a file cannot be written, or the folder cannot be replaced.
    """
    fresh, former = (folder.with_name(f".{folder.name}.{which}") for which in ("new", "old"))
    placed = False
    try:
        _restore(folder, former)
        _discard(fresh, former)
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
            _discard(folder)
        _restore(folder, former)
        if isinstance(error, OSError):
            raise DataError(f"cannot write {folder}: {error.strerror}") from error
        raise
    finally:
        _discard(fresh, former)


def _restore(folder: Path, former: Path) -> None:
    if former.exists() and not folder.exists():
        former.rename(folder)


def _discard(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
