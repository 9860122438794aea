"""Calls of detectors and selectors, whose answers are checked before they are stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fsframework.errors import DataError, FsfError
from fsframework.interfaces.dataset import Dataset
from fsframework.interfaces.detector import AttributeDetector, Captioner
from fsframework.interfaces.selector import WordSelector
from fsframework.values import ImageRecord, IntArray

__all__ = ["Answered", "CheckedDetector", "answers_of"]


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


@dataclass(frozen=True)
class CheckedDetector:
    """A detector whose faults become sentences that name it.

    Args:
        detector: the plugin.
        name: as messages name it.
    """

    detector: AttributeDetector
    name: str

    @property
    def captions(self) -> bool:
        """Whether it answers with captions, from which its selector takes the words."""
        return isinstance(self.detector, Captioner)

    @contextmanager
    def blamed_for(self, what: str) -> Iterator[None]:
        """Turn what the plugin raises into a sentence; an ``FsfError`` passes unchanged."""
        try:
            yield
        except (FsfError, MemoryError):
            raise
        except Exception as error:
            first = (str(error).splitlines() or [""])[0]
            raise DataError(
                f"detector {self.name}: {what} raised {type(error).__name__}: {first}"
            ) from error

    def check_declared(self) -> None:
        """Check what the class and the instance declare.

        Raises:
            DataError: ``consumes`` is unknown, or a captioner has no selector.
        """
        consumes = self.detector.consumes
        if consumes not in ("pixels", "records"):
            raise DataError(
                f"detector {self.name}: consumes must be 'pixels' or 'records', not {consumes!r}"
            )
        if isinstance(self.detector, Captioner):
            try:
                given = isinstance(self.detector.selector, WordSelector)
            except AttributeError:
                given = False
            if not given:
                raise DataError(f"detector {self.name}: a captioner must set self.selector")

    def provenance(self) -> dict[str, str]:
        """Return the provenance, which must consist of strings."""
        found: Mapping[str, Any] = self.detector.provenance()
        for name, text in found.items():
            if not (isinstance(name, str) and isinstance(text, str)):
                raise DataError(
                    f"detector {self.name}: provenance must hold strings, not {name!r}: {text!r}"
                )
        return dict(found)

    def answer(self, images: Sequence[Any]) -> Sequence[Any]:
        """Return a caption, or a sorted list of words, for each image."""
        who = f"detector {self.name}"
        if isinstance(self.detector, Captioner):
            return _captions(who, self.detector.describe(images), len(images))
        return _words(who, self.detector.detect(images), len(images), "images")

    def selected(self, captions: Sequence[str]) -> list[list[str]]:
        """Return the words that a captioner's selector takes from captions."""
        assert isinstance(self.detector, Captioner)
        selector = self.detector.selector
        who = f"selector {type(selector).__name__}"
        with self.blamed_for(f"selection by {type(selector).__name__}"):
            return _words(who, selector.select(captions), len(captions), "captions")


def _list_of(who: str, answers: Any, wanted: int, what: str) -> list[Any]:
    if not isinstance(answers, (list, tuple)):
        raise DataError(f"{who} must return a list, not {type(answers).__name__}")
    if len(answers) != wanted:
        raise DataError(f"{who} returned {len(answers)} answers for {wanted} {what}")
    return list(answers)


def _captions(who: str, answers: Any, wanted: int) -> list[str]:
    found = _list_of(who, answers, wanted, "images")
    for caption in found:
        if not isinstance(caption, str):
            raise DataError(f"{who}: a caption must be a string, not {caption!r}")
    return [_writable(caption) for caption in found]


def _words(who: str, answers: Any, wanted: int, what: str) -> list[list[str]]:
    found = _list_of(who, answers, wanted, what)
    for words in found:
        if not isinstance(words, (frozenset, set)):
            raise DataError(f"{who}: the words of an image must be a frozenset, not {words!r}")
        for word in words:
            if not isinstance(word, str) or not word or word != word.strip():
                raise DataError(
                    f"{who}: a word must be a non-empty string without surrounding white space, "
                    f"not {word!r}"
                )
    return [sorted({_writable(word) for word in words}) for words in found]


def _writable(text: str) -> str:
    """Return text that a file can hold: half of a surrogate pair becomes a question mark."""
    return text.encode(errors="replace").decode()


def answers_of(
    checked: CheckedDetector, dataset: Dataset, indices: IntArray, todo: IntArray, size: int
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
                images.append(_shown(checked.detector, dataset, int(indices[place])))
                places.append(place)
            except (DataError, OSError) as error:
                broken.append((place, str(error)))
        return images, places, broken

    call = "describe" if checked.captions else "detect"
    with ThreadPoolExecutor(1, "images") as pool:
        coming = pool.submit(read, 0)
        for start in range(0, len(todo), size):
            images, places, broken = coming.result()
            if start + size < len(todo):
                coming = pool.submit(read, start + size)
            answers: Sequence[Any] = []
            if images:
                first = dataset.keys[indices[places[0]]]
                with checked.blamed_for(f"{call} of {len(images)} images from {first!r} on"):
                    answers = checked.answer(images)
            yield Answered(places, answers, broken)


def _shown(detector: AttributeDetector, dataset: Dataset, index: int) -> Any:
    if detector.consumes == "pixels":
        return dataset.image(index)
    metadata = {name: column[index] for name, column in dataset.metadata.items()}
    return ImageRecord(dataset.keys[index], metadata)
