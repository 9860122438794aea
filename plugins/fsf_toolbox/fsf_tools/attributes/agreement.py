"""How well two attribute tables agree on the images that both describe."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsf_tools.attributes._blocks import even_blocks
from fsframework.errors import DataError
from fsframework.values import AttributeTable, Texts

__all__ = ["Agreement", "DetectorAgreement", "WordCount", "agreement"]

_UNIQUE_SHOWN = 10


@dataclass(frozen=True)
class WordCount:
    """A word and the number of images that have it."""

    word: str
    images: int


@dataclass(frozen=True)
class DetectorAgreement:
    """One of two tables, evaluated against the other.

    Args:
        accuracy: detection accuracy with the other table as the reference (FewSTAB, Eq. 9), a
            share of 1; ``None`` if the reference has no word at all.
        images_without_reference: common images for which the reference has no word. The ratio of
            Eq. 9 is undefined for them, so they are left out of the mean.
        images_only: images in this table but not in the other.
        words: distinct words of the common images.
        shared_share: share of ``words`` that the other table has too; ``None`` without words.
        unique: the most common words of the common images that the other table lacks there, at
            most 10, ties by name; ``unique_words`` is their total number.
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
    """How well two tables agree on the images in both.

    Args:
        images: number of images in both tables.
        shared_words: words that both have for any of these images.
        jaccard: shared words as a share of all words of either; ``None`` without words.
        a: the first table, evaluated against the second; ``b``: the second against the first.
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
    """Evaluate each of two tables against the other, over the images in both.

    The detection accuracy of FewSTAB, Eq. 9 (Table S11): the mean over images of
    ``|A_query & A_ref| / |A_ref|``, where *query* is the evaluated table. Images with an empty
    ``A_ref`` have no ratio and are left out; the paper does not mention them. Words are the same
    only if spelt the same. Vocabularies are those of the common images.

    Raises:
        DataError: no image is in both tables.

    >>> one = AttributeTable.from_words(["x", "y"], [{"dog", "grass"}, {"sofa"}])
    >>> two = AttributeTable.from_words(["y", "x"], [{"sofa", "lamp"}, {"dog"}])
    >>> found = agreement(one, two)
    >>> found.a.accuracy, found.b.accuracy, found.jaccard
    (0.75, 0.75, 0.5)
    """
    in_b = Texts.of(b.keys).find(a.keys)
    rows_a = np.flatnonzero(in_b >= 0)
    rows_b = in_b[rows_a]
    if not rows_a.size:
        raise DataError(
            f"no image is in both tables: the first has {_some_keys(a)}, the second {_some_keys(b)}"
        )
    vocabulary = sorted({*a.words, *b.words})
    number = {word: i for i, word in enumerate(vocabulary)}
    to_common = [np.array([number[w] for w in t.words], np.int64) for t in (a, b)]
    sizes = [t.words_per_image()[r] for t, r in ((a, rows_a), (b, rows_b))]
    common = np.zeros(rows_a.size, np.int64)
    images = np.zeros((2, len(vocabulary)), np.int64)
    for block in even_blocks(sizes[0] + sizes[1]):
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
