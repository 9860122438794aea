"""Few-shot methods that compare queries with the support in a learned metric space."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsf_methods._lazy import lazily

if TYPE_CHECKING:
    from fsf_methods.metric._can import CAN
    from fsf_methods.metric._dn4 import DN4
    from fsf_methods.metric._matchingnet import MatchingNet
    from fsf_methods.metric._protonet import ProtoNet
    from fsf_methods.metric._r2d2 import R2D2
    from fsf_methods.metric._relationnet import RelationNet
    from fsf_methods.metric._renet import RENet
    from fsf_methods.metric._versa import Versa

__all__ = ["CAN", "DN4", "R2D2", "MatchingNet", "ProtoNet", "RENet", "RelationNet", "Versa"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "CAN": "_can",
        "DN4": "_dn4",
        "R2D2": "_r2d2",
        "MatchingNet": "_matchingnet",
        "ProtoNet": "_protonet",
        "RENet": "_renet",
        "RelationNet": "_relationnet",
        "Versa": "_versa",
    },
)
