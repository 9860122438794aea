"""Classifiers of LibFewShot by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fsf_importing.libfewshot import _gradient, _local, _metric, _sets, _transfer
from fsf_importing.libfewshot._here import ClassifierHere, Tasks

__all__ = ["CLASSIFIERS"]

CLASSIFIERS: Mapping[str, Callable[[object, str, Tasks], ClassifierHere]] = {
    "ADM": _local.adm,
    "ANIL": _gradient.anil,
    "ATLNet": _local.atlnet,
    "BOIL": _gradient.boil,
    "Baseline": _transfer.baseline,
    "BaselinePlus": _transfer.baseline_plus,
    "CAN": _metric.can,
    "ConvMNet": _local.covamnet,
    "DN4": _metric.dn4,
    "DSN": _sets.dsn,
    "DeepBDC": _local.deepbdc,
    "FEAT": _sets.feat,
    "FRN": _local.frn,
    "GAINModel": _sets.fgfl,
    "LEO": _gradient.leo,
    "MAML": _gradient.maml,
    "MTL": _gradient.mtl,
    "NegNet": _transfer.neg_net,
    "ProtoNet": _metric.protonet,
    "R2D2": _metric.r2d2,
    "RENet": _metric.renet,
    "RFSModel": _transfer.rfs,
    "RelationNet": _metric.relation_net,
    "SKDModel": _transfer.skd,
    "VERSA": _metric.versa,
}
"""Functions of ``kwargs``, their location and the tasks that return the classifier here."""
