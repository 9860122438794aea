"""Atomic writes, temporary files and locks."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fsframework.errors import FsfError

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
_SECONDS_OF_LEFTOVERS = 3600.0
_swept: set[Path] = set()
"""Folders whose leftovers this process has removed."""


def explain_os_error(error: OSError, path: Path) -> FsfError:
    """Return an error that explains why the operating system cannot write ``path``."""
    if error.errno == errno.ENOSPC:
        return FsfError(f"cannot write {path}: no space left on the device; nothing was changed")
    reason = error.strerror or str(error)
    return FsfError(f"cannot write {path}: {reason}")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling of ``path`` that replaces it when the block succeeds.

    Old ones that killed processes left in the folder are removed.

    Raises:
        FsfError: the write failed (full disk, no permission); ``path`` is unchanged.
    """
    temporary: Path | None = None
    handle = -1
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.parent not in _swept:
            _swept.add(path.parent)
            sweep(path.parent, f"{_PREFIX}*.tmp", _SECONDS_OF_LEFTOVERS)
        handle, name = tempfile.mkstemp(
            dir=path.parent, prefix=f"{_PREFIX}{path.name}.", suffix=".tmp"
        )
        with suppress(OSError):  # shows other processes that this one lives, where there are locks
            fcntl.flock(handle, fcntl.LOCK_SH)
        temporary = Path(name)
        yield temporary
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
        temporary = None
    except OSError as error:
        raise explain_os_error(error, path) from error
    finally:
        with suppress(OSError):
            if handle >= 0:
                os.close(handle)
        with suppress(OSError):
            if temporary is not None:
                temporary.unlink(missing_ok=True)


def sweep(folder: Path, pattern: str = ".*.tmp", older_than: float = 0.0) -> None:
    """Remove temporary files that killed processes left in a folder.

    Args:
        folder: the folder; by default one of this package, locked by the caller.
        pattern: of the names.
        older_than: seconds since a file was last written; younger ones stay. A process on another
            machine may be writing them, where its locks are not seen here.
    """
    latest = time.time() - older_than
    for leftover in folder.glob(pattern):
        try:
            with leftover.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(file.fileno()).st_mtime <= latest:
                    leftover.unlink(missing_ok=True)
        except OSError:
            continue  # its process lives, or the folder is read-only


def atomic_write(path: Path, data: bytes | str) -> None:
    """Write ``data`` to ``path`` through a temporary file in the same folder."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


@contextmanager
def locked(
    folder: Path, *, shared: bool = False, waiting: Callable[[], None] | None = None
) -> Iterator[None]:
    """Lock a folder against other processes, which wait until it is released.

    A folder that this process may only read is not locked if it has no lock yet.

    Args:
        shared: allow other shared locks at the same time.
        waiting: called once if another process holds the lock.
    """
    while True:
        lock: IO[bytes] | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = _opened(folder / "lock")
        except FileNotFoundError as error:
            if folder.is_dir():
                raise explain_os_error(error, folder) from error
            continue  # another process removed the folder in between
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise explain_os_error(error, folder) from error
        if lock is None:
            yield
            return
        with lock:
            how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            try:
                fcntl.flock(lock, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if waiting is not None:
                    waiting()
                fcntl.flock(lock, how)
            if not _is_at(lock, folder / "lock"):
                continue  # the folder was removed while this process waited
            yield
            return


def _opened(lock: Path) -> IO[bytes]:
    """Open a lock, only for reading if it cannot be made or written."""
    try:
        return lock.open("ab")
    except OSError as error:
        if error.errno in _UNWRITABLE and lock.is_file():
            return lock.open("rb")
        raise


def _is_at(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
