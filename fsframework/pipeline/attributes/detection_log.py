"""The log of a detection: the answer for each image, written as soon as it is given."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import xxhash

from fsframework._files import atomic_write, explain_os_error, locked
from fsframework.errors import FsfError
from fsframework.pipeline.cache.sealed import discard, held, is_readable_file
from fsframework.pipeline.progress import Reporter
from fsframework.values import BoolArray, IntArray

__all__ = ["DetectionLog"]

_CHECK = b', "check": "'
_ALL = "part-all.jsonl"
"""The file of a process that works alone."""
_PARTS = "part-*.jsonl"
_OF_WORKER = "part-worker-"
"""Begins the names of the files of workers, each of which has a part that nobody else has."""
_BLOCK = 1 << 16


class DetectionLog:
    """The answer for each image: JSON lines, one file per process that took part.

    Each line ends with ``check``, an XXH3 hash of what precedes it and of the folder's name.
    Answers without one, of an earlier version, are accepted; damaged ones are missing.

    Args:
        folder: of the files.
        keys: of all images of the split.
        own: the file that this process writes to.
        parts: pattern of the names of the files that are read.
    """

    def __init__(self, folder: Path, keys: tuple[str, ...], own: Path, parts: str = _PARTS) -> None:
        self.keys = keys
        self.done: BoolArray = np.zeros(len(keys), dtype=bool)
        self._own = own
        self._seed = _seed_of(folder)
        self.n_damaged = 0
        self.unchecked: list[Path] = []
        """Files with answers of an earlier version."""
        self._files: list[Path] = []
        self._file = np.full(len(keys), -1, np.int16)
        self._offset = np.zeros(len(keys), np.int64)
        found = sorted(folder.glob(parts))
        place_of = {key: i for i, key in enumerate(keys)} if found else {}
        for path in found:
            self._scan(path, place_of)
        self._out: IO[bytes] | None = None

    @classmethod
    @contextmanager
    def opened(
        cls, folder: Path, keys: tuple[str, ...], reporter: Reporter
    ) -> Iterator[DetectionLog]:
        """Open the log for one process, while others wait."""

        def waiting() -> None:
            reporter.say("waiting for another process that detects the same words")

        with held(folder, reporter, waiting=waiting):
            _join_parts_of_workers(folder)
            log = cls._healed(folder, keys, folder / _ALL, reporter)
            try:
                yield log
            finally:
                if log._out is not None:
                    log._out.close()

    @classmethod
    @contextmanager
    def opened_by_worker(
        cls, folder: Path, keys: tuple[str, ...], name: str, reporter: Reporter
    ) -> Iterator[DetectionLog]:
        """Open the log for a worker that does images which nobody else does meanwhile.

        It knows the answers of earlier workers for the same images, and no others.

        Args:
            folder: of the files.
            keys: of all images of the split.
            name: of the images that it does.
            reporter: is told if it has to wait.
        """

        def waiting() -> None:
            reporter.say("waiting for another process that detects the same words")

        with locked(folder, shared=True, waiting=waiting):
            # A worker that seems dead may still write, so each has a file of its own.
            own = folder / f"{_OF_WORKER}{name}-{secrets.token_hex(4)}.jsonl"
            log = cls(folder, keys, own, f"{_OF_WORKER}{name}-*.jsonl")
            try:
                yield log
            finally:
                if log._out is not None:
                    log._out.close()

    @classmethod
    def _healed(
        cls, folder: Path, keys: tuple[str, ...], own: Path, reporter: Reporter
    ) -> DetectionLog:
        """Open the log after what an earlier version or an accident has left is dealt with."""
        for path in [own, *folder.glob("part-*.jsonl")]:
            if not is_readable_file(path):
                reporter.note(f"{path}: not a readable file; its answers are made again")
                discard(path)
        _cut_torn_line(own)
        log = cls(folder, keys, own)
        if log.unchecked:
            reporter.note(
                f"{folder}: answers of an earlier version have no digests; they are accepted and "
                "get digests now"
            )
            for path in log.unchecked:
                with suppress(FsfError):  # the cache may be read-only
                    _add_checks(path)
            log = cls(folder, keys, own)
        if log.n_damaged and not log.done.all():
            reporter.note(
                f"{folder}: {log.n_damaged:,} answers are damaged; their images are processed again"
            )
        return log

    def _scan(self, path: Path, place_of: Mapping[str, int]) -> None:
        self._files.append(path)
        with path.open("rb") as file:
            offset = 0
            unchecked = False
            for line in file:
                if line.endswith(b"\n"):
                    key = _key_of(line, self._seed)
                    place = place_of.get(key, -1)
                    if place >= 0 and not self.done[place]:
                        self._remember(place, len(self._files) - 1, offset)
                    self.n_damaged += not key
                    unchecked |= bool(key) and _CHECK not in line
                offset += len(line)
        self.unchecked += [path] * unchecked

    def _remember(self, place: int, file: int, offset: int) -> None:
        self.done[place] = True
        self._file[place], self._offset[place] = file, offset

    def missing(self) -> IntArray:
        """Return the positions without an answer."""
        return np.flatnonzero(~self.done)

    def append(self, places: list[int], answers: Sequence[Any], *, captions: bool) -> None:
        """Write answers to the file; once this returns, a kill does not lose them."""
        if self._own not in self._files:
            self._files.append(self._own)
        number = self._files.index(self._own)
        try:
            if self._out is None:
                self._out = self._own.open("ab")
            offset = self._out.tell()
            lines = []
            for place, answer in zip(places, answers, strict=True):
                said = {"caption": answer} if captions else {"words": answer}
                raw = json.dumps({"key": self.keys[place], **said})
                lines.append(_with_check(raw.encode(), self._seed))
            self._out.write(b"".join(lines))
            self._out.flush()
        except OSError as error:
            raise explain_os_error(error, self._own) from error
        for place, line_bytes in zip(places, lines, strict=True):
            self._remember(place, number, offset)
            offset += len(line_bytes)

    def read(self, places: IntArray) -> list[Any]:
        """Return the answers for some images: captions or lists of words."""
        answers = []
        with ExitStack() as stack:
            files: dict[int, IO[bytes]] = {}
            for place in places:
                number = int(self._file[place])
                if number not in files:
                    files[number] = stack.enter_context(self._files[number].open("rb"))
                files[number].seek(int(self._offset[place]))
                said = json.loads(files[number].readline())
                answers.append(said["caption"] if "caption" in said else said["words"])
        return answers


def _join_parts_of_workers(folder: Path) -> None:
    """Move what workers have written into one file; no worker is at work.

    If this is killed, an answer may be in two files, of which one is read.
    """
    own = folder / _ALL
    for path in sorted(folder.glob(f"{_OF_WORKER}*.jsonl")):
        if not is_readable_file(path):
            discard(path)
            continue
        _cut_torn_line(path)
        _cut_torn_line(own)
        try:
            with own.open("ab") as joined:
                joined.write(path.read_bytes())
                joined.flush()
                os.fsync(joined.fileno())
            path.unlink()
        except OSError as error:
            raise explain_os_error(error, own) from error


def _seed_of(folder: Path) -> int:
    return xxhash.xxh3_64_intdigest(folder.name.encode())


def _with_check(raw: bytes, seed: int) -> bytes:
    """Return a JSON object as a line that ends with its check."""
    said = raw.removesuffix(b"}")
    return said + _CHECK + xxhash.xxh3_64_hexdigest(said, seed).encode() + b'"}\n'


def _key_of(line: bytes, seed: int) -> str:
    """Return the key of an intact line, else an empty string: its image is processed again."""
    said_bytes, mark, _ = line.rpartition(_CHECK)
    if mark and line != _with_check(said_bytes + b"}", seed):
        return ""
    try:
        said = json.loads(line)
        caption, words = said.get("caption", ""), said.get("words", [])
        whole = ("caption" in said) != ("words" in said) and isinstance(caption, str)
        if whole and isinstance(words, list) and all(isinstance(w, str) for w in words):
            return str(said["key"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return ""


def _add_checks(path: Path) -> None:
    """Give the intact lines of an earlier version their checks."""
    seed = _seed_of(path.parent)
    with path.open("rb") as file:
        lines = [
            _with_check(line.rstrip(), seed) if _key_of(line, seed) and _CHECK not in line else line
            for line in file
        ]
    atomic_write(path, b"".join(lines))


def _cut_torn_line(path: Path) -> None:
    """Remove an incomplete line that a killed process left at the end of its file."""
    try:
        with path.open("rb") as file:
            size = end = file.seek(0, os.SEEK_END)
            whole = 0
            while end > 0 and not whole:
                start = max(0, end - _BLOCK)
                file.seek(start)
                place = file.read(end - start).rfind(b"\n")
                whole, end = (start + place + 1 if place >= 0 else 0), start
        if whole < size:
            os.truncate(path, whole)
    except FileNotFoundError:
        return
    except OSError as error:
        raise explain_os_error(error, path) from error
