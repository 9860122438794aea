"""Detection: every image shown to a detector once, whatever happens in between.

What a detector says of an image is appended to a log as soon as it is said, so that a killed
detection goes on where it was, and several processes can share the work. Of a captioner the log
holds captions: to select other words from them costs no second look at any image.
"""

from __future__ import annotations

import array
import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from fsframework._files import explain_os_error
from fsframework.errors import DataError, OptionError
from fsframework.interfaces.dataset import Dataset
from fsframework.interfaces.detector import AttributeDetector, Captioner
from fsframework.pipeline.progress import Reporter
from fsframework.pipeline.workspace import Workspace, locked
from fsframework.spec import Component, canonical
from fsframework.values import AttributeTable, BoolArray, ImageRecord, IntArray, digest_of

__all__ = ["Detected", "Shard", "detect_attributes"]

_IMAGES_A_CALL = {"cpu": 16, "cuda": 64}
"""Images shown to a detector at once where nothing else is asked for."""
_RECORDS_A_CALL = 4096
"""Records or captions at once, for detectors that look at no pixels and for selectors."""
_NOTICE = "notice"
"""Name of the entry of a selector's or detector's provenance that the user is told, once."""


@dataclass(frozen=True)
class Shard:
    """Part ``index`` of ``count`` equal parts of the images, ``0 <= index < count``."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``i/n``; ``n/n`` and ``0/n`` are the same part, so that one may count from 0 or 1.

        Raises:
            OptionError: it is not two numbers, or i is not in 0..n.

        >>> Shard.parse("2/4")
        Shard(index=2, count=4)
        """
        first, slash, second = text.partition("/")
        if slash and first.isdecimal() and second.isdecimal():
            index, count = int(first), int(second)
            if 0 <= index <= count and count > 0:
                return cls(index % count, count)
        raise OptionError(f"--shard {text}: must be i/n with i from 1 to n, e.g. 1/4")

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def of(self, n_images: int) -> slice:
        """Return the places of this part."""
        bounds = [n_images * i // self.count for i in (self.index, self.index + 1)]
        return slice(*bounds)


@dataclass(frozen=True)
class Detected:
    """What came of a detection.

    Args:
        table: of the images that were looked at; one that cannot be read is not in it.
        failed: key and reason for each image that cannot be read.
        notes: what a user should know of the detector's words.
        reused: images that an earlier call had done.
    """

    table: AttributeTable
    failed: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    reused: int

    def complaints(self) -> list[str]:
        """Say which images cannot be read, in one sentence if there are any."""
        if not self.failed:
            return []
        count, (_, reason) = len(self.failed), self.failed[0]
        return [f"{count} {'image' if count == 1 else 'images'} cannot be read: {reason}"]


def detect_attributes(
    component: Component,
    dataset: Dataset,
    dataset_identity: str,
    split: str,
    workspace: Workspace,
    reporter: Reporter,
    *,
    device: str = "auto",
    offline: bool = False,
    batch_size: int | None = None,
    shard: Shard | None = None,
) -> Detected:
    """Run a detector over the images of a split, or take what it has said before.

    Args:
        component: the detector.
        dataset_identity: fingerprint of the component that made ``dataset``.
        device: where the detector works, see ``resolve_device``.
        offline: whether it must not use the network.
        batch_size: images a call of the detector; by default 16 on a CPU, 64 on a GPU, and 4,096
            where no pixels are looked at.
        shard: look at this part of the images alone.

    Memory grows with the table and with ``batch_size``, not with the images.

    Raises:
        FsfError: the detector cannot be prepared, or its answer is not what it must be.
    """
    if batch_size is not None and batch_size < 1:
        raise OptionError(f"batch_size must be at least 1, not {batch_size}")
    detector: AttributeDetector = component.create()
    device = _device(detector, device)
    detector.prepare(device=device, offline=offline)
    provenance = dict(detector.provenance())
    indices = dataset.split_indices(split)
    keys = tuple(dataset.keys[i] for i in indices)
    notes = [*detector.notes(tuple(dataset.keys))]
    notes += [provenance.pop(n) for n in list(provenance) if n.rpartition(".")[2] == _NOTICE]
    for note in notes:
        reporter.say(f"note: {note}")

    chosen = slice(None) if shard is None else shard.of(len(keys))
    said = digest_of(
        "detections",
        _identity(component),
        canonical({k: v for k, v in provenance.items() if not k.startswith("selector.")}),
        dataset_identity,
        dataset.fingerprint,
        split,
    )
    folder = workspace.cache / "detections" / said[:24]
    table_key = digest_of(said, component.fingerprint, canonical(provenance), str(shard or ""))
    stored = workspace.cache / "attributes" / f"{table_key[:24]}.parquet"
    with _Log.opened(folder, keys, shard) as log:
        todo = np.flatnonzero(~log.done[chosen]) + (chosen.start or 0)
        total = len(keys[chosen])
        failed: list[tuple[str, str]] = []
        if not todo.size and stored.exists():
            try:
                return Detected(AttributeTable.load(stored), (), tuple(notes), total)
            except DataError:
                stored.unlink()
        size = _batch_size(detector, device, batch_size)
        if todo.size:
            with reporter.stage("detection", total, total - todo.size) as advance:
                for places, said_of, broken in _answers(detector, dataset, indices, todo, size):
                    log.append(places, said_of, captions=isinstance(detector, Captioner))
                    failed += [(keys[place], reason) for place, reason in broken]
                    advance(len(places) + len(broken), _remark(failed))
        header = {
            "detector": component.name,
            "distribution": f"{component.loaded.plugin.distribution} "
            f"{component.loaded.plugin.version}",
            "split": split,
            **provenance,
            **({"shard": str(shard)} if shard else {}),
            **({"unreadable": f"{len(failed)} of {total} images"} if failed else {}),
        }
        table = _table(detector, log, np.arange(len(keys))[chosen], header, reporter)
    if not failed:
        table.save(stored)
    return Detected(table, tuple(failed), tuple(notes), total - int(todo.size))


def _remark(failed: list[tuple[str, str]]) -> str:
    return f"{len(failed)} cannot be read" if failed else ""


def _device(detector: AttributeDetector, wanted: str) -> str:
    if detector.consumes == "records":
        return "cpu"
    from fsframework.pipeline.model import resolve_device

    return str(resolve_device(wanted))


def _batch_size(detector: AttributeDetector, device: str, wanted: int | None) -> int:
    if wanted is None and detector.consumes == "records":
        return _RECORDS_A_CALL
    return wanted or _IMAGES_A_CALL["cuda" if device.startswith("cuda") else "cpu"]


def _identity(component: Component) -> str:
    """Name what a detector's answers depend on; of a captioner its selector is no part.

    The source of the detector's own classes is, but not all that its package holds: captions are
    too dear to be made again because something beside them was edited.
    """
    captions = issubclass(component.cls, Captioner)
    options = {
        name: value.to_json() if isinstance(value, Component) else value
        for name, value in component.options.items()
        if not (captions and name == "selector")
    }
    homes = {c.__module__ for c in component.cls.__mro__} - {"builtins", "abc"}
    code = [
        inspect.getsource(sys.modules[home])
        for home in sorted(homes)
        if not home.startswith("fsframework.") and home in sys.modules
    ]
    plugin = component.loaded.plugin
    return digest_of(canonical([plugin.name, plugin.version, options]), code)


def _answers(
    detector: AttributeDetector, dataset: Dataset, indices: IntArray, todo: IntArray, size: int
) -> Iterator[tuple[list[int], Sequence[Any], list[tuple[int, str]]]]:
    """Yield places, the answer for each, and the places that cannot be read with the reason.

    One thread reads the next images while the detector looks at these.
    """

    def read(start: int) -> tuple[list[int], list[Any], list[tuple[int, str]]]:
        places, images, broken = [], [], []
        for place in map(int, todo[start : start + size]):
            try:
                images.append(_shown(detector, dataset, int(indices[place])))
                places.append(place)
            except (DataError, OSError) as error:
                broken.append((place, str(error)))
        return places, images, broken

    ask = detector.describe if isinstance(detector, Captioner) else detector.detect
    with ThreadPoolExecutor(1, "images") as pool:
        coming = pool.submit(read, 0)
        for start in range(0, len(todo), size):
            places, images, broken = coming.result()
            if start + size < len(todo):
                coming = pool.submit(read, start + size)
            answers: Sequence[Any] = ask(images) if images else []
            if len(answers) != len(images):
                raise DataError(
                    f"{type(detector).__name__} gave {len(answers)} answers for "
                    f"{len(images)} images"
                )
            yield places, answers, broken


def _shown(detector: AttributeDetector, dataset: Dataset, index: int) -> Any:
    if detector.consumes == "pixels":
        return dataset.image(index)
    metadata = {name: column[index] for name, column in dataset.metadata.items()}
    return ImageRecord(dataset.keys[index], metadata)


def _table(
    detector: AttributeDetector,
    log: _Log,
    places: IntArray,
    provenance: Mapping[str, str],
    reporter: Reporter,
) -> AttributeTable:
    """Build the table of these images from the log, reading it piece by piece."""
    places = places[log.done[places]]
    captioner = detector if isinstance(detector, Captioner) else None
    captions: list[str] = []
    number: dict[str, int] = {}
    lengths, numbers = array.array("q"), array.array("i")  # a tenth of the memory of lists
    with reporter.stage("words", len(places)) as advance:
        for start in range(0, len(places), _RECORDS_A_CALL):
            answers = log.read(places[start : start + _RECORDS_A_CALL])
            if captioner is not None:
                captions += answers
                answers = captioner.selector.select(answers)
            for words in answers:
                lengths.append(len(words))
                numbers.extend(number.setdefault(word, len(number)) for word in words)
            advance(len(answers))
    vocabulary = sorted(number)
    rank = np.empty(len(vocabulary), np.int32)
    rank[[number[word] for word in vocabulary]] = np.arange(len(vocabulary), dtype=np.int32)
    rows = np.repeat(np.arange(len(places), dtype=np.int32), np.asarray(lengths))
    keys = tuple(log.keys[place] for place in places)
    return AttributeTable.from_indices(
        keys,
        vocabulary,
        rows,
        rank[np.asarray(numbers)],
        provenance,
        captions if captioner else None,
    )


class _Log:
    """What was said of each image: JSON lines in one file a process that took part.

    Args:
        folder: of the files; ``own`` is the one written to.
        keys: of all images.
    """

    def __init__(self, folder: Path, keys: tuple[str, ...], own: Path) -> None:
        self.keys = keys
        self.done: BoolArray = np.zeros(len(keys), dtype=bool)
        self._own = own
        self._files: list[Path] = []
        self._file = np.full(len(keys), -1, np.int16)
        self._offset = np.zeros(len(keys), np.int64)
        parts = sorted(folder.glob("part-*.jsonl"))
        place_of = {key: i for i, key in enumerate(keys)} if parts else {}
        for path in parts:
            self._scan(path, place_of)
        self._out: IO[bytes] | None = None

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, keys: tuple[str, ...], shard: Shard | None) -> Iterator[_Log]:
        """Open the log for one process; others may only work on other shards meanwhile."""
        name = "all" if shard is None else f"{shard.index}-of-{shard.count}"
        with ExitStack() as stack:
            stack.enter_context(locked(folder, shared=shard is not None))
            if shard is not None:
                stack.enter_context(locked(folder / f"part-{name}"))
            own = folder / f"part-{name}.jsonl"
            _cut_torn_line(own)
            log = cls(folder, keys, own)
            try:
                yield log
            finally:
                if log._out is not None:
                    log._out.close()

    def _scan(self, path: Path, place_of: Mapping[str, int]) -> None:
        self._files.append(path)
        with path.open("rb") as file:
            offset = 0
            for line in file:
                if line.endswith(b"\n"):
                    place = place_of.get(_key_of(line), -1)
                    if place >= 0 and not self.done[place]:
                        self._remember(place, len(self._files) - 1, offset)
                offset += len(line)

    def _remember(self, place: int, file: int, offset: int) -> None:
        self.done[place] = True
        self._file[place], self._offset[place] = file, offset

    def append(self, places: list[int], answers: Sequence[Any], *, captions: bool) -> None:
        """Write answers down; when this returns, a kill does not lose them."""
        if self._own not in self._files:
            self._files.append(self._own)
        number = self._files.index(self._own)
        try:
            if self._out is None:
                self._out = self._own.open("ab")
            offset = self._out.tell()
            lines = []
            for place, answer in zip(places, answers, strict=True):
                said = {"caption": _text(answer)} if captions else {"words": _texts(answer)}
                lines.append(json.dumps({"key": self.keys[place], **said}).encode() + b"\n")
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


def _text(caption: str) -> str:
    """Return text that a file can hold: a half of a surrogate pair becomes a question mark."""
    return caption.encode(errors="replace").decode()


def _texts(words: Iterable[str]) -> list[str]:
    return sorted(map(_text, words))


def _key_of(line: bytes) -> str:
    try:
        key: str = json.loads(line)["key"]
    except (ValueError, KeyError, TypeError):
        return ""
    return key


def _cut_torn_line(path: Path) -> None:
    """Remove what a killed process had half-written at the end of its file."""
    try:
        with path.open("rb+") as file:
            content_end = file.seek(0, 2)
            step, end = 1 << 16, content_end
            while end > 0:
                start = max(0, end - step)
                file.seek(start)
                place = file.read(end - start).rfind(b"\n")
                if place >= 0:
                    file.truncate(start + place + 1)
                    return
                end = start
            file.truncate(0)
    except FileNotFoundError:
        return
    except OSError as error:
        raise explain_os_error(error, path) from error
