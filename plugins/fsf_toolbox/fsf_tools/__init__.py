"""Commands on data, words of images and the cache, beyond those that a run needs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_tools.attributes.agreement import agreement
    from fsf_tools.attributes.extraction import extract_words
    from fsf_tools.attributes.pages import PageChoice, attribute_page
    from fsf_tools.attributes.simulated_errors import effect_of_errors
    from fsf_tools.attributes.statistics import attribute_statistics
    from fsf_tools.attributes.task_pictures import task_picture
    from fsf_tools.attributes.truth import detection_errors
    from fsf_tools.cached import cache_size, clean_cache
    from fsf_tools.collecting import add_results
    from fsf_tools.data.adding import add_dataset, remove_dataset
    from fsf_tools.data.catalogue import datasets
    from fsf_tools.data.checking import check_dataset, check_words
    from fsf_tools.data.embedding import embed_images
    from fsf_tools.data.packing import pack_images
    from fsf_tools.fewstab import fewstab_attributes, fewstab_tasks
    from fsf_tools.installed import check_plugins, describe_plugin, installed_plugins
    from fsf_tools.publishing import publish_model, publish_tasks
    from fsf_tools.repeating import repeat_run
    from fsf_tools.runs import remove_run
    from fsf_tools.sweeps import sweep_status
    from fsf_tools.task_lines import export_jsonl, import_tasks

__all__ = [
    "PageChoice",
    "add_dataset",
    "add_results",
    "agreement",
    "attribute_page",
    "attribute_statistics",
    "cache_size",
    "check_dataset",
    "check_plugins",
    "check_words",
    "clean_cache",
    "datasets",
    "describe_plugin",
    "detection_errors",
    "effect_of_errors",
    "embed_images",
    "export_jsonl",
    "extract_words",
    "fewstab_attributes",
    "fewstab_tasks",
    "import_tasks",
    "installed_plugins",
    "pack_images",
    "publish_model",
    "publish_tasks",
    "remove_dataset",
    "remove_run",
    "repeat_run",
    "sweep_status",
    "task_picture",
]

__version__ = "0.1.0"

_HOME = {
    "PageChoice": "attributes.pages",
    "add_dataset": "data.adding",
    "add_results": "collecting",
    "agreement": "attributes.agreement",
    "attribute_page": "attributes.pages",
    "attribute_statistics": "attributes.statistics",
    "cache_size": "cached",
    "check_dataset": "data.checking",
    "check_plugins": "installed",
    "check_words": "data.checking",
    "clean_cache": "cached",
    "datasets": "data.catalogue",
    "describe_plugin": "installed",
    "detection_errors": "attributes.truth",
    "effect_of_errors": "attributes.simulated_errors",
    "embed_images": "data.embedding",
    "export_jsonl": "task_lines",
    "extract_words": "attributes.extraction",
    "fewstab_attributes": "fewstab",
    "fewstab_tasks": "fewstab",
    "import_tasks": "task_lines",
    "installed_plugins": "installed",
    "pack_images": "data.packing",
    "publish_model": "publishing",
    "publish_tasks": "publishing",
    "remove_dataset": "data.adding",
    "remove_run": "runs",
    "repeat_run": "repeating",
    "sweep_status": "sweeps",
    "task_picture": "attributes.task_pictures",
}
"""The module that defines each name; asking for one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
