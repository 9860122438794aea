"""Words that name classes, and tables without unwanted words."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

from fsframework.errors import DataError, OptionError
from fsframework.values import AttributeTable, BoolArray, ImagePool, UInt8Array

__all__ = [
    "class_words",
    "filtered",
    "images_with_class_words",
    "names_class",
    "without_class_words",
]

_BYTES_PER_BLOCK = 1 << 21
"""Bytes of packed bits processed together; unpacked they take 8 times as many."""

_WORDNET_ID = re.compile(r"(?<![^\W_])n\d{8}(?![^\W_])")
_POSSESSIVE = re.compile(r"['’]s\b", re.IGNORECASE)
_LETTERS = re.compile(r"[^\W\d_]+")
_STOP_WORDS = frozenset(
    {"a", "an", "and", "at", "by", "for", "in", "of", "on", "or", "the", "to", "with"}
)
_IRREGULAR = {
    "calves": "calf", "children": "child", "elves": "elf", "feet": "foot", "geese": "goose",
    "halves": "half", "hooves": "hoof", "knives": "knife", "leaves": "leaf", "lice": "louse",
    "loaves": "loaf", "men": "man", "mice": "mouse", "oxen": "ox", "scarves": "scarf",
    "shelves": "shelf", "teeth": "tooth", "thieves": "thief", "wives": "wife",
    "wolves": "wolf", "women": "woman",
}  # fmt: skip


def class_words(class_name: str) -> frozenset[str]:
    """Return the words that name a class, in lower case: its tokens and, if several, the compound.

    A token is a run of letters; ``GoldenRetriever`` has two. Left out are digits, WordNet
    identifiers (``n02099601``), the possessive *s* and words such as *of*, *the* and *and*. Each
    token counts by itself: *golden* names the golden retriever. A plural comes with every singular
    it may belong to.

    >>> sorted(class_words("001.Black_footed_Albatross"))
    ['albatross', 'black', 'black footed albatross', 'footed']
    >>> sorted(class_words("n02099601 dogs"))
    ['dog', 'dogs']
    """
    tokens = _tokens(class_name)
    return frozenset().union([" ".join(tokens)] if tokens else [], *map(_singulars, tokens))


def names_class(word: str, class_name: str) -> bool:
    """Return whether a word names a class: each of its tokens is one of ``class_words``.

    Singular and plural are equal here. A phrase with words beyond the name does not name the
    class.

    >>> names_class("golden retrievers", "n02099601 golden_retriever")
    True
    >>> names_class("dog bed", "dog")
    False
    """
    return _names(_tokens(word), class_words(class_name))


def _names(tokens: Sequence[str], names: frozenset[str]) -> bool:
    return bool(tokens) and all(not names.isdisjoint(_singulars(token)) for token in tokens)


def _tokens(text: str) -> list[str]:
    text = unicodedata.normalize("NFC", text)
    text = _POSSESSIVE.sub("", _WORDNET_ID.sub(" ", text))
    tokens = [token for run in _LETTERS.findall(text) for token in _uncamelled(run)]
    return [token for token in tokens if token not in _STOP_WORDS]


def _uncamelled(run: str) -> list[str]:
    """Split letters before each capital that follows a lower-case letter."""
    starts = [0, *(i for i in range(1, len(run)) if run[i].isupper() and run[i - 1].islower())]
    return [run[start:end].lower() for start, end in itertools.pairwise([*starts, len(run)])]


@functools.lru_cache(maxsize=1 << 16)
def _singulars(token: str) -> frozenset[str]:
    """Return a token and what it may be the plural of.

    *axes* may be the plural of *axe* or of *ax*, so both are given.
    """
    forms = {token}
    if token in _IRREGULAR:
        forms.add(_IRREGULAR[token])
    elif len(token) > 3 and token.endswith("s") and not token.endswith(("ss", "us", "is")):
        forms.add(token[:-1])
        if token.endswith("ies") and len(token) > 4:
            forms.add(token[:-3] + "y")
        if token.endswith(("ses", "xes", "zes", "ches", "shes", "oes")):
            forms.add(token[:-2])
    return frozenset(forms)


def _table_of(pool: ImagePool) -> AttributeTable:
    if pool.attributes is None:
        raise DataError("these images have no attributes; give a detector or an attribute table")
    return pool.attributes


def _class_word_bits(pool: ImagePool, table: AttributeTable) -> Iterator[tuple[int, UInt8Array]]:
    """Yield, for each class that some word of the table names, its label and those words' bits."""
    tokens = [_tokens(word) for word in table.words]
    having: dict[str, list[int]] = {}
    for index, own in enumerate(tokens):
        for form in {form for token in own for form in _singulars(token)}:
            having.setdefault(form, []).append(index)
    for label, class_name in enumerate(pool.class_names):
        names = class_words(class_name)
        near = {index for name in names for index in having.get(name, ())}
        named = [index for index in sorted(near) if _names(tokens[index], names)]
        if named:
            mask = np.zeros(len(table.words), bool)
            mask[named] = True
            yield label, np.packbits(mask, bitorder="little")


def images_with_class_words(pool: ImagePool) -> BoolArray:
    """Return bool ``(n_images,)``: which images have a word that names their own class.

    Raises:
        DataError: the pool has no attributes.
    """
    table = _table_of(pool)
    found = np.zeros(len(pool), bool)
    for label, mask in _class_word_bits(pool, table):
        members = pool.members(label)
        found[members] = (table.bits[members] & mask).any(axis=1)
    return found


def without_class_words(pool: ImagePool) -> ImagePool:
    """Return the pool without the words that name an image's own class, see ``class_words``.

    Images of other classes keep the word. The vocabulary stays; ``filtered`` drops the words that
    no image has any more. The pool itself is returned if there is nothing to remove.

    Raises:
        DataError: the pool has no attributes.

    >>> pool = ImagePool(("a", "b"), np.array([0, 1]), ("dog", "cat"))
    >>> words = AttributeTable.from_words(pool.keys, [{"dogs", "cat"}, {"dogs"}])
    >>> left = without_class_words(pool.with_attributes(words)).attributes
    >>> left.words_of(0), left.words_of(1)
    (('cat',), ('dogs',))
    """
    table = _table_of(pool)
    bits = None
    for label, mask in _class_word_bits(pool, table):
        members = pool.members(label)
        if (table.bits[members] & mask).any():
            bits = table.bits.copy() if bits is None else bits
            bits[members] &= ~mask
    if bits is None:
        return pool
    return dataclasses.replace(pool, attributes=_with_bits(table, table.words, bits))


def _with_bits(table: AttributeTable, words: tuple[str, ...], bits: UInt8Array) -> AttributeTable:
    bits.flags.writeable = False  # or the table would hold a copy
    return dataclasses.replace(table, words=words, bits=bits)


def filtered(
    table: AttributeTable, *, min_count: int = 1, drop: frozenset[str] = frozenset()
) -> AttributeTable:
    """Return the table without rare and unwanted words, and without those that no image has.

    Args:
        min_count: images that must have a word for it to stay, at least 1.
        drop: words to remove, as the table spells them; words that the table lacks are ignored,
            so that one list serves many tables.

    The table itself is returned if every word stays.

    Raises:
        OptionError: ``min_count`` is below 1.

    >>> table = AttributeTable.from_words(["a", "b"], [{"dog", "grass"}, {"grass", "sky"}])
    >>> filtered(table, min_count=2).words, filtered(table, drop=frozenset({"sky"})).words
    (('grass',), ('dog', 'grass'))
    """
    if min_count < 1:
        raise OptionError(f"min_count must be at least 1, not {min_count}")
    keep = table.images_per_word() >= min_count
    keep &= np.array([word not in drop for word in table.words], dtype=bool)
    if keep.all():
        return table
    kept = np.flatnonzero(keep)
    bits = np.zeros((len(table), -(-kept.size // 8)), np.uint8)
    size = max(1, _BYTES_PER_BLOCK // max(1, table.bits.shape[1]))
    for start in range(0, len(table), size):
        rows = np.arange(start, min(start + size, len(table)))
        bits[rows] = np.packbits(table.rows(rows)[:, kept], axis=1, bitorder="little")
    return _with_bits(table, tuple(table.words[i] for i in kept), bits)
