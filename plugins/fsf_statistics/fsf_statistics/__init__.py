"""Accuracy and worst-class accuracy of few-shot outcomes, as FewSTAB reports them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_statistics._accuracy import Accuracy
    from fsf_statistics._worst_class import WorstClassAccuracy

__all__ = ["Accuracy", "WorstClassAccuracy"]

__version__ = "0.1.0"

_HOME = {
    "Accuracy": "_accuracy",
    "WorstClassAccuracy": "_worst_class",
}
"""The module that defines each name; asking for one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
