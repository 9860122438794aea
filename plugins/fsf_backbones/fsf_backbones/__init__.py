"""Backbones of the few-shot literature, randomly initialised."""

from __future__ import annotations

from fsf_backbones._conv64f import Conv32F, Conv64F
from fsf_backbones._resnet12 import ResNet12
from fsf_backbones._resnets import ResNet10, ResNet18, ResNet50
from fsf_backbones._wide_resnet import WideResNet

__all__ = ["Conv32F", "Conv64F", "ResNet10", "ResNet12", "ResNet18", "ResNet50", "WideResNet"]

__version__ = "0.1.0"
