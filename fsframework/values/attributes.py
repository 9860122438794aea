"""The words detected in each image."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NotRequired, Self, TypedDict

import numpy as np
import numpy.typing as npt

from fsframework._digest import digest_of
from fsframework._tables import data_frame
from fsframework.errors import DataError
from fsframework.values._arrays import (
    BoolArray,
    IntArray,
    UInt8Array,
    first_duplicate,
    frozen,
    named,
    read_only,
)
from fsframework.values._formats import (
    is_text,
    read_header,
    read_parquet,
    text_column,
    write_parquet,
)

__all__ = ["AttributeTable"]

_MOST_BYTES = 1 << 34
"""Size of a table's bits: a million images of 137,000 words."""


@dataclass(frozen=True, eq=False)
class AttributeTable:
    """The words detected in each image, one bit each (``A`` of FewSTAB, section 4.2).

    Args:
        keys: the key of each image, unique; share the pool's tuple to save memory.
        words: the vocabulary, sorted and unique.
        bits: uint8 ``(n_images, ceil(n_words / 8))``, little-endian bit order; 206,000 images
            of 2,532 words take 65 MB.
        provenance: where the words come from: detector, model and revision, selector, file.
        captions: the text from which each image's words were taken, where there is one.

    Raises:
        DataError: shapes, order or uniqueness do not hold.

    >>> table = AttributeTable.from_words(["a.png", "b.png"], [{"grass", "dog"}, {"sofa"}])
    >>> table.words
    ('dog', 'grass', 'sofa')
    >>> table.words_of(0)
    ('dog', 'grass')
    """

    keys: tuple[str, ...]
    words: tuple[str, ...]
    bits: UInt8Array
    provenance: Mapping[str, str] = field(default_factory=dict)
    captions: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", tuple(self.keys))
        object.__setattr__(self, "words", tuple(self.words))
        object.__setattr__(self, "bits", frozen(self.bits, np.uint8, "bits", 2))
        object.__setattr__(self, "provenance", MappingProxyType(dict(self.provenance)))
        expected = (len(self.keys), -(-len(self.words) // 8))
        if self.bits.shape != expected:
            raise DataError(f"bits must have shape {expected}, not {self.bits.shape}")
        if (double := first_duplicate(self.keys)) is not None:
            raise DataError(f"the key {double!r} appears twice in the attribute table")
        if list(self.words) != sorted(set(self.words)):
            raise DataError("the words of an attribute table must be sorted and unique")
        if "" in self.words:
            raise DataError("the empty string is not a word")
        if len(self.words) % 8 and self.bits.size:
            spare = np.uint8((0xFF << (len(self.words) % 8)) & 0xFF)
            if np.any(self.bits[:, -1] & spare):
                raise DataError("bits beyond the last word are set")
        if self.captions is not None:
            object.__setattr__(self, "captions", tuple(self.captions))
            if len(self.captions) != len(self.keys):
                raise DataError(f"{len(self.captions)} captions for {len(self.keys)} images")

    @classmethod
    def from_words(
        cls,
        keys: Sequence[str],
        words: Iterable[Iterable[str]],
        provenance: Mapping[str, str] | None = None,
        captions: Sequence[str] | None = None,
    ) -> Self:
        """Build a table from one collection of words per image, reading them one by one.

        Args:
            captions: read after the words.
        """
        number: dict[str, int] = {}
        lengths, numbers = array("q"), array("i")  # a tenth of the memory of lists
        for own in map(frozenset, words):
            lengths.append(len(own))
            numbers.extend(number.setdefault(word, len(number)) for word in own)
        if len(keys) != len(lengths):
            raise DataError(f"{len(lengths)} collections of words for {len(keys)} images")
        vocabulary = sorted(number)
        rank = np.empty(len(vocabulary), np.int32)
        rank[[number[word] for word in vocabulary]] = np.arange(len(vocabulary), dtype=np.int32)
        rows = np.repeat(np.arange(len(lengths), dtype=np.int32), np.asarray(lengths))
        columns = rank[np.asarray(numbers)]
        return cls.from_indices(tuple(keys), vocabulary, rows, columns, provenance, captions)

    @classmethod
    def from_indices(
        cls,
        keys: tuple[str, ...],
        words: Sequence[str],
        rows: IntArray,
        columns: IntArray,
        provenance: Mapping[str, str] | None = None,
        captions: Sequence[str] | None = None,
    ) -> Self:
        """Build a table from pairs (image, word) of indices, each int ``(n,)``."""
        size = len(keys) * -(-len(words) // 8)
        if size > _MOST_BYTES:
            raise DataError(
                f"{len(keys):,} images with {len(words):,} words need {size:,} bytes; at most "
                f"{_MOST_BYTES:,} are allowed"
            )
        bits = np.zeros((len(keys), -(-len(words) // 8)), dtype=np.uint8)
        np.bitwise_or.at(bits, (rows, columns >> 3), (1 << (columns & 7)).astype(np.uint8))
        return cls(
            keys,
            tuple(words),
            read_only(bits),  # else the table would copy them
            provenance or {},
            None if captions is None else tuple(captions),
        )

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of keys, words and bits, without provenance and captions."""
        return digest_of("attributes", self.keys, self.words, self.bits)

    def rows(self, images: npt.ArrayLike) -> BoolArray:
        """Return bool ``(k, n_words)`` for ``k`` images."""
        packed = self.bits[np.asarray(images)]
        count = len(self.words)
        return np.unpackbits(packed, axis=-1, count=count, bitorder="little").astype(bool)

    def column(self, word: int) -> BoolArray:
        """Return bool ``(n_images,)``: which images have the word of this index."""
        return ((self.bits[:, word >> 3] >> (word & 7)) & 1).astype(bool)

    def words_per_image(self) -> IntArray:
        """Return int64 ``(n_images,)``: how many words each image has."""
        return np.diff(self.csr()[0])

    def __repr__(self) -> str:
        return f"<AttributeTable: {len(self.words):,} words of {len(self.keys):,} images>"

    def to_pandas(self) -> Any:
        """Return a pandas ``DataFrame``: a row per image, with its key and a tuple of its words."""
        return data_frame({"key": self.keys, "words": [*map(self.words_of, range(len(self.keys)))]})

    def words_of(self, image: int) -> tuple[str, ...]:
        """Return the words of one image, sorted."""
        return tuple(self.words[i] for i in np.flatnonzero(self.rows(image)))

    def csr(self, images: IntArray | None = None) -> tuple[IntArray, IntArray]:
        """Return ``(indptr int64 (n+1,), indices int32 (nnz,))``: the words of each image, sorted.

        Processes the bits in blocks, so it needs little more memory than the result.
        """
        chosen = np.arange(len(self.keys)) if images is None else np.asarray(images)
        counts = np.zeros(chosen.size, dtype=np.int64)
        parts: list[npt.NDArray[np.int32]] = []
        block = max(1, (1 << 22) // max(1, self.bits.shape[1]))
        for start in range(0, chosen.size, block):
            packed = self.bits[chosen[start : start + block]]
            # Nearly all bytes are empty: only the others are unpacked.
            row, byte = np.nonzero(packed)
            pair, bit = np.nonzero(
                np.unpackbits(packed[row, byte, None], axis=1, bitorder="little")
            )
            counts[start : start + block] = np.bincount(row[pair], minlength=packed.shape[0])
            parts.append((8 * byte[pair] + bit).astype(np.int32))
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        indices = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)
        return indptr, indices

    def aligned(self, keys: Sequence[str]) -> AttributeTable:
        """Return the table of these images, in this order; unknown images have no words."""
        wanted = tuple(keys)
        if wanted == self.keys:
            return self if wanted is self.keys else dataclasses.replace(self, keys=wanted)
        position = {key: i for i, key in enumerate(self.keys)}
        index = np.fromiter(
            (position.get(k, -1) for k in wanted), dtype=np.int64, count=len(wanted)
        )
        bits = np.zeros((len(wanted), self.bits.shape[1]), dtype=np.uint8)
        found = index >= 0
        bits[found] = self.bits[index[found]]
        captions = None
        if self.captions is not None:
            captions = tuple(self.captions[i] if i >= 0 else "" for i in index)
        return AttributeTable(wanted, self.words, read_only(bits), self.provenance, captions)

    def save(self, path: str | Path) -> None:
        """Write Parquet with the columns ``key``, ``caption`` and ``words`` (a list)."""
        import pyarrow as pa

        indptr, indices = self.csr()
        dictionary = pa.DictionaryArray.from_arrays(
            pa.array(indices, pa.int32()), pa.array(self.words, pa.string())
        )
        words = pa.ListArray.from_arrays(pa.array(indptr, pa.int32()), dictionary.cast(pa.string()))
        header = {
            "what": "an attribute table",
            "provenance": dict(self.provenance),
            "words": list(self.words),  # some may be in no row, but the fingerprint covers them
        }
        caption = pa.array(self.captions or [None] * len(self.keys), pa.string())
        write_parquet(
            Path(path), {"key": pa.array(self.keys), "caption": caption, "words": words}, header
        )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read Parquet with the columns ``key``, ``words`` and optionally ``caption``.

        Any Parquet file with these columns works, whoever wrote it.

        Raises:
            DataError: the file is not Parquet, lacks a column or has a duplicate key.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        path = Path(path)
        table = read_parquet(path)
        missing = {"key", "words"} - set(table.column_names)
        if missing:
            raise DataError(
                f"{path}: has no column {named(sorted(missing))}; it has {table.column_names}"
            )
        keys = text_column(table, "key", path)
        column = _list_of_text(table["words"].combine_chunks(), path)
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        flat = pc.fill_null(pc.list_flatten(column).cast(pa.string()), "")
        encoded = pc.dictionary_encode(flat)
        raw_words = encoded.dictionary.to_pylist()
        provenance: Mapping[str, str] = {"file": path.name}
        known: tuple[str, ...] = ()
        raw = (table.schema.metadata or {}).get(b"fsframework")
        if raw is not None:
            header = read_header(raw, path, _Header, "an attribute table")
            provenance, known = header["provenance"], header.get("words", ())
        vocabulary = sorted({*raw_words, *known} - {""})
        position = {word: i for i, word in enumerate(vocabulary)}
        mapping = np.array([position.get(w, -1) for w in raw_words], dtype=np.int64)
        rows = np.repeat(np.arange(len(keys)), lengths)
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        columns = mapping[codes] if mapping.size else np.zeros(0, dtype=np.int64)
        keep = columns >= 0
        captions = None
        if "caption" in table.column_names and table["caption"].null_count < len(keys):
            captions = text_column(table, "caption", path, empty="")
        try:
            return cls.from_indices(
                keys, vocabulary, rows[keep], columns[keep], provenance, captions
            )
        except DataError as error:
            raise DataError(f"{path}: {error}") from None


class _Header(TypedDict):
    """The header of an attribute table's file."""

    provenance: dict[str, str]
    words: NotRequired[tuple[str, ...]]


def _list_of_text(column: Any, path: Path) -> Any:
    """Return a column of words as Arrow lists of text."""
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise DataError(f"{path}: the column 'words' must be a list of strings, not {kind}")
    inner = kind.value_type
    if not (is_text(inner) or pa.types.is_null(inner)):
        raise DataError(f"{path}: the column 'words' must be a list of strings, not of {inner}")
    return column
