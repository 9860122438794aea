"""The nouns of the flow: frozen, array-backed, self-checking, with ``save`` and ``load``.

``ImagePool`` -> ``AttributeTable`` -> ``TaskSet`` -> ``Outcomes`` -> ``Estimate``. Only NumPy is
imported here; PyArrow and safetensors are imported by the ``save`` and ``load`` that need them.
"""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from fsframework._digest import digest_of
from fsframework._files import atomic_path, atomic_write
from fsframework.errors import DataError

__all__ = [
    "SCHEMA_VERSION",
    "AccuracyOutcomes",
    "AttributeTable",
    "BoolArray",
    "Estimate",
    "FloatArray",
    "ImagePool",
    "ImageRecord",
    "IntArray",
    "IntervalKind",
    "Outcomes",
    "QueryBatch",
    "TaskSet",
    "UInt8Array",
    "digest_of",
    "task_rng",
    "task_seed",
]

IntArray = npt.NDArray[np.integer[Any]]
FloatArray = npt.NDArray[np.floating[Any]]
BoolArray = npt.NDArray[np.bool_]
UInt8Array = npt.NDArray[np.uint8]
IntervalKind = Literal["open", "closed"]
QueryBatch = Literal["task", "class"]
"""Which queries a method was shown together: all of a task, or those of one class at a time."""

SCHEMA_VERSION = 1
"""Version of the file formats written by this module."""

_ACCURACIES = "accuracies of tasks"
"""What a file of ``AccuracyOutcomes`` is called in its header."""


@functools.lru_cache(maxsize=64)
def _stream_key(stream: str) -> int:
    return int.from_bytes(hashlib.sha256(stream.encode()).digest()[:4], "little")


def task_seed(seed: int, task: int, stream: str = "") -> int:
    """Return 64 bits for samplers that bring a generator of their own; see ``task_rng``."""
    sequence = np.random.SeedSequence([seed, task, _stream_key(stream)])
    return int(sequence.generate_state(1, np.uint64)[0])


def task_rng(seed: int, task: int, stream: str = "") -> np.random.Generator:
    """Return the generator of one task: it depends on nothing but its three arguments.

    Samplers pass their own name as ``stream``, so that two samplers with equal seeds draw
    independent tasks; the interval of a difference between them presumes it.

    >>> bool(task_rng(0, 3).random() == task_rng(0, 3).random())
    True
    """
    return np.random.default_rng([seed, task, _stream_key(stream)])


def _frozen(array: npt.ArrayLike, dtype: npt.DTypeLike, name: str, ndim: int) -> npt.NDArray[Any]:
    kind = np.dtype(dtype)
    try:
        source = np.asarray(array)
        with np.errstate(invalid="ignore"):
            result = source.astype(kind, copy=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be an array of {kind.name}: {error}") from None
    if result.ndim != ndim:
        raise DataError(f"{name} must have {ndim} dimensions, not shape {result.shape}")
    if not np.can_cast(source.dtype, kind) and not np.array_equal(result, source):
        raise DataError(f"{name} must be an array of {kind.name}: it holds values that are none")
    if result.flags.writeable and (result is array or not result.flags.owndata):
        result = result.copy()
    return _read_only(result)


def _frozen_mapping(mapping: dict[str, Any]) -> MappingProxyType[str, Any]:
    return MappingProxyType(mapping)


# So that values that hold one can be copied and sent to other processes.
copyreg.pickle(MappingProxyType, lambda mapping: (_frozen_mapping, (dict(mapping),)))


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array


def _first_duplicate(values: Sequence[str]) -> str | None:
    # Sorted hashes take an eighth of the memory of a set; equal ones are looked at more closely.
    hashes = np.sort(np.fromiter(map(hash, values), np.int64, len(values)))
    if not (hashes[1:] == hashes[:-1]).any():
        return None
    seen: set[str] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


def _named(words: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(repr(w) for w in words[:most])
    return shown + (f" and {len(words) - most} more" if len(words) > most else "")


def _parquet_header(path: Path, *what: str) -> tuple[Any, dict[str, Any]]:
    """Read a Parquet file of ours; return its table and the header stored in its schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: not a Parquet file ({error})") from None
    raw = (table.schema.metadata or {}).get(b"fsframework")
    if raw is None:
        raise DataError(f"{path}: not {what[0]} written by fsframework (its header is missing)")
    return table, _check_header(json.loads(raw), path, *what)


def _check_header(header: Any, path: Path, *what: str) -> dict[str, Any]:
    if not isinstance(header, dict):
        raise DataError(f"{path}: its header is not a JSON object")
    if header.get("what") not in what:
        raise DataError(f"{path}: holds {header.get('what')!r}, not {what[0]}")
    version = header.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise DataError(
            f"{path}: schema_version {version} was written by a newer fsframework; "
            f"this one reads versions up to {SCHEMA_VERSION}"
        )
    return header


def _write_parquet(path: Path, columns: dict[str, Any], header: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(columns)
    raw = json.dumps({"schema_version": SCHEMA_VERSION, **header}, sort_keys=True)
    table = table.replace_schema_metadata({"fsframework": raw})
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


@dataclass(frozen=True, eq=False)
class AttributeTable:
    """Which word was detected in which image, one bit each (``A`` of FewSTAB, section 4.2).

    Args:
        keys: the key of each image, unique; share the tuple with the pool's to hold it once.
        words: the vocabulary, sorted and unique.
        bits: uint8 ``(n_images, ceil(n_words / 8))``, little-endian bit order; 206,000 images
            of 2,532 words take 65 MB.
        provenance: where the words come from: detector, model and revision, selector, file.
        captions: the text each image's words were taken from, where there was one.

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
        object.__setattr__(self, "bits", _frozen(self.bits, np.uint8, "bits", 2))
        object.__setattr__(self, "provenance", MappingProxyType(dict(self.provenance)))
        expected = (len(self.keys), -(-len(self.words) // 8))
        if self.bits.shape != expected:
            raise DataError(f"bits must have shape {expected}, not {self.bits.shape}")
        if (double := _first_duplicate(self.keys)) is not None:
            raise DataError(f"the key {double!r} stands twice in the attribute table")
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
        words: Sequence[Iterable[str]],
        provenance: Mapping[str, str] | None = None,
        captions: Sequence[str] | None = None,
    ) -> Self:
        """Build a table from one collection of words an image."""
        if len(keys) != len(words):
            raise DataError(f"{len(words)} collections of words for {len(keys)} images")
        sets = [frozenset(w) for w in words]
        vocabulary = sorted(frozenset().union(*sets)) if sets else []
        position = {word: i for i, word in enumerate(vocabulary)}
        rows = np.repeat(np.arange(len(sets)), [len(s) for s in sets])
        columns = np.fromiter(
            (position[word] for s in sets for word in s), dtype=np.int64, count=rows.size
        )
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
        bits = np.zeros((len(keys), -(-len(words) // 8)), dtype=np.uint8)
        np.bitwise_or.at(bits, (rows, columns >> 3), (1 << (columns & 7)).astype(np.uint8))
        return cls(
            keys,
            tuple(words),
            _read_only(bits),  # or the table would hold a copy
            provenance or {},
            None if captions is None else tuple(captions),
        )

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Bytes of the bit matrix."""
        return self.bits.nbytes

    @cached_property
    def fingerprint(self) -> str:
        """Digest of keys, words and bits; provenance and captions do not enter."""
        return digest_of("attributes", self.keys, self.words, self.bits)

    def rows(self, images: npt.ArrayLike) -> BoolArray:
        """Return bool ``(k, n_words)`` for the ``k`` images asked for."""
        packed = self.bits[np.asarray(images)]
        count = len(self.words)
        return np.unpackbits(packed, axis=-1, count=count, bitorder="little").astype(bool)

    def column(self, word: int) -> BoolArray:
        """Return bool ``(n_images,)``: which images have the word of this index."""
        return ((self.bits[:, word >> 3] >> (word & 7)) & 1).astype(bool)

    def words_of(self, image: int) -> tuple[str, ...]:
        """Return the words of one image, sorted."""
        return tuple(self.words[i] for i in np.flatnonzero(self.rows(image)))

    def csr(self, images: IntArray | None = None) -> tuple[IntArray, IntArray]:
        """Return ``(indptr int64 (n+1,), indices int32 (nnz,))``: the words of each image, sorted.

        Works through the bits in blocks, so that memory stays near that of the result.
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
        """Return the table of these images, in this order; an image unknown here has no words."""
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
        return AttributeTable(wanted, self.words, _read_only(bits), self.provenance, captions)

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
            "words": list(self.words),  # some may stand in no row, yet enter the fingerprint
        }
        caption = pa.array(self.captions or [None] * len(self.keys), pa.string())
        _write_parquet(
            Path(path), {"key": pa.array(self.keys), "caption": caption, "words": words}, header
        )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read Parquet with the columns ``key``, ``words`` and perhaps ``caption``.

        Any Parquet file with these columns will do, ours or not.

        Raises:
            DataError: the file is not Parquet, lacks a column or has a key twice.
        """
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        path = Path(path)
        try:
            table = pq.read_table(path)
        except FileNotFoundError:
            raise DataError(f"{path}: no such file") from None
        except (pa.ArrowInvalid, OSError) as error:
            raise DataError(f"{path}: not a Parquet file ({error})") from None
        missing = {"key", "words"} - set(table.column_names)
        if missing:
            raise DataError(
                f"{path}: has no column {_named(sorted(missing))}; it has {table.column_names}"
            )
        keys = table["key"].cast(pa.string()).to_pylist()
        if None in keys:
            raise DataError(f"{path}: row {keys.index(None) + 1} has no key")
        if (double := _first_duplicate(keys)) is not None:
            raise DataError(f"{path}: the key {double!r} stands twice")
        column = table["words"].combine_chunks()
        if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            raise DataError(f"{path}: the column 'words' must be a list of strings")
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        flat = pc.fill_null(pc.list_flatten(column).cast(pa.string()), "")
        encoded = pc.dictionary_encode(flat)
        raw_words = encoded.dictionary.to_pylist()
        provenance: dict[str, str] = {"file": path.name}
        known: list[str] = []
        raw = (table.schema.metadata or {}).get(b"fsframework")
        if raw is not None:
            try:
                header = _check_header(json.loads(raw), path, "an attribute table")
                provenance, known = dict(header["provenance"]), header.get("words", [])
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"{path}: its header is damaged ({error})") from None
        vocabulary = sorted({*raw_words, *known} - {""})
        position = {word: i for i, word in enumerate(vocabulary)}
        mapping = np.array([position.get(w, -1) for w in raw_words], dtype=np.int64)
        rows = np.repeat(np.arange(len(keys)), lengths)
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        columns = mapping[codes] if mapping.size else np.zeros(0, dtype=np.int64)
        keep = columns >= 0
        captions: list[str] | None = None
        if "caption" in table.column_names and table["caption"].null_count < len(keys):
            captions = [c or "" for c in table["caption"].to_pylist()]
        return cls.from_indices(
            tuple(keys), vocabulary, rows[keep], columns[keep], provenance, captions
        )


@dataclass(frozen=True)
class ImageRecord:
    """What is known of an image without looking at it.

    Args:
        key: as in the pool.
        metadata: the image's entry in each metadata column.
    """

    key: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ImagePool:
    """The images tasks are drawn from: keys, labels, metadata, perhaps attributes; no pixels.

    Args:
        keys: one unique string an image.
        labels: int ``(n,)``, index into ``class_names``.
        class_names: unique; every class has at least one image.
        metadata: columns of one string an image.
        attributes: a table of the same keys in the same order.

    Raises:
        DataError: lengths, ranges or uniqueness do not hold.

    >>> pool = ImagePool(("a", "b", "c"), np.array([0, 1, 0]), ("cat", "dog"))
    >>> pool.members(0).tolist(), pool.class_sizes.tolist()
    ([0, 2], [2, 1])
    """

    keys: tuple[str, ...]
    labels: IntArray
    class_names: tuple[str, ...]
    metadata: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    attributes: AttributeTable | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", tuple(self.keys))
        object.__setattr__(self, "class_names", tuple(self.class_names))
        object.__setattr__(self, "labels", _frozen(self.labels, np.int64, "labels", 1))
        columns = {name: tuple(values) for name, values in self.metadata.items()}
        object.__setattr__(self, "metadata", MappingProxyType(columns))
        count = len(self.keys)
        if self.labels.size != count:
            raise DataError(f"{self.labels.size} labels for {count} images")
        if (double := _first_duplicate(self.keys)) is not None:
            raise DataError(f"the image key {double!r} stands twice")
        if (double := _first_duplicate(self.class_names)) is not None:
            raise DataError(f"the class {double!r} stands twice")
        if count and not (self.labels.min() >= 0 and self.labels.max() < len(self.class_names)):
            raise DataError(
                f"labels must lie in 0..{len(self.class_names) - 1}, "
                f"not {self.labels.min()}..{self.labels.max()}"
            )
        empty = [self.class_names[i] for i in np.flatnonzero(self.class_sizes == 0)]
        if empty:
            raise DataError(f"no image belongs to the class {_named(empty)}")
        for name, values in columns.items():
            if len(values) != count:
                raise DataError(f"metadata {name!r} has {len(values)} entries for {count} images")
        if self.attributes is not None and self.attributes.keys != self.keys:
            raise DataError("the attribute table's keys are not the pool's; use with_attributes")

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def class_sizes(self) -> IntArray:
        """Images a class, int64 ``(n_classes,)``."""
        return _read_only(np.bincount(self.labels, minlength=len(self.class_names)))

    @cached_property
    def _grouped(self) -> tuple[IntArray, IntArray]:
        order = _read_only(np.argsort(self.labels, kind="stable"))
        return order, np.concatenate([[0], np.cumsum(self.class_sizes)])

    def members(self, label: int) -> IntArray:
        """Return the indices of one class' images, ascending."""
        order, starts = self._grouped
        return order[starts[label] : starts[label + 1]]

    @cached_property
    def key_digest(self) -> str:
        """Digest of the image keys in order: what indices into this pool refer to."""
        return digest_of("keys", self.keys)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of keys, labels, class names and metadata (attributes have their own)."""
        flat = [text for name in sorted(self.metadata) for text in (name, *self.metadata[name])]
        return digest_of("pool", self.keys, self.labels, self.class_names, flat)

    def with_attributes(self, table: AttributeTable) -> ImagePool:
        """Return this pool with the table brought into its order.

        Raises:
            DataError: not one of the table's keys belongs to an image of the pool.
        """
        if len(self) and table.keys != self.keys and not set(self.keys) & set(table.keys):
            raise DataError(
                f"none of the attribute table's {len(table)} keys belongs to an image; "
                f"it has {_named(table.keys)}, the images are {_named(self.keys)}"
            )
        return dataclasses.replace(self, attributes=table.aligned(self.keys))

    def save(self, path: str | Path) -> None:
        """Write Parquet: ``key``, ``label`` and a column ``meta:NAME`` a metadata column."""
        import pyarrow as pa

        columns = {"key": pa.array(self.keys, pa.string()), "label": pa.array(self.labels)}
        columns |= {f"meta:{n}": pa.array(v, pa.string()) for n, v in self.metadata.items()}
        header = {"what": "an image pool", "class_names": list(self.class_names)}
        _write_parquet(Path(path), columns, header)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what ``save`` wrote; attributes are saved on their own.

        Raises:
            DataError: the file is not an image pool or does not hold together.
        """
        table, header = _parquet_header(Path(path), "an image pool")
        metadata = {
            name.removeprefix("meta:"): tuple(table[name].to_pylist())
            for name in table.column_names
            if name.startswith("meta:")
        }
        return cls(
            tuple(table["key"].to_pylist()),
            table["label"].to_numpy(),
            tuple(header["class_names"]),
            metadata,
        )


@dataclass(frozen=True, eq=False)
class TaskSet:
    """Few-shot tasks as indices into one pool; nothing of the pixels, nothing of a model.

    Args:
        classes: int64 ``(T, way)``, label of each way's class.
        support: int64 ``(T, way, shot)``, indices of images.
        query: int64 ``(T, way, n_query)``, indices of images.
        attribute: int32 ``(T, way)``, index into ``words`` of the attribute tied to the way, -1
            where there is none.
        relaxed: bool ``(T, way)``, where the sampler had to give up a condition.
        words: the vocabulary ``attribute`` refers to.
        sampler: name of the sampler; ``options`` its resolved options; ``seed`` its seed.
        key_digest: ``ImagePool.key_digest`` of the pool.
        pool_fingerprint: ``ImagePool.fingerprint``; ``attributes_fingerprint`` the table's.

    Raises:
        DataError: shapes disagree, an image is in support and query, a class stands twice.
    """

    classes: IntArray
    support: IntArray
    query: IntArray
    attribute: IntArray
    relaxed: BoolArray
    words: tuple[str, ...]
    sampler: str
    options: Mapping[str, Any]
    seed: int
    key_digest: str
    pool_fingerprint: str
    attributes_fingerprint: str | None = None

    def __post_init__(self) -> None:
        for name, dtype, ndim in (
            ("classes", np.int64, 2),
            ("support", np.int64, 3),
            ("query", np.int64, 3),
            ("attribute", np.int32, 2),
            ("relaxed", np.bool_, 2),
        ):
            object.__setattr__(self, name, _frozen(getattr(self, name), dtype, name, ndim))
        object.__setattr__(self, "words", tuple(self.words))
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))
        shape = self.classes.shape
        for name in ("support", "query", "attribute", "relaxed"):
            if getattr(self, name).shape[:2] != shape:
                raise DataError(
                    f"{name} is of {getattr(self, name).shape[:2]} tasks and ways, "
                    f"classes of {shape}"
                )
        if shape[1] < 2:
            raise DataError(f"a task needs at least 2 ways, not {shape[1]}")
        if self.support.shape[2] < 1 or self.query.shape[2] < 1:
            raise DataError("a task needs at least one support and one query image a class")
        if self.attribute.size and not (
            self.attribute.min() >= -1 and self.attribute.max() < len(self.words)
        ):
            raise DataError(f"attribute must lie in -1..{len(self.words) - 1}")
        if np.any(np.diff(np.sort(self.classes, axis=1), axis=1) == 0):
            raise DataError(f"{self._where(self.classes)}: a class stands twice")
        images = self.images
        if images.size and images.min() < 0:
            raise DataError("image indices must not be negative")
        if np.any(np.diff(np.sort(images, axis=1), axis=1) == 0):
            raise DataError(f"{self._where(images)}: an image stands twice")

    @staticmethod
    def _where(rows: IntArray) -> str:
        bad = np.any(np.diff(np.sort(rows, axis=1), axis=1) == 0, axis=1)
        return f"task {int(np.flatnonzero(bad)[0])}"

    @classmethod
    def of(
        cls,
        pool: ImagePool,
        classes: IntArray,
        support: IntArray,
        query: IntArray,
        *,
        sampler: str,
        options: Mapping[str, Any],
        seed: int,
        attribute: IntArray | None = None,
        relaxed: BoolArray | None = None,
    ) -> Self:
        """Build a task set that belongs to ``pool``, whose words ``attribute`` refers to."""
        table = pool.attributes if attribute is not None else None
        return cls(
            classes,
            support,
            query,
            np.full(classes.shape, -1) if attribute is None else attribute,
            np.zeros(classes.shape, bool) if relaxed is None else relaxed,
            table.words if table is not None else (),
            sampler,
            options,
            seed,
            pool.key_digest,
            pool.fingerprint,
            table.fingerprint if table is not None else None,
        )

    def __len__(self) -> int:
        return int(self.classes.shape[0])

    @property
    def n_way(self) -> int:
        """Classes a task."""
        return int(self.classes.shape[1])

    @property
    def n_shot(self) -> int:
        """Support images a class."""
        return int(self.support.shape[2])

    @property
    def n_query(self) -> int:
        """Query images a class."""
        return int(self.query.shape[2])

    @property
    def images(self) -> IntArray:
        """All images of each task, int64 ``(T, way * (shot + n_query))``."""
        count, way = self.classes.shape
        parts = [part.reshape(count, way * part.shape[2]) for part in (self.support, self.query)]
        return np.concatenate(parts, axis=1)

    @cached_property
    def n_images(self) -> int:
        """Number of distinct images in all tasks together."""
        return int(np.unique(self.images).size)

    @property
    def reuses_images(self) -> bool:
        """Whether any image stands in two tasks, which makes intervals *closed*."""
        return self.n_images < self.images.size

    @cached_property
    def digest(self) -> str:
        """Digest of classes, support, query and the pool's keys: equal digests, equal tasks."""
        return digest_of("tasks", self.key_digest, self.classes, self.support, self.query)

    @cached_property
    def _checksum(self) -> str:
        told = self.sampler, dict(self.options), self.seed
        drawn_from = self.pool_fingerprint, self.attributes_fingerprint
        header = json.dumps([*told, *drawn_from], sort_keys=True)
        return digest_of(self.digest, self.attribute, self.relaxed, self.words, header)

    def __getitem__(self, tasks: slice) -> TaskSet:
        """Return the tasks of a slice."""
        return dataclasses.replace(
            self,
            **{
                name: getattr(self, name)[tasks]
                for name in ("classes", "support", "query", "attribute", "relaxed")
            },
        )

    def verify(self, pool: ImagePool) -> None:
        """Check that the tasks belong to this pool and that every image has its way's class.

        Raises:
            DataError: they do not; the message names the first task at fault.
        """
        if self.key_digest != pool.key_digest:
            raise DataError(
                f"these tasks were drawn from other data: image-key digest "
                f"{self.key_digest[:12]}, the data's {pool.key_digest[:12]}; name the data set, "
                "its options and the split as when they were made"
            )
        if self.images.size and self.images.max() >= len(pool):
            raise DataError(f"image index {self.images.max()} is not in a pool of {len(pool)}")
        if self.classes.size:
            low, high = self.classes.min(), self.classes.max()
            if low < 0 or high >= len(pool.class_names):
                raise DataError(
                    f"classes must lie in 0..{len(pool.class_names) - 1}, not {low}..{high}"
                )
        for name in ("support", "query"):
            wrong = pool.labels[getattr(self, name)] != self.classes[:, :, None]
            if wrong.any():
                task, way, place = (int(i[0]) for i in np.nonzero(wrong))
                image = int(getattr(self, name)[task, way, place])
                raise DataError(
                    f"task {task}: {name} image {pool.keys[image]!r} of way {way} is a "
                    f"{pool.class_names[pool.labels[image]]!r}, not a "
                    f"{pool.class_names[self.classes[task, way]]!r}"
                )

    def save(self, path: str | Path) -> None:
        """Write safetensors: the five arrays, and the rest as JSON in the header."""
        from safetensors.numpy import save

        header = {
            "what": "a task set",
            "schema_version": SCHEMA_VERSION,
            "sampler": self.sampler,
            "options": dict(self.options),
            "seed": self.seed,
            "words": list(self.words),
            "key_digest": self.key_digest,
            "pool_fingerprint": self.pool_fingerprint,
            "attributes_fingerprint": self.attributes_fingerprint,
            "digest": self.digest,
            "checksum": self._checksum,
        }
        arrays = {
            name: np.ascontiguousarray(getattr(self, name))
            for name in ("classes", "support", "query", "attribute", "relaxed")
        }
        # Not save_file, whose own error hides that the disk is full.
        atomic_write(Path(path), save(arrays, metadata={"fsframework": json.dumps(header)}))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what ``save`` wrote.

        Raises:
            DataError: not a task file, or its arrays were changed since it was written.
        """
        from safetensors import SafetensorError, safe_open

        path = Path(path)
        names = ("classes", "support", "query", "attribute", "relaxed")
        try:
            with safe_open(path, framework="numpy") as file:
                raw = (file.metadata() or {}).get("fsframework")
                if raw is None:
                    raise DataError(f"{path}: not a task set written by fsframework")
                header = _check_header(json.loads(raw), path, "a task set")
                missing = set(names) - set(file.keys())
                if missing:
                    raise DataError(f"{path}: lacks the array {_named(sorted(missing))}")
                arrays = {name: file.get_tensor(name) for name in names}
        except FileNotFoundError:
            raise DataError(f"{path}: no such file") from None
        except (SafetensorError, OSError) as error:
            raise DataError(f"{path}: not a task file ({error})") from None
        except json.JSONDecodeError as error:
            raise DataError(f"{path}: its header is not JSON ({error})") from None
        try:
            tasks = cls(
                **arrays,
                words=tuple(header["words"]),
                sampler=header["sampler"],
                options=header["options"],
                seed=header["seed"],
                key_digest=header["key_digest"],
                pool_fingerprint=header["pool_fingerprint"],
                attributes_fingerprint=header["attributes_fingerprint"],
            )
            checksum = header["checksum"]
        except KeyError as error:
            raise DataError(f"{path}: its header lacks {error}") from None
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        if tasks._checksum != checksum:
            raise DataError(f"{path}: was changed after it was written (checksum differs)")
        return tasks


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What a method answered for every query of every task, and nothing derived from it.

    Args:
        predictions: int16 ``(T, way, n_query)``: the way each query was given to; the query at
            ``[t, w, q]`` truly belongs to way ``w``.
        task_digest: ``TaskSet.digest`` of the tasks.
        n_images: distinct images in all tasks; ``reuses_images`` whether two tasks share one.
        query_batch: which queries the method was shown together.

    Raises:
        DataError: the shape is wrong or a prediction is no way of the task.

    >>> outcomes = Outcomes(np.array([[[0, 1], [1, 1]]]), "digest", 6, False)
    >>> outcomes.class_accuracy.tolist()
    [[0.5, 1.0]]
    """

    predictions: IntArray
    task_digest: str
    n_images: int
    reuses_images: bool
    query_batch: QueryBatch = "task"

    def __post_init__(self) -> None:
        array = _frozen(self.predictions, np.int16, "predictions", 3)
        object.__setattr__(self, "predictions", array)
        way = array.shape[1]
        if array.size and not (array.min() >= 0 and array.max() < way):
            raise DataError(f"predictions must lie in 0..{way - 1}")

    @classmethod
    def of(cls, tasks: TaskSet, predictions: IntArray, query_batch: QueryBatch = "task") -> Self:
        """Tie predictions ``(T, way, n_query)`` to their tasks."""
        if predictions.shape != tasks.query.shape:
            raise DataError(
                f"predictions of shape {predictions.shape} for queries of {tasks.query.shape}"
            )
        return cls(predictions, tasks.digest, tasks.n_images, tasks.reuses_images, query_batch)

    def __len__(self) -> int:
        return int(self.predictions.shape[0])

    @property
    def n_way(self) -> int:
        """Classes a task."""
        return int(self.predictions.shape[1])

    @property
    def kind(self) -> IntervalKind:
        """What an interval over these tasks speaks of: ``open`` only if no image is reused."""
        return "closed" if self.reuses_images else "open"

    @cached_property
    def class_accuracy(self) -> FloatArray:
        """Share of each way's queries that were right, float64 ``(T, way)``: M_c of FewSTAB."""
        truth = np.arange(self.n_way, dtype=np.int16)[None, :, None]
        return _read_only(np.asarray((self.predictions == truth).mean(axis=2)))

    @cached_property
    def task_accuracy(self) -> FloatArray:
        """Share of each task's queries that were right, float64 ``(T,)``."""
        return _read_only(np.asarray(self.class_accuracy.mean(axis=1)))

    def save(self, path: str | Path) -> None:
        """Write Parquet: a row a task and way, its queries' predictions as a list."""
        import pyarrow as pa

        count, way, n_query = self.predictions.shape
        offsets = np.arange(0, count * way * n_query + 1, n_query, dtype=np.int32)
        columns = {
            "task": pa.array(np.repeat(np.arange(count), way)),
            "way": pa.array(np.tile(np.arange(way), count)),
            "predictions": pa.ListArray.from_arrays(
                pa.array(offsets), pa.array(self.predictions.reshape(-1))
            ),
        }
        header = {
            "what": "outcomes",
            "n_way": way,
            "n_query": n_query,
            "task_digest": self.task_digest,
            "n_images": self.n_images,
            "reuses_images": self.reuses_images,
            "query_batch": self.query_batch,
        }
        _write_parquet(Path(path), columns, header)

    @staticmethod
    def load(path: str | Path) -> Outcomes:
        """Read what ``save`` wrote, ``AccuracyOutcomes`` included.

        Raises:
            DataError: the file does not hold outcomes or is damaged.
        """
        path = Path(path)
        table, header = _parquet_header(path, "outcomes", _ACCURACIES)
        if header["what"] == _ACCURACIES:
            return AccuracyOutcomes(
                table["accuracy"].to_numpy(),
                header["task_digest"],
                header["n_images"],
                header["reuses_images"],
            )
        flat = table["predictions"].combine_chunks().flatten().to_numpy()
        try:
            predictions = flat.reshape(-1, header["n_way"], header["n_query"])
        except ValueError:
            raise DataError(f"{path}: {flat.size} predictions do not fill whole tasks") from None
        rows = [table[name].to_numpy() for name in ("task", "way")]
        if not np.array_equal(rows, np.indices(predictions.shape[:2]).reshape(2, -1)):
            raise DataError(f"{path}: its rows are not in the order of tasks and ways")
        return Outcomes(
            predictions,
            header["task_digest"],
            header["n_images"],
            header["reuses_images"],
            header.get("query_batch", "task"),
        )


class AccuracyOutcomes(Outcomes):
    """Accuracies of whole tasks, measured elsewhere: outcomes without predictions.

    What needs a prediction, or the accuracy of a single class, raises an error that says so.

    Args:
        accuracy: float64 ``(T,)``, the share of each task's queries that were right, 0..1.
        task_digest: equal for outcomes of equal tasks in equal order; whoever imports vouches.
        n_images: distinct images in all tasks, 0 where it is not known.
        reuses_images: whether two tasks share an image.

    Raises:
        DataError: not one dimension, or a value is no number of 0..1.

    >>> AccuracyOutcomes([0.5, 1.0], "digest", 0, False).task_accuracy.tolist()
    [0.5, 1.0]
    """

    def __init__(
        self, accuracy: npt.ArrayLike, task_digest: str, n_images: int, reuses_images: bool
    ) -> None:
        values = _frozen(accuracy, np.float64, "accuracy", 1)
        wrong = np.flatnonzero(~((values >= 0) & (values <= 1)))
        if wrong.size:
            raise DataError(
                f"accuracies must lie in 0..1; that of task {wrong[0]} is {values[wrong[0]]}"
            )
        fields = (values, task_digest, n_images, reuses_images, "task")
        names = ("_accuracy", "task_digest", "n_images", "reuses_images", "query_batch")
        for name, value in zip(names, fields, strict=True):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return int(self.task_accuracy.size)

    def __repr__(self) -> str:
        return f"AccuracyOutcomes(<{len(self)} tasks>, {self.task_digest!r}, {self.kind})"

    @property
    def task_accuracy(self) -> FloatArray:
        """Accuracy of each task, float64 ``(T,)``."""
        values: FloatArray = self.__dict__["_accuracy"]
        return values

    @property
    def predictions(self) -> IntArray:
        """Nothing: raises ``DataError``, and so do ``n_way`` and ``class_accuracy``."""
        raise DataError(
            "these are accuracies of whole tasks made elsewhere; they hold no predictions, and "
            "what is computed from the answers of single queries or classes cannot be had"
        )

    @property
    def class_accuracy(self) -> FloatArray:
        """Nothing, see ``predictions``."""
        return np.asarray(self.predictions, np.float64)

    def save(self, path: str | Path) -> None:
        """Write Parquet: a row a task."""
        header = {
            "what": _ACCURACIES,
            "task_digest": self.task_digest,
            "n_images": self.n_images,
            "reuses_images": self.reuses_images,
        }
        _write_parquet(Path(path), {"accuracy": self.task_accuracy}, header)


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, and all that must be known to read it.

    Args:
        statistic: name of what was estimated.
        value: the estimate; ``low`` and ``high`` bound its interval (NaN where there is none).
        level: confidence level, 0 < level < 1.
        kind: ``open`` speaks of the data's distribution, ``closed`` of this data set alone.
        paired: whether it is a difference on equal tasks.
        estimator: how the interval was made, such as ``student-t``.
        n_tasks: tasks behind it; ``n_images``: distinct images in them.
        share: whether the value is a share of 1, to be shown in percent.
        query_batch: which queries the method was shown together.

    >>> Estimate("acc", 0.5, 0.4, 0.6, 0.95, "open", False, "student-t", 30, 900).half_width
    0.1
    """

    statistic: str
    value: float
    low: float
    high: float
    level: float
    kind: IntervalKind
    paired: bool
    estimator: str
    n_tasks: int
    n_images: int
    share: bool = False
    query_batch: QueryBatch = "task"

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise DataError(f"level must lie between 0 and 1, not {self.level}")
        if not (np.isnan(self.low) or self.low <= self.value <= self.high):
            raise DataError(f"{self.value} lies outside its interval {self.low}..{self.high}")

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return round((self.high - self.low) / 2, 12)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values; NaN becomes null."""
        raw = dataclasses.asdict(self)
        return {k: None if isinstance(v, float) and np.isnan(v) else v for k, v in raw.items()}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Build an estimate from what ``to_json`` gave."""
        numbers = {k: float("nan") if raw[k] is None else raw[k] for k in ("value", "low", "high")}
        return cls(**{**raw, **numbers})

    def save(self, path: str | Path) -> None:
        """Write JSON."""
        header = {"schema_version": SCHEMA_VERSION, "what": "an estimate"}
        with atomic_path(Path(path)) as temporary:
            temporary.write_text(json.dumps({**header, **self.to_json()}, indent=2))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what ``save`` wrote."""
        try:
            raw = json.loads(Path(path).read_text())
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: not an estimate ({error})") from None
        _check_header(raw, Path(path), "an estimate")
        fields = {k: v for k, v in raw.items() if k not in ("what", "schema_version")}
        try:
            return cls.from_json(fields)
        except (KeyError, TypeError) as error:
            raise DataError(f"{path}: not an estimate ({error})") from None
