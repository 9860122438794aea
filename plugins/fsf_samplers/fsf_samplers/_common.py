"""What every sampler of this package does before and after drawing."""

from __future__ import annotations

import inspect
from typing import Any

from fsframework.interfaces import InfeasibleTask, OptionError, TaskSampler
from fsframework.values import ImagePool

__all__ = ["check_request", "resolved_options"]


def resolved_options(sampler: TaskSampler) -> dict[str, Any]:
    """Return the value of each constructor parameter, by its name."""
    return {name: getattr(sampler, name) for name in inspect.signature(type(sampler)).parameters}


def check_request(
    sampler: TaskSampler, name: str, pool: ImagePool, n_tasks: int | None, seed: int
) -> int:
    """Return the number of tasks, after the checks that no sampler without an end can skip.

    Raises:
        OptionError: ``n_tasks`` is ``None`` or below 1, or ``seed`` is negative.
        InfeasibleTask: the pool has fewer classes than a task.
    """
    if n_tasks is None:
        raise OptionError(f"n_tasks must be a number, not None: {name!r} draws without an end")
    if n_tasks < 1:
        raise OptionError(f"n_tasks must be at least 1, not {n_tasks}")
    if seed < 0:
        raise OptionError(f"seed must be at least 0, not {seed}")
    n_classes = len(pool.class_names)
    if sampler.n_way > n_classes:
        raise InfeasibleTask(
            f"n_way must be at most the number of classes, {n_classes}, not {sampler.n_way}"
        )
    return n_tasks
