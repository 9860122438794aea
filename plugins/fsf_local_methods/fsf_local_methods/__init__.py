"""Few-shot methods that compare images by the local descriptors of their maps."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_local_methods._adm import ADM
    from fsf_local_methods._atlnet import ATLNet
    from fsf_local_methods._covamnet import CovaMNet
    from fsf_local_methods._cpea import CPEA
    from fsf_local_methods._deepbdc import DeepBDC, STLDeepBDC
    from fsf_local_methods._frn import FRN

__all__ = ["ADM", "CPEA", "FRN", "ATLNet", "CovaMNet", "DeepBDC", "STLDeepBDC"]

__version__ = "0.1.0"

_HOME = {
    "ADM": "_adm",
    "CPEA": "_cpea",
    "FRN": "_frn",
    "ATLNet": "_atlnet",
    "CovaMNet": "_covamnet",
    "DeepBDC": "_deepbdc",
    "STLDeepBDC": "_deepbdc",
}
"""The module that defines each name; asking for one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
