"""Methods that train another method so that it works in other domains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsf_methods._lazy import lazily

if TYPE_CHECKING:
    from fsf_methods.cross_domain._ata import ATA
    from fsf_methods.cross_domain._ft import FT
    from fsf_methods.cross_domain._lrp import LRP

__all__ = ["ATA", "FT", "LRP"]

__getattr__, __dir__ = lazily(__name__, {"ATA": "_ata", "FT": "_ft", "LRP": "_lrp"})
