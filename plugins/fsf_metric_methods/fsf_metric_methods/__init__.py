"""Few-shot methods that compare queries with the support in a learned metric space."""

from __future__ import annotations

from fsf_metric_methods._can import CAN
from fsf_metric_methods._dn4 import DN4
from fsf_metric_methods._matchingnet import MatchingNet
from fsf_metric_methods._protonet import ProtoNet
from fsf_metric_methods._r2d2 import R2D2
from fsf_metric_methods._relationnet import RelationNet
from fsf_metric_methods._renet import RENet

__all__ = ["CAN", "DN4", "R2D2", "MatchingNet", "ProtoNet", "RENet", "RelationNet"]

__version__ = "0.1.0"
