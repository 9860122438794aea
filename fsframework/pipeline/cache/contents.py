"""The contents of the cache by stage, and how to remove them."""

from __future__ import annotations

import fcntl
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fsframework._files import explain_os_error
from fsframework.pipeline.cache.sealed import digest_file, remove_sealed

__all__ = ["STAGES", "CacheItem", "cache_items", "remove_item"]

STAGES = (
    *("images", "detections", "attributes", "features", "similarity", "tasks", "training"),
    *("outcomes", "shared"),
)
"""Folders of the cache whose contents runs share."""

_RUNNING = "running"
"""The folder with the locks of runs in progress."""
_READ_BY_RUNS = ("images", "features")
"""Stages that a run reads throughout, without a lock on each."""
_NAME = re.compile(r"[0-9a-f]{24}(\.[a-z]+)?")
_BLOCK = 512


@dataclass(frozen=True)
class CacheItem:
    """One cached file or folder of a stage.

    Args:
        stage: one of ``STAGES``.
        path: path of the file or folder.
        bytes: its size on disk.
        changed: when it was last written, in seconds since the epoch.
    """

    stage: str
    path: Path
    bytes: int
    changed: float


def cache_items(cache: Path, stages: Sequence[str] = STAGES) -> Iterator[CacheItem]:
    """Yield the items of some stages; other files in the same folders are skipped."""
    for stage in stages:
        folder = cache / stage
        found = sorted(folder.iterdir()) if folder.is_dir() else []
        for path in found:
            if _NAME.fullmatch(path.name) and not path.is_symlink() and path != digest_file(path):
                files = [path, *(path.rglob("*") if path.is_dir() else [digest_file(path)])]
                states = [file.lstat() for file in files if file.exists()]
                # Arrays are created at their full length, but take space only as they are filled.
                size = sum(one.st_blocks * _BLOCK for one in states)
                yield CacheItem(
                    stage, path, size, max((one.st_mtime for one in states), default=0.0)
                )


def remove_item(item: CacheItem, cache: Path) -> bool:
    """Remove an item unless a process uses it, without waiting.

    Returns:
        Whether it was removed.

    Raises:
        FsfError: the file system does not allow it.
    """
    if item.stage in _READ_BY_RUNS and _a_run_is_going_on(cache):
        return False
    try:
        if item.path.is_dir():
            with _held(item.path / "lock") as free:
                if free:
                    shutil.rmtree(item.path)
            return free
    except OSError as error:
        raise explain_os_error(error, item.path) from error
    remove_sealed(item.path)
    return True


def _a_run_is_going_on(cache: Path) -> bool:
    for lock in sorted((cache / _RUNNING).glob("*/lock")):
        with _held(lock) as free:
            if not free:
                return True
    return False


@contextmanager
def _held(lock: Path) -> Iterator[bool]:
    """Hold a lock within a block, and yield whether it was free."""
    if not lock.exists():
        yield True
        return
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
