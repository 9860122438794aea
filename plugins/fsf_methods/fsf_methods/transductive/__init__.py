"""Few-shot methods that put the images of a task into a graph or learn from its queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsf_methods._lazy import lazily

if TYPE_CHECKING:
    from fsf_methods.transductive._gnn import GNN
    from fsf_methods.transductive._sib import SIB
    from fsf_methods.transductive._tpn import TPN

__all__ = ["GNN", "SIB", "TPN"]

__getattr__, __dir__ = lazily(__name__, {"GNN": "_gnn", "SIB": "_sib", "TPN": "_tpn"})
