"""What a table of attributes holds: counts, agreement with another, and tables cut and joined."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fsframework.errors import DataError, OptionError
from fsframework.values import AttributeTable, BoolArray, ImagePool, IntArray, UInt8Array

__all__ = [
    "Agreement",
    "AttributeStatistics",
    "DetectorAgreement",
    "SpuriousPair",
    "UnusableClass",
    "WordCount",
    "WordsPerImage",
    "agreement",
    "attribute_statistics",
    "class_words",
    "filtered",
    "images_with_class_words",
    "merged",
    "names_class",
    "without_class_words",
]

_PAIRS_A_BLOCK = 1 << 20
"""Pairs (image, word) looked at together; one takes some 50 bytes for the time."""
_BYTES_A_BLOCK = 1 << 21
"""Bytes of bits looked at together; unpacked they are 8 times as many."""


@dataclass(frozen=True)
class WordsPerImage:
    """Words an image, over all images, those without a word included."""

    mean: float
    min: int
    median: float
    max: int


@dataclass(frozen=True)
class SpuriousPair:
    """A class and a word that some of its images have and some lack (FewSTAB, Definition 1).

    Args:
        images: of the class, that have the word; ``share`` is their share of the class's images.
    """

    class_name: str
    word: str
    images: int
    share: float


@dataclass(frozen=True)
class UnusableClass:
    """A class that can stand in no FewSTAB task, and why: a clause that follows its name."""

    class_name: str
    images: int
    reason: str


@dataclass(frozen=True)
class AttributeStatistics:
    """Counts of the words of a pool's images.

    Args:
        images: in the pool; ``images_without_words`` have none, ``images_with_class_words`` at
            least one that names their own class, see ``class_words``.
        classes: in the pool.
        unique_words: words that at least one image has: "unique attributes" of FewSTAB, Table 2.
        words_per_class: distinct words that at least one image of the class has, averaged over
            the classes: "avg. attributes per class" of Table 2. The paper does not say more of
            what it counts; words that every image of a class has are counted here too.
        words_per_image: mean, median and extremes.
        pairs: pairs (image, word).
        spurious_pairs: pairs <class, word> after Definition 1; ``commonest`` are those that most
            images have, ties by the names of class and word.
        n_way: classes a task, ``n_shot`` support and ``n_query`` query images a class.
        usable_classes: number of classes that can stand in a FewSTAB task: some word is present
            in at least ``n_shot`` of their images and absent from at least ``n_query``; there are
            ``usable_words`` such words in all, and each class of a task needs another.
        unusable: the other classes, in the pool's order.
    """

    images: int
    images_without_words: int
    images_with_class_words: int
    classes: int
    unique_words: int
    words_per_class: float
    words_per_image: WordsPerImage
    pairs: int
    spurious_pairs: int
    commonest: tuple[SpuriousPair, ...]
    n_way: int
    n_shot: int
    n_query: int
    usable_classes: int
    usable_words: int
    unusable: tuple[UnusableClass, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return dataclasses.asdict(self)


class _Cells(NamedTuple):
    """Pairs (class, word) that at least one image has, sorted by class, then word."""

    label: IntArray
    word: IntArray
    images: IntArray


def attribute_statistics(
    pool: ImagePool, *, n_way: int = 5, n_shot: int = 5, n_query: int = 15, most: int = 20
) -> AttributeStatistics:
    """Count the words of a pool's images, by image and by class.

    Memory grows with the pairs (class, word) that occur, not with their product, and not with
    the pairs (image, word).

    Args:
        pool: with attributes.
        n_way: classes a task, at least 2.
        n_shot: support images a class, at least 1; ``n_query`` query images, at least 1.
        most: spurious pairs to name, at least 0.

    Raises:
        DataError: the pool has no image or no attributes.
        OptionError: a number is too small.

    >>> pool = ImagePool(tuple("abc"), np.array([0, 0, 1]), ("cat", "dog"))
    >>> words = AttributeTable.from_words(pool.keys, [{"sofa", "lamp"}, {"sofa"}, {"grass"}])
    >>> found = attribute_statistics(pool.with_attributes(words), n_shot=1, n_query=1)
    >>> found.unique_words, found.words_per_class, found.usable_classes
    (3, 1.5, 1)
    >>> found.commonest
    (SpuriousPair(class_name='cat', word='lamp', images=1, share=0.5),)
    """
    for name, value, least in (
        ("n_way", n_way, 2), ("n_shot", n_shot, 1), ("n_query", n_query, 1), ("most", most, 0),
    ):  # fmt: skip
        if value < least:
            raise OptionError(f"{name} must be at least {least}, not {value}")
    table = _table_of(pool)
    if not len(pool):
        raise DataError("there is no image whose words could be counted")
    counts = _words_per_image(table.bits)
    cells = _cells(pool, table, counts)
    spurious = np.flatnonzero(cells.images < pool.class_sizes[cells.label])
    by_name = np.argsort(np.argsort(np.array(pool.class_names, dtype=object)))
    order = np.lexsort(
        (cells.word[spurious], by_name[cells.label[spurious]], -cells.images[spurious])
    )
    commonest = [
        SpuriousPair(
            pool.class_names[cells.label[cell]],
            table.words[cells.word[cell]],
            int(cells.images[cell]),
            float(cells.images[cell] / pool.class_sizes[cells.label[cell]]),
        )
        for cell in spurious[order[:most]]
    ]
    unusable = _unusable(pool, table, cells, n_shot, n_query)
    absent = pool.class_sizes[cells.label] - cells.images
    usable = np.unique(cells.word[(cells.images >= n_shot) & (absent >= n_query)])
    return AttributeStatistics(
        images=len(pool),
        images_without_words=int((counts == 0).sum()),
        images_with_class_words=int(images_with_class_words(pool).sum()),
        classes=len(pool.class_names),
        unique_words=int(np.unique(cells.word).size),
        words_per_class=cells.word.size / len(pool.class_names),
        words_per_image=WordsPerImage(
            float(counts.mean()), int(counts.min()), float(np.median(counts)), int(counts.max())
        ),
        pairs=int(counts.sum()),
        spurious_pairs=int(spurious.size),
        commonest=tuple(commonest),
        n_way=n_way,
        n_shot=n_shot,
        n_query=n_query,
        usable_classes=len(pool.class_names) - len(unusable),
        usable_words=int(usable.size),
        unusable=unusable,
    )


def _table_of(pool: ImagePool) -> AttributeTable:
    if pool.attributes is None:
        raise DataError("these images have no attributes; name a detector or an attribute table")
    return pool.attributes


def _row_blocks(bits: UInt8Array) -> Iterator[slice]:
    size = max(1, _BYTES_A_BLOCK // max(1, bits.shape[1]))
    return (slice(start, start + size) for start in range(0, bits.shape[0], size))


def _words_per_image(bits: UInt8Array) -> IntArray:
    counts = np.zeros(bits.shape[0], np.int64)
    for rows in _row_blocks(bits):
        counts[rows] = np.bitwise_count(bits[rows]).sum(axis=1, dtype=np.int64)
    return counts


def _images_per_word(table: AttributeTable) -> IntArray:
    counts = np.zeros(len(table.words), np.int64)
    for rows in _row_blocks(table.bits):
        counts += table.rows(np.arange(len(table))[rows]).sum(axis=0)
    return counts


def _even_blocks(counts: IntArray) -> Iterator[slice]:
    """Cut a sequence so that the counts in each part add up to about ``_PAIRS_A_BLOCK``."""
    part = np.cumsum(counts) // _PAIRS_A_BLOCK
    bounds = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(counts)]
    return (slice(*pair) for pair in itertools.pairwise(bounds))


def _cells(pool: ImagePool, table: AttributeTable, counts: IntArray) -> _Cells:
    order = np.argsort(pool.labels, kind="stable")
    n_words = max(1, len(table.words))
    codes, images = [], []
    for block in _even_blocks(counts[order]):
        chosen = order[block]
        words = table.csr(chosen)[1]
        label = np.repeat(pool.labels[chosen], counts[chosen])
        code, count = np.unique(label * n_words + words, return_counts=True)
        codes.append(code)
        images.append(count)
    # A class on the border of two blocks stands in both.
    code, place = np.unique(np.concatenate(codes), return_inverse=True)
    total = np.zeros(code.size, np.int64)
    np.add.at(total, place, np.concatenate(images))
    return _Cells(code // n_words, code % n_words, total)


def _unusable(
    pool: ImagePool, table: AttributeTable, cells: _Cells, n_shot: int, n_query: int
) -> tuple[UnusableClass, ...]:
    absent = pool.class_sizes[cells.label] - cells.images
    fit = (cells.images >= n_shot) & (absent >= n_query)
    usable = np.zeros(len(pool.class_names), bool)
    usable[cells.label[fit]] = True
    starts = np.searchsorted(cells.label, np.arange(len(pool.class_names) + 1))
    found = []
    for label in np.flatnonzero(~usable):
        size = int(pool.class_sizes[label])
        of_class = slice(starts[label], starts[label + 1])
        present = cells.images[of_class]
        if not present.size:
            reason = f"none of its {_counted(size, 'image')} has a word"
        elif size < n_shot + n_query:
            reason = (
                f"has {_counted(size, 'image')}, fewer than n_shot + n_query = {n_shot + n_query}"
            )
        else:
            # The word that comes nearest: the rarest that is common enough, or the commonest.
            enough = np.flatnonzero(present >= n_shot)
            best = enough[present[enough].argmin()] if enough.size else present.argmax()
            reason = (
                f"no word is present in {n_shot} of its {size} images and absent from {n_query}; "
                f"nearest is {table.words[cells.word[of_class][best]]!r}, present in "
                f"{present[best]} and absent from {size - present[best]}"
            )
        found.append(UnusableClass(pool.class_names[label], size, reason))
    return tuple(found)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else noun + 's'}"


# Words that name a class

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
    """Return the words that name a class, lower-case: its tokens and, of several, the compound.

    A token is a run of letters; ``GoldenRetriever`` has two. Left out are digits, WordNet
    identifiers (``n02099601``), the possessive *s* and words such as *of*, *the* and *and*. Each
    token counts by itself: *golden* names the golden retriever. A plural stands beside every
    singular it may come from.

    >>> sorted(class_words("001.Black_footed_Albatross"))
    ['albatross', 'black', 'black footed albatross', 'footed']
    >>> sorted(class_words("n02099601 dogs"))
    ['dog', 'dogs']
    """
    tokens = _tokens(class_name)
    return frozenset().union([" ".join(tokens)] if tokens else [], *map(_singulars, tokens))


def names_class(word: str, class_name: str) -> bool:
    """Return whether a word names a class: each of its tokens is one of ``class_words``.

    Singular and plural are the same here. A phrase that says more than the name does not name
    the class.

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
    """Split letters before each capital that follows a small letter."""
    starts = [0, *(i for i in range(1, len(run)) if run[i].isupper() and run[i - 1].islower())]
    return [run[start:end].lower() for start, end in itertools.pairwise([*starts, len(run)])]


@functools.lru_cache(maxsize=1 << 16)
def _singulars(token: str) -> frozenset[str]:
    """Return a token and what it may be the plural of.

    Which of *axe* and *ax* has the plural *axes* is not to be seen, so both are given.
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

    Images of other classes keep the word, and the vocabulary stays; ``filtered`` drops what no
    image has any more. The pool itself is returned where there is nothing to take away.

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
        drop: words to take out, as they are spelt in the table; others are passed over, so that
            one list serves many tables.

    The table itself is returned where every word stays.

    Raises:
        OptionError: ``min_count`` is below 1.

    >>> table = AttributeTable.from_words(["a", "b"], [{"dog", "grass"}, {"grass", "sky"}])
    >>> filtered(table, min_count=2).words, filtered(table, drop=frozenset({"sky"})).words
    (('grass',), ('dog', 'grass'))
    """
    if min_count < 1:
        raise OptionError(f"min_count must be at least 1, not {min_count}")
    keep = _images_per_word(table) >= min_count
    keep &= np.array([word not in drop for word in table.words], dtype=bool)
    if keep.all():
        return table
    kept = np.flatnonzero(keep)
    bits = np.zeros((len(table), -(-kept.size // 8)), np.uint8)
    for rows in _row_blocks(table.bits):
        chosen = table.rows(np.arange(len(table))[rows])[:, kept]
        bits[rows] = np.packbits(chosen, axis=1, bitorder="little")
    return _with_bits(table, tuple(table.words[i] for i in kept), bits)


# Two tables of the same images

_UNIQUE_SHOWN = 10


@dataclass(frozen=True)
class WordCount:
    """A word and the number of images that have it."""

    word: str
    images: int


@dataclass(frozen=True)
class DetectorAgreement:
    """What one of two tables says, judged by the other.

    Args:
        accuracy: detection accuracy with the other table as the reference (FewSTAB, Eq. 9), a
            share of 1; ``None`` where the reference has no word at all.
        images_without_reference: common images for which the reference has no word. The ratio of
            Eq. 9 is undefined for them, and they are left out of the mean.
        images_only: images in this table and not in the other.
        words: distinct words of the common images.
        shared_share: share of ``words`` that the other table has too; ``None`` if there are none.
        unique: the commonest words of the common images that the other table lacks there, at
            most 10, ties by name; ``unique_words`` is the number of all of them.
    """

    accuracy: float | None
    images_without_reference: int
    images_only: int
    words: int
    shared_share: float | None
    unique_words: int
    unique: tuple[WordCount, ...]


@dataclass(frozen=True)
class Agreement:
    """How far two tables say the same of the images that both know.

    Args:
        images: known to both.
        shared_words: words that both have somewhere among these images.
        jaccard: shared words as a share of all words of either; ``None`` if there are none.
        a: the first table, judged by the second; ``b``: the second, judged by the first.
    """

    images: int
    shared_words: int
    jaccard: float | None
    a: DetectorAgreement
    b: DetectorAgreement

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return dataclasses.asdict(self)


def agreement(a: AttributeTable, b: AttributeTable) -> Agreement:
    """Judge each of two tables by the other, over the images that both know.

    The detection accuracy of FewSTAB, Eq. 9 (Table S11): the mean over images of
    ``|A_query & A_ref| / |A_ref|``, where *query* is the table that is judged. Images for which
    ``A_ref`` is empty have no ratio and are left out; the paper does not speak of them. Only
    words spelt alike are the same. Vocabularies are those of the common images.

    Raises:
        DataError: no image is in both tables.

    >>> one = AttributeTable.from_words(["x", "y"], [{"dog", "grass"}, {"sofa"}])
    >>> two = AttributeTable.from_words(["y", "x"], [{"sofa", "lamp"}, {"dog"}])
    >>> found = agreement(one, two)
    >>> found.a.accuracy, found.b.accuracy, found.jaccard
    (0.75, 0.75, 0.5)
    """
    place = {key: i for i, key in enumerate(b.keys)}
    in_b = np.fromiter((place.get(key, -1) for key in a.keys), np.int64, len(a))
    rows_a = np.flatnonzero(in_b >= 0)
    rows_b = in_b[rows_a]
    if not rows_a.size:
        raise DataError(
            f"no image is in both tables: the first has {_some_keys(a)}, the second {_some_keys(b)}"
        )
    vocabulary = sorted({*a.words, *b.words})
    number = {word: i for i, word in enumerate(vocabulary)}
    to_common = [np.array([number[w] for w in t.words], np.int64) for t in (a, b)]
    sizes = [_words_per_image(t.bits)[r] for t, r in ((a, rows_a), (b, rows_b))]
    common = np.zeros(rows_a.size, np.int64)
    images = np.zeros((2, len(vocabulary)), np.int64)
    for block in _even_blocks(sizes[0] + sizes[1]):
        codes = []
        for side, (table, rows) in enumerate(((a, rows_a[block]), (b, rows_b[block]))):
            words = to_common[side][table.csr(rows)[1]]
            images[side] += np.bincount(words, minlength=len(vocabulary))
            image = np.repeat(np.arange(rows.size), sizes[side][block])
            codes.append(image * len(vocabulary) + words)
        both = np.intersect1d(codes[0], codes[1], assume_unique=True) // max(1, len(vocabulary))
        common[block] = np.bincount(both, minlength=common[block].size)
    has = images > 0
    shared, union = int((has[0] & has[1]).sum()), int((has[0] | has[1]).sum())

    def judged(query: int, images_only: int) -> DetectorAgreement:
        reference = sizes[1 - query]
        known = reference > 0
        words = int(has[query].sum())
        own = np.flatnonzero(has[query] & ~has[1 - query])
        first = own[np.argsort(-images[query][own], kind="stable")[:_UNIQUE_SHOWN]]
        return DetectorAgreement(
            accuracy=float((common[known] / reference[known]).mean()) if known.any() else None,
            images_without_reference=int((~known).sum()),
            images_only=images_only,
            words=words,
            shared_share=shared / words if words else None,
            unique_words=int(own.size),
            unique=tuple(WordCount(vocabulary[i], int(images[query][i])) for i in first),
        )

    return Agreement(
        images=int(rows_a.size),
        shared_words=shared,
        jaccard=shared / union if union else None,
        a=judged(0, len(a) - rows_a.size),
        b=judged(1, len(b) - rows_b.size),
    )


def _some_keys(table: AttributeTable) -> str:
    named = ", ".join(map(repr, table.keys[:3]))
    return f"{named}{', ...' if len(table) > 3 else ''}" if len(table) else "none"


# Tables of parts of the images

_OF_ITS_FILE = ("shard", "file", "file_digest")
"""Entries of a provenance that tell one part from another."""
_COUNTING = ("unreadable", "images_with_class_words")
"""Entries that count images: ``3 of 60``, perhaps with a noun."""
_COUNT = re.compile(r"(\d+) of (\d+)(.*)", re.DOTALL)


def merged(tables: Sequence[tuple[str, AttributeTable]]) -> AttributeTable:
    """Put tables of different images together, such as shards made on different machines.

    Shards ``i/n`` are put in their order, so that all of them make the table that one process
    would have made; other tables stay in the order given. An image that stands in several tables
    with the same words is kept once, at its first place. The provenance keeps what the tables
    agree on and the sum of what counts images, and names in ``shard`` the parts it is made of
    unless none is missing.

    Args:
        tables: pairs of a name, for messages, and a table.

    Raises:
        DataError: there is no table, an image has different words in two, or what made them
            differs: detector, model, options, versions.

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
        counts = _words_per_image(table.bits)
        for block in _even_blocks(counts):
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
        # Images that were counted twice cannot be told from the others.
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
    """Return number and count of a table's shard, as ``detection.Shard`` writes them."""
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
                    f"{first_name} and {name} were not made alike: {field} is {one} in the first "
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
