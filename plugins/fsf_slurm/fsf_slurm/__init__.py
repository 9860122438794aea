"""Workers as an array of jobs on a Slurm cluster."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_slurm._launcher import SlurmLauncher

__all__ = ["SlurmLauncher"]

__version__ = "0.1.0"

_HOME = {"SlurmLauncher": "_launcher"}
"""The module that defines each name; a job imports only what it runs."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
