"""Packages whose names are imported when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["lazily"]


def lazily(
    package: str, homes: Mapping[str, Iterable[str]]
) -> tuple[list[str], Callable[[str], Any]]:
    """Return the public names of a package, sorted, and what imports one.

    Type checkers do not see these; they read the ``__init__.pyi`` of the package.

    Args:
        package: its full name.
        homes: names by the module of fsframework that defines them.
    """
    home = {name: module for module, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"fsframework.{home[name]}"), name)

    return sorted(home), find
