"""A searcher for sweeps: samplers and pruners of Optuna."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_optuna._searcher import OptunaSearcher, study

__all__ = ["OptunaSearcher", "study"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}._searcher"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
