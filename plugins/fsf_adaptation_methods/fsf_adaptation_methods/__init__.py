"""Few-shot methods that adapt to a task at test time."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_adaptation_methods._cdkt import CDKT
    from fsf_adaptation_methods._deta import DETA
    from fsf_adaptation_methods._putm import PUTM
    from fsf_adaptation_methods._tsa import TSA
    from fsf_adaptation_methods._yang import ContrastiveCentroids

__all__ = ["CDKT", "DETA", "PUTM", "TSA", "ContrastiveCentroids"]

__version__ = "0.1.0"

_HOME = {
    "CDKT": "_cdkt",
    "ContrastiveCentroids": "_yang",
    "PUTM": "_putm",
    "DETA": "_deta",
    "TSA": "_tsa",
}
"""The module that defines each name; asking for one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
