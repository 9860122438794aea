"""Measure how much few-shot image classifiers lean on spurious attributes.

The public Python API: ``fsf.run``, ``fsf.dataset``, ``fsf.pool``, ``fsf.draw``, ``fsf.evaluate``,
``fsf.estimate``, ``fsf.compare``, ``fsf.runs``, and the values they give and take. A name is
imported when it is first used, so that ``import fsframework`` costs next to nothing.
"""

from __future__ import annotations

__version__ = "0.1.0"

import importlib
from types import FunctionType
from typing import Any

_HOMES = {
    "api.data": ("dataset", "draw", "pool"),
    "api.experiments": ("Description", "describe"),
    "api.models": ("Model", "evaluate", "model"),
    "api.results": ("Comparison", "compare", "estimate"),
    "api.running": ("Run", "Runs", "load_run", "run", "runs"),
    "api.sweeping": ("sweep",),
    "api.words": ("attributes",),
    "values.arms": ("ArmOutcomes", "Arms"),
    "values.attributes": ("AttributeTable",),
    "values.estimate": ("Estimate", "Estimates"),
    "values.outcomes": ("Outcomes",),
    "values.pool": ("ImagePool",),
    "values.tasks": ("TaskSet",),
}
"""Public names by the module that each is imported from; type checkers read ``__init__.pyi``."""

_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    if isinstance(found, FunctionType):
        from fsframework._calls import contained

        found = contained()(found)
        found.__module__ = __name__  # where pickle finds it
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
