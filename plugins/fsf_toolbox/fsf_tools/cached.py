"""The cache between runs: its size, and its removal."""

from __future__ import annotations

import fcntl
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsframework.api.session import open_session
from fsframework.errors import FsfError, OptionError, argument, close_matches

__all__ = ["STAGES", "CacheSize", "CleanedCache", "cache_size", "clean_cache"]

STAGES = (
    *("images", "detections", "attributes", "features", "similarity", "tasks", "training"),
    *("outcomes", "shared", "plugins"),
)
"""Folders of the cache whose contents runs share."""

_RUNNING = "running"
"""The folder with the locks of runs in progress."""
_READ_BY_RUNS = ("images", "features")
"""Stages that a run reads throughout, without a lock on each."""
_NAME = re.compile(r"([0-9a-f]{24})(\..+)?")
"""A key, and a suffix for a file; a digest beside it has the same key."""
_BLOCK = 512
_DAY = 24 * 60 * 60


@dataclass(frozen=True)
class CacheSize:
    """What the cache holds.

    Args:
        folder: of the cache.
        stages: number of items and bytes on the disk, by stage.
    """

    folder: Path
    stages: dict[str, tuple[int, int]]

    @property
    def items(self) -> int:
        """Number of items of all stages."""
        return sum(items for items, _ in self.stages.values())

    @property
    def bytes(self) -> int:
        """Bytes on the disk of all stages."""
        return sum(size for _, size in self.stages.values())

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON values."""
        stages = {name: {"items": n, "bytes": size} for name, (n, size) in self.stages.items()}
        return {
            "folder": str(self.folder),
            "items": self.items,
            "bytes": self.bytes,
            "stages": stages,
        }


@dataclass(frozen=True)
class CleanedCache:
    """What was removed from the cache, or would be.

    Args:
        removed: number of items and bytes, by stage.
        in_use: paths of items that a running process uses, and that stay.
    """

    removed: CacheSize
    in_use: tuple[Path, ...] = ()


def cache_size(cache_dir: str | Path | None = None) -> CacheSize:
    """Return the size of what is cached between runs: images, features, trained weights and others.

    Args:
        cache_dir: by default ``FSF_CACHE``, else the user's cache folder.
    """
    cache = _cache(cache_dir)
    return _size(cache, STAGES, list(_items(cache, STAGES)))


def clean_cache(
    stages: Sequence[str] = STAGES,
    *,
    older_than: float = 0.0,
    dry_run: bool = False,
    cache_dir: str | Path | None = None,
) -> CleanedCache:
    """Remove what is cached between runs; runs stay, and compute again what they need.

    What a running process uses stays: items that it has locked, and images and features as long
    as any run is in progress.

    Args:
        stages: whose items are removed; by default those of all stages.
        older_than: days since an item was last written; younger ones stay.
        dry_run: remove nothing, and return what would be removed.
        cache_dir: by default ``FSF_CACHE``, else the user's cache folder.

    Raises:
        OptionError: a stage is unknown, or the number of days is negative.
        FsfError: the file system refuses.
    """
    for stage in stages:
        if stage not in STAGES:
            hint = close_matches(stage, STAGES)
            raise OptionError(f"unknown stage {stage!r}{hint}; the stages are {', '.join(STAGES)}")
    if not older_than >= 0:
        raise OptionError(f"{argument('older_than')} must be at least 0 days, not {older_than:g}")
    cache, latest = _cache(cache_dir), time.time() - older_than * _DAY
    # 0 days removes everything, also items dated in the future by the file system's clock.
    chosen = [item for item in _items(cache, stages) if not older_than or item.changed <= latest]
    if dry_run:
        return CleanedCache(_size(cache, stages, chosen))
    gone, in_use = [], []
    for item in chosen:
        if _remove(item, cache):
            gone.append(item)
        else:
            in_use.append(item.paths[0])
    return CleanedCache(_size(cache, stages, gone), tuple(in_use))


def _cache(cache_dir: str | Path | None) -> Path:
    return open_session(cache_dir=cache_dir, progress=False).workspace.cache


@dataclass(frozen=True)
class _Item:
    """What a stage has cached under one key.

    Args:
        paths: a folder, or a file and its digest.
        bytes: on the disk.
        changed: when it was last written, in seconds since the epoch.
    """

    stage: str
    paths: tuple[Path, ...]
    bytes: int
    changed: float


def _items(cache: Path, stages: Sequence[str]) -> Iterator[_Item]:
    """Yield the items of some stages; other files in the same folders are skipped."""
    for stage in dict.fromkeys(stages):
        found: dict[str, list[Path]] = defaultdict(list)
        for path in sorted((cache / stage).glob("*")):
            if (name := _NAME.fullmatch(path.name)) and not path.is_symlink():
                found[name[1]].append(path)
        for paths in found.values():
            files = [file for path in paths for file in (path, *path.rglob("*"))]
            states = [file.lstat() for file in files if file.exists()]
            # Arrays are created at their full length, but take space only as they are filled.
            size = sum(one.st_blocks * _BLOCK for one in states)
            changed = max((one.st_mtime for one in states), default=0.0)
            yield _Item(stage, tuple(paths), size, changed)


def _remove(item: _Item, cache: Path) -> bool:
    """Remove an item unless a process uses it, without waiting; return whether it was removed.

    Raises:
        FsfError: the file system does not allow it.
    """
    if item.stage in _READ_BY_RUNS:
        with ExitStack() as locks:
            if not all(_hold(lock, locks) for lock in cache.glob(f"{_RUNNING}/*/lock")):
                return False
    with ExitStack() as locks:
        if not all(_hold(path / "lock", locks) for path in item.paths):
            return False
        for path in item.paths:
            try:
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            except OSError as error:
                raise FsfError(f"{path}: cannot be removed ({error.strerror})") from error
    return True


def _hold(lock: Path, locks: ExitStack) -> bool:
    """Hold a lock until ``locks`` is left, and return whether it was free."""
    if not lock.exists():
        return True
    file = locks.enter_context(lock.open())
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _size(cache: Path, stages: Sequence[str], items: Sequence[_Item]) -> CacheSize:
    found = {}
    for stage in dict.fromkeys(stages):
        mine = [item.bytes for item in items if item.stage == stage]
        found[stage] = (len(mine), sum(mine))
    return CacheSize(cache, found)
