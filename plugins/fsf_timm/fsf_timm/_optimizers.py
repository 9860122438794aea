"""Optimisers of timm, for ``training.optimizer``."""

from __future__ import annotations

import importlib

from fsf_timm._library import load_timm

__all__ = ["Lars"]

load_timm()

Lars = importlib.import_module("timm.optim").Lars
"""Layer-wise adaptive rates (You, Gitman and Ginsburg 2017); the rate of a parameter with a weight
decay is 0.001 times its length over that of its gradient."""
