"""What a model had seen, and what is said of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from fsframework.interfaces import About
from fsframework.values import footnotes
from tests.toys import Blobs, TinyBackbone, image_folder, run, weights

CERTAIN = "the classes under test are not new to these weights"
PERHAPS = "the classes under test may not be new to these weights"
ONCE = {"epochs": 1, "steps": 1, "validation_tasks": 0}


class Seen(TinyBackbone):
    """A backbone that has seen something."""

    def __init__(self, *, of: str = "") -> None:
        super().__init__()
        self.pretrained_on = of


class ToySet(Blobs):
    """Published images; of some options, other classes are trained on."""

    def __init__(
        self, *, images_from: str = "imagenet-1k", mixed: bool = False, version: int = 1
    ) -> None:
        super().__init__()
        names, self.version = self.class_names, version
        self.about = About(
            title="The Toy Set", licence="CC0", source="example.org", citation="Toy 2020",
            counts={"test": (3, 60 * version), "val": (4, 60)} if version > 1 else {},
            layouts={"folders": "toy/"}, images_from=(images_from,) if images_from else (),
        )  # fmt: skip
        self.splits = (
            {**self.splits, "train": (names[0], names[9], names[11])} if mixed else self.splits
        )


class PlacedSet(ToySet):
    """The same, in a folder of any name."""

    argument = "path"

    def __init__(self, path: Path, *, mixed: bool = False) -> None:
        super().__init__(mixed=mixed)
        self.path = path


class TitledSet(ToySet):
    """One of several that files declare, which one plugin reads."""

    declared_by = "title"

    def __init__(self, *, title: str, mixed: bool = False) -> None:
        super().__init__(images_from="", mixed=mixed)
        self.about = dataclasses.replace(self.about, title=title)


class OtherSet(ToySet):
    """Other images of the same source."""


class Drawn(Blobs):
    """Made by a program."""

    rendered = True


class Numbered(Blobs):
    """Its argument is no place."""

    argument = "strokes"

    def __init__(self, *, strokes: int = 3) -> None:
        super().__init__()
        self.strokes = strokes


def said(dataset: Any = ToySet, pretrained: str = "", **more: Any) -> list[str]:
    """Return what a run says of what its model had seen."""
    backbone = {"name": Seen, "of": pretrained}
    given = {"training": {"epochs": 0}, **more}
    found = run(dataset=dataset, backbone=backbone, tasks=4, **given)
    return [note for note in found.record.cautions if "contamination" in note]


@pytest.mark.parametrize(
    ("pretrained", "images_from", "part", "end"),
    [
        ("imagenet-1k", "imagenet-1k", "on imagenet-1k, from which the classes of", CERTAIN),
        ("imagenet-21k", "imagenet-1k", "21k, which contains imagenet-1k, from", CERTAIN),
        ("laion-2b+imagenet-1k", "imagenet-1k", "on imagenet-1k, from which", CERTAIN),
        ("lvd-142m", "imagenet-1k", "lvd-142m, which contains imagenet-1k", CERTAIN),
        ("lvd-142m", "cub-200-2011", "selected for similarity to images of cub-2", PERHAPS),
        ("imagenet-21k", "cub", "which shares images with cub-200-2011", PERHAPS),
        ("imagenet-12k", "imagenet-1k", "a part of imagenet-22k", PERHAPS),
        ("wit-400m", "imagenet-1k", "wit-400m, which may contain images like those of", PERHAPS),
        ("unknown", "", "on unknown data", PERHAPS),
        ("toy-set", "", "on toy-set, the data under test", CERTAIN),
    ],
)
def test_the_note_says_what_was_seen(
    pretrained: str, images_from: str, part: str, end: str
) -> None:
    (note,) = said({"name": ToySet, "images_from": images_from}, pretrained)
    assert part in note
    assert note.endswith(f": {end}")
    assert note.startswith("contamination: " if end == CERTAIN else "possible contamination: ")


def test_no_note_where_nothing_was_seen_and_one_where_nothing_is_known() -> None:
    assert said(pretrained="places365") == said(pretrained="") == []
    assert said({"name": ToySet, "images_from": "cifar-100"}, "imagenet-1k") == []
    assert said(Drawn, "wit-400m+unknown") == []
    (note,) = said(Blobs, "wit-400m")
    assert "which may contain classes of these data" in note
    assert "photographs that you took yourself" in note


def trained(dataset: Any = ToySet, **more: Any) -> dict[str, Any]:
    """Train on data; return the training of a run that starts from there."""
    return {"epochs": 0, "init_from": run(dataset=dataset, tasks=4, training=ONCE, **more).folder}


def test_training_is_noted_where_it_was_on_classes_or_images_under_test() -> None:
    assert said(training=trained()) == [], "trained on the training classes"
    (note,) = said(training=trained({"name": ToySet, "mixed": True}))
    assert "trained on 2 of the 3 classes under test, in toy-set (c09, c11)" in note
    assert note.endswith(CERTAIN)
    (note,) = said(training=trained(OtherSet))
    assert "trained on 'other-set', which has images or classes of 'imagenet-1k' in" in note
    assert said(training=trained({"name": OtherSet, "images_from": "cifar-100"})) == []
    assert said(Drawn, training=trained(Drawn)) == []
    (note,) = said(Drawn, training=trained(Drawn), split="train")
    assert note.endswith(CERTAIN), "classes that it was trained on are not new, rendered or not"


@pytest.mark.parametrize(
    ("dataset", "changed"),
    [
        ({"name": ToySet, "mixed": True}, "'toy-set' with other options than these (mixed=True)"),
        ({"name": Numbered, "strokes": 6}, "'numbered' with other options than these (strokes=6)"),
    ],
)
def test_of_too_many_classes_to_list_the_options_are_compared(
    monkeypatch: pytest.MonkeyPatch, dataset: dict[str, Any], changed: str
) -> None:
    monkeypatch.setattr("fsframework.engine.lineage._MOST_CLASSES", 0)
    (note,) = said(dataset["name"], training=trained(dataset))
    assert changed in note


def test_data_at_a_place_that_is_not_told_may_be_those_of_the_same_name(tmp_path: Path) -> None:
    here, there = (f"folder:{image_folder(tmp_path / one / 'birds', 'abcdefghi')}" for one in "xy")
    small: dict[str, Any] = {"shot": 1, "queries": 2, "split": "train"}
    model = run(dataset=here, tasks=4, training=ONCE, **small)
    start = {"training": {"epochs": 0, "init_from": model.folder}}
    assert said(there, **start, **small) == []
    seen = tuple(dataclasses.replace(one, place="") for one in model.record.data.trained_on)
    data = dataclasses.replace(model.record.data, trained_on=seen)
    dataclasses.replace(model.record, data=data).save(model.folder)
    [note] = said(there, **start, **small, task_seed=1)
    assert note.endswith(CERTAIN)


def test_a_published_data_set_is_the_same_in_a_folder_of_another_name(tmp_path: Path) -> None:
    mine, yours = ({"name": PlacedSet, "path": tmp_path / place} for place in ("mine", "yours"))
    assert said(yours, training=trained(mine)) == []
    [note] = said(yours, training=trained({**mine, "mixed": True}))
    assert "trained on 2 of the 3 classes under test" in note
    other = trained({"name": TitledSet, "title": "Birds", "mixed": True})
    assert said({"name": TitledSet, "title": "Fish"}, training=other) == []


def test_weights_bring_along_what_their_run_had_seen(tmp_path: Path) -> None:
    seen = {"name": Seen, "of": "imagenet-1k"}
    first = run(dataset=OtherSet, backbone=seen, tasks=4, training=ONCE)
    for again in range(2):  # and what the run before that had seen
        first = run(
            tasks=4, backbone=Seen, dataset=Drawn,
            training={**ONCE, "init_from": first.folder},
        )  # fmt: skip
        assert first.record.data.pretrained_on == ("imagenet-1k",)
        assert {one.name for one in first.record.data.trained_on} == {"other-set", "drawn"}
        assert again or first.record.cautions == ()
    save_file(weights(first), tmp_path / "w.safetensors")
    (note,) = said(training={"epochs": 0, "init_from": tmp_path / "w.safetensors"})
    assert "w.safetensors were trained on is not known" in note


def test_what_a_teacher_had_seen_counts_too() -> None:
    teacher = run(
        method="rfs", backbone="conv32f", dataset=OtherSet, tasks=4,
        training={**ONCE, "distill": False},
    )  # fmt: skip
    student = run(
        method="rfs", dataset=ToySet, tasks=4, training={**ONCE, "teacher": teacher.folder}
    )
    assert [one.name for one in student.record.data.trained_on] == ["other-set", "toy-set"]
    assert any("on 'other-set', which has images" in note for note in student.record.cautions)


def test_data_that_are_not_as_published_are_noted_and_many_problems_are_counted() -> None:
    found = run(dataset={"name": ToySet, "version": 2}, tasks=4, training={"epochs": 0})
    [note] = [note for note in found.record.cautions if "not as published" in note]
    assert note.startswith("toy-set is not as published: split val: 3 classes and 60 images, ")
    assert "(and 1 more problem; see" in note


def test_footnotes_name_a_few() -> None:
    rows = {name: ["x"] for name in "abcdef"}
    assert footnotes(rows) == ["a, b, c, d and 2 more: x"]
