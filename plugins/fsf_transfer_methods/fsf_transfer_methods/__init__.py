"""Few-shot methods that train on all base classes at once and fit a classifier a task."""

from __future__ import annotations

from fsf_transfer_methods._baseline import Baseline, BaselinePlusPlus
from fsf_transfer_methods._centroids import NCC
from fsf_transfer_methods._finetune import FineTune
from fsf_transfer_methods._logistic import RFS, Logistic

__all__ = ["NCC", "RFS", "Baseline", "BaselinePlusPlus", "FineTune", "Logistic"]

__version__ = "0.1.0"
