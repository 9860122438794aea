"""Copies of users' own declarations, beside the list of added data sets."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fsframework.api.components import added_folder
from fsframework.errors import DataError
from fsframework.values import atomic_write

__all__ = ["copies_folder", "replaced_files"]


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
