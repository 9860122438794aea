"""Few-shot methods that put the images of a task into a graph or learn from its queries."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_transductive_methods._gnn import GNN
    from fsf_transductive_methods._sib import SIB
    from fsf_transductive_methods._tpn import TPN

__all__ = ["GNN", "SIB", "TPN"]

__version__ = "0.1.0"

_HOME = {"GNN": "_gnn", "SIB": "_sib", "TPN": "_tpn"}
"""The module that defines each name; asking for one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
