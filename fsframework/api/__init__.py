"""The public Python API: a researcher's script, a notebook, every command use this.

``import fsframework as fsf`` gives all of it; nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsframework.api.accuracies import import_accuracies
    from fsframework.api.data import dataset, draw, pool
    from fsframework.api.experiments import Description, describe
    from fsframework.api.models import Model, evaluate, method
    from fsframework.api.results import Comparison, compare, estimate
    from fsframework.api.runs import Run, Runs, load_run, run, runs

__all__ = [
    "Comparison",
    "Description",
    "Model",
    "Run",
    "Runs",
    "compare",
    "dataset",
    "describe",
    "draw",
    "estimate",
    "evaluate",
    "import_accuracies",
    "load_run",
    "method",
    "pool",
    "run",
    "runs",
]

_HOME = {
    "Comparison": "results",
    "Description": "experiments",
    "Model": "models",
    "Run": "runs",
    "Runs": "runs",
    "compare": "results",
    "dataset": "data",
    "describe": "experiments",
    "draw": "data",
    "estimate": "results",
    "evaluate": "models",
    "import_accuracies": "accuracies",
    "load_run": "runs",
    "method": "models",
    "pool": "data",
    "run": "runs",
    "runs": "runs",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
