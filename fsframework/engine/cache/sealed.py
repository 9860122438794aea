"""Cached files that are read back only if they are what was written.

Beside ``NAME.suffix`` lies ``NAME.digest`` with two XXH3 digests: of the file, and of the one that
it replaced, so that a process may be killed between the two. They cover the names of file and
folder as well, so that one cached file does not pass for another.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import xxhash

from fsframework._files import atomic_path, atomic_write, explain_os_error, locked
from fsframework.engine.progress import Reporter
from fsframework.errors import DataError

__all__ = [
    "digest_file",
    "discard",
    "held",
    "is_ordinary",
    "load_sealed",
    "remove_sealed",
    "save_sealed",
]

_Loaded = TypeVar("_Loaded")


def save_sealed(path: Path, save: Callable[[Path], None]) -> None:
    """Write a cached file and its digest.

    Args:
        path: of the file, which is replaced.
        save: writes the file at the path that it is given.

    Raises:
        FsfError: the file cannot be written.
    """
    with atomic_path(path) as temporary:
        save(temporary)
        digests = [_digest(temporary, path), *_known_digests(path)[:1]]
        for one in (path, digest_file(path)):
            if not is_ordinary(one):
                discard(one)
        atomic_write(digest_file(path), "\n".join(digests))


def load_sealed(path: Path, load: Callable[[Path], _Loaded], reporter: Reporter) -> _Loaded | None:
    """Return what ``load`` reads from a cached file, or ``None`` if it must be made again.

    One line says if the file is damaged.
    """
    if not os.path.lexists(path):
        return None
    try:
        if not is_ordinary(path) or _digest(path, path) not in _known_digests(path):
            raise DataError("it is not what was written")
        return load(path)
    except MemoryError:
        raise
    except Exception as error:  # whatever a damaged file may lead to
        reason = " ".join(str(error).removeprefix(f"{path}: ").split())
        reporter.note(f"{path}: this cached file is damaged and is made again ({reason})")
        return None


def remove_sealed(path: Path) -> None:
    """Remove a cached file, if it exists, and its digest.

    Raises:
        FsfError: the file system does not allow it.
    """
    for one in (path, digest_file(path)):
        try:
            discard(one)
        except OSError as error:
            raise explain_os_error(error, one) from error


def digest_file(path: Path) -> Path:
    """Return the path of the digest of a cached file."""
    return path.with_suffix(".digest")


def held(
    folder: Path, reporter: Reporter, waiting: Callable[[], None] | None = None
) -> AbstractContextManager[None]:
    """Lock the folder of a cached stage; see ``locked``. Anything else in its place is removed."""
    if os.path.lexists(folder) and not folder.is_dir():
        reporter.note(f"{folder}: not a folder; what is cached here is made again")
        discard(folder)
    return locked(folder, waiting=waiting)


def discard(path: Path) -> None:
    """Remove a file, a link or a folder, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def is_ordinary(path: Path) -> bool:
    """Return whether a path is that of a file, and not of a link, a folder or a pipe."""
    return path.is_file() and not path.is_symlink()


def _known_digests(path: Path) -> list[str]:
    """Return the digests of what was last written."""
    own = digest_file(path)
    return own.read_bytes().decode("ascii", "replace").split() if is_ordinary(own) else []


def _digest(path: Path, called: Path) -> str:
    """Return the digest of a file; ``called`` is its path when in place."""
    state = xxhash.xxh3_128(f"{called.parent.name}/{called.name}\n".encode())
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: state).hexdigest()
