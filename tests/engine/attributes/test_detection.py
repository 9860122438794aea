"""Detection: no image shown twice or lost, whatever happens in between.

``tests/integration/test_extraction.py`` kills real processes, ``test_damaged_cache.py`` damages the
files that are kept.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fsframework as fsf
from fsf_tools.attributes.extraction import Extracted, extract_words
from fsframework.api.experiments import Description, resolved, tree_of_call
from fsframework.api.session import open_session
from fsframework.errors import DataError, PluginError
from fsframework.interfaces import AttributeDetector, Captioner, WordSelector
from fsframework.values import ImageRecord
from tests.toys import SMALL, Blobs, Counting

N_IMAGES = 60


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

    def image(self, index: int) -> Any:
        if "TOY_MENDED" not in os.environ and index in (181, 230):
            raise DataError(f"{self.keys[index]}: not an image")
        return super().image(index)


class Undecodable(Blobs):
    """No image can be read."""

    def image(self, index: int) -> Any:
        raise DataError(f"{self.keys[index]}: not an image")


def detect(
    detector: Any = Teller,
    dataset: type[Blobs] = Blobs,
    reporter: Counting | None = None,
    batch_size: int = 7,
    **options: Any,
) -> tuple[Extracted, int]:
    """Return what is detected, and the number of images that the detector was shown."""
    counted = reporter or Counting()
    session = dataclasses.replace(open_session(progress=False), reporter=counted)
    given = {
        **SMALL,
        "split": "test",
        "dataset": dataset,
        "detector": {"name": detector, **options},
    }
    described = Description(resolved(tree_of_call(given), session), session)
    found = extract_words(described, batch_size=batch_size)
    return found, counted.units.get("detection", 0) - len(found.failed)


def test_a_table_tells_the_words_and_captions_of_every_image_and_none_is_shown_again() -> None:
    counted, data = Counting(), Blobs()
    found, shown = detect(reporter=counted)
    table = found.table
    assert table.keys == data.keys[180:]
    assert table.captions is not None
    for place in (0, 31, 59):
        caption = Teller().caption(data.image(180 + place)).replace("\udc80", "?")
        assert table.captions[place] == caption
        assert set(table.words_of(place)) == set(caption.split())
    assert (found.failed, found.notes, shown) == ([], (), N_IMAGES)
    assert counted.said == ["note: words are split at spaces"]
    assert (table.provenance["model"], table.provenance["selector.least"]) == ("teller", "1")
    again, shown = detect()
    assert (again.reused, shown) == (N_IMAGES, 0)
    assert again.table.fingerprint == table.fingerprint
    assert again.table.captions == table.captions
    long, shown = detect(selector={"name": Split, "least": 3})
    assert shown == 0, "another selector looks at no image again"
    assert long.table.words
    assert all(len(word) >= 3 for word in long.table.words)
    assert long.table.captions == table.captions


@pytest.mark.parametrize("cut", [2, 20])
def test_a_line_torn_by_a_kill_is_written_again(tmp_path: Path, cut: int) -> None:
    whole, _ = detect()
    [log] = tmp_path.glob("cache/detections/*/answers.jsonl")
    for table in tmp_path.glob("cache/attributes/*"):
        table.unlink()
    log.write_bytes(log.read_bytes()[:-cut])
    again, shown = detect()
    assert (again.table.fingerprint, shown) == (whole.table.fingerprint, 1)
    assert detect()[1] == 0, "it has healed"


def test_an_image_that_cannot_be_read_is_named_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, _ = detect(dataset=Damaged)
    unread = ["c09/181", "c11/230"]
    assert found.failed == [(key, f"{key}: not an image") for key in unread]
    assert len(found.table) == N_IMAGES - 2
    assert not {*unread} & {*found.table.keys}
    assert found.table.provenance["unreadable"] == "2 of 60 images"
    monkeypatch.setenv("TOY_MENDED", "1")
    mended, shown = detect(dataset=Damaged)
    assert (mended.failed, shown) == ([], 2)
    assert mended.table.keys == Blobs().keys[180:]


def test_what_is_shown_together_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = detect(batch_size=1)
    monkeypatch.setenv("FSF_CACHE", str(tmp_path / "other"))
    assert detect(batch_size=60)[0].table.fingerprint == first.table.fingerprint


def test_records_are_read_without_opening_an_image() -> None:
    table = detect(Words, Undecodable)[0].table
    assert table.words == ("even", "odd")
    assert np.array_equal(table.column(1), np.arange(180, 240) % 2 == 1)
    assert table.captions is None


def misbehaving(answer: Any, *, base: type[AttributeDetector] = AttributeDetector) -> type:
    """Return a detector, or a captioner, that gives this answer whatever it is shown."""

    def say(self: Any, images: Sequence[Any]) -> Any:
        return answer if answer is None else [answer] * len(images)

    name = "describe" if base is Teller else "detect"
    return type("Odd", (base,), {name: say, "__module__": __name__})


class OneForAll(WordSelector):
    """One set of words for all captions together."""

    def select(self, captions: Sequence[str]) -> list[frozenset[str]]:
        return [frozenset({"word"})]


@pytest.mark.parametrize(
    ("detector", "message"),
    [
        (misbehaving("dog"), "returned 'dog'; it must return a frozenset for each item"),
        (misbehaving(frozenset({3})), "returned the word 3; it must return non-empty words"),
        (misbehaving(frozenset({""})), "returned the word ''; it must return non-empty words"),
        (misbehaving(frozenset({"a "})), "the word 'a '; .* without surrounding white space"),
        (misbehaving(None), "detect of .* a result of type None; it must return list"),
        (misbehaving(None, base=Teller), "describe .* a result of type None; it must return list"),
        (misbehaving(7, base=Teller), "returned 7; it must return a text for each item"),
        (type("Odd", (Words,), {"consumes": "sounds"}), "must be 'pixels' or 'records'"),
        (type("Odd", (Teller,), {"__init__": lambda self: None}), "must set self.selector"),
        (type("Odd", (Words,), {"provenance": lambda self: {"n": 1}}), "it must return strings"),
        (
            type("Odd", (Teller,), {"describe": lambda self, images: ["a"] * 6}),
            "describe .* 6 answers; .* 16, one per item",
        ),
        (Teller(selector=OneForAll()), "one-for-all.* 1 answers; .* 60, one per item"),
    ],
)
def test_a_plugin_that_misbehaves_is_named(detector: Any, message: str) -> None:
    whose = "detector 'odd'.*" if isinstance(detector, type) else ""
    with pytest.raises(PluginError, match=f"{whose}{message}"):
        fsf.pool(Blobs(), detector=detector, progress=False)


class Reading(AttributeDetector):
    """Finds in each image the words of a file."""

    def __init__(self, *, path: Path) -> None:
        self.path = path

    def detect(self, images: Sequence[Any]) -> list[frozenset[str]]:
        return [frozenset(self.path.read_text().split()) for _ in images]


def test_another_content_of_a_file_is_detected_anew(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    for words, expected in (("red green", N_IMAGES), ("blue", N_IMAGES), ("red green", 0)):
        path.write_text(words)
        found, shown = detect(Reading, path=path)
        assert found.table.words == tuple(sorted(words.split()))
        assert shown == expected


@pytest.mark.parametrize(
    "line",
    ['{"key": "KEY"}', '{"key": ["KEY"], "caption": "x"}', '{"key": "KEY", "caption": null}',
     '{"key": "KEY", "words": "abc"}', '[1, 2]', 'null', '{"key": "KEY", "caption": "x"'],
)  # fmt: skip
def test_a_damaged_line_is_said_anew(tmp_path: Path, line: str) -> None:
    whole, _ = detect()
    [log] = tmp_path.glob("cache/detections/*/answers.jsonl")
    lines = log.read_text().splitlines()
    lines[30] = line.replace("KEY", json.loads(lines[30])["key"])
    log.write_text("\n".join(lines) + "\n")
    for table in tmp_path.glob("cache/attributes/*"):
        table.unlink()
    again, shown = detect()
    assert (again.table.fingerprint, shown) == (whole.table.fingerprint, 1)
