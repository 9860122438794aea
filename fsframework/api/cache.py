"""The cache between runs: its size, and its removal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsframework.errors import OptionError, argument, close_matches
from fsframework.pipeline.cache.contents import STAGES, CacheItem, cache_items, remove_item
from fsframework.pipeline.cache.workspace import Workspace

__all__ = ["STAGES", "CacheSize", "CleanedCache", "cache_size", "clean_cache"]

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
    return _size(cache, STAGES, list(cache_items(cache)))


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
    chosen = [
        item
        for item in cache_items(cache, tuple(dict.fromkeys(stages)))
        if not older_than or item.changed <= latest
    ]
    if dry_run:
        return CleanedCache(_size(cache, stages, chosen))
    gone, in_use = [], []
    for item in chosen:
        if remove_item(item, cache):
            gone.append(item)
        else:
            in_use.append(item.path)
    return CleanedCache(_size(cache, stages, gone), tuple(in_use))


def _cache(cache_dir: str | Path | None) -> Path:
    return Workspace.default(None, None if cache_dir is None else Path(cache_dir)).cache


def _size(cache: Path, stages: Sequence[str], items: Sequence[CacheItem]) -> CacheSize:
    found = {}
    for stage in dict.fromkeys(stages):
        mine = [item.bytes for item in items if item.stage == stage]
        found[stage] = (len(mine), sum(mine))
    return CacheSize(cache, found)
