"""Few-shot methods that adapt to a task by gradient steps."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_gradient_methods._anil import ANIL
    from fsf_gradient_methods._boil import BOIL
    from fsf_gradient_methods._leo import LEO
    from fsf_gradient_methods._maml import MAML
    from fsf_gradient_methods._mtl import MTL

__all__ = ["ANIL", "BOIL", "LEO", "MAML", "MTL"]

__version__ = "0.1.0"

_HOME = {
    "ANIL": "_anil",
    "BOIL": "_boil",
    "LEO": "_leo",
    "MAML": "_maml",
    "MTL": "_mtl",
}
"""The module that defines each name; asking for one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
