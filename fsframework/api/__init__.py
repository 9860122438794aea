"""The public Python API: a researcher's script, a notebook, every command use this.

``import fsframework as fsf`` gives all of it; nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsframework.api.checkpoints import Checkpoint, read_checkpoint
    from fsframework.api.data import dataset, draw, pool
    from fsframework.api.experiments import Description, describe
    from fsframework.api.models import Model, evaluate, method
    from fsframework.api.results import estimate
    from fsframework.api.running import Run, Runs, load_run, run, runs

__all__ = [
    "Checkpoint",
    "Description",
    "Model",
    "Run",
    "Runs",
    "dataset",
    "describe",
    "draw",
    "estimate",
    "evaluate",
    "load_run",
    "method",
    "pool",
    "read_checkpoint",
    "run",
    "runs",
]

_HOME = {
    "Checkpoint": "checkpoints",
    "Description": "experiments",
    "Model": "models",
    "Run": "running",
    "Runs": "running",
    "dataset": "data",
    "describe": "experiments",
    "draw": "data",
    "estimate": "results",
    "evaluate": "models",
    "load_run": "running",
    "method": "models",
    "pool": "data",
    "read_checkpoint": "checkpoints",
    "run": "running",
    "runs": "running",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
