"""Packages whose names are imported when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fsframework.errors import FsfError, install_hint

__all__ = ["lazily"]


def lazily(
    package: str, homes: Mapping[str, Iterable[str]]
) -> tuple[list[str], Callable[[str], Any]]:
    """Return the public names of a package, sorted, and what imports one.

    Type checkers do not see these; they read the ``__init__.pyi`` of the package.

    Args:
        package: its full name.
        homes: names by the module that defines them: of fsframework, if it begins with a dot.

    The function raises ``FsfError`` where the module's distribution is not installed.
    """
    home = {name: module for module, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(importlib.import_module(home[name], "fsframework"), name)
        except ModuleNotFoundError as error:
            if home[name].partition(".")[0] != error.name:
                raise
            wanted = {"fsf_tools": "fsf-toolbox"}.get(error.name, error.name.replace("_", "-"))
        raise FsfError(f"{package}.{name} is part of {wanted}: {install_hint(wanted)}")

    return sorted(home), find
