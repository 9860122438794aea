"""Few-shot methods that train on all base classes together and fit a classifier per task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsf_methods._lazy import lazily

if TYPE_CHECKING:
    from fsf_methods.transfer._baseline import Baseline, BaselinePlusPlus
    from fsf_methods.transfer._calibration import DistributionCalibration
    from fsf_methods.transfer._centroids import NCC
    from fsf_methods.transfer._finetune import FineTune
    from fsf_methods.transfer._logistic import RFS, Logistic
    from fsf_methods.transfer._lpftfb import LPFTFB
    from fsf_methods.transfer._negcosine import NegCosine
    from fsf_methods.transfer._pretrained import KNN, Cosine, Linear
    from fsf_methods.transfer._skd import SKD

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

__getattr__, __dir__ = lazily(
    __name__,
    {
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
    },
)
