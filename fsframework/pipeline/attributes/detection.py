"""Detection: every image shown to a detector once, whatever happens in between.

What a detector says of an image is appended to a log as soon as it is said, so that a killed
detection goes on where it was, and several processes can share the work. Of a captioner the log
holds captions: to select other words from them costs no second look at any image.
"""

from __future__ import annotations

import array
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from fsframework._files import explain_os_error
from fsframework.components.resolution import Component, canonical
from fsframework.errors import DataError, FsfError, OptionError
from fsframework.interfaces.dataset import Dataset
from fsframework.interfaces.detector import AttributeDetector, Captioner
from fsframework.interfaces.selector import WordSelector
from fsframework.pipeline.cache.workspace import Workspace, locked
from fsframework.pipeline.progress import Reporter
from fsframework.values import AttributeTable, BoolArray, ImageRecord, IntArray, digest_of

__all__ = ["Detected", "Shard", "detect_attributes"]

_IMAGES_A_CALL = {"cpu": 16, "cuda": 64}
"""Images shown to a detector at once where nothing else is asked for."""
_RECORDS_A_CALL = 4096
"""Records or captions at once, for detectors that look at no pixels and for selectors."""
_NOTICE = "notice"
"""Name of the entry of a selector's or detector's provenance that the user is told, once; what it
is about stands in the other entries, and so in the table."""
_SAID: set[str] = set()
"""Notes that this process has printed; a benchmark detects many times."""


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
    origin: Component,
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
        origin: the component that made ``dataset``; its code counts, its options do not, since
            the data set's own fingerprint tells what they came to.
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
    indices = dataset.split_indices(split)
    keys = tuple(dataset.keys[i] for i in indices)
    with _blaming(component, "prepare"):
        _check_kind(component, detector)
        device = _device(detector, device)
        detector.prepare(device=device, offline=offline)
        provenance = _strings(component, detector.provenance())
        chosen_ones = set(indices.tolist())
        others = tuple(k for i, k in enumerate(dataset.keys) if i not in chosen_ones)
        notes = list(detector.notes(keys, others))
    notices = [provenance.pop(n) for n in list(provenance) if n.rpartition(".")[2] == _NOTICE]
    for note in (*notes, *notices):
        if note not in _SAID:
            _SAID.add(note)
            reporter.say(f"note: {note}")

    chosen = slice(None) if shard is None else shard.of(len(keys))
    said = digest_of(
        "detections",
        _identity(component),
        canonical({k: v for k, v in provenance.items() if not k.startswith("selector.")}),
        dataclasses.replace(origin, options={}).fingerprint,
        dataset.fingerprint,
        split,
    )
    folder = workspace.cache / "detections" / said[:24]
    table_key = digest_of(said, component.fingerprint, canonical(provenance), str(shard or ""))
    stored = workspace.cache / "attributes" / f"{table_key[:24]}.parquet"
    with _Log.opened(folder, keys, shard, reporter) as log:
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
                for places, said_of, broken in _answers(
                    component, detector, dataset, indices, todo, size
                ):
                    log.append(places, said_of, captions=isinstance(detector, Captioner))
                    failed += [(keys[place], reason) for place, reason in broken]
                    advance(len(places) + len(broken), _remark(failed))
        header = {
            "detector": component.name,
            "distribution": f"{component.loaded.plugin.distribution} "
            f"{component.loaded.plugin.version}",
            "split": split,
            "options": canonical(_portable(component)),
            **provenance,
            **({"shard": str(shard)} if shard else {}),
            "unreadable": f"{len(failed)} of {total} images",
        }
        table = _table(component, detector, log, np.arange(len(keys))[chosen], header, reporter)
    if not failed:
        table.save(stored)
    return Detected(table, tuple(failed), tuple(notes), total - int(todo.size))


def _remark(failed: list[tuple[str, str]]) -> str:
    return f"{len(failed)} cannot be read" if failed else ""


def _device(detector: AttributeDetector, wanted: str) -> str:
    if detector.consumes == "records":
        return "cpu"
    from fsframework.pipeline.learning.model import resolve_device

    return str(resolve_device(wanted))


def _batch_size(detector: AttributeDetector, device: str, wanted: int | None) -> int:
    if wanted is None and detector.consumes == "records":
        return _RECORDS_A_CALL
    return wanted or _IMAGES_A_CALL["cuda" if device.startswith("cuda") else "cpu"]


def _identity(component: Component) -> str:
    """Name what a detector's answers depend on; of a captioner its selector is no part."""
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


def _portable(component: Component) -> dict[str, Any]:
    """Return the options with files and folders by their names: they lie elsewhere elsewhere."""

    def named(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: named(v) for k, v in value.items()}
        if isinstance(value, str) and "/" in value and Path(value).exists():
            return Path(value).name
        return value

    found: dict[str, Any] = named(component.to_json())
    return found


# What a detector or a selector of others says is checked before it is written down.


@contextmanager
def _blaming(component: Component, what: str) -> Iterator[None]:
    """Turn what a plugin raises into a sentence that names it; ours pass as they are."""
    try:
        yield
    except (FsfError, MemoryError):
        raise
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise DataError(
            f"detector {component.name}: {what} raised {type(error).__name__}: {first}"
        ) from error


def _check_kind(component: Component, detector: AttributeDetector) -> None:
    if detector.consumes not in ("pixels", "records"):
        raise DataError(
            f"detector {component.name}: consumes must be 'pixels' or 'records', "
            f"not {detector.consumes!r}"
        )
    if isinstance(detector, Captioner):
        try:
            given = isinstance(detector.selector, WordSelector)
        except AttributeError:
            given = False
        if not given:
            raise DataError(f"detector {component.name}: a captioner must set self.selector")


def _strings(component: Component, provenance: Mapping[str, str]) -> dict[str, str]:
    found = dict(provenance)
    for name, text in found.items():
        if not (isinstance(name, str) and isinstance(text, str)):
            raise DataError(
                f"detector {component.name}: provenance must hold strings, not {name!r}: {text!r}"
            )
    return found


def _demand_count(who: str, answers: Any, wanted: int, what: str) -> list[Any]:
    if not isinstance(answers, (list, tuple)):
        raise DataError(f"{who} must give a list, not {type(answers).__name__}")
    if len(answers) != wanted:
        raise DataError(f"{who} gave {len(answers)} answers for {wanted} {what}")
    return list(answers)


def _captions(who: str, answers: Any, wanted: int) -> list[str]:
    found = _demand_count(who, answers, wanted, "images")
    for caption in found:
        if not isinstance(caption, str):
            raise DataError(f"{who}: a caption must be a string, not {caption!r}")
    return [_text(caption) for caption in found]


def _words(who: str, answers: Any, wanted: int, what: str) -> list[list[str]]:
    found = _demand_count(who, answers, wanted, what)
    for words in found:
        if not isinstance(words, (frozenset, set)):
            raise DataError(f"{who}: the words of an image must be a frozenset, not {words!r}")
        for word in words:
            if not isinstance(word, str) or not word or word != word.strip():
                raise DataError(
                    f"{who}: a word must be a string, not empty and without space around it, "
                    f"not {word!r}"
                )
    return [sorted({_text(word) for word in words}) for words in found]


def _text(text: str) -> str:
    """Return text that a file can hold: a half of a surrogate pair becomes a question mark."""
    return text.encode(errors="replace").decode()


def _answers(
    component: Component,
    detector: AttributeDetector,
    dataset: Dataset,
    indices: IntArray,
    todo: IntArray,
    size: int,
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

    who = f"detector {component.name}"
    with ThreadPoolExecutor(1, "images") as pool:
        coming = pool.submit(read, 0)
        for start in range(0, len(todo), size):
            places, images, broken = coming.result()
            if start + size < len(todo):
                coming = pool.submit(read, start + size)
            answers: Sequence[Any] = []
            if images:
                of = f" of {len(images)} images from {dataset.keys[indices[places[0]]]!r} on"
                if isinstance(detector, Captioner):
                    with _blaming(component, f"describe{of}"):
                        answers = _captions(who, detector.describe(images), len(images))
                else:
                    with _blaming(component, f"detect{of}"):
                        answers = _words(who, detector.detect(images), len(images), "images")
            yield places, answers, broken


def _shown(detector: AttributeDetector, dataset: Dataset, index: int) -> Any:
    if detector.consumes == "pixels":
        return dataset.image(index)
    metadata = {name: column[index] for name, column in dataset.metadata.items()}
    return ImageRecord(dataset.keys[index], metadata)


def _table(
    component: Component,
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
                selector = captioner.selector
                with _blaming(component, f"selection by {type(selector).__name__}"):
                    answers = _words(
                        f"selector {type(selector).__name__}",
                        selector.select(answers),
                        len(answers),
                        "captions",
                    )
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
    def opened(
        cls, folder: Path, keys: tuple[str, ...], shard: Shard | None, reporter: Reporter
    ) -> Iterator[_Log]:
        """Open the log for one process; others may only work on other shards meanwhile.

        Parts of different counts overlap, so those of one count wait for those of another.
        """
        name = "all" if shard is None else f"{shard.index}-of-{shard.count}"

        def waiting() -> None:
            reporter.say("waiting for another process that detects the same words")

        with ExitStack() as stack:
            if shard is None:
                stack.enter_context(locked(folder, waiting=waiting))
            else:
                with locked(folder / "gate", waiting=waiting):
                    for other in sorted(folder.glob("of-*")):
                        if other.name != f"of-{shard.count}":
                            with locked(other, waiting=waiting):
                                pass
                    stack.enter_context(locked(folder / f"of-{shard.count}", shared=True))
                stack.enter_context(locked(folder, shared=True, waiting=waiting))
                stack.enter_context(locked(folder / f"part-{name}", waiting=waiting))
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
                said = {"caption": answer} if captions else {"words": answer}
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


def _key_of(line: bytes) -> str:
    """Return the key of a whole line, or nothing: what a line lacks is said anew."""
    try:
        said = json.loads(line)
        caption, words = said.get("caption", ""), said.get("words", [])
        whole = ("caption" in said) != ("words" in said) and isinstance(caption, str)
        if whole and isinstance(words, list) and all(isinstance(w, str) for w in words):
            return str(said["key"])
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return ""


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
