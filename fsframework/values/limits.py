"""Sizes against the memory and the disk space there are, before long work begins."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fsframework.errors import OptionError

__all__ = ["demand_disk", "demand_memory", "size_text"]

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_MEMORY_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Files in which Linux states the memory that a container may use."""


def size_text(n_bytes: float) -> str:
    """Return a size in the unit that shows it.

    >>> size_text(960), size_text(52_300_000), size_text(2.4e21)
    ('960 B', '52.3 MB', '2,400.0 EB')
    """
    power = 0
    while n_bytes >= 1000 and power < len(_UNITS) - 1:
        n_bytes, power = n_bytes / 1000, power + 1
    return f"{n_bytes:,.{1 if power else 0}f} {_UNITS[power]}"


def demand_memory(n_bytes: float, what: str, advice: str) -> None:
    """Check that memory is free for something.

    Args:
        n_bytes: a lower estimate of what is needed.
        what: that needs it, as the subject of a sentence, in the plural; ``advice`` what to do
            otherwise.

    Raises:
        OptionError: less memory is free.
    """
    free = _free_memory()
    if n_bytes > free:
        raise OptionError(
            f"{what} need at least {size_text(n_bytes)} of memory, and {size_text(free)} are free; "
            f"{advice}"
        )


def demand_disk(n_bytes: float, folder: Path, what: str, advice: str) -> None:
    """Check that the disk of a folder, which need not exist yet, has room for something.

    Args:
        n_bytes: a lower estimate of what is needed.
        folder: where it is written.
        what: as in ``demand_memory``; ``advice`` likewise.

    Raises:
        OptionError: less room is left.
    """
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if n_bytes > free:
        raise OptionError(
            f"{what} need at least {size_text(n_bytes)} of disk space, and {folder} has "
            f"{size_text(free)} left; {advice}"
        )


def _free_memory() -> int:
    """Return the memory that can be used without swapping, in bytes."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    lines = _text(Path("/proc/meminfo")).splitlines()
    found += [1024 * int(one.split()[1]) for one in lines if one.startswith("MemAvailable:")]
    found += [int(text) for path in _MEMORY_LIMITS if (text := _text(path).strip()).isdigit()]
    return min(found)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
