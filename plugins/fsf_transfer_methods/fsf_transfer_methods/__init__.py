"""Few-shot methods that train on all base classes together and fit a classifier per task."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_transfer_methods._baseline import Baseline, BaselinePlusPlus
    from fsf_transfer_methods._calibration import DistributionCalibration
    from fsf_transfer_methods._centroids import NCC
    from fsf_transfer_methods._finetune import FineTune
    from fsf_transfer_methods._logistic import RFS, Logistic
    from fsf_transfer_methods._lpftfb import LPFTFB
    from fsf_transfer_methods._negcosine import NegCosine
    from fsf_transfer_methods._pretrained import KNN, Cosine, Linear
    from fsf_transfer_methods._skd import SKD

__all__ = [
    "KNN",
    "LPFTFB",
    "NCC",
    "RFS",
    "SKD",
    "Baseline",
    "BaselinePlusPlus",
    "Cosine",
    "DistributionCalibration",
    "FineTune",
    "Linear",
    "Logistic",
    "NegCosine",
]

__version__ = "0.1.0"

_HOME = {
    "KNN": "_pretrained",
    "LPFTFB": "_lpftfb",
    "NCC": "_centroids",
    "RFS": "_logistic",
    "SKD": "_skd",
    "Baseline": "_baseline",
    "BaselinePlusPlus": "_baseline",
    "Cosine": "_pretrained",
    "DistributionCalibration": "_calibration",
    "FineTune": "_finetune",
    "Linear": "_pretrained",
    "Logistic": "_logistic",
    "NegCosine": "_negcosine",
}
"""The module that defines each name; asking for one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
