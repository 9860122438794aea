"""Few-shot methods that treat the images of a task as sets and transform them together."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_set_methods._dsn import DSN
    from fsf_set_methods._feat import FEAT
    from fsf_set_methods._fgfl import FGFL

__all__ = ["DSN", "FEAT", "FGFL"]

__version__ = "0.1.0"

_HOME = {
    "DSN": "_dsn",
    "FEAT": "_feat",
    "FGFL": "_fgfl",
}
"""The module that defines each name; asking for one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
