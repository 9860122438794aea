"""Merge tables of parts of the images."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from fsf_tools.attributes._blocks import even_blocks
from fsframework.errors import DataError
from fsframework.values import AttributeTable, IntArray

__all__ = ["merged"]

_OF_ITS_FILE = ("shard", "file", "file_digest")
"""Provenance entries that identify a part."""
_COUNTING = ("unreadable", "images_with_class_words")
"""Entries that count images: ``3 of 60``, perhaps with a noun."""
_COUNT = re.compile(r"(\d+) of (\d+)(.*)", re.DOTALL)


def merged(tables: Sequence[tuple[str, AttributeTable]]) -> AttributeTable:
    """Merge tables of different images, such as shards made on different machines.

    Shards ``i/n`` are sorted, so a complete set gives the table of a single process; other tables
    stay in the given order. An image that appears in several tables with the same words is kept
    once, at its first position. The provenance contains the entries that the tables share and the
    sums of the image counts; ``shard`` names the parts unless all are present.

    Args:
        tables: pairs of a name, for messages, and a table.

    Raises:
        DataError: no table is given, an image has different words in two tables, or the tables
            were made differently: detector, model, options, versions.

    >>> one = AttributeTable.from_words(["x"], [{"dog"}], {"detector": "blip", "shard": "0/2"})
    >>> two = AttributeTable.from_words(["y"], [{"sofa"}], {"detector": "blip", "shard": "1/2"})
    >>> whole = merged([("two.parquet", two), ("one.parquet", one)])
    >>> whole.keys, whole.words, dict(whole.provenance)
    (('x', 'y'), ('dog', 'sofa'), {'detector': 'blip'})
    """
    if not tables:
        raise DataError("there is no table to merge")
    shards = [_shard(table) for _, table in tables]
    if None not in shards and len({shard[1] for shard in shards if shard}) == 1:
        order = sorted(range(len(tables)), key=lambda i: shards[i] or (0, 0))
        tables = [tables[i] for i in order]
    provenance = _common_provenance(tables)
    vocabulary = sorted({word for _, table in tables for word in table.words})
    number = {word: i for i, word in enumerate(vocabulary)}
    starts = np.cumsum([0, *(len(table) for _, table in tables)])
    bits = np.zeros((starts[-1], -(-len(vocabulary) // 8)), np.uint8)
    for start, (_, table) in zip(starts, tables, strict=False):
        column = np.array([number[word] for word in table.words], np.int64)
        counts = table.words_per_image()
        for block in even_blocks(counts):
            indices = np.arange(len(table))[block]
            image = np.repeat(start + indices, counts[block])
            wide = column[table.csr(indices)[1]]
            np.bitwise_or.at(bits, (image, wide >> 3), (1 << (wide & 7)).astype(np.uint8))
    keys = [key for _, table in tables for key in table.keys]
    place: dict[str, int] = {}
    first = np.fromiter((place.setdefault(key, i) for i, key in enumerate(keys)), np.int64)
    again = np.flatnonzero(first != np.arange(first.size))
    differ = again[(bits[again] != bits[first[again]]).any(axis=1)]
    if differ.size:
        raise _different_words(tables, starts, keys, int(first[differ[0]]), int(differ[0]))
    captions = None
    if any(table.captions is not None for _, table in tables):
        captions = [c for _, table in tables for c in table.captions or [""] * len(table)]
    if again.size:
        kept = np.flatnonzero(first == np.arange(first.size))
        bits, keys = bits[kept], [keys[i] for i in kept]
        captions = None if captions is None else [captions[i] for i in kept]
        # Images that were counted twice cannot be distinguished from the others.
        provenance = {k: v for k, v in provenance.items() if k not in _COUNTING}
    bits.flags.writeable = False
    return AttributeTable(
        tuple(keys),
        tuple(vocabulary),
        bits,
        provenance,
        None if captions is None else tuple(captions),
    )


def _shard(table: AttributeTable) -> tuple[int, int] | None:
    """Return the number and count of a table's shard, as ``detection.Shard`` writes them."""
    index, slash, count = table.provenance.get("shard", "").partition("/")
    return (int(index), int(count)) if slash and (index + count).isdecimal() else None


def _common_provenance(tables: Sequence[tuple[str, AttributeTable]]) -> dict[str, str]:
    (first_name, first), *others = tables
    apart = {*_OF_ITS_FILE, *_COUNTING}
    for name, table in others:
        for field in sorted({*first.provenance, *table.provenance} - apart):
            one, two = (_quoted(t.provenance, field) for t in (first, table))
            if one != two:
                raise DataError(
                    f"{first_name} and {name} were made differently: {field} is {one} in the first "
                    f"and {two} in the second"
                )
    common = {k: v for k, v in first.provenance.items() if k not in apart}
    for field in _COUNTING:
        common |= _sum_of_counts(field, [table.provenance for _, table in tables])
    parts = {table.provenance.get("shard") for _, table in tables} - {None}
    counts = {part.partition("/")[2] for part in parts if part}
    if not (len(counts) == 1 and {f"{i}/{n}" for n in counts for i in range(int(n))} <= parts):
        shards = dict.fromkeys(t.provenance["shard"] for _, t in tables if "shard" in t.provenance)
        common |= {"shard": ", ".join(shards)} if shards else {}
    return common


def _sum_of_counts(field: str, provenances: Sequence[Mapping[str, str]]) -> dict[str, str]:
    given = [_COUNT.fullmatch(p[field]) for p in provenances if field in p]
    found = [match for match in given if match]
    if not found or len(found) < len(given):
        return {}
    part, whole = (sum(int(match[group]) for match in found) for group in (1, 2))
    return {field: f"{part} of {whole}{found[0][3]}"}


def _quoted(provenance: Mapping[str, str], field: str) -> str:
    return repr(provenance[field]) if field in provenance else "not given"


def _different_words(
    tables: Sequence[tuple[str, AttributeTable]],
    starts: IntArray,
    keys: Sequence[str],
    first: int,
    second: int,
) -> DataError:
    said = []
    for row in (first, second):
        owner = int(np.searchsorted(starts, row, side="right")) - 1
        name, table = tables[owner]
        words = table.words_of(row - int(starts[owner]))
        said.append((name, set(words)))
    (one, words_one), (two, words_two) = said
    only = [
        f"only {name} has {', '.join(map(repr, sorted(words)[:5]))}"
        for name, words in ((one, words_one - words_two), (two, words_two - words_one))
        if words
    ]
    return DataError(
        f"{one} and {two}: the image {keys[first]!r} has different words in them; "
        + " and ".join(only)
    )
