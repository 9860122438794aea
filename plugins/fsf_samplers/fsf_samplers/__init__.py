"""Task samplers: uniform, without replacement, attribute-biased (FewSTAB), by context."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_samplers._context import ContextSampler
    from fsf_samplers._depleting import DepletingSampler
    from fsf_samplers._fewstab import FewStabSampler
    from fsf_samplers._published import FewStabPublishedSampler
    from fsf_samplers._random import RandomSampler

__all__ = [
    "ContextSampler",
    "DepletingSampler",
    "FewStabPublishedSampler",
    "FewStabSampler",
    "RandomSampler",
]

__version__ = "0.1.0"

_HOME = {
    "ContextSampler": "_context",
    "DepletingSampler": "_depleting",
    "FewStabPublishedSampler": "_published",
    "FewStabSampler": "_fewstab",
    "RandomSampler": "_random",
}
"""The module that defines each name; asking for one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
