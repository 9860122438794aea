"""Detection: a detector processes every image once, even if the run is interrupted.

Each answer of a detector is appended to a log immediately, so that a killed detection resumes where
it stopped, and several processes can share the work. For a captioner the log holds captions, from
which other words can be selected without processing an image again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fsframework.components.resolution import Component, canonical
from fsframework.errors import FsfError, OptionError, argument
from fsframework.interfaces.dataset import Dataset
from fsframework.interfaces.detector import AttributeDetector, Captioner
from fsframework.pipeline.attributes.answers import (
    answers_of,
    check_declared,
    provenance_of,
    selected,
)
from fsframework.pipeline.attributes.detection_log import DetectionLog
from fsframework.pipeline.cache.sealed import load_sealed, save_sealed
from fsframework.pipeline.progress import Reporter
from fsframework.pipeline.session import Session
from fsframework.pipeline.shared_rows import Sharing
from fsframework.values import AttributeTable, IntArray, digest_of

__all__ = ["Detected", "Detection", "DetectionJob", "detect_attributes"]

_IMAGES_PER_CALL = {"cpu": 16, "cuda": 64}
"""Default number of images per call of a detector."""
_RECORDS_PER_CALL = 4096
"""Records or captions per call, for selectors and for detectors that need no pixels."""


@dataclass(frozen=True)
class DetectionJob:
    """Which detector processes which images.

    Args:
        detector: the component.
        dataset: of the images.
        origin: the component that made ``dataset``; its code enters the cache key, its options do
            not, since the data set's fingerprint reflects them.
        split: whose images are processed.
    """

    detector: Component
    dataset: Dataset
    origin: Component
    split: str

    @cached_property
    def indices(self) -> IntArray:
        """Indices of the split's images in the data set, int64 ``(n,)``."""
        return self.dataset.split_indices(self.split)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Keys of the split's images."""
        return tuple(self.dataset.keys[i] for i in self.indices)

    def other_keys(self) -> tuple[str, ...]:
        """Return the keys of the images that are not in the split."""
        inside = set(self.indices.tolist())
        return tuple(k for i, k in enumerate(self.dataset.keys) if i not in inside)


@dataclass(frozen=True)
class Detected:
    """The result of a detection.

    Args:
        table: of the processed images; an image that cannot be read is not in it.
        failed: key and reason for each image that cannot be read.
        notes: what a user should know about the detector's words.
        reused: number of images that an earlier call had finished.
    """

    table: AttributeTable
    failed: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    reused: int

    def complaints(self) -> list[str]:
        """Return a sentence on the images that cannot be read, if any."""
        if not self.failed:
            return []
        count, (_, reason) = len(self.failed), self.failed[0]
        return [f"{count} {'image' if count == 1 else 'images'} cannot be read: {reason}"]


@dataclass(frozen=True)
class _Prepared:
    """A detector that is ready, with its provenance and notes."""

    detector: AttributeDetector
    device: str
    provenance: dict[str, str]
    notes: tuple[str, ...]


class Detection:
    """A detector that is ready for the images of a job, and its earlier answers.

    Memory grows with the table and with ``batch_size``, not with the images.

    Args:
        job: what is detected.
        session: where answers are kept.
        device: where the detector runs, see ``resolve_device``.
        offline: whether it must not use the network.
        batch_size: images per call of the detector; by default 16 on a CPU, 64 on a GPU, and
            4,096 if it needs no pixels.

    Raises:
        FsfError: the detector cannot be prepared.
    """

    def __init__(
        self,
        job: DetectionJob,
        session: Session,
        *,
        device: str = "auto",
        offline: bool = False,
        batch_size: int | None = None,
    ) -> None:
        if batch_size is not None and batch_size < 1:
            raise OptionError(f"{argument('batch_size')} must be at least 1, not {batch_size}")
        self.job, self._session = job, session
        self._ready = _prepare(job, session.reporter, device, offline)
        self.identity = _key(job, self._ready.provenance)
        """Digest of what the answers depend on."""
        self.batch_size = _batch_size(self._ready, batch_size)

    @property
    def _folder(self) -> Path:
        return self._session.workspace.cache / "detections" / self.identity[:24]

    def _log(self, alone: bool) -> AbstractContextManager[DetectionLog]:
        reporter = self._session.reporter
        folder, keys = self._folder, self.job.keys
        return DetectionLog.opened(folder, self.identity, keys, reporter, alone=alone)

    def missing(self) -> IntArray:
        """Return the positions in the split of the images without an answer, int64 ``(n,)``."""
        with self._log(alone=False) as log:
            return log.missing()

    def answer(self, places: IntArray) -> None:
        """Process images that had no answer, while other processes may process others.

        Images that cannot be read stay without an answer.

        Args:
            places: positions in the split.

        Raises:
            FsfError: an answer is malformed.
        """
        with self._log(alone=False) as log:
            self._fill(log, places[~log.done[places]])

    def result(self) -> Detected:
        """Process the images without an answer, and return the table of all.

        Raises:
            FsfError: an answer is malformed.
        """
        job, ready, session = self.job, self._ready, self._session
        table_key = digest_of(
            self.identity,
            job.detector.fingerprint,
            canonical(ready.provenance),
        )
        stored = session.workspace.cache / "attributes" / f"{table_key[:24]}.parquet"
        with self._log(alone=True) as log:
            todo, total = log.missing(), len(job.keys)
            if not todo.size:
                kept = load_sealed(stored, AttributeTable.load, session.reporter)
                if kept is not None:
                    return Detected(kept, (), ready.notes, total)
            failed = self._fill(log, todo)
            if log.missing().size > len(failed):
                raise FsfError(f"{log.path}: was removed meanwhile; run the same command again")
            header = _header(job, ready.provenance, f"{len(failed)} of {total} images")
            table = _table(log, ready.detector, header, session.reporter)
        if not failed:
            save_sealed(stored, table.save)
        return Detected(table, tuple(failed), ready.notes, total - int(todo.size))

    def _fill(self, log: DetectionLog, todo: IntArray) -> list[tuple[str, str]]:
        """Process images; return those that cannot be read, with the reasons."""
        job, detector, reporter = self.job, self._ready.detector, self._session.reporter
        failed: list[tuple[str, str]] = []
        if not todo.size:
            return failed
        total = len(job.keys)
        with reporter.stage("detection", total, total - todo.size) as advance:
            for said in answers_of(detector, job.dataset, job.indices, todo, self.batch_size):
                log.append(said.places, said.answers, captions=isinstance(detector, Captioner))
                failed += [(job.keys[place], reason) for place, reason in said.broken]
                remark = f"{len(failed)} cannot be read" if failed else ""
                advance(len(said.places) + len(said.broken), remark)
        return failed


def detect_attributes(
    job: DetectionJob,
    session: Session,
    *,
    device: str = "auto",
    offline: bool = False,
    batch_size: int | None = None,
    sharing: Sharing | None = None,
) -> Detected:
    """Run a detector over images, reusing its earlier answers.

    Args:
        job: what is detected.
        session: where answers are kept.
        device: as of ``Detection``; ``offline`` and ``batch_size`` likewise.
        sharing: workers that process the images; by default this process does.

    Raises:
        FsfError: the detector cannot be prepared, or its answer is malformed.
    """
    detection = Detection(job, session, device=device, offline=offline, batch_size=batch_size)
    if sharing is None:
        return detection.result()
    todo = detection.missing()
    sharing.compute("detection", detection.identity, todo, detection.batch_size)
    found = detection.result()  # of unreadable images, and of the table
    return dataclasses.replace(found, reused=len(job.keys) - int(todo.size))


def _prepare(job: DetectionJob, reporter: Reporter, device: str, offline: bool) -> _Prepared:
    detector: AttributeDetector = job.detector.create()
    check_declared(detector)
    device = _device(detector, device)
    detector.prepare(device=device, offline=offline)
    provenance = provenance_of(detector)
    notes = tuple(detector.notes(job.keys, job.other_keys()))
    of_selector = detector.selector.notes() if isinstance(detector, Captioner) else []
    for note in (*notes, *of_selector):
        reporter.note(note)
    return _Prepared(detector, device, provenance, notes)


def _device(detector: AttributeDetector, wanted: str) -> str:
    if detector.consumes == "records":
        return "cpu"
    from fsframework.pipeline.learning.model import resolve_device

    return str(resolve_device(wanted))


def _key(job: DetectionJob, provenance: Mapping[str, str]) -> str:
    """Return the digest of what the answers depend on, which excludes a captioner's selector."""
    return digest_of(
        "detections",
        _identity(job.detector),
        canonical({k: v for k, v in provenance.items() if not k.startswith("selector.")}),
        dataclasses.replace(job.origin, options={}).fingerprint,
        job.dataset.fingerprint,
        job.split,
    )


def _identity(component: Component) -> str:
    if issubclass(component.cls, Captioner):
        own = {k: v for k, v in component.options.items() if k != "selector"}
        component = dataclasses.replace(component, options=own)
    files = [
        digest_of(value.read_bytes())
        for part in component.walk()
        for _, value in sorted(part.options.items())
        if isinstance(value, Path) and value.is_file()
    ]
    return digest_of(component.fingerprint, files)


def _batch_size(ready: _Prepared, wanted: int | None) -> int:
    if wanted is None and ready.detector.consumes == "records":
        return _RECORDS_PER_CALL
    return wanted or _IMAGES_PER_CALL["cuda" if ready.device.startswith("cuda") else "cpu"]


def _header(job: DetectionJob, provenance: Mapping[str, str], unreadable: str) -> dict[str, str]:
    plugin = job.detector.loaded.plugin
    return {
        "detector": job.detector.name,
        "distribution": f"{plugin.distribution} {plugin.version}",
        "split": job.split,
        "options": canonical(_portable(job.detector.to_json())),
        **provenance,
        "unreadable": unreadable,
    }


def _portable(value: Any) -> Any:
    """Return options with paths reduced to file names, since folders differ between machines."""
    if isinstance(value, dict):
        return {k: _portable(v) for k, v in value.items()}
    if isinstance(value, str) and "/" in value and Path(value).exists():
        return Path(value).name
    return value


def _table(
    log: DetectionLog,
    detector: AttributeDetector,
    provenance: Mapping[str, str],
    reporter: Reporter,
) -> AttributeTable:
    """Build the table of some images from the log, reading it block by block."""
    places = np.flatnonzero(log.done)
    captions: list[str] = []
    selector = detector.selector if isinstance(detector, Captioner) else None

    def words() -> Iterator[Sequence[str]]:
        with reporter.stage("words", len(places)) as advance:
            for start in range(0, len(places), _RECORDS_PER_CALL):
                answers = log.read(places[start : start + _RECORDS_PER_CALL])
                if selector is not None:
                    captions.extend(answers)
                    answers = selected(selector, answers)
                yield from answers
                advance(len(answers))

    keys = tuple(log.keys[place] for place in places)
    shown = None if selector is None else captions
    return AttributeTable.from_words(keys, words(), provenance, shown)
