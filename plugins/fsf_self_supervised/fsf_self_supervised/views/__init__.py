"""Makers of several views of an image, which self-supervision and pretext tasks learn from."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_self_supervised.views._grid import Jigsaw, Patches
    from fsf_self_supervised.views._pairs import MoCoV2, MultiCrop, SimCLR
    from fsf_self_supervised.views._product import Product
    from fsf_self_supervised.views._transformed import ColorPermutation, Rotation

__all__ = [
    "ColorPermutation",
    "Jigsaw",
    "MoCoV2",
    "MultiCrop",
    "Patches",
    "Product",
    "Rotation",
    "SimCLR",
]

_HOME = {
    "ColorPermutation": "_transformed",
    "Jigsaw": "_grid",
    "MoCoV2": "_pairs",
    "MultiCrop": "_pairs",
    "Patches": "_grid",
    "Product": "_product",
    "Rotation": "_transformed",
    "SimCLR": "_pairs",
}
"""The module that defines each name; asking for one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
