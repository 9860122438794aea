"""Few-shot methods that adapt to a task at test time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsf_methods._lazy import lazily

if TYPE_CHECKING:
    from fsf_methods.adaptation._cdkt import CDKT
    from fsf_methods.adaptation._deta import DETA
    from fsf_methods.adaptation._putm import PUTM
    from fsf_methods.adaptation._tsa import TSA
    from fsf_methods.adaptation._yang import ContrastiveCentroids

__all__ = ["CDKT", "DETA", "PUTM", "TSA", "ContrastiveCentroids"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "CDKT": "_cdkt",
        "ContrastiveCentroids": "_yang",
        "PUTM": "_putm",
        "DETA": "_deta",
        "TSA": "_tsa",
    },
)
