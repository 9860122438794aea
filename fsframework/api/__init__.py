"""The public Python API, used by scripts, notebooks and every command.

``import fsframework as fsf`` exports the most common part; command plugins import the rest from
here. Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsframework.api.accuracies import import_accuracies
    from fsframework.api.cache import cache_size, clean_cache
    from fsframework.api.catalogue import add_dataset, datasets, remove_dataset
    from fsframework.api.checkpoints import Checkpoint, read_checkpoint
    from fsframework.api.data import dataset, draw, pool
    from fsframework.api.experiments import Description, describe, described
    from fsframework.api.models import Model, evaluate, method
    from fsframework.api.opened import (
        Extracted,
        OpenedImages,
        draw_tasks,
        extract_words,
        open_images,
        open_tasks,
    )
    from fsframework.api.results import Comparison, compare, estimate
    from fsframework.api.running import Run, Runs, load_run, run, runs
    from fsframework.api.words import attributes, images_with_class_words, names_class

__all__ = [
    "Checkpoint",
    "Comparison",
    "Description",
    "Extracted",
    "Model",
    "OpenedImages",
    "Run",
    "Runs",
    "add_dataset",
    "attributes",
    "cache_size",
    "clean_cache",
    "compare",
    "dataset",
    "datasets",
    "describe",
    "described",
    "draw",
    "draw_tasks",
    "estimate",
    "evaluate",
    "extract_words",
    "images_with_class_words",
    "import_accuracies",
    "load_run",
    "method",
    "names_class",
    "open_images",
    "open_tasks",
    "pool",
    "read_checkpoint",
    "remove_dataset",
    "run",
    "runs",
]

_HOME = {
    "Checkpoint": "checkpoints",
    "Comparison": "results",
    "Description": "experiments",
    "Extracted": "opened",
    "Model": "models",
    "OpenedImages": "opened",
    "Run": "running",
    "Runs": "running",
    "add_dataset": "catalogue",
    "attributes": "words",
    "cache_size": "cache",
    "clean_cache": "cache",
    "compare": "results",
    "dataset": "data",
    "datasets": "catalogue",
    "describe": "experiments",
    "described": "experiments",
    "draw": "data",
    "draw_tasks": "opened",
    "estimate": "results",
    "evaluate": "models",
    "extract_words": "opened",
    "images_with_class_words": "words",
    "import_accuracies": "accuracies",
    "load_run": "running",
    "method": "models",
    "names_class": "words",
    "open_images": "opened",
    "open_tasks": "opened",
    "pool": "data",
    "read_checkpoint": "checkpoints",
    "remove_dataset": "catalogue",
    "run": "running",
    "runs": "running",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
