"""Few-shot methods that compare queries with the support in a learned metric space."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_metric_methods._can import CAN
    from fsf_metric_methods._dn4 import DN4
    from fsf_metric_methods._matchingnet import MatchingNet
    from fsf_metric_methods._protonet import ProtoNet
    from fsf_metric_methods._r2d2 import R2D2
    from fsf_metric_methods._relationnet import RelationNet
    from fsf_metric_methods._renet import RENet
    from fsf_metric_methods._versa import Versa

__all__ = ["CAN", "DN4", "R2D2", "MatchingNet", "ProtoNet", "RENet", "RelationNet", "Versa"]

__version__ = "0.1.0"

_HOME = {
    "CAN": "_can",
    "DN4": "_dn4",
    "R2D2": "_r2d2",
    "MatchingNet": "_matchingnet",
    "ProtoNet": "_protonet",
    "RENet": "_renet",
    "RelationNet": "_relationnet",
    "Versa": "_versa",
}
"""The module that defines each name; asking for one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
