"""Self-supervised learning: backbones trained without labels, from several views of an image."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_self_supervised.methods._beclr import BECLR
    from fsf_self_supervised.methods._moco import MoCo
    from fsf_self_supervised.methods._opta import OpTA
    from fsf_self_supervised.methods._psco import PsCo
    from fsf_self_supervised.methods._simclr import SimCLR
    from fsf_self_supervised.methods._unisiam import UniSiam

__all__ = ["BECLR", "MoCo", "OpTA", "PsCo", "SimCLR", "UniSiam"]

_HOME = {
    "BECLR": "_beclr",
    "MoCo": "_moco",
    "OpTA": "_opta",
    "PsCo": "_psco",
    "SimCLR": "_simclr",
    "UniSiam": "_unisiam",
}
"""The module that defines each name; asking for one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
