"""Detection: a detector processes every image once, even if the run is interrupted.

Each answer of a detector is appended to a log immediately, so that a killed detection resumes where
it stopped, and several processes can share the work. For a captioner the log holds captions, from
which other words can be selected without processing an image again.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fsframework._calls import about, checked, malformed, named, seeded
from fsframework._files import (
    atomic_write,
    discard,
    explain_os_error,
    held,
    is_ordinary,
    load_sealed,
    locked,
    save_sealed,
)
from fsframework.components.resolution import Component, canonical
from fsframework.engine.session import Session, resolve_device
from fsframework.errors import DataError, FsfError, PluginError
from fsframework.interfaces.dataset import Dataset
from fsframework.interfaces.detector import AttributeDetector, Captioner
from fsframework.interfaces.selector import WordSelector
from fsframework.values import (
    AttributeTable,
    BoolArray,
    ImageRecord,
    IntArray,
    Texts,
    digest_of,
    normalize,
)

__all__ = ["Detection"]

_IMAGES_PER_CALL = {"cpu": 16, "cuda": 64}
"""Default number of images per call of a detector."""
_RECORDS_PER_CALL = 4096
"""Records or captions per call, for selectors and for detectors that need no pixels."""


@dataclass(eq=False)
class Detection:
    """A detector that is ready for the images of a split, and its earlier answers.

    Memory grows with the table and with ``batch_size``, not with the images.

    Args:
        component: the detector.
        dataset: of the images.
        origin: the component that made ``dataset``; its code enters the cache key, its options and
            its state do not, since the data set's fingerprint reflects them.
        split: whose images are processed.
        session: where answers are kept.
        device: where the detector runs, see ``resolve_device``.
        offline: whether it must not use the network.
        batch_size: images per call of the detector; 0 for 16 on a CPU, 64 on a GPU, and 4,096 if
            it needs no pixels.

    Raises:
        FsfError: the detector cannot be prepared.
    """

    component: Component
    dataset: Dataset
    origin: Component
    split: str
    session: Session
    device: str = "auto"
    offline: bool = False
    batch_size: int = 0
    keys: Texts = field(init=False)
    """Keys of the split's images."""
    notes: tuple[str, ...] = field(init=False)
    """What a user should know about the detector's words."""
    failed: list[tuple[str, str]] = field(init=False, default_factory=list)
    """Key and reason of each image that could not be read."""

    def __post_init__(self) -> None:
        self._indices = self.dataset.split_indices(self.split)
        columns = self.dataset.metadata.items()
        self._columns = {normalize(name): Texts.of(column) for name, column in columns}
        keys = Texts.of(self.dataset.keys)
        self.keys = keys.take(self._indices)
        self._detector: AttributeDetector = self.component.create()
        _check_declared(self._detector)
        needs_pixels, device = self._detector.consumes == "pixels", "cpu"
        if needs_pixels:
            device = str(resolve_device(self.device))
        self._detector.prepare(device=device, offline=self.offline)
        self._provenance = _provenance(self._detector)
        self.identity = self._identity()
        usual = _IMAGES_PER_CALL["cuda" if device.startswith("cuda") else "cpu"]
        self.batch_size = self.batch_size or (usual if needs_pixels else _RECORDS_PER_CALL)
        others = keys.take(np.setdiff1d(np.arange(len(keys)), self._indices))
        self.notes = tuple(self._detector.notes(self.keys, others))
        selector = self._selector
        for note in (*self.notes, *(selector.notes() if selector is not None else ())):
            self.session.reporter.note(note)

    @property
    def _selector(self) -> WordSelector | None:
        return self._detector.selector if isinstance(self._detector, Captioner) else None

    def _identity(self) -> str:
        """Return the digest of what the answers depend on: not on split and selector."""
        asked = self.component
        if self._selector is not None:
            own = {k: v for k, v in asked.options.items() if k != "selector"}
            asked = dataclasses.replace(asked, options=own)
        made_by = {k: v for k, v in self._provenance.items() if not k.startswith("selector.")}
        return digest_of(
            "detections",
            asked.fingerprint,
            canonical(made_by),
            dataclasses.replace(self.origin, options={}, instance=None).fingerprint,
            self.dataset.fingerprint,
        )

    @property
    def _folder(self) -> Path:
        return self.session.workspace.cache / "detections" / self.identity[:24]

    def _log(self) -> _Log:
        return _Log(self._folder / "answers.jsonl", self.identity, self.keys)

    def missing(self) -> IntArray:
        """Return the positions in the split of the images without an answer, int64 ``(n,)``."""
        return np.flatnonzero(~self._log().done)

    def answer(self, places: IntArray) -> None:
        """Process images that had no answer, while other processes may process others.

        Images that cannot be read stay without an answer.

        Args:
            places: positions in the split.

        Raises:
            FsfError: an answer is malformed.
        """
        log = self._log()
        self._fill(log, places[~log.done[places]])

    def table(self) -> AttributeTable:
        """Process the images without an answer; return the words of all that can be read.

        Raises:
            FsfError: an answer is malformed.
        """
        reporter, total = self.session.reporter, len(self.keys)
        made_by = self.component.fingerprint, canonical(self._provenance), self.split
        digest = digest_of(self.identity, *made_by)
        stored = self.session.workspace.cache / "attributes" / f"{digest[:24]}.parquet"

        def waiting() -> None:
            reporter.say("waiting for another process that detects the same words")

        with held(self._folder, reporter.note, waiting=waiting):
            log = self._log()
            todo = np.flatnonzero(~log.done)
            if not todo.size:
                kept = load_sealed(stored, AttributeTable.load, reporter.note)
                if kept is not None:
                    return kept
            elif log.n_damaged:
                told = f"{log.n_damaged:,} lines are damaged; their images are processed again"
                reporter.note(f"{log.path}: {told}")
            self._fill(log, todo)
            if total - np.count_nonzero(log.done) > len(self.failed):
                raise FsfError(f"{log.path}: was removed meanwhile; run the same command again")
            table = self._table(log)
        if not self.failed:
            save_sealed(stored, table.save)
        return table

    def _fill(self, log: _Log, todo: IntArray) -> None:
        """Process images, ``batch_size`` at a time, and append the answers to the log.

        A thread reads the next images while the detector processes the current ones.
        """
        if not todo.size:
            return
        total, size = len(self.keys), self.batch_size
        kind = "words" if self._selector is None else "caption"
        with (
            ThreadPoolExecutor(1, "images") as pool,
            self.session.reporter.stage("detection", total, total - todo.size) as advance,
        ):
            coming = pool.submit(self._read, todo[:size])
            for start in range(0, len(todo), size):
                images, places, broken = coming.result()
                coming = pool.submit(self._read, todo[start + size : start + 2 * size])
                if images:
                    with about(f"{len(images)} images from {self.keys[places[0]]!r} on"):
                        answers = _answers(self._detector, images)
                    log.append(places, answers, kind)
                self.failed += broken
                remark = f"{len(self.failed)} cannot be read" if self.failed else ""
                advance(len(places) + len(broken), remark)

    def _read(self, todo: IntArray) -> tuple[list[Any], list[int], list[tuple[str, str]]]:
        """Return some images, their positions, and key and reason of those that are broken."""
        images: list[Any] = []
        places: list[int] = []
        broken = []
        for place in todo.tolist():
            try:
                images.append(self._shown(int(self._indices[place])))
                places.append(place)
            except (DataError, OSError) as error:
                broken.append((self.keys[place], str(error)))
        return images, places, broken

    def _shown(self, index: int) -> Any:
        key = normalize(self.dataset.keys[index])
        if self._detector.consumes == "pixels":
            with about(repr(key)):
                return self.dataset.image(index)
        return ImageRecord(key, {name: own[index] for name, own in self._columns.items()})

    def _table(self, log: _Log) -> AttributeTable:
        """Build the table from the log, reading it block by block."""
        places, selector = np.flatnonzero(log.done), self._selector
        captions: list[str] = []

        def words() -> Iterator[Sequence[str]]:
            with self.session.reporter.stage("words", len(places)) as advance:
                for start in range(0, len(places), _RECORDS_PER_CALL):
                    answers = log.read(places[start : start + _RECORDS_PER_CALL])
                    if selector is not None:
                        captions.extend(answers)
                        answers = _words(selector, "select", selector.select(answers), len(answers))
                    yield from answers
                    advance(len(answers))

        plugin = self.component.plugin
        provenance = {
            "detector": self.component.name,
            "distribution": f"{plugin.distribution} {plugin.version}",
            "split": self.split,
            "options": canonical(_portable(self.component.to_json())),
            **self._provenance,
            "unreadable": f"{len(self.failed)} of {len(self.keys)} images",
        }
        keys = self.keys.take(places)
        shown = None if selector is None else captions
        return AttributeTable.from_words(keys, words(), provenance, shown)


def _portable(value: Any) -> Any:
    """Return options with paths reduced to file names, since folders differ between machines."""
    if isinstance(value, dict):
        return {k: _portable(v) for k, v in value.items()}
    if isinstance(value, str) and "/" in value and Path(value).exists():
        return Path(value).name
    return value


def _check_declared(detector: AttributeDetector) -> None:
    """Check what a detector's class and the instance declare."""
    if detector.consumes not in ("pixels", "records"):
        wrong = f"consumes must be 'pixels' or 'records', not {detector.consumes!r}"
        raise PluginError(f"{named(detector)}: {wrong}")
    if isinstance(detector, Captioner):
        selector = vars(detector).get("selector", getattr(type(detector), "selector", None))
        if not isinstance(selector, WordSelector):
            raise PluginError(f"{named(detector)}: a captioner must set self.selector")


def _provenance(detector: AttributeDetector) -> dict[str, str]:
    found = checked(detector, "provenance", detector.provenance(), Mapping)
    for name, text in found.items():
        if not (isinstance(name, str) and isinstance(text, str)):
            raise malformed(detector, "provenance", f"{name!r}: {text!r}", "strings")
    return dict(found)


def _answers(detector: AttributeDetector, images: Sequence[Any]) -> Sequence[Any]:
    """Return a caption, or a sorted list of words, for each image."""
    if not isinstance(detector, Captioner):
        with seeded(0):
            found = detector.detect(images)
        return _words(detector, "detect", found, len(images))
    with seeded(0):
        captions = detector.describe(images)
    _check_each(detector, "describe", captions, len(images), (str,), "a text")
    return [_writable(caption) for caption in captions]


def _words(plugin: object, method: str, answers: Sequence[Any], wanted: int) -> list[list[str]]:
    """Return a plugin's words of each image or caption, checked and sorted."""
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
    kinds: tuple[type, ...],
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


class _Log:
    """The answer for each image: JSON lines in one file, to which any number of processes append.

    The first line identifies what answers. Each other line is empty, or an object with ``key`` and
    either ``caption`` or ``words``; the first one of an image counts. Lines that a killed process
    has torn are ignored, so that their images have no answer.

    Args:
        path: of the file.
        identity: digest of what the answers depend on.
        keys: of all images of the split.
    """

    def __init__(self, path: Path, identity: str, keys: Texts) -> None:
        self.path, self._keys = path, keys
        self._header = json.dumps({"what": "answers", "identity": identity}).encode() + b"\n"
        self._offset = np.full(len(keys), -1, np.int64)
        self.n_damaged = 0
        if not self._is_ours():
            self.n_damaged = int(path.exists())
            return
        place_of = {key: place for place, key in enumerate(keys)}
        with path.open("rb") as file:
            end = len(file.readline())
            for line in file:
                key = _key_of(line)
                place = place_of.get(key, -1)
                if place >= 0 and self._offset[place] < 0:
                    self._offset[place] = end
                self.n_damaged += not key and not line.isspace()
                end += len(line)

    @property
    def done(self) -> BoolArray:
        """Which images have an answer."""
        done: BoolArray = self._offset >= 0
        return done

    def _is_ours(self) -> bool:
        if not is_ordinary(self.path):
            return False
        with self.path.open("rb") as file:
            return file.read(len(self._header)) == self._header

    def append(self, places: list[int], answers: Sequence[Any], kind: str) -> None:
        """Write answers to the file; once this returns, a kill does not lose them."""
        said = [{"key": self._keys[p], kind: a} for p, a in zip(places, answers, strict=True)]
        lines = [json.dumps(one).encode() + b"\n" for one in said]
        try:
            with locked(self.path.parent / "appending"):
                if not self._is_ours():
                    discard(self.path)
                    atomic_write(self.path, self._header)
                    self._offset[:] = -1
                with self.path.open("ab") as file:
                    start = file.tell() + 1  # an empty line, since a kill may have torn the last
                    file.write(b"\n" + b"".join(lines))
        except OSError as error:
            raise explain_os_error(error, self.path) from error
        self._offset[places] = [start, *(start + np.cumsum([len(line) for line in lines[:-1]]))]

    def read(self, places: IntArray) -> list[Any]:
        """Return the answers for some images: captions or lists of words."""
        answers = []
        with self.path.open("rb") as file:
            for place in places:
                file.seek(self._offset[place])
                said = msgspec.json.decode(file.readline(), type=_Answer)
                answers.append(said.words if said.caption is None else said.caption)
        return answers


class _Answer(msgspec.Struct):
    """A line of the log."""

    key: str
    caption: str | None = None
    words: list[str] | None = None


def _key_of(line: bytes) -> str:
    """Return the key of an intact line, else an empty string: its image is processed again."""
    try:
        said = msgspec.json.decode(line, type=_Answer)
    except (ValueError, RecursionError):
        return ""
    return said.key if (said.caption is None) != (said.words is None) else ""
