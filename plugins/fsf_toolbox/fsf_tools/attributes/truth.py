"""How often detected words are right, where what the images show is known."""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from fsframework.errors import DataError, close_matches
from fsframework.values import AttributeTable, BoolArray, Texts, WordReader, normalize, read_csv

__all__ = [
    "DetectionErrors",
    "Rate",
    "ValueErrors",
    "WordErrors",
    "detection_errors",
    "read_truth",
    "words_of_captions",
]

_LEVEL = 0.95


@dataclass(frozen=True)
class Rate:
    """A share with its 95 % interval.

    Args:
        count: number of cases; ``of`` the number of possible ones.
        share: ``count / of``, ``None`` where nothing is possible, as are the two bounds.
        low: lower bound of the interval; ``high`` the upper bound.
    """

    count: int
    of: int
    share: float | None
    low: float | None
    high: float | None

    @classmethod
    def of_images(cls, having: BoolArray) -> Self:
        """Return the share of independent images, with the interval of Wilson (1927).

        >>> found = Rate.of_images(np.array([True, True, True, False]))
        >>> round(found.low, 3), found.share, round(found.high, 3)
        (0.301, 0.75, 0.954)
        """
        from scipy.stats import binomtest

        count, total = int(having.sum()), having.size
        if not total:
            return cls(0, 0, None, None, None)
        found = binomtest(count, total).proportion_ci(_LEVEL, "wilson")
        return cls(count, total, count / total, float(found.low), float(found.high))

    @classmethod
    def of_pairs(cls, having: BoolArray, among: BoolArray) -> Self:
        """Return the share of ``having`` in ``among``, both bool ``(n_images, n_values)``.

        The pairs of one image are not independent: the interval is that of a ratio of two sums
        over images (linearised, Student's t). Where none or all of the pairs have it, that has no
        width, and the interval is Wilson's over the images that have a pair.
        """
        from scipy.stats import t

        counts, totals = (having & among).sum(axis=1), among.sum(axis=1)
        count, total, n = int(counts.sum()), int(totals.sum()), len(among)
        if not total:
            return cls(0, 0, None, None, None)
        share = count / total
        if count in (0, total):
            of_images = cls.of_images(np.full(int((totals > 0).sum()), count > 0))
            return cls(count, total, share, of_images.low, of_images.high)
        squares = float(np.square(counts - share * totals).sum())
        half = float(t.ppf((1 + _LEVEL) / 2, max(1, n - 1))) * np.sqrt(squares) / total
        return cls(count, total, share, float(max(0, share - half)), float(min(1, share + half)))


@dataclass(frozen=True)
class WordErrors:
    """How often a word, or any of several, is right about a value.

    Args:
        word: the word.
        recall: share of the images with the value that have the word.
        false_alarms: share of the images without the value that have it all the same.
    """

    word: str
    recall: Rate
    false_alarms: Rate


@dataclass(frozen=True)
class ValueErrors:
    """How often words are right about one value of the truth.

    Args:
        value: the value.
        recall: share of the images with the value that have at least one of its words.
        false_alarms: share of the images without the value that have at least one all the same.
        words: the same for each word.
    """

    value: str
    recall: Rate
    false_alarms: Rate
    words: tuple[WordErrors, ...]


@dataclass(frozen=True)
class DetectionErrors:
    """How often detected words are right.

    Args:
        images: images whose words and truth are known.
        images_without_truth: images with words only, left out; ``images_without_words`` have a
            truth only.
        values: the errors of each value.
        recall: over all pairs of an image and a value that it has.
        false_alarms: over all pairs of an image and a value that it does not have.
        unused_words: words that no image has.
        other_values: values of the truth that no words stand for.
    """

    images: int
    images_without_truth: int
    images_without_words: int
    values: tuple[ValueErrors, ...]
    recall: Rate
    false_alarms: Rate
    unused_words: tuple[str, ...]
    other_values: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return dataclasses.asdict(self)


def detection_errors(
    words: AttributeTable,
    truth: AttributeTable,
    meaning: Mapping[str, Sequence[str]] | None = None,
) -> DetectionErrors:
    """Compare the words of images with what the images are known to show.

    Args:
        words: the words of each image.
        truth: the values that are true of each image. The two are joined by the images' keys.
        meaning: the words that stand for each value; by default every value stands for itself.

    Raises:
        DataError: no image is in both tables, or no image has a value of ``meaning``.

    >>> words = AttributeTable.from_words(["a", "b", "c"], [{"sea"}, {"tree"}, {"lake", "tree"}])
    >>> truth = AttributeTable.from_words(["a", "b", "c"], [{"water"}, {"water"}, {"land"}])
    >>> found = detection_errors(words, truth, {"water": ["sea", "lake"]})
    >>> found.values[0].recall.share, found.values[0].false_alarms.share
    (0.5, 1.0)
    """
    shared = np.flatnonzero(Texts.of(words.keys).find(truth.keys) >= 0)
    if not shared.size:
        raise DataError(
            f"no image has both words and a truth: the keys are {_first(words.keys)} in one table, "
            f"{_first(truth.keys)} in the other"
        )
    keys = Texts.of(truth.keys).take(shared)
    left_out = len(words) - len(keys), len(truth) - len(keys)
    words, truth = words.aligned(keys), truth.aligned(keys)
    known = [truth.words[i] for i in np.unique(truth.indices)]
    meaning = {value: [value] for value in known} if meaning is None else meaning
    for value in meaning:
        if value not in known:
            raise DataError(
                f"no image has the value {value!r}{close_matches(value, known)}; the values are "
                f"{_first(known, 20)}"
            )
    found = []
    actual, told = np.zeros((2, len(keys), len(meaning)), bool)
    for i, (value, of) in enumerate(meaning.items()):
        actual[:, i] = _having(truth, value)
        columns = {word: _having(words, word) for word in of}
        told[:, i] = np.any([*columns.values()], axis=0)
        found.append(
            ValueErrors(
                value,
                *_errors(told[:, i], actual[:, i]),
                tuple(WordErrors(word, *_errors(c, actual[:, i])) for word, c in columns.items()),
            )
        )
    return DetectionErrors(
        images=len(keys),
        images_without_truth=left_out[0],
        images_without_words=left_out[1],
        values=tuple(found),
        recall=Rate.of_pairs(told, actual),
        false_alarms=Rate.of_pairs(told, ~actual),
        unused_words=tuple(
            one.word
            for v in found
            for one in v.words
            if one.recall.count + one.false_alarms.count == 0
        ),
        other_values=tuple(value for value in known if value not in meaning),
    )


def _errors(told: BoolArray, actual: BoolArray) -> tuple[Rate, Rate]:
    return Rate.of_images(told[actual]), Rate.of_images(told[~actual])


def _having(table: AttributeTable, word: str) -> BoolArray:
    place = bisect.bisect_left(table.words, word)
    if table.words[place : place + 1] != (word,):
        return np.zeros(len(table), bool)
    return table.column(place)


def _first(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(map(repr, names[:most])) + (", ..." if len(names) > most else "")


def read_truth(path: Path, column: str) -> AttributeTable:
    """Read what is true of images from a CSV file with a column ``key``.

    Args:
        path: the file.
        column: the column with the values, read as words are (``WordReader``).

    Raises:
        DataError: the file, a column or a row is wrong; the message names it.
    """
    column = normalize(column)
    columns = _read_columns(path, ("key", column))
    return AttributeTable.from_words(columns["key"], map(WordReader().words, columns[column]))


def words_of_captions(path: Path, sought: Iterable[str]) -> AttributeTable:
    """Find words in the captions of a CSV file with the columns ``key`` and ``caption``.

    Args:
        path: the file.
        sought: words or phrases. A caption has one if it contains it as whole words, in upper or
            lower case; *tree* is not in *trees*.

    Raises:
        DataError: the file, a column or a row is wrong; the message names it.
    """
    columns = _read_columns(path, ("key", "caption"))
    patterns = {
        word: re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE) for word in sought
    }
    words = [
        {word for word, pattern in patterns.items() if pattern.search(caption)}
        for caption in columns["caption"]
    ]
    return AttributeTable.from_words(columns["key"], words)


def columns_of(path: Path) -> list[str]:
    """Return the names of a CSV file's columns.

    Raises:
        DataError: the file cannot be read.
    """
    return [*read_csv(path, lambda names: None)[0]]


def _read_columns(path: Path, wanted: Sequence[str]) -> Mapping[str, list[str]]:
    def demand_header(names: list[str]) -> None:
        for name in wanted:
            if names.count(name) != 1:
                fault = "repeats" if name in names else "has no"
                raise DataError(
                    f"{path}: {fault} column {name!r}{close_matches(name, names)}; its columns are "
                    f"{', '.join(names)[:200] or 'none'}"
                )

    columns, numbers, wrong = read_csv(path, demand_header)
    if wrong:
        raise DataError(f"{path}: row {min(wrong)} {wrong[min(wrong)]}")
    found = {name: [*Texts([columns[name]])] for name in wanted}
    row_of: dict[str, int] = {}
    for row, key in zip(numbers.tolist(), found["key"], strict=True):
        if not key:
            raise DataError(f"{path}: row {row} has no key")
        if row_of.setdefault(key, row) != row:
            raise DataError(f"{path}: row {row} has the key {key!r} of row {row_of[key]}")
    if not row_of:
        raise DataError(f"{path}: has no rows below its header")
    return found
