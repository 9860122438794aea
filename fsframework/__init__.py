"""Measure how much few-shot image classifiers lean on spurious attributes.

The public Python API: ``fsf.run``, ``fsf.dataset``, ``fsf.pool``, ``fsf.draw``, ``fsf.evaluate``,
``fsf.estimate``, ``fsf.compare``, ``fsf.runs``, and the values they give and take. A name is
imported when it is first used, so that ``import fsframework`` costs next to nothing.
"""

from __future__ import annotations

__version__ = "0.1.0"

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsframework.api import (
        Comparison,
        Description,
        Model,
        Run,
        Runs,
        compare,
        dataset,
        describe,
        draw,
        estimate,
        evaluate,
        import_accuracies,
        load_run,
        method,
        pool,
        run,
        runs,
    )
    from fsframework.values import (
        ArmOutcomes,
        Arms,
        AttributeTable,
        Estimate,
        Estimates,
        ImagePool,
        Outcomes,
        TaskSet,
    )

_API = (
    *("Comparison", "Description", "Model", "Run", "Runs", "compare", "dataset", "describe"),
    *(
        "draw",
        "estimate",
        "evaluate",
        "import_accuracies",
        "load_run",
        "method",
        "pool",
        "run",
        "runs",
    ),
)
_VALUES = (
    *("ArmOutcomes", "Arms", "AttributeTable", "Estimate", "Estimates", "ImagePool", "Outcomes"),
    "TaskSet",
)

__all__ = [
    "ArmOutcomes",
    "Arms",
    "AttributeTable",
    "Comparison",
    "Description",
    "Estimate",
    "Estimates",
    "ImagePool",
    "Model",
    "Outcomes",
    "Run",
    "Runs",
    "TaskSet",
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


def __getattr__(name: str) -> Any:
    if name in _API:
        return getattr(importlib.import_module("fsframework.api"), name)
    if name in _VALUES:
        return getattr(importlib.import_module("fsframework.values"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
