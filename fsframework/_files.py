"""Files that are written whole or not at all, and locks on folders."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fsframework.errors import FsfError

__all__ = ["atomic_path", "atomic_write", "explain_os_error", "locked"]


def explain_os_error(error: OSError, path: Path) -> FsfError:
    """Return an error that explains why the operating system refused to write ``path``."""
    if error.errno == errno.ENOSPC:
        return FsfError(f"cannot write {path}: no space left on the device; nothing was changed")
    reason = error.strerror or str(error)
    return FsfError(f"cannot write {path}: {reason}")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling of ``path`` that replaces it when the block succeeds.

    Raises:
        FsfError: the file system refused (full disk, no permission); ``path`` is untouched.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(handle)
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
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def atomic_write(path: Path, data: bytes | str) -> None:
    """Write ``data`` to ``path`` through a temporary file in the same folder."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


@contextmanager
def locked(
    folder: Path, *, shared: bool = False, waiting: Callable[[], None] | None = None
) -> Iterator[None]:
    """Lock a folder; other processes wait until the block ends.

    Args:
        shared: admit other processes that also ask for a shared lock.
        waiting: called once if there is another process to wait for.
    """
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / "lock").open("w")
        except FileNotFoundError as error:
            if folder.is_dir():
                raise explain_os_error(error, folder) from error
            continue  # another process removed the folder in between
        except OSError as error:
            raise explain_os_error(error, folder) from error
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


def _is_at(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
