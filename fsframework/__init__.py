"""Measure how much few-shot image classifiers lean on spurious attributes.

The public Python API: ``fsf.run``, ``fsf.dataset``, ``fsf.pool``, ``fsf.draw``, ``fsf.evaluate``,
``fsf.estimate``, ``fsf.compare``, ``fsf.runs``, and the values they give and take. A name is
imported when it is first used, so that ``import fsframework`` costs next to nothing.
"""

from __future__ import annotations

__version__ = "0.1.0"

import os
from types import FunctionType
from typing import Any

from fsframework._lazy import lazily

# Threads that spin for long while waiting slow each other down two to four times on a shared
# machine; without any spinning, small tasks take twice as long. This must be set before torch is
# imported; the user's own choice takes precedence.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
# Tensors on huge pages, where the system has them, save a tenth of a training step on a CPU.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

__all__, _find = lazily(
    __name__,
    {
        ".api.data": ("attributes", "dataset", "draw", "pool"),
        ".api.experiments": ("Description", "describe"),
        ".api.models": ("Model", "evaluate", "model"),
        ".api.running": ("Run", "Runs", "load_run", "run", "runs"),
        "fsf_statistics.comparing": ("Comparison", "compare"),
        "fsf_statistics.estimating": ("estimate",),
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
