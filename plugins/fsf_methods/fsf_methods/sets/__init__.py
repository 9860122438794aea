"""Few-shot methods that treat the images of a task as sets and transform them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsf_methods._lazy import lazily

if TYPE_CHECKING:
    from fsf_methods.sets._dsn import DSN
    from fsf_methods.sets._feat import FEAT
    from fsf_methods.sets._fgfl import FGFL

__all__ = ["DSN", "FEAT", "FGFL"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "DSN": "_dsn",
        "FEAT": "_feat",
        "FGFL": "_fgfl",
    },
)
