"""Measure how much few-shot image classifiers lean on spurious attributes.

The public Python API: ``fsf.run``, ``fsf.dataset``, ``fsf.pool``, ``fsf.draw``, ``fsf.evaluate``,
``fsf.estimate``, ``fsf.compare``, ``fsf.runs``, and the values they give and take. A name is
imported when it is first used, so that ``import fsframework`` costs next to nothing.
"""

from __future__ import annotations

__version__ = "0.1.0"

from types import FunctionType
from typing import Any

from fsframework._lazy import lazily

__all__, _find = lazily(
    __name__,
    {
        ".api.data": ("attributes", "dataset", "draw", "pool"),
        ".api.experiments": ("Description", "describe"),
        ".api.models": ("Model", "evaluate", "model"),
        ".api.results": ("Comparison", "compare", "estimate"),
        ".api.running": ("Run", "Runs", "load_run", "run", "runs"),
        "fsf_tools.sweeping": ("sweep",),
        ".values.arms": ("ArmOutcomes", "Arms"),
        ".values.attributes": ("AttributeTable",),
        ".values.estimate": ("Estimate", "Estimates"),
        ".values.outcomes": ("Outcomes",),
        ".values.pool": ("ImagePool",),
        ".values.tasks": ("TaskSet",),
    },
)


def __getattr__(name: str) -> Any:
    found = _find(name)
    if isinstance(found, FunctionType):
        from fsframework._calls import entered

        found = entered()(found)
        found.__module__ = __name__  # where pickle finds it
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
