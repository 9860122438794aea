"""Atomic writes, temporary files and locks."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fsframework.errors import FsfError

if TYPE_CHECKING:
    from filelock import FileLock

__all__ = [
    "atomic_path",
    "atomic_write",
    "explain_os_error",
    "locked",
    "sweep",
]

_UNWRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM}
_PREFIX = ".fsf-"
"""Of temporary files, which may lie among a user's own."""


def explain_os_error(error: OSError, path: Path) -> FsfError:
    """Return an error that explains why the operating system cannot write ``path``."""
    if error.errno == errno.ENOSPC:
        return FsfError(f"cannot write {path}: no space left on the device; nothing was changed")
    reason = error.strerror or str(error)
    return FsfError(f"cannot write {path}: {reason}")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling of ``path`` that replaces it when the block succeeds.

    Raises:
        FsfError: the write failed (full disk, no permission); ``path`` is unchanged.
    """
    temporary = path.with_name(f"{_PREFIX}{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)
        yield temporary
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        raise explain_os_error(error, path) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove temporary files that killed processes left in a folder; the caller has locked it."""
    for leftover in folder.glob(f"{_PREFIX}*.tmp"):
        with suppress(OSError):  # the folder may be read-only
            leftover.unlink(missing_ok=True)


def atomic_write(path: Path, data: bytes | str) -> None:
    """Write ``data`` to ``path`` through a temporary file in the same folder."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


@contextmanager
def locked(folder: Path, *, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Lock a folder against other processes, which wait until it is released.

    A folder that this process may only read is not locked.

    Args:
        waiting: called once if another process holds the lock.
    """
    from filelock import FileLock

    lock = FileLock(folder / "lock")
    while not lock.is_locked:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _acquire(lock, waiting)
        except OSError as error:
            if error.errno in _UNWRITABLE:
                break
            if error.errno != errno.ENOENT or folder.is_dir():
                raise explain_os_error(error, folder) from error
            # Another process removed the folder in between.
    try:
        yield
    finally:
        lock.release()


def _acquire(lock: FileLock, waiting: Callable[[], None] | None) -> None:
    from filelock import Timeout

    try:
        lock.acquire(blocking=False)
    except Timeout:
        if waiting is not None:
            waiting()
        lock.acquire()
