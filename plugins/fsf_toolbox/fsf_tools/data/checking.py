"""Find problems in a data set and its words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsframework.api.data import data_problems, similar_class_names
from fsframework.errors import DataError
from fsframework.interfaces import Dataset
from fsframework.values import AttributeTable, ImagePool, IntArray, Texts, digest_of

__all__ = ["DataReport", "SplitReport", "WordsReport", "check_dataset", "check_words"]

_SHOWN = 20
_NAMED = 3
_BLOCK = 256
_SMALL = 8
"""Pixels per side to which images are resized when checking only that they can be read."""

Advance = Callable[[int], None]
"""Called with the number of images that were opened."""


@dataclass(frozen=True)
class SplitReport:
    """Counts of one split; ``smallest`` and ``largest`` are a class with its number of images."""

    name: str
    classes: int
    images: int
    smallest: str
    largest: str


@dataclass(frozen=True)
class WordsReport:
    """How the keys of a table of words match those of the images.

    Args:
        words: number of different words.
        matching: number of keys of the table that are of an image.
        unknown: keys of the table that no image has.
        missing: keys of images that the table lacks.
        wordless: number of images in the table that have no word.
    """

    words: int
    matching: int
    unknown: tuple[str, ...]
    missing: tuple[str, ...]
    wordless: int

    def lines(self) -> Iterator[str]:
        """Yield what a user should know, one sentence each; nothing if no key has an image.

        A run refuses such words, in a sentence that says how to mend the keys.
        """
        if not self.matching:
            return
        if self.unknown:
            yield (
                f"{_counted(self.unknown, 'key')} of the words {_have(self.unknown)} no image: "
                + (_some(self.unknown))
            )
        if self.missing:
            yield f"{_counted(self.missing, 'image')} {_have(self.missing)} no words: " + (
                _some(self.missing)
            )
        if not self.unknown and not self.missing:
            yield "every key of the words has an image, and every image has its words"
        if self.wordless:
            verb = "image has an empty cell" if self.wordless == 1 else "images have empty cells"
            yield f"{self.wordless:,} {verb} of words"

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "words": self.words,
            "keys_without_image": list(self.unknown),
            "images_without_words": list(self.missing),
            "images_with_empty_words": self.wordless,
        }


@dataclass(frozen=True)
class DataReport:
    """Counts and problems of a data set.

    Args:
        problems: one sentence each.
        unreadable: number of images that cannot be read.
        notes: what a reader of the numbers must know, one sentence each.
        equal_in_class: number of images whose pixels equal those of an earlier one of their class.
        equal_across_classes: number of images that equal one of another class.
    """

    splits: tuple[SplitReport, ...]
    problems: tuple[str, ...]
    unreadable: int = 0
    notes: tuple[str, ...] = ()
    equal_in_class: int = 0
    equal_across_classes: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return dataclasses.asdict(self)


def check_dataset(dataset: Dataset, opened: Advance | None = None) -> DataReport:
    """Count the classes and images of a data set and find problems.

    Args:
        opened: called with the number of images just opened; ``None`` opens no images.
    """
    problems = [*_structure(dataset), *data_problems(dataset)]
    broken, hashes = ([], None) if opened is None else _read(dataset, opened)
    problems += broken[:_SHOWN]
    if len(broken) > _SHOWN:
        problems.append(f"{len(broken) - _SHOWN} more images cannot be read")
    splits = []
    for name in dataset.splits:
        try:
            splits.append(_split_report(name, dataset.pool(name)))
        except DataError as error:
            problems.append(str(error))
    names = similar_class_names(dataset)
    if hashes is None:
        return DataReport(tuple(splits), tuple(problems), notes=tuple(names))
    groups = _equal_images(dataset, hashes)
    problems += _repeated(dataset, groups, hashes)
    within, across, notes = _describe_equal(dataset, groups)
    notes = (*names, *notes)
    return DataReport(tuple(splits), tuple(problems), len(broken), notes, within, across)


def check_words(dataset: Dataset, table: AttributeTable) -> WordsReport:
    """Compare the keys of a table of words with those of the images."""
    images, rows = Texts.of(dataset.keys), Texts.of(table.keys)
    unknown = images.find(rows) < 0
    return WordsReport(
        len(table.words),
        int((~unknown).sum()),
        tuple(rows.take(np.flatnonzero(unknown))),
        tuple(images.take(np.flatnonzero(rows.find(images) < 0))),
        int(((table.words_per_image() == 0) & ~unknown).sum()),
    )


def _structure(dataset: Dataset) -> list[str]:
    found = []
    sizes = np.bincount(dataset.labels, minlength=len(dataset.class_names))
    empty = [dataset.class_names[i] for i in np.flatnonzero(sizes == 0)]
    if empty:
        found.append(
            f"{_counted(empty, 'class', 'classes')} {_have(empty)} no image: {_some(empty)}"
        )
    keys = Texts.of(dataset.keys)
    if twice := sorted({*keys.take(keys.repeated)}):
        verb = "appears" if len(twice) == 1 else "appear"
        found.append(f"{_counted(twice, 'key')} {verb} more than once: {_some(twice)}")
    home: dict[str, list[str]] = {}
    for split, names in dataset.splits.items():
        for name in names:
            home.setdefault(name, []).append(split)
    found += [
        f"class {name!r} is in the splits {' and '.join(splits)}"
        for name, splits in home.items()
        if len(splits) > 1
    ]
    outside = [n for n in dataset.class_names if n not in home]
    if outside:
        verb = "is" if len(outside) == 1 else "are"
        count = _counted(outside, "class", "classes")
        found.append(f"{count} {verb} in no split: {_some(outside)}")
    return found


def _read(dataset: Dataset, opened: Advance) -> tuple[list[str], IntArray]:
    """Decode every image, in blocks.

    Data sets decode many at once, on all cores; only a block that fails is opened one by one.

    Returns:
        A sentence for each image that cannot be read, and a hash of each small image, 0 if unread.
    """
    broken, hashes = [], np.zeros(len(dataset.keys), np.int64)
    for start in range(0, len(dataset.keys), _BLOCK):
        block = range(start, min(start + _BLOCK, len(dataset.keys)))
        try:
            hashes[block] = _hashes(dataset, block)
        except DataError:
            for index in block:
                try:
                    dataset.image(index)
                    hashes[index] = _hashes(dataset, [index])[0]
                except DataError as error:
                    broken.append(str(error))
        opened(len(block))
    return broken, hashes


def _hashes(dataset: Dataset, indices: Sequence[int]) -> list[int]:
    return [hash(image.tobytes()) for image in dataset.images(indices, _SMALL)]


def _equal_images(dataset: Dataset, hashes: IntArray) -> list[IntArray]:
    """Return the indices of images with equal pixels, ascending, for each group of such images.

    Args:
        hashes: of the small images, 0 if unread; only where they agree are whole images compared.
    """
    order = np.argsort(hashes, kind="stable")
    alike = np.split(order, np.flatnonzero(np.diff(hashes[order])) + 1)
    groups: dict[str, list[int]] = {}
    for members in alike:
        for index in members.tolist() if len(members) > 1 and hashes[members[0]] else ():
            pixels = dataset.image(index)
            groups.setdefault(digest_of(repr(pixels.shape), pixels.tobytes()), []).append(index)
    return [np.array(members) for members in groups.values() if len(members) > 1]


def _repeated(dataset: Dataset, groups: Sequence[IntArray], hashes: IntArray) -> list[str]:
    """Return a sentence if classes consist of one repeated image."""
    sizes = np.bincount(dataset.labels[hashes != 0], minlength=len(dataset.class_names))
    found = sorted(
        dataset.class_names[label]
        for members in groups
        for label, count in zip(
            *np.unique(dataset.labels[members], return_counts=True), strict=True
        )
        if count == sizes[label] > 1
    )
    if not found:
        return []
    verb = "consists" if len(found) == 1 else "consist"
    count = _counted(found, "class", "classes")
    return [f"{count} {verb} of one repeated image: {_some(found)}"]


def _describe_equal(
    dataset: Dataset, groups: Sequence[IntArray]
) -> tuple[int, int, tuple[str, ...]]:
    """Return the numbers of equal images within and across classes, and a sentence on each."""
    within: list[str] = []
    across: list[str] = []
    for members in groups:
        labels = dataset.labels[members]
        _, first = np.unique(labels, return_index=True)
        keys = [dataset.keys[int(index)] for index in members]
        within += [key for place, key in enumerate(keys) if place not in first]
        across += keys if len(first) > 1 else []
    notes = []
    if within:
        verb = "equals" if len(within) == 1 else "equal"
        notes.append(
            f"{_counted(within, 'image')} {verb} another of the same class, so that a task may "
            f"have one picture in its support and its queries: {_some(within)}"
        )
    if across:
        notes.append(
            f"{_counted(across, 'image')} are in two classes or more, with the same pixels, so "
            f"that no classifier can be right on all of them: {_some(across)}"
        )
    return len(within), len(across), tuple(notes)


def _split_report(name: str, pool: ImagePool) -> SplitReport:
    small, large = int(pool.class_sizes.argmin()), int(pool.class_sizes.argmax())
    return SplitReport(
        name,
        len(pool.class_names),
        len(pool),
        f"{pool.class_sizes[small]} ({pool.class_names[small]})",
        f"{pool.class_sizes[large]} ({pool.class_names[large]})",
    )


def _counted(names: Sequence[str], one: str, many: str = "") -> str:
    return f"{len(names):,} {one if len(names) == 1 else many or one + 's'}"


def _have(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:_NAMED])) + (", ..." if len(names) > _NAMED else "")
