"""The words detected in each image."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NotRequired, Self, TypedDict

import numpy as np
import numpy.typing as npt

from fsframework._digest import digest_of
from fsframework._tables import data_frame
from fsframework.errors import DataError, naming
from fsframework.values._arrays import BoolArray, IntArray, frozen, named, read_only
from fsframework.values._formats import (
    is_text,
    read_header,
    read_parquet,
    text_column,
    write_parquet,
)
from fsframework.values._texts import Texts, normalize, release_memory
from fsframework.values._words import WordReader

__all__ = ["AttributeTable"]

_IMAGES_PER_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class AttributeTable:
    """The words detected in each image (``A`` of FewSTAB, section 4.2), as a sparse matrix.

    Its memory grows with the pairs (image, word), 4 bytes each, not with their product.

    Args:
        keys: the key of each image, unique; share the pool's to save memory.
        words: the vocabulary, sorted and unique.
        indptr: int64 ``(n_images + 1,)``: the words of image ``i`` are
            ``indices[indptr[i]:indptr[i + 1]]``.
        indices: int32 ``(n_pairs,)``, indices of words, ascending within each image.
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

    keys: Sequence[str]
    words: tuple[str, ...]
    indptr: IntArray
    indices: IntArray
    provenance: Mapping[str, str] = field(default_factory=dict)
    captions: Sequence[str] | None = None

    def __post_init__(self) -> None:
        keys = Texts.of(self.keys)
        object.__setattr__(self, "keys", keys)
        object.__setattr__(self, "words", tuple(map(normalize, self.words)))
        object.__setattr__(self, "indptr", frozen(self.indptr, np.int64, "indptr", 1))
        object.__setattr__(self, "indices", frozen(self.indices, np.int32, "indices", 1))
        object.__setattr__(self, "provenance", MappingProxyType(dict(self.provenance)))
        if keys.repeated.size:
            raise DataError(f"the key {keys.name_repeat()} appears twice in the attribute table")
        if list(self.words) != sorted(set(self.words)):
            raise DataError("the words of an attribute table must be sorted and unique")
        if "" in self.words:
            raise DataError("the empty string is not a word")
        self._demand_matrix()
        if self.captions is not None:
            object.__setattr__(self, "captions", Texts.of(self.captions))
            if len(self.captions) != len(keys):
                raise DataError(f"{len(self.captions)} captions for {len(keys)} images")

    def _demand_matrix(self) -> None:
        indptr, indices, n_words = self.indptr, self.indices, len(self.words)
        ends = indptr[[0, -1]].tolist() if indptr.size == len(self) + 1 else []
        if ends != [0, indices.size] or np.any(indptr[1:] < indptr[:-1]):
            raise DataError(f"indptr must rise from 0 to {indices.size} in {len(self) + 1} values")
        falls = np.flatnonzero(indices[1:] <= indices[:-1]) + 1
        first = indptr[np.searchsorted(indptr, falls)] == falls
        if not first.all() or np.any(indices < 0) or np.any(indices >= n_words):
            raise DataError(f"the indices of each image must rise in 0..{n_words - 1}")

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

        def blocks() -> Iterator[Any]:
            import pyarrow as pa

            rest = iter(words)
            while block := [list(own) for own in itertools.islice(rest, _IMAGES_PER_BLOCK)]:
                if any("" in own for own in block):
                    raise DataError("the empty string is not a word")
                yield pa.array(block, pa.list_(pa.string()))

        return cls.from_lists(keys, blocks(), (), provenance, captions)

    @classmethod
    def from_lists(
        cls,
        keys: Sequence[str],
        blocks: Iterable[Any],
        known: Iterable[str] = (),
        provenance: Mapping[str, str] | None = None,
        captions: Sequence[str] | None = None,
    ) -> Self:
        """Build a table from Arrow arrays of lists of text, one list per image, read one by one.

        Empty words are dropped.

        Args:
            known: words that belong to the vocabulary, whether any image has them or not.
            captions: read after the blocks.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        number, most = {"": 0}, _IMAGES_PER_BLOCK
        parts: list[tuple[IntArray, IntArray]] = []  # lengths and codes of the lists of a block
        for block in (b.slice(i, most) for b in blocks for i in range(0, len(b), most)):
            flat = block.flatten()
            if not pa.types.is_dictionary(flat.type):
                flat = flat.cast(pa.string()).dictionary_encode()
            texts = map(normalize, flat.dictionary.to_pylist())
            found = [number.setdefault(word, len(number)) for word in texts]
            places = np.array([*found, 0], np.int32)  # the last is that of a missing word
            codes = places[np.asarray(flat.indices.fill_null(len(found)))]
            lengths = np.asarray(pc.list_value_length(block).fill_null(0)).astype(np.int64)
            parts.append((lengths, codes))
        n_images = sum(lengths.size for lengths, _ in parts)
        if len(keys) != n_images:
            raise DataError(f"{n_images} collections of words for {len(keys)} images")
        for word in map(normalize, known):
            number.setdefault(word, len(number))
        vocabulary = sorted(number)[1:]  # without the empty word
        rank = np.zeros(len(number), np.int32)
        rank[[number[word] for word in vocabulary]] = np.arange(1, len(number), dtype=np.int32)
        indptr: list[IntArray] = [np.zeros(1, np.int64)]
        n_pairs = 0
        indices = np.empty(sum(codes.size for _, codes in parts), np.int32)
        while parts:  # each is released once it is used
            own_lengths, own_codes = parts.pop(0)
            counts, kept = _sorted_rows(own_lengths, rank[own_codes])
            indptr.append(n_pairs + np.cumsum(counts))
            indices[n_pairs : n_pairs + kept.size] = kept
            n_pairs += kept.size
        indices.resize(n_pairs, refcheck=False)
        if n_images > most:
            release_memory()
        return cls(
            keys,
            tuple(vocabulary),
            read_only(np.concatenate(indptr)),  # else the table would copy them
            read_only(indices),
            provenance or {},
            captions if captions is None else Texts.of(captions),
        )

    @classmethod
    def from_cells(
        cls,
        keys: Sequence[str],
        cells: Iterable[Any],
        provenance: Mapping[str, str],
        captions: Sequence[str] | None = None,
    ) -> Self:
        """Build a table from Arrow arrays of the cells of a table, one cell per image.

        ``WordReader`` says how cells are read; where words are not taken as they are written, the
        provenance has ``reading``.

        Raises:
            DataError: the words of a cell are not separated by ``;``.
        """
        reader = WordReader()
        table = cls.from_lists(keys, map(reader.lists, cells), (), provenance, captions)
        reader.demand_separated(table.words, several=table.words_per_image().max(initial=0) > 1)
        if not (notes := reader.notes()):
            return table
        return dataclasses.replace(table, provenance={**provenance, "reading": "; ".join(notes)})

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of keys, words and the matrix, without provenance and captions."""
        return digest_of("attributes", self.keys, self.words, self.indptr, self.indices)

    def rows(self, images: npt.ArrayLike) -> BoolArray:
        """Return bool ``(*images, n_words)``, one row per image."""
        chosen = np.asarray(images)
        indptr, indices = self.csr(chosen.ravel())
        rows = np.zeros((chosen.size, len(self.words)), bool)
        rows[np.repeat(np.arange(chosen.size), np.diff(indptr)), indices] = True
        return rows.reshape(*chosen.shape, len(self.words))

    def images_of(self, pairs: IntArray) -> IntArray:
        """Return the image of each pair (image, word): the row of each place in ``indices``."""
        return np.searchsorted(self.indptr, pairs, side="right") - 1

    def column(self, word: int) -> BoolArray:
        """Return bool ``(n_images,)``: which images have the word of this index."""
        having = np.zeros(len(self), bool)
        having[self.images_of(np.flatnonzero(self.indices == word))] = True
        return having

    def words_per_image(self) -> IntArray:
        """Return int64 ``(n_images,)``: how many words each image has."""
        return np.diff(self.indptr)

    def __repr__(self) -> str:
        return f"<AttributeTable: {len(self.words):,} words of {len(self.keys):,} images>"

    def to_pandas(self) -> Any:
        """Return a pandas ``DataFrame``: a row per image, with its key and a tuple of its words."""
        return data_frame({"key": [*self.keys], "words": self.words_of_all()})

    def words_of_all(self) -> list[tuple[str, ...]]:
        """Return the words of each image, sorted."""
        flat = np.array(self.words, dtype=object)[self.indices].tolist()
        return [tuple(flat[i:j]) for i, j in itertools.pairwise(self.indptr.tolist())]

    def words_of(self, image: int) -> tuple[str, ...]:
        """Return the words of one image, sorted."""
        return tuple(self.words[i] for i in self.csr(np.array([image]))[1])

    def csr(self, images: IntArray) -> tuple[IntArray, IntArray]:
        """Return ``indptr`` and ``indices`` of these images; image -1 has no words."""
        counts = np.maximum(self.indptr[images + 1] - self.indptr[images], 0)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        shift = np.repeat(self.indptr[images] - indptr[:-1], counts)
        return indptr, self.indices[shift + np.arange(indptr[-1])]

    def without(self, pairs: IntArray) -> AttributeTable:
        """Return the table without these pairs (image, word): places in ``indices``, ascending."""
        if not pairs.size:
            return self
        indptr = self.indptr - np.searchsorted(pairs, self.indptr)
        indices = np.delete(self.indices, pairs)
        return dataclasses.replace(self, indptr=read_only(indptr), indices=read_only(indices))

    def aligned(self, keys: Sequence[str]) -> AttributeTable:
        """Return the table of these images, in this order; unknown images have no words."""
        wanted = Texts.of(keys)
        if wanted == self.keys:
            return self if wanted is self.keys else dataclasses.replace(self, keys=wanted)
        index = Texts.of(self.keys).find(wanted)
        indptr, indices = map(read_only, self.csr(index))
        captions = None if self.captions is None else Texts.of(self.captions).take(index)
        return AttributeTable(wanted, self.words, indptr, indices, self.provenance, captions)

    def save(self, path: str | Path) -> None:
        """Write Parquet with the columns ``key``, ``caption`` and ``words`` (a list)."""
        import pyarrow as pa

        dictionary = pa.DictionaryArray.from_arrays(
            pa.array(self.indices), pa.array(self.words, pa.string())
        )
        words = pa.ListArray.from_arrays(
            pa.array(self.indptr, pa.int32()), dictionary.cast(pa.string())
        )
        header = {
            "what": "an attribute table",
            "provenance": dict(self.provenance),
            "words": list(self.words),  # some may be in no row, but the fingerprint covers them
        }
        key = Texts.of(self.keys).array.cast(pa.string())
        caption: Any = pa.array(self.captions or pa.nulls(len(self)), pa.string())
        write_parquet(Path(path), {"key": key, "caption": caption, "words": words}, header)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read Parquet with the columns ``key``, ``words`` and optionally ``caption``.

        Any Parquet file with these columns works, whoever wrote it.

        Raises:
            DataError: the file is not Parquet, lacks a column or has a duplicate key.
        """
        path = Path(path)
        table = read_parquet(path)
        missing = {"key", "words"} - set(table.column_names)
        if missing:
            raise DataError(
                f"{path}: has no column {named(sorted(missing))}; it has {table.column_names}"
            )
        keys = text_column(table, "key", path)
        own = (table.schema.metadata or {}).get(b"fsframework")
        _demand_lists_of_text(table["words"].type, path)
        chunks = table["words"].chunks
        words = (chunks.pop(0) for _ in range(len(chunks)))  # each is released once it is read
        table = table.drop_columns(["key", "words"])
        provenance: Mapping[str, str] = {"file": path.name}
        known: tuple[str, ...] = ()
        if own is not None:
            header = read_header(own, path, _Header, "an attribute table")
            provenance, known = header["provenance"], header.get("words", ())
        captions = None
        if "caption" in table.column_names and table["caption"].null_count < len(keys):
            captions = text_column(table, "caption", path, empty="")
        with naming(path):
            if own is None:  # others may write words in other ways
                return cls.from_cells(keys, words, provenance, captions)
            return cls.from_lists(keys, words, known, provenance, captions)


def _sorted_rows(lengths: IntArray, ranks: IntArray) -> tuple[IntArray, IntArray]:
    """Return how many words each image has, and these ascending, of ranks from 1; 0 is no word."""
    rows = np.repeat(np.arange(lengths.size, dtype=np.int64), lengths)
    pairs = np.sort((rows << 32 | ranks)[ranks > 0])
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    return np.bincount(pairs >> 32, minlength=lengths.size), (pairs - 1).astype(np.int32)


class _Header(TypedDict):
    """The header of an attribute table's file."""

    provenance: dict[str, str]
    words: NotRequired[tuple[str, ...]]


def _demand_lists_of_text(kind: Any, path: Path) -> None:
    import pyarrow as pa

    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not lists or not is_text(kind.value_type):
        wrong = f"of {kind.value_type}" if lists else str(kind)
        raise DataError(f"{path}: the column 'words' must be a list of strings, not {wrong}")
