"""Few-shot methods that make another method independent of a confounder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsf_methods._lazy import lazily

if TYPE_CHECKING:
    from fsf_methods.interventional._ifsl import IFSL

__all__ = ["IFSL"]

__getattr__, __dir__ = lazily(__name__, {"IFSL": "_ifsl"})
