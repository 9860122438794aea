"""The launcher for Ray: workers on the nodes of a Ray cluster."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_ray._launcher import RayLauncher

__all__ = ["RayLauncher"]

__version__ = "0.1.0"

_HOME = {
    "RayLauncher": "_launcher",
}
"""The module that defines each name; using one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
