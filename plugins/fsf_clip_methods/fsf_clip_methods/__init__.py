"""Few-shot methods that read the classes' names, over CLIP, SigLIP and other image-text models."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_clip_methods._adapter import CLIPAdapter
    from fsf_clip_methods._lp_plus_plus import LPPlusPlus
    from fsf_clip_methods._open_clip import OpenClip
    from fsf_clip_methods._probes import CLAP, LinearProbe
    from fsf_clip_methods._prompt_learning import CoCoOp, CoOp
    from fsf_clip_methods._tip import TipAdapter, TipAdapterF
    from fsf_clip_methods._tower import ImageTextTower
    from fsf_clip_methods._transformers import Clip
    from fsf_clip_methods._zero_shot import ZeroShot

__all__ = [
    "CLAP",
    "CLIPAdapter",
    "Clip",
    "CoCoOp",
    "CoOp",
    "ImageTextTower",
    "LPPlusPlus",
    "LinearProbe",
    "OpenClip",
    "TipAdapter",
    "TipAdapterF",
    "ZeroShot",
]

__version__ = "0.1.0"

_HOME = {
    "CLAP": "_probes",
    "CLIPAdapter": "_adapter",
    "Clip": "_transformers",
    "CoCoOp": "_prompt_learning",
    "CoOp": "_prompt_learning",
    "ImageTextTower": "_tower",
    "LPPlusPlus": "_lp_plus_plus",
    "LinearProbe": "_probes",
    "OpenClip": "_open_clip",
    "TipAdapter": "_tip",
    "TipAdapterF": "_tip",
    "ZeroShot": "_zero_shot",
}
"""The module that defines each name; using one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
