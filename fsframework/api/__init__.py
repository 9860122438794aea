"""The public Python API: a researcher's script, a notebook, every command use this.

``import fsframework as fsf`` gives all of it; nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsframework.api.cache import cache_size, clean_cache
    from fsframework.api.catalogue import add_dataset, datasets, remove_dataset
    from fsframework.api.data import dataset, draw, pool, read_attributes
    from fsframework.api.experiments import Description, describe
    from fsframework.api.models import Model, evaluate, method
    from fsframework.api.results import estimate
    from fsframework.api.runs import Run, Runs, load_run, run, runs

__all__ = [
    "Description",
    "Model",
    "Run",
    "Runs",
    "add_dataset",
    "cache_size",
    "clean_cache",
    "dataset",
    "datasets",
    "describe",
    "draw",
    "estimate",
    "evaluate",
    "load_run",
    "method",
    "pool",
    "read_attributes",
    "remove_dataset",
    "run",
    "runs",
]

_HOME = {
    "Description": "experiments",
    "Model": "models",
    "Run": "runs",
    "Runs": "runs",
    "add_dataset": "catalogue",
    "cache_size": "cache",
    "clean_cache": "cache",
    "dataset": "data",
    "datasets": "catalogue",
    "describe": "experiments",
    "draw": "data",
    "estimate": "results",
    "evaluate": "models",
    "load_run": "runs",
    "method": "models",
    "pool": "data",
    "read_attributes": "data",
    "remove_dataset": "catalogue",
    "run": "runs",
    "runs": "runs",
}


def public(name: str) -> Any:
    """Return a public name from its module, even where a module here has the same name."""
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return public(name)


def __dir__() -> list[str]:
    return list(__all__)
