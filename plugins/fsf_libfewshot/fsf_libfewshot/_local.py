"""Classifiers of LibFewShot that compare local descriptors, and their counterparts here."""

from __future__ import annotations

import math

from fsf_libfewshot._here import ClassifierHere, Tasks
from fsf_libfewshot._section import Section

__all__ = ["deepbdc", "frn"]


def deepbdc(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read a DeepBDC, whose keys and weights are those of its backbone, ``resnet12Bdc``."""
    Section(kwargs, where, ())
    return ClassifierHere("deepbdc", "maps")


def frn(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read an FRN; only the training divides descriptors, whatever their width."""
    Section(kwargs, where, ())
    options = {"divisor": 1.0, "loss_divisor": math.sqrt(640), "auxiliary_norm": "task"}
    names = {"frn_layer.scale": "method.scale", "frn_layer.r": "method.exponents"}
    return ClassifierHere("frn", "maps", options, names)
