"""Cached files that are read back only if they are what was written.

Beside ``NAME.suffix`` lies ``NAME.digest`` with two XXH3 digests: of the file, and of the one that
it replaced, so that a process may be killed between the two. They cover the names of file and
folder as well, so that one cached file does not pass for another.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TypeVar

import xxhash

from fsframework._files import atomic_path, atomic_write, explain_os_error, locked
from fsframework.errors import DataError, FsfError
from fsframework.pipeline.progress import Reporter

__all__ = [
    "digest_file",
    "discard",
    "discard_unless_file",
    "held",
    "is_readable_file",
    "load_sealed",
    "remove_sealed",
    "save_sealed",
]

_Loaded = TypeVar("_Loaded")
_BLOCK = 1 << 20


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
        former = _known_digests(path) or [""]
        discard_unless_file(path)
        _seal(path, [_digest(temporary, path), former[0]])


def load_sealed(path: Path, load: Callable[[Path], _Loaded], reporter: Reporter) -> _Loaded | None:
    """Return what ``load`` reads from a cached file, or ``None`` if it must be made again.

    One line says if the file is damaged, or if an earlier version left it without a digest: such a
    file is accepted once and gets its digest.
    """
    if not os.path.lexists(path):
        return None
    known = _known_digests(path)
    try:
        digest = _digest(path, path)
        if known is not None and digest not in known:
            raise DataError("it is not what was written")
        found = load(path)
    except MemoryError:
        raise
    except Exception as error:  # whatever a damaged file of an earlier version may lead to
        reason = " ".join(str(error).removeprefix(f"{path}: ").split())
        reporter.note(f"{path}: this cached file is damaged and is made again ({reason})")
        return None
    if known is None:
        reporter.note(
            f"{path}: an earlier version cached this file without a digest; it is accepted and "
            "gets a digest now"
        )
        with suppress(FsfError):  # the cache may be read-only
            _seal(path, [digest])
    return found


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


def discard_unless_file(path: Path) -> None:
    """Remove what is not an ordinary file, and could not be replaced or written through."""
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        discard(path)


def is_readable_file(path: Path) -> bool:
    """Return whether a path is free, or that of an ordinary file that this process may read."""
    try:
        return stat.S_ISREG(path.lstat().st_mode) and os.access(path, os.R_OK)
    except FileNotFoundError:
        return True


def _seal(path: Path, digests: list[str]) -> None:
    discard_unless_file(digest_file(path))
    atomic_write(digest_file(path), "".join(f"{digest}\n" for digest in digests))


def _known_digests(path: Path) -> list[str] | None:
    """Return the digests of what was last written; ``None`` if it has no digests."""
    try:
        return digest_file(path).read_text().split()
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return []


def _digest(path: Path, called: Path) -> str:
    """Return the digest of a file; ``called`` is its path when in place.

    Raises:
        DataError: it is not an ordinary file.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise DataError("it is not an ordinary file")
    state = xxhash.xxh3_128(f"{called.parent.name}/{called.name}\n".encode())
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            state.update(block)
    return state.hexdigest()
