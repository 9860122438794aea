"""Digests of content, without importing NumPy."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["digest_of"]


def digest_of(*parts: bytes | str | npt.NDArray[Any] | Iterable[str]) -> str:
    """Return a hexadecimal digest of the parts, each framed by its kind and length.

    BLAKE2b of 256 bits (RFC 7693) is twice as fast as SHA-256 on processors without an instruction
    for the latter, and a large attribute table is digested at every start.

    >>> digest_of("ab", "c") == digest_of("a", "bc")
    False
    """
    state = hashlib.blake2b(digest_size=32)
    for part in parts:
        if isinstance(part, (bytes, str)):
            raw = part.encode() if isinstance(part, str) else part
            state.update(f"bytes {len(raw)}\n".encode())
            state.update(raw)
        elif hasattr(part, "dtype"):
            values: Any = part
            state.update(f"array {values.dtype.str} {values.shape}\n".encode())
            state.update(
                values.data if values.flags.c_contiguous and values.size else values.tobytes()
            )
        elif hasattr(part, "framed"):  # ``Texts``, whose digest is that of a list
            lengths, text = part.framed()
            state.update(f"list {len(lengths)}\n".encode())
            state.update(lengths.data if len(lengths) else b"")
            state.update(text)
        else:
            strings: Any = part if isinstance(part, Sequence) else tuple(part)
            # All lengths, then one text.
            state.update(f"list {len(strings)}\n".encode())
            state.update(array("Q", map(len, strings)).tobytes())
            state.update("".join(strings).encode())
    return state.hexdigest()
