"""Few-shot methods that compare images by the local descriptors of their maps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsf_methods._lazy import lazily

if TYPE_CHECKING:
    from fsf_methods.local._adm import ADM
    from fsf_methods.local._atlnet import ATLNet
    from fsf_methods.local._covamnet import CovaMNet
    from fsf_methods.local._cpea import CPEA
    from fsf_methods.local._deepbdc import DeepBDC, STLDeepBDC
    from fsf_methods.local._frn import FRN

__all__ = ["ADM", "CPEA", "FRN", "ATLNet", "CovaMNet", "DeepBDC", "STLDeepBDC"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "ADM": "_adm",
        "CPEA": "_cpea",
        "FRN": "_frn",
        "ATLNet": "_atlnet",
        "CovaMNet": "_covamnet",
        "DeepBDC": "_deepbdc",
        "STLDeepBDC": "_deepbdc",
    },
)
