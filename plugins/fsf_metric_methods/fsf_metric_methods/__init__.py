"""Few-shot methods that compare queries with the support in a learned metric space."""

from __future__ import annotations

from fsf_metric_methods._protonet import ProtoNet
from fsf_metric_methods._renet import RENet

__all__ = ["ProtoNet", "RENet"]

__version__ = "0.1.0"
