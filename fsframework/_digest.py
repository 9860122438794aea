"""Digests of content; without NumPy, so that naming a component does not import it."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["digest_of"]


def digest_of(*parts: bytes | str | npt.NDArray[Any] | Iterable[str]) -> str:
    """Return the hexadecimal SHA-256 of the parts; each part is framed by its kind and length.

    >>> digest_of("ab", "c") == digest_of("a", "bc")
    False
    """
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, (bytes, str)):
            raw = part.encode() if isinstance(part, str) else part
            sha.update(f"bytes {len(raw)}\n".encode())
            sha.update(raw)
        elif hasattr(part, "dtype"):
            values: Any = part
            sha.update(f"array {values.dtype.str} {values.shape}\n".encode())
            sha.update(
                values.data if values.flags.c_contiguous and values.size else values.tobytes()
            )
        else:
            strings = list(part)
            # All lengths, then one text: a hundred thousand keys cost a few milliseconds.
            lengths = array("Q", map(len, strings))
            sha.update(f"list {len(strings)}\n".encode())
            sha.update(lengths.tobytes())
            sha.update("".join(strings).encode())
    return sha.hexdigest()
