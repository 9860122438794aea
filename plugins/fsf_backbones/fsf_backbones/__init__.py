"""Backbones of the few-shot literature, randomly initialised."""

from __future__ import annotations

from fsf_backbones._conv64f import Conv64F
from fsf_backbones._resnet12 import ResNet12

__all__ = ["Conv64F", "ResNet12"]

__version__ = "0.1.0"
