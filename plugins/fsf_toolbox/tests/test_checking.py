from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fsf_tools.data.checking import check_dataset, check_words
from fsf_tools.data.declarations import content_of, declared_name
from fsframework.errors import DataError
from fsframework.interfaces import Dataset
from fsframework.values import AttributeTable


class Broken(Dataset):
    """Four images of three classes, one of which has no image and two of which share a key."""

    def __init__(self) -> None:
        self.keys = ("a/0", "a/1", "b/0", "b/0")
        self.labels = np.array([0, 0, 1, 1])
        self.class_names = ("a", "b", "c", "d")
        self.splits = {"train": ("a", "c"), "test": ("b", "a")}
        self.metadata = {}
        self.fingerprint = "broken"

    def image(self, index: int) -> np.ndarray:
        if index == 2:
            raise DataError("b/0: not a readable image")
        return np.zeros((9, 9, 3), np.uint8)


def test_every_problem_is_a_sentence() -> None:
    opened: list[int] = []
    assert check_dataset(Broken()).unreadable == 0, "images are left alone where nobody asks"
    report = check_dataset(Broken(), opened.append)
    assert report.problems[:5] == (
        "2 classes have no image: 'c', 'd'",
        "1 key appears more than once: 'b/0'",
        "class 'a' is in the splits train and test",
        "1 class is in no split: 'd'",
        "b/0: not a readable image",
    )
    assert (report.unreadable, sum(opened)) == (1, 4)
    [train] = report.splits
    assert (train.name, train.classes, train.images, train.smallest) == ("train", 1, 2, "2 (a)")
    assert "'b/0'" in report.problems[5], "the pool of a split with two equal keys is refused"
    assert report.problems[6:] == ("1 class consists of one repeated image: 'a'",)


def test_words_are_compared_with_images() -> None:
    words = (frozenset({"red"}), frozenset(), frozenset({"blue"}), frozenset())
    table = AttributeTable.from_words(("a/0", "a/1", "x/0", "x/1"), words, {})
    report = check_words(Broken(), table)
    assert list(report.lines()) == [
        "2 keys of the words have no image: 'x/0', 'x/1'",
        "2 images have no words: 'b/0', 'b/0'",
        "1 image has an empty cell of words",
    ]
    assert report.to_json()["keys_without_image"] == ["x/0", "x/1"]
    fitting = AttributeTable.from_words(("a/0", "a/1", "b/0"), [frozenset({"red"})] * 3, {})
    assert list(check_words(Broken(), fitting).lines()) == [
        "every key of the words has an image, and every image has its words"
    ]


def test_a_declaration_comes_with_the_files_it_names(tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text("{}")
    (tmp_path / "set.toml").write_text('name = "mine"\n[splits.a]\nfile = "split.json"\n')
    assert declared_name(tmp_path / "set.toml") == "mine"
    content = content_of(tmp_path / "set.toml", "birds")
    assert list(content) == ["birds.toml", "split.json"], "the declaration comes first"
    assert content["split.json"] == b"{}"


@pytest.mark.parametrize(("text", "part"), [("name = ", "not TOML"), ("a = 1", "must give the")])
def test_a_declaration_without_a_name_is_refused(tmp_path: Path, text: str, part: str) -> None:
    (tmp_path / "set.toml").write_text(text)
    with pytest.raises(DataError, match=part):
        declared_name(tmp_path / "set.toml")
