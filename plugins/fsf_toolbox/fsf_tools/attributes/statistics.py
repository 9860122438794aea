"""Counts of the words of images, by image and by class, and the tasks that they allow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fsf_tools.attributes._blocks import even_blocks
from fsframework.api.data import without_class_words, words_in_classes
from fsframework.errors import DataError, OptionError
from fsframework.values import AttributeTable, BoolArray, ImagePool, IntArray

__all__ = [
    "AttributeStatistics",
    "SpuriousPair",
    "UnusableClass",
    "WordsPerImage",
    "attribute_statistics",
    "images_with_class_words",
]


@dataclass(frozen=True)
class WordsPerImage:
    """Words per image, over all images including those without a word."""

    mean: float
    min: int
    median: float
    max: int


@dataclass(frozen=True)
class SpuriousPair:
    """A class and a word that only some of its images have (FewSTAB, Definition 1).

    Args:
        images: images of the class that have the word; ``share`` is their share of the class.
    """

    class_name: str
    word: str
    images: int
    share: float


@dataclass(frozen=True)
class UnusableClass:
    """A class that cannot be in any FewSTAB task; ``reason`` is a clause that follows its name."""

    class_name: str
    images: int
    reason: str


@dataclass(frozen=True)
class AttributeStatistics:
    """Counts of the words of a pool's images.

    Args:
        images: images in the pool; ``images_without_words`` have none, ``images_with_class_words``
            at least one that names their own class.
        classes: classes in the pool.
        unique_words: words that at least one image has: "unique attributes" of FewSTAB, Table 2.
        words_per_class: distinct words that at least one image of the class has, averaged over
            the classes: "avg. attributes per class" of Table 2. The paper does not define it
            further; words that every image of a class has are counted here too.
        words_per_image: mean, median and extremes.
        pairs: pairs (image, word).
        spurious_pairs: pairs <class, word> after Definition 1; ``commonest`` are those of the most
            images, ties by the names of class and word.
        n_way: classes per task; ``n_shot`` support and ``n_query`` query images per class.
        usable_classes: number of classes that can be in a FewSTAB task: some word is present in at
            least ``n_shot`` of their images and absent from at least ``n_query``; there are
            ``usable_words`` such words in all, and each class of a task needs a different one.
        unusable: the other classes, in the pool's order.
        words_in_most_classes: words that most images of nearly every class have, with the number of
            these classes: they may say what the classes are, as ``bird`` does of bird species.
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
    words_in_most_classes: Mapping[str, int]

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
        n_way: classes per task, at least 2.
        n_shot: support images per class, at least 1; ``n_query`` query images, at least 1.
        most: number of spurious pairs to name, at least 0.

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
        raise DataError("there are no images to count words of")
    counts = table.words_per_image()
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
        words_in_most_classes=words_in_classes(pool),
    )


def images_with_class_words(pool: ImagePool) -> BoolArray:
    """Return bool ``(n_images,)``: which images have a word that names their own class.

    Raises:
        DataError: the pool has no attributes.
    """
    left = _table_of(without_class_words(pool))
    return np.not_equal(_table_of(pool).words_per_image(), left.words_per_image())


def _table_of(pool: ImagePool) -> AttributeTable:
    if pool.attributes is None:
        raise DataError("these images have no attributes; name a detector or an attribute table")
    return pool.attributes


def _cells(pool: ImagePool, table: AttributeTable, counts: IntArray) -> _Cells:
    order = np.argsort(pool.labels, kind="stable")
    n_words = max(1, len(table.words))
    codes, images = [], []
    for block in even_blocks(counts[order]):
        chosen = order[block]
        words = table.csr(chosen)[1]
        label = np.repeat(pool.labels[chosen], counts[chosen])
        code, count = np.unique(label * n_words + words, return_counts=True)
        codes.append(code)
        images.append(count)
    # A class on the border of two blocks is in both.
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
                f"has {_counted(size, 'image')}, fewer than its shots and queries, "
                f"{n_shot + n_query}"
            )
        else:
            # The nearest word: the rarest that is common enough, or the most common.
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
