"""The log of a detection: the answer for each image, written as soon as it is given."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Self

import numpy as np

from fsframework._files import atomic_write, explain_os_error
from fsframework.pipeline.cache.sealed import discard, held, is_ordinary
from fsframework.pipeline.progress import Reporter
from fsframework.values import BoolArray, IntArray

__all__ = ["DetectionLog"]


class DetectionLog:
    """The answer for each image: JSON lines in one file, to which any number of processes append.

    The first line identifies what answers. Each other line is an object with ``key`` and either
    ``caption`` or ``words``; the first one of an image counts. Lines that a killed process has torn
    are ignored, so that their images have no answer.

    Args:
        folder: of the file.
        identity: digest of what the answers depend on.
        keys: of all images of the split.
        reporter: is told of damage, and if another process has to be waited for.
        alone: whether the folder is locked already.
    """

    def __init__(
        self, folder: Path, identity: str, keys: tuple[str, ...], reporter: Reporter, alone: bool
    ) -> None:
        self.path = folder / "answers.jsonl"
        self.keys = keys
        self._header = json.dumps({"what": "answers", "identity": identity}).encode() + b"\n"
        self._reporter, self._alone = reporter, alone
        self._place_of = {key: place for place, key in enumerate(keys)}
        self._offset = np.full(len(keys), -1, np.int64)
        self._end = self._n_damaged = 0
        self._read_on()
        if self._n_damaged and not self.done.all():
            reporter.note(
                f"{self.path}: {self._n_damaged:,} lines are damaged; their images are processed "
                "again"
            )

    @classmethod
    @contextmanager
    def opened(
        cls, folder: Path, identity: str, keys: tuple[str, ...], reporter: Reporter, *, alone: bool
    ) -> Iterator[Self]:
        """Open the log for a process.

        Args:
            folder: as of the class; ``identity``, ``keys`` and ``reporter`` likewise.
            alone: whether other processes wait meanwhile; if not, they do other images.
        """
        with _held(folder, reporter) if alone else nullcontext():
            yield cls(folder, identity, keys, reporter, alone)

    @property
    def done(self) -> BoolArray:
        """Which images have an answer."""
        done: BoolArray = self._offset >= 0
        return done

    def missing(self) -> IntArray:
        """Return the positions without an answer."""
        return np.flatnonzero(~self.done)

    def append(self, places: list[int], answers: Sequence[Any], *, captions: bool) -> None:
        """Write answers to the file; once this returns, a kill does not lose them."""
        kind = "caption" if captions else "words"
        said = [
            json.dumps({"key": self.keys[place], kind: answer}).encode() + b"\n"
            for place, answer in zip(places, answers, strict=True)
        ]
        try:
            with nullcontext() if self._alone else _held(self.path.parent, self._reporter):
                self._read_on()
                if not self._end:
                    discard(self.path)
                    atomic_write(self.path, self._header)
                with self.path.open("rb+") as file:
                    file.seek(-1, 2)
                    torn = file.read(1) != b"\n"
                    file.write(b"\n" * torn + b"".join(said))
                self._read_on()
        except OSError as error:
            raise explain_os_error(error, self.path) from error

    def read(self, places: IntArray) -> list[Any]:
        """Return the answers for some images: captions or lists of words."""
        answers = []
        with self.path.open("rb") as file:
            for place in places:
                file.seek(self._offset[place])
                said = json.loads(file.readline())
                answers.append(said["caption"] if "caption" in said else said["words"])
        return answers

    def _read_on(self) -> None:
        """Read what the file has more than when it was last read."""
        if not is_ordinary(self.path):
            self._end = 0
            self._offset[:] = -1
            return
        with self.path.open("rb") as file:
            if not self._end:
                if file.readline(len(self._header)) != self._header:
                    self._n_damaged = 1
                    return
                self._end = len(self._header)
            file.seek(self._end)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                key = _key_of(line)
                place = self._place_of.get(key, -1)
                if place >= 0 and self._offset[place] < 0:
                    self._offset[place] = self._end
                self._n_damaged += not key
                self._end += len(line)


def _held(folder: Path, reporter: Reporter) -> AbstractContextManager[None]:
    def waiting() -> None:
        reporter.say("waiting for another process that detects the same words")

    return held(folder, reporter, waiting=waiting)


def _key_of(line: bytes) -> str:
    """Return the key of an intact line, else an empty string: its image is processed again."""
    try:
        said = json.loads(line)
        caption, words = said.get("caption", ""), said.get("words", [])
        whole = ("caption" in said) != ("words" in said) and isinstance(caption, str)
        if whole and isinstance(words, list) and all(isinstance(w, str) for w in words):
            return str(said["key"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return ""
