"""Classifiers of LibFewShot that compare local descriptors, and their counterparts here."""

from __future__ import annotations

import math

from torch import Tensor

from fsf_importing.libfewshot._here import ClassifierHere, Tasks
from fsf_importing.libfewshot._names import affine, norm
from fsf_importing.libfewshot._section import Section

__all__ = ["adm", "atlnet", "covamnet", "deepbdc", "frn"]


def adm(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read an ADM; its BatchNorm is made for the ways of its training."""
    given = Section(kwargs, where, ("n_k",))
    names = norm("adm_layer.normLayer", "method.norm")
    names["adm_layer.fcLayer.weight"] = "method.weights"
    return ClassifierHere(
        "adm",
        "maps",
        {"n_way": tasks.way, "n_k": given.whole("n_k", 3, least=1)},
        names,
        shaped={"method.weights": _pair},
    )


def _pair(weight: Tensor) -> Tensor:
    """Return a kernel of two taps as two numbers."""
    return weight.flatten() if weight.shape == (1, 1, 2) else weight


def atlnet(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read an ATL-Net."""
    keys = ("atten_scale_value", "feat_dim", "from_value", "scale_value", "value_interval")
    given = Section(kwargs, where, keys)
    options = {
        "scale": given.number("scale_value", 30),
        "attention_scale": given.number("atten_scale_value", 50),
        "least_threshold": given.number("from_value", 0.5),
        "threshold_range": given.number("value_interval", 0.3),
    }
    names = {"atlLayer.W.0.weight": "method.project.weight"}
    names |= norm("atlLayer.W.1", "method.norm")
    names |= affine("atlLayer.attenLayer.f_psi.0", "method.hide")
    names |= affine("atlLayer.attenLayer.f_psi.2", "method.threshold")
    return ClassifierHere("atlnet", "maps", options, names)


def covamnet(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read a ConvMNet, LibFewShot's name of CovaMNet."""
    Section(kwargs, where, ("n_local",))
    return ClassifierHere(
        "covamnet",
        "maps",
        {"divisor": "locations"},
        affine("convm_layer.conv1dLayer.2", "method.weigh"),
        shaped={"method.weigh.weight": _row},
        check_options={"dropout": 0.0},
    )


def _row(weight: Tensor) -> Tensor:
    """Return a kernel of one channel as a row."""
    return weight[0] if weight.ndim == 3 and weight.shape[:2] == (1, 1) else weight


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
