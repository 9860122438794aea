"""What a model had seen, and what is said of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.engine.lineage import (
    contamination,
    incompleteness,
    lineage_of,
    under_test,
)
from fsframework.records import ComponentRecord, DataRecord, RunRecord, TrainedOn
from fsframework.values import footnotes
from tests.toy_published import write_toy
from tests.toys import TinyBackbone

CERTAIN = "the accuracies are not few-shot on new classes"
A = TrainedOn("a", {"name": "a"}, "/a")
PERHAPS = "the accuracies may not be few-shot on new classes"


def toy(tmp_path: Path, **about: Any) -> Any:
    plugin, place = write_toy(tmp_path)
    registry = Registry()
    registry.load_file(plugin)
    component = resolve_component(registry, "dataset", f"toy-set:{place}")
    dataset = component.create()
    dataset.about = dataclasses.replace(dataset.about, **about)
    return under_test(component, dataset)


def said(data: Any, pretrained: str) -> tuple[str, ...]:
    backbone = TinyBackbone()
    backbone.pretrained_on = pretrained
    return contamination(data, lineage_of(backbone, ()))


@pytest.mark.parametrize(
    ("pretrained", "images_from", "part", "end"),
    [
        ("imagenet-1k", ("imagenet-1k",), "on imagenet-1k, from which the classes of", CERTAIN),
        ("imagenet-21k", ("imagenet-1k",), "21k, which contains imagenet-1k, from", CERTAIN),
        ("laion-2b+imagenet-1k", ("imagenet-1k",), "on imagenet-1k, from which", CERTAIN),
        ("lvd-142m", ("imagenet-1k",), "lvd-142m, which contains imagenet-1k", CERTAIN),
        ("lvd-142m", ("cub-200-2011",), "selected for similarity to images of cub-2", PERHAPS),
        ("imagenet-21k", ("cub",), "which shares images with cub-200-2011", PERHAPS),
        ("imagenet-12k", ("imagenet-1k",), "a part of imagenet-22k", PERHAPS),
        ("wit-400m", ("imagenet-1k",), "wit-400m, which may contain images like those of", PERHAPS),
        ("unknown", (), "on unknown data", PERHAPS),
        ("toy-set", (), "on toy-set, the data under test", CERTAIN),
    ],
)
def test_the_note_says_what_was_seen(
    tmp_path: Path, pretrained: str, images_from: tuple[str, ...], part: str, end: str
) -> None:
    (note,) = said(toy(tmp_path, images_from=images_from), pretrained)
    assert part in note
    assert note.endswith(f": {end}")
    assert note.startswith("contamination: " if end == CERTAIN else "possible contamination: ")


@pytest.mark.parametrize(
    ("pretrained", "images_from"),
    [("places365", ("imagenet-1k",)), ("imagenet-1k", ("cifar-100",)), ("", ("imagenet-1k",))],
)
def test_no_note_where_nothing_was_seen(
    tmp_path: Path, pretrained: str, images_from: tuple[str, ...]
) -> None:
    assert said(toy(tmp_path, images_from=images_from), pretrained) == ()


def test_nothing_is_known_of_a_user_s_own_data(tmp_path: Path) -> None:
    (tmp_path / "a" / "x").mkdir(parents=True)
    registry = Registry()
    (tmp_path / "a" / "x" / "1.png").write_bytes(b"")
    component = resolve_component(registry, "dataset", f"folder:{tmp_path / 'a'}")
    (note,) = said(under_test(component, component.create()), "imagenet-1k")
    assert "which may contain classes of these data" in note


def test_rendered_data_cannot_have_been_seen() -> None:
    component = resolve_component(Registry(), "dataset", "planted")
    made = under_test(component, component.create())
    assert said(made, "wit-400m+unknown") == ()
    assert contamination(made, DataRecord(unknown_weights=("w.safetensors",))) == ()


FIXED = '''
from tests.toys import Blobs


class Photographs(Blobs):
    """Says nothing of where it comes from."""


class Drawn(Blobs):
    """Made by a program, of a number of strokes."""

    argument = "strokes"
    rendered = True

    def __init__(self, *, strokes: int = 3) -> None:
        super().__init__()
        self.strokes = strokes


class Numbered(Drawn):
    """Its argument is no place."""

    rendered = False
'''


@pytest.fixture
def fixed(tmp_path: Path) -> Registry:
    (tmp_path / "fixed.py").write_text(FIXED, encoding="utf-8")
    registry = Registry()
    registry.load_file(tmp_path / "fixed.py")
    return registry


def test_data_that_say_nothing_may_have_been_seen(fixed: Registry) -> None:
    component = resolve_component(fixed, "dataset", "photographs")
    (note,) = said(under_test(component, component.create()), "wit-400m")
    assert "which may contain classes of these data" in note
    drawn = resolve_component(fixed, "dataset", "drawn:5")
    assert said(under_test(drawn, drawn.create()), "wit-400m") == ()


def test_an_argument_that_is_no_path_is_an_option_and_no_place(fixed: Registry) -> None:
    component = resolve_component(fixed, "dataset", "numbered:6")
    data = under_test(component, component.create())
    assert (data.place, data.options["strokes"]) == ("", 6)
    (note,) = contamination(data, trained(data, place="", options={**data.options, "strokes": 3}))
    assert "numbered with other options than these (strokes=3)" in note


def trained(data: Any, **changes: Any) -> DataRecord:
    one = TrainedOn(data.name, dict(data.options), "/x")
    return DataRecord(trained_on=(dataclasses.replace(one, **changes),))


def test_training_on_the_training_classes_is_as_it_should_be(tmp_path: Path) -> None:
    data = toy(tmp_path)
    assert contamination(data, trained(data)) == ()


def test_training_on_another_split_of_the_data_is_noted(tmp_path: Path) -> None:
    data = toy(tmp_path)
    (note,) = contamination(data, trained(data, options={**data.options, "per_class": 5}))
    assert "toy-set with other options than these (per_class=5)" in note


def test_training_on_classes_under_test_is_told(tmp_path: Path) -> None:
    data = toy(tmp_path)
    other = {**data.options, "per_class": 5}
    (note,) = contamination(data, trained(data, options=other, classes=["c00", "c06", "c11"]))
    assert "trained on 2 of the 6 classes under test, in toy-set (c06, c11)" in note
    assert note.endswith(CERTAIN)
    assert contamination(data, trained(data, options=other, classes=["c00", "c01"])) == ()


def test_training_on_data_of_the_same_source_is_noted(tmp_path: Path) -> None:
    data = toy(tmp_path)
    other = {"name": "other", "options": {"name": "other"}, "images_from": ["imagenet-1k"]}
    (note,) = contamination(data, trained(data, **other))
    assert "trained on other, which has images or classes of imagenet-1k in common" in note
    assert contamination(data, trained(data, **{**other, "images_from": ["cifar-100"]})) == ()


def test_weights_bring_along_what_their_run_had_seen(tmp_path: Path) -> None:
    seen = DataRecord("birds", pretrained_on=("imagenet-1k",), trained_on=(A,))
    parts = {role: ComponentRecord(role) for role in ("dataset", "backbone", "method")}
    record = RunRecord("f", "finished", "", components=parts, data=seen)
    record.save(tmp_path / "run")
    assert RunRecord.load(tmp_path / "run").data == seen
    (tmp_path / "w.safetensors").write_bytes(b"")
    sources = [tmp_path / "run", tmp_path / "w.safetensors"]
    found = lineage_of(TinyBackbone(), sources)
    assert found.pretrained_on == ("imagenet-1k",)
    assert found.trained_on == (A,)
    assert found.unknown_weights == (str(tmp_path / "w.safetensors"),)
    assert "is not known" in contamination(toy(tmp_path), found)[-1]
    # What a teacher had seen counts, but its weights are not the model's.
    record = dataclasses.replace(
        record, data=dataclasses.replace(seen, weights_from={"hub": "elsewhere"})
    )
    record.save(tmp_path / "run")
    taught = lineage_of(TinyBackbone(), [], [tmp_path / "run"])
    direct = lineage_of(TinyBackbone(), [tmp_path / "run"])
    assert taught == dataclasses.replace(direct, weights_from={})
    assert taught.trained_on == (A,)


def test_many_problems_are_counted() -> None:
    assert incompleteness("cub", []) == ()
    assert incompleteness("cub", ["a"]) == ("cub is not as published: a",)
    assert "(and 1 more problem; see" in incompleteness("cub", ["a", "b"])[0]


def test_footnotes_name_a_few() -> None:
    rows = {name: ["x"] for name in "abcdef"}
    assert footnotes(rows) == ["a, b, c, d and 2 more: x"]
