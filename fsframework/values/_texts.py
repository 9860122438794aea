"""Columns of text."""

from __future__ import annotations

import ctypes
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np

from fsframework.errors import DataError
from fsframework.values._arrays import IntArray

__all__ = ["Texts", "normalize", "release_memory"]

_BLOCK = 1 << 13


def normalize(text: str) -> str:
    """Return a text in Unicode NFC, the form in which keys, names and words are compared."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


class Texts(Sequence[str]):
    """A sequence of texts in Unicode NFC, stored as one Arrow array: a quarter of a tuple's memory.

    It is equal to any sequence of the same texts. ``written`` is the array before normalization.

    Args:
        values: texts, or Arrow arrays of text, which are concatenated.

    Raises:
        DataError: a value is not a text.

    >>> keys = Texts(["a.png", "b.png", "c.png"])
    >>> keys[1], keys[:2], keys.find(["c.png", "x.png"]).tolist()
    ('b.png', ('a.png', 'b.png'), [2, -1])
    """

    def __init__(self, values: Iterable[Any]) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        held = list(values)
        try:
            if held and isinstance(held[0], (pa.Array, pa.ChunkedArray)):
                chunks = [chunk for one in held for chunk in getattr(one, "chunks", [one])]
                text = pa.large_string()
                array = pa.chunked_array([chunk.cast(text) for chunk in chunks], text)
                array = array.combine_chunks()
            else:
                array = pa.array(held, pa.large_string())
        except (pa.ArrowException, UnicodeError) as error:
            raise DataError(f"a value is not text ({error})") from None
        self.written = self.array = array
        if pc.any(pc.invert(pc.string_is_ascii(array))).as_py():
            normal = pc.utf8_normalize(array, "NFC")
            self.array = array if normal.equals(array) else normal

    @classmethod
    def of(cls, values: Sequence[str]) -> Texts:
        """Return texts as they are, and other sequences as texts."""
        return values if isinstance(values, Texts) else cls(values)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return tuple(self.array[place].to_pylist())
        return self.array[int(place)].as_py()

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _BLOCK):
            yield from self.array.slice(start, _BLOCK).to_pylist()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(other) != len(self):
            return False
        return self is other or bool(self.array.equals(Texts.of(other).array))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))

    def take(self, places: IntArray) -> Texts:
        """Return the texts at these places; the text at -1 is empty."""
        import pyarrow as pa

        return Texts([self.written.take(pa.array(places, mask=places < 0)).fill_null("")])

    def find(self, wanted: Sequence[str]) -> IntArray:
        """Return int64 ``(len(wanted),)``: where each text is first, -1 where it is not."""
        import pyarrow.compute as pc

        found = pc.index_in(Texts.of(wanted).array, value_set=self.array)
        return np.asarray(found.fill_null(-1)).astype(np.int64)

    @cached_property
    def repeated(self) -> IntArray:
        """The places of texts that stand at an earlier place too, int64, ascending."""
        # Arrow looks texts up in a table of 100 bytes for each; sorted hashes are 8 bytes.
        hashes = np.sort(np.fromiter(map(hash, self), np.int64, len(self)))
        if (hashes[1:] != hashes[:-1]).all():
            return np.zeros(0, np.int64)
        return np.flatnonzero(self.find(self) != np.arange(len(self)))

    def name_repeat(self) -> str:
        """Return the first text that stands at two places, in both forms if these differ."""
        place = int(self.repeated[0])
        texts = (self.written[i].as_py() for i in (int(self.find([self[place]])[0]), place))
        first, second = texts
        both = f"{first!a} (in another Unicode form {second!a})"
        return repr(first) if first == second else both

    def framed(self) -> tuple[IntArray, memoryview]:
        """Return the length of each text in characters, uint64, and all texts in UTF-8."""
        import pyarrow as pa
        import pyarrow.compute as pc

        lengths = np.asarray(pc.utf8_length(self.array)).astype(np.uint64)
        whole = pa.LargeListArray.from_arrays([0, len(self)], self.array)
        joined = pc.binary_join(whole, pa.scalar("", pa.large_string()))
        return lengths, memoryview(joined[0].as_buffer())


def release_memory() -> None:
    """Return to the system what allocators keep of freed memory."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError, TypeError):  # only glibc has the function
        ctypes.CDLL(None).malloc_trim(0)
