"""Training and heads that make another method lean less on spurious attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsf_methods._lazy import lazily

if TYPE_CHECKING:
    from fsf_methods.robust._balanced import Balanced
    from fsf_methods.robust._dfr import DFR
    from fsf_methods.robust._group_dro import GroupDRO
    from fsf_methods.robust._jtt import JTT
    from fsf_methods.robust._support_weighted import SupportWeighted
    from fsf_methods.robust._text_projected import TextProjected
    from fsf_methods.robust._word_projected import WordProjected

__all__ = [
    "DFR",
    "JTT",
    "Balanced",
    "GroupDRO",
    "SupportWeighted",
    "TextProjected",
    "WordProjected",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "Balanced": "_balanced",
        "DFR": "_dfr",
        "GroupDRO": "_group_dro",
        "JTT": "_jtt",
        "SupportWeighted": "_support_weighted",
        "TextProjected": "_text_projected",
        "WordProjected": "_word_projected",
    },
)
