"""Atomic writes, temporary files, locks, and cached files that are read only as they were written.

Beside a cached file ``NAME.suffix`` lies ``NAME.digest`` with two XXH3 digests: of the file, and of
the one that it replaced, so that a process may be killed between the two. They cover the names of
file and folder as well, so that one cached file does not pass for another.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import xxhash

from fsframework.errors import DataError, FsfError, FsfWarning

if TYPE_CHECKING:
    from filelock import FileLock

__all__ = [
    "atomic_path",
    "atomic_write",
    "discard",
    "explain_os_error",
    "held",
    "is_ordinary",
    "load_sealed",
    "locked",
    "remove_sealed",
    "save_sealed",
    "sweep",
]

_Loaded = TypeVar("_Loaded")

_UNWRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM}
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""Of file systems that have no locks, such as NFS without its daemon of locks."""
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
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise OSError(errno.EINVAL, "it is a device or a pipe, not a regular file")
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


_UNLOCKED = (
    "the cache is on a file system without locks: do not start the same command twice at the same "
    "time, or set FSF_CACHE to a folder on a local disk"
)


@contextmanager
def locked(folder: Path, *, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Lock a folder against other processes, which wait until it is released.

    A folder that this process may only read is not locked, nor is one on a file system without
    locks, of which a warning tells: a lock file in its place would outlive a process that is killed
    on another machine.

    Args:
        waiting: called once if another process holds the lock.
    """
    from filelock import FileLock

    lock = FileLock(folder / "lock")
    while not lock.is_locked:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _acquire(lock, waiting)
        except (OSError, NotImplementedError) as error:  # the latter of older filelocks
            if isinstance(error, NotImplementedError) or error.errno in _NO_LOCKS:
                warnings.warn(_UNLOCKED, FsfWarning, stacklevel=3)
                break
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


def save_sealed(path: Path, save: Callable[[Path], None]) -> None:
    """Write a cached file and its digest.

    Args:
        path: of the file, which is replaced.
        save: writes the file at the path that it is given.

    Raises:
        FsfError: the file cannot be written.
    """
    for place in (path, _digest_file(path)):
        if os.path.lexists(place) and not is_ordinary(place):
            discard(place)
    with atomic_path(path) as temporary:
        save(temporary)
        digests = [_digest(temporary, path), *_known_digests(path)[:1]]
        atomic_write(_digest_file(path), "\n".join(digests))


def load_sealed(
    path: Path, load: Callable[[Path], _Loaded], note: Callable[[str], None]
) -> _Loaded | None:
    """Return what ``load`` reads from a cached file, or ``None`` if it must be made again.

    Args:
        note: is told if the file is damaged.
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
        note(f"{path}: this cached file is damaged and is made again ({reason})")
        return None


def remove_sealed(path: Path) -> None:
    """Remove a cached file, if it exists, and its digest.

    Raises:
        FsfError: the file system does not allow it.
    """
    for one in (path, _digest_file(path)):
        try:
            discard(one)
        except OSError as error:
            raise explain_os_error(error, one) from error


def _digest_file(path: Path) -> Path:
    """Return the path of the digest of a cached file."""
    return path.with_suffix(".digest")


def held(
    folder: Path, note: Callable[[str], None], waiting: Callable[[], None] | None = None
) -> AbstractContextManager[None]:
    """Lock the folder of a cached stage; see ``locked``. Anything else in its place is removed."""
    if os.path.lexists(folder) and not folder.is_dir():
        note(f"{folder}: not a folder; what is cached here is made again")
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
    own = _digest_file(path)
    return own.read_bytes().decode("ascii", "replace").split() if is_ordinary(own) else []


def _digest(path: Path, called: Path) -> str:
    """Return the digest of a file; ``called`` is its path when in place."""
    state = xxhash.xxh3_128(f"{called.parent.name}/{called.name}\n".encode())
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: state).hexdigest()
