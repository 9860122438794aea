"""Backbones of the few-shot literature, randomly initialised."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_backbones._conv64f import Conv32F, Conv64F, Conv64FUnpadded
    from fsf_backbones._conv_r2d2 import ConvR2D2
    from fsf_backbones._resnet12 import ResNet12
    from fsf_backbones._resnets import ResNet10, ResNet18, ResNet50
    from fsf_backbones._wide_resnet import WideResNet

__all__ = [
    "Conv32F",
    "Conv64F",
    "Conv64FUnpadded",
    "ConvR2D2",
    "ResNet10",
    "ResNet12",
    "ResNet18",
    "ResNet50",
    "WideResNet",
]

__version__ = "0.1.0"

_HOME = {
    "Conv32F": "_conv64f",
    "Conv64F": "_conv64f",
    "Conv64FUnpadded": "_conv64f",
    "ConvR2D2": "_conv_r2d2",
    "ResNet10": "_resnets",
    "ResNet12": "_resnet12",
    "ResNet18": "_resnets",
    "ResNet50": "_resnets",
    "WideResNet": "_wide_resnet",
}
"""The module that defines each name; using one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
