"""Few-shot methods that adapt to a task by gradient steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsf_methods._lazy import lazily

if TYPE_CHECKING:
    from fsf_methods.gradient._anil import ANIL
    from fsf_methods.gradient._boil import BOIL
    from fsf_methods.gradient._leo import LEO
    from fsf_methods.gradient._maml import MAML
    from fsf_methods.gradient._mtl import MTL

__all__ = ["ANIL", "BOIL", "LEO", "MAML", "MTL"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "ANIL": "_anil",
        "BOIL": "_boil",
        "LEO": "_leo",
        "MAML": "_maml",
        "MTL": "_mtl",
    },
)
