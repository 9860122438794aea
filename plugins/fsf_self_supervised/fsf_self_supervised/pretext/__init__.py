"""Methods that train another method beside a pretext task: rotations, puzzles, permuted colours."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_self_supervised.pretext._bf3s import BF3S
    from fsf_self_supervised.pretext._hts import HTS
    from fsf_self_supervised.pretext._sla import SLA
    from fsf_self_supervised.pretext._ssfsl import SSFSL, SSFSLJigsaw

__all__ = ["BF3S", "HTS", "SLA", "SSFSL", "SSFSLJigsaw"]

_HOME = {
    "BF3S": "_bf3s",
    "HTS": "_hts",
    "SLA": "_sla",
    "SSFSL": "_ssfsl",
    "SSFSLJigsaw": "_ssfsl",
}
"""The module that defines each name; asking for one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
