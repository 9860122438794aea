"""Calls of detectors and selectors, whose answers are checked before they are stored."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from fsframework._calls import about, checked, malformed, named
from fsframework.errors import DataError, PluginError
from fsframework.interfaces.dataset import Dataset
from fsframework.interfaces.detector import AttributeDetector, Captioner
from fsframework.interfaces.selector import WordSelector
from fsframework.values import ImageRecord, IntArray

__all__ = ["Answered", "answers_of", "check_declared", "provenance_of", "selected"]


@dataclass(frozen=True)
class Answered:
    """The answers for some images.

    Args:
        places: positions of the processed images in the split.
        answers: a caption or a sorted list of words for each.
        broken: position and reason for each image that cannot be read.
    """

    places: list[int]
    answers: Sequence[Any]
    broken: list[tuple[int, str]]


def check_declared(detector: AttributeDetector) -> None:
    """Check what a detector's class and the instance declare.

    Raises:
        PluginError: ``consumes`` is unknown, or a captioner has no selector.
    """
    if detector.consumes not in ("pixels", "records"):
        wrong = f"consumes must be 'pixels' or 'records', not {detector.consumes!r}"
        raise PluginError(f"{named(detector)}: {wrong}")
    if isinstance(detector, Captioner):
        selector = vars(detector).get("selector", getattr(type(detector), "selector", None))
        if not isinstance(selector, WordSelector):
            raise PluginError(f"{named(detector)}: a captioner must set self.selector")


def provenance_of(detector: AttributeDetector) -> dict[str, str]:
    """Return the provenance, which must consist of strings.

    Raises:
        PluginError: it does not.
    """
    found = checked(detector, "provenance", detector.provenance(), Mapping)
    for name, text in found.items():
        if not (isinstance(name, str) and isinstance(text, str)):
            raise malformed(detector, "provenance", f"{name!r}: {text!r}", "strings")
    return dict(found)


def answer(detector: AttributeDetector, images: Sequence[Any]) -> Sequence[Any]:
    """Return a caption, or a sorted list of words, for each image.

    Raises:
        PluginError: the detector's answers are malformed.
    """
    if not isinstance(detector, Captioner):
        return _words(detector, "detect", detector.detect(images), len(images))
    captions = detector.describe(images)
    _check_each(detector, "describe", captions, len(images), str, "a text")
    return [_writable(caption) for caption in captions]


def selected(selector: WordSelector, captions: Sequence[str]) -> list[list[str]]:
    """Return the words that a captioner's selector takes from captions, sorted.

    Raises:
        PluginError: the selector's answers are malformed.
    """
    return _words(selector, "select", selector.select(captions), len(captions))


def _words(plugin: object, method: str, answers: Sequence[Any], wanted: int) -> list[list[str]]:
    _check_each(plugin, method, answers, wanted, (frozenset, set), "a frozenset")
    for word in itertools.chain.from_iterable(answers):
        if not isinstance(word, str) or not word or word != word.strip():
            expected = "non-empty words without surrounding white space"
            raise malformed(plugin, method, f"the word {word!r}", expected)
    return [sorted({_writable(word) for word in words}) for words in answers]


def _check_each(
    plugin: object,
    method: str,
    answers: Sequence[Any],
    wanted: int,
    kinds: type | tuple[type, ...],
    expected: str,
) -> None:
    checked(plugin, method, answers, list, tuple)
    if len(answers) != wanted:
        raise malformed(plugin, method, f"{len(answers)} answers", f"{wanted}, one per item")
    for one in answers:
        if not isinstance(one, kinds):
            raise malformed(plugin, method, f"{one!r}", f"{expected} for each item")


def _writable(text: str) -> str:
    """Return text that a file can hold: half of a surrogate pair becomes a question mark."""
    return text.encode(errors="replace").decode()


def answers_of(
    detector: AttributeDetector, dataset: Dataset, indices: IntArray, todo: IntArray, size: int
) -> Iterator[Answered]:
    """Pass images to a detector and yield its answers, ``size`` images at a time.

    A thread reads the next images while the detector processes the current ones.

    Args:
        indices: of the split's images in the data set.
        todo: the positions in ``indices`` to process.
    """

    def read(start: int) -> tuple[list[Any], list[int], list[tuple[int, str]]]:
        images, places, broken = [], [], []
        for place in map(int, todo[start : start + size]):
            try:
                images.append(_shown(detector, dataset, int(indices[place])))
                places.append(place)
            except (DataError, OSError) as error:
                broken.append((place, str(error)))
        return images, places, broken

    with ThreadPoolExecutor(1, "images") as pool:
        coming = pool.submit(read, 0)
        for start in range(0, len(todo), size):
            images, places, broken = coming.result()
            if start + size < len(todo):
                coming = pool.submit(read, start + size)
            answers: Sequence[Any] = []
            if images:
                first = dataset.keys[indices[places[0]]]
                with about(f"{len(images)} images from {first!r} on"):
                    answers = answer(detector, images)
            yield Answered(places, answers, broken)


def _shown(detector: AttributeDetector, dataset: Dataset, index: int) -> Any:
    if detector.consumes == "pixels":
        with about(repr(dataset.keys[index])):
            return dataset.image(index)
    metadata = {name: column[index] for name, column in dataset.metadata.items()}
    return ImageRecord(dataset.keys[index], metadata)
