"""Atomic writes and locks of files, and bounded parsing of what they contain."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from fsframework.errors import FsfError

__all__ = [
    "atomic_path",
    "atomic_write",
    "explain_os_error",
    "locked",
    "parse_json",
    "parse_toml",
]

_MOST_LEVELS = 64
"""How deep parsed values may be nested; real ones reach ten."""


def parse_json(text: str | bytes) -> Any:
    """Parse JSON whose values are not nested too deep for those who walk through them.

    Raises:
        ValueError: it is not JSON, or is nested too deep; the message says where or how deep.

    >>> parse_json("[" * 1000 + "]" * 1000)
    Traceback (most recent call last):
        ...
    ValueError: values are nested more than 64 levels deep
    """
    return _bounded(json.loads, text)


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML whose values are not nested too deep for those who walk through them.

    Raises:
        ValueError: it is not TOML, or is nested too deep; the message says where or how deep.
    """
    parsed: dict[str, Any] = _bounded(tomllib.loads, text)
    return parsed


def _bounded(parse: Callable[[Any], Any], text: str | bytes) -> Any:
    try:
        parsed = parse(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    level = [one for one in (parsed,) if isinstance(one, (dict, list))]
    for _ in range(_MOST_LEVELS + 1):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [value for values in inner for value in values if isinstance(value, (dict, list))]
        if not level:
            return parsed
    raise ValueError(_TOO_DEEP)


_TOO_DEEP = f"values are nested more than {_MOST_LEVELS} levels deep"


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
    """Lock a folder against other processes, which wait until it is released.

    Args:
        shared: allow other shared locks at the same time.
        waiting: called once if another process holds the lock.
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
