"""Any image model of timm as a backbone, or as a detector of words; its LARS."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_timm._backbone import Timm
    from fsf_timm._classifier_words import ClassifierWords
    from fsf_timm._optimizers import Lars

__all__ = ["ClassifierWords", "Lars", "Timm"]

__version__ = "0.1.0"

_HOME = {
    "ClassifierWords": "_classifier_words",
    "Lars": "_optimizers",
    "Timm": "_backbone",
}
"""The module that defines each name; using one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
