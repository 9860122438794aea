"""Detection: no image shown twice or lost, whatever happens in between."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fsframework as fsf
from fsframework.components.registry import Registry
from fsframework.engine.detection import Detection
from fsframework.engine.session import Session, Workspace
from fsframework.errors import DataError, PluginError
from fsframework.interfaces import AttributeDetector, Captioner, WordSelector
from fsframework.values import AttributeTable, ImageRecord
from tests.toys import Blobs, Counting, Killed, component

N_IMAGES = 60
SHOWN: list[Any] = []
"""What the detectors below were shown, since each call makes a fresh one."""


class Split(WordSelector):
    """Every word of a caption, or every word of so many letters."""

    def __init__(self, *, least: int = 1) -> None:
        self.least = least

    def select(self, captions: Sequence[str]) -> list[frozenset[str]]:
        return [frozenset(w for w in c.split() if len(w) >= self.least) for c in captions]

    def provenance(self) -> dict[str, str]:
        return {"least": str(self.least)}

    def notes(self) -> list[str]:
        return ["words are split at spaces"]


class Teller(Captioner):
    """Tells how bright each channel is; one caption is torn by a line break and not ASCII."""

    def __init__(self, *, selector: WordSelector | None = None) -> None:
        self.selector = selector or Split()

    def describe(self, images: Sequence[Any]) -> list[str]:
        SHOWN.extend(image.tobytes() for image in images)
        return [self.caption(image) for image in images]

    def caption(self, image: Any) -> str:
        red, green, blue = image.mean(axis=(0, 1)).astype(int) // 40
        return f"r{red} g{green}\n “b{blue}” \udc80"

    def provenance(self) -> dict[str, str]:
        return {"model": "teller", **{f"selector.{k}": v for k, v in Split().provenance().items()}}


class Words(AttributeDetector):
    """The words that records carry."""

    consumes = "records"

    def detect(self, images: Sequence[ImageRecord]) -> list[frozenset[str]]:
        return [frozenset(image.metadata["words"].split(";")) for image in images]


class Damaged(Blobs):
    """Two images cannot be read, until they are mended."""

    mended = False

    def image(self, index: int) -> Any:
        if not self.mended and index in (181, 230):
            raise DataError(f"{self.keys[index]}: not an image")
        return super().image(index)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    SHOWN.clear()
    return Workspace(tmp_path / "runs", tmp_path / "cache")


@dataclass
class Found:
    """What a detection finds."""

    table: AttributeTable
    failed: list[tuple[str, str]]
    notes: tuple[str, ...]
    reused: int


def detect(
    workspace: Workspace,
    detector: type[AttributeDetector] = Teller,
    dataset: Blobs | None = None,
    reporter: Counting | None = None,
    *,
    options: dict[str, Any] | None = None,
    batch_size: int = 7,
) -> Found:
    dataset = dataset or Blobs()
    made, origin = component(detector, **(options or {})), component(type(dataset))
    session = Session(Registry(), workspace, reporter or Counting())
    found = Detection(made, dataset, origin, "test", session, "cpu", batch_size=batch_size)
    reused = N_IMAGES - len(found.missing())
    return Found(found.table(), found.failed, found.notes, reused)


def test_a_table_tells_the_words_and_captions_of_every_image(workspace: Workspace) -> None:
    found = detect(workspace)
    data = Blobs()
    table = found.table
    assert table.keys == data.keys[180:]
    assert table.captions is not None
    for place in (0, 31, 59):
        caption = Teller().caption(data.image(180 + place)).replace("\udc80", "?")
        assert table.captions[place] == caption
        assert set(table.words_of(place)) == set(caption.split())
    assert found.failed == []
    assert found.notes == ()
    assert table.provenance["model"] == "teller"
    assert table.provenance["selector.least"] == "1"
    assert table.provenance["distribution"] == "toys 1"
    assert len(SHOWN) == len(set(SHOWN)) == N_IMAGES


class Telling(Counting):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def say(self, text: str) -> None:
        self.told.append(text)


def test_a_second_call_shows_and_tells_nothing_again(workspace: Workspace) -> None:
    reporter = Telling()
    first, again = (detect(workspace, reporter=reporter) for _ in range(2))
    assert reporter.told == ["note: words are split at spaces"]
    assert len(SHOWN) == again.reused == N_IMAGES
    assert again.table.fingerprint == first.table.fingerprint
    assert again.table.captions == first.table.captions
    assert again.notes == first.notes == ()


@pytest.mark.parametrize("after", [0, 20, 45])
def test_killed_it_goes_on_where_it_was(workspace: Workspace, tmp_path: Path, after: int) -> None:
    with pytest.raises(Killed):
        detect(workspace, reporter=Counting("detection", after))
    written = len(SHOWN)
    assert 0 < written < N_IMAGES
    resumed = detect(workspace)
    assert len(SHOWN) == len(set(SHOWN)) == N_IMAGES
    assert resumed.reused == written
    whole = detect(Workspace(tmp_path / "runs", tmp_path / "other"))
    assert resumed.table.fingerprint == whole.table.fingerprint
    assert resumed.table.captions == whole.table.captions


@pytest.mark.parametrize("cut", [2, 20])
def test_a_line_torn_by_a_kill_is_written_again(workspace: Workspace, cut: int) -> None:
    whole = detect(workspace).table
    [log] = workspace.cache.glob("detections/*/answers.jsonl")
    for table in workspace.cache.glob("attributes/*"):
        table.unlink()
    log.write_bytes(log.read_bytes()[:-cut])
    assert detect(workspace).table.fingerprint == whole.fingerprint
    assert len(SHOWN) == N_IMAGES + 1
    detect(workspace)
    assert len(SHOWN) == N_IMAGES + 1, "it has healed"


def test_another_selector_looks_at_no_image_again(workspace: Workspace) -> None:
    detect(workspace)
    long = detect(workspace, options={"selector": component(Split, least=3)})
    assert len(SHOWN) == N_IMAGES
    assert long.table.words
    assert all(len(word) >= 3 for word in long.table.words)
    assert long.table.captions == detect(workspace).table.captions


def test_an_image_that_cannot_be_read_is_named_and_tried_again(workspace: Workspace) -> None:
    data = Damaged()
    found = detect(workspace, dataset=data)
    assert found.failed == [
        ("c09/181", "c09/181: not an image"),
        ("c11/230", "c11/230: not an image"),
    ]
    assert len(found.table) == len(SHOWN) == N_IMAGES - 2
    assert not {"c09/181", "c11/230"} & set(found.table.keys)
    assert found.table.provenance["unreadable"] == "2 of 60 images"
    data.mended = True
    mended = detect(workspace, dataset=data)
    assert len(SHOWN) == N_IMAGES
    assert mended.failed == []
    assert mended.table.keys == Blobs().keys[180:]


def test_what_is_shown_together_does_not_matter(workspace: Workspace, tmp_path: Path) -> None:
    first = detect(workspace, batch_size=1).table
    other = detect(Workspace(tmp_path, tmp_path / "other"), batch_size=60).table
    assert first.fingerprint == other.fingerprint


def test_records_are_read_without_opening_an_image(workspace: Workspace) -> None:
    data = Blobs()
    table = detect(workspace, Words, data).table
    assert data.decoded == 0
    assert table.words == ("even", "odd")
    assert np.array_equal(table.column(1), np.arange(180, 240) % 2 == 1)
    assert table.captions is None


def misbehaving(answer: Any, *, base: type[AttributeDetector] = AttributeDetector) -> type:
    """Return a detector, or a captioner, that gives this answer whatever it is shown."""

    def say(self: Any, images: Sequence[Any]) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer if answer is None else [answer] * len(images)

    name = "describe" if base is Teller else "detect"
    return type("Odd", (base,), {name: say, "__module__": __name__})


@pytest.mark.parametrize(
    ("detector", "message"),
    [
        (misbehaving("dog"), "returned 'dog'; it must return a frozenset for each item"),
        (misbehaving(frozenset({3})), "returned the word 3; it must return non-empty words"),
        (misbehaving(frozenset({""})), "returned the word ''; it must return non-empty words"),
        (misbehaving(frozenset({"a "})), "the word 'a '; .* without surrounding white space"),
        (misbehaving(None), "detect of .* a result of type None; it must return list"),
        (misbehaving(KeyError("x")), r"of 16 images from .* on raised KeyError: 'x'"),
        (misbehaving(SystemExit(0)), r"of 16 images from .* on raised SystemExit: 0"),
        (misbehaving(None, base=Teller), "describe .* a result of type None; it must return list"),
        (misbehaving(7, base=Teller), "returned 7; it must return a text for each item"),
        (type("Odd", (Words,), {"consumes": "sounds"}), "must be 'pixels' or 'records'"),
        (type("Odd", (Teller,), {"__init__": lambda self: None}), "must set self.selector"),
        (type("Odd", (Words,), {"provenance": lambda self: {"n": 1}}), "it must return strings"),
    ],
)  # fmt: skip
def test_a_plugin_that_misbehaves_is_named(detector: type[AttributeDetector], message: str) -> None:
    data = {"name": "planted", "n_per_class": 8, "size": 16}
    with pytest.raises(PluginError, match=f"detector 'odd'.*{message}"):
        fsf.run(method="ncc", dataset=data, detector=detector, tasks=5, way=2, progress=False)


class OneForAll(WordSelector):
    """One set of words for all captions together."""

    def select(self, captions: Sequence[str]) -> list[frozenset[str]]:
        return [frozenset({"word"})]


def test_answers_that_are_too_few_are_named(workspace: Workspace) -> None:
    with pytest.raises(PluginError, match=r"(?i)'odd': describe .* 6 answers; .* 7, one per item"):
        detect(workspace, type("Odd", (Teller,), {"describe": lambda self, images: ["a"] * 6}))
    with pytest.raises(PluginError, match=r"(?i)'oneforall': .* 1 answers; .* 60, one per item"):
        detect(workspace, options={"selector": component(OneForAll)})


class Reading(AttributeDetector):
    """Finds in each image the words of a file."""

    def __init__(self, *, path: Path) -> None:
        self.path = path

    def detect(self, images: Sequence[Any]) -> list[frozenset[str]]:
        SHOWN.extend(images)
        return [frozenset(self.path.read_text().split()) for _ in images]


def test_another_content_of_a_file_is_detected_anew(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    for words in ("red green", "blue"):
        path.write_text(words)
        found = detect(workspace, Reading, options={"path": path})
        assert found.table.words == tuple(sorted(words.split()))
    path.write_text("red green")
    detect(workspace, Reading, options={"path": path})
    assert len(SHOWN) == 2 * N_IMAGES


@pytest.mark.parametrize(
    "line",
    ['{"key": "KEY"}', '{"key": ["KEY"], "caption": "x"}', '{"key": "KEY", "caption": null}',
     '{"key": "KEY", "words": "abc"}', '[1, 2]', 'null', '{"key": "KEY", "caption": "x"'],
)  # fmt: skip
def test_a_damaged_line_is_said_anew(workspace: Workspace, line: str) -> None:
    whole = detect(workspace).table
    [log] = workspace.cache.glob("detections/*/answers.jsonl")
    lines = log.read_text().splitlines()
    lines[30] = line.replace("KEY", json.loads(lines[30])["key"])
    log.write_text("\n".join(lines) + "\n")
    for table in workspace.cache.glob("attributes/*"):
        table.unlink()
    again = detect(workspace)
    assert again.table.fingerprint == whole.fingerprint
    assert len(SHOWN) == N_IMAGES + 1


def test_a_damaged_table_is_made_anew(workspace: Workspace) -> None:
    whole = detect(workspace).table
    [stored] = workspace.cache.glob("attributes/*.parquet")
    raw = stored.read_bytes()
    for damage in (raw[: len(raw) // 2], raw.replace(b'"what"', b"\"what'"), b""):
        stored.write_bytes(damage)
        assert detect(workspace).table.fingerprint == whole.fingerprint
    assert len(SHOWN) == N_IMAGES
