"""Methods that train another method so that it works in other domains."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_cross_domain._ata import ATA
    from fsf_cross_domain._ft import FT
    from fsf_cross_domain._lrp import LRP

__all__ = ["ATA", "FT", "LRP"]

__version__ = "0.1.0"

_HOME = {"ATA": "_ata", "FT": "_ft", "LRP": "_lrp"}
"""The module that defines each name; asking for one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
