"""Data files that a package has next to an ``__init__.py``, found without importing it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

__all__ = ["package_file", "package_folders", "top_level"]


def top_level(target: str) -> str:
    """Return the top-level package of a target.

    >>> top_level("fsf_reports.figures:figure")
    'fsf_reports'
    """
    return target.partition(":")[0].partition(".")[0]


def package_folders(name: str) -> list[Path] | None:
    """Return the folders of a top-level package, importing nothing.

    Returns:
        Empty for a module that is a single file, ``None`` if no module has this name.
    """
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    return [Path(folder) for folder in spec.submodule_search_locations or ()]


def package_file(target: str, name: str) -> Path | None:
    """Return the file ``name`` nearest to the module of a target, without importing it.

    It is in the package that the target names, or in one that contains it.
    """
    top, *inner = target.partition(":")[0].split(".")
    for root in package_folders(top) or ():
        for depth in range(len(inner), -1, -1):
            path = root.joinpath(*inner[:depth], name)
            if path.is_file():
                return path
    return None
