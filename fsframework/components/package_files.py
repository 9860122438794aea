"""Data files that a package has next to its ``__init__.py``, found without importing it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from fsframework._calls import top_level

__all__ = ["package_file", "package_folders"]


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
    """Return the file called ``name`` beside the module of a target, or in the nearest package.

    Args:
        target: ``PACKAGE.MODULE:NAME``; its own folder is looked in first, its top-level package
            last.
    """
    inner = target.partition(":")[0].split(".")[1:]
    for folder in package_folders(top_level(target)) or ():
        for depth in range(len(inner), -1, -1):
            found = folder.joinpath(*inner[:depth], name)
            if found.is_file():
                return found
    return None
