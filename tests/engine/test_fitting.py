"""Tasks that follow what the data allow; the numbers are worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

import fsframework as fsf
from fsframework.api.opened import draw_tasks
from fsframework.errors import InfeasibleTask
from fsframework.interfaces import Dataset
from fsframework.values import TaskSet, UInt8Array
from tests.toys import Blobs, PixelPrototypes, Still, run


class Sized(Dataset):
    """A split test with classes of given sizes, whose images share words in turn."""

    def __init__(self, *, sizes: tuple[int, ...] = (), words: tuple[str, ...] = ()):
        self.sizes, self.words = sizes, words
        self.labels = np.repeat(np.arange(len(sizes)), sizes)
        self.keys = tuple(f"{i}" for i in range(len(self.labels)))
        self.class_names = tuple(f"c{i}" for i in range(len(sizes)))
        self.splits = {"test": self.class_names}
        cells = tuple(words[i % len(words)] for i in range(len(self.labels))) if words else ()
        self.metadata = {"words": cells} if words else {}
        self.fingerprint = f"{sizes} {words}"

    def image(self, index: int) -> UInt8Array:
        return np.zeros((8, 8, 3), np.uint8)


def fit(
    *sizes: int, sampler: str = "random", words: tuple[str, ...] = (), **given: int
) -> tuple[TaskSet, tuple[str, ...]]:
    """Tasks under test, and the notes on them."""
    described = fsf.describe(
        dataset=Sized(sizes=sizes, words=words), sampler=sampler, method="ncc", tasks=4,
        split="test", training={"epochs": 0}, image_size=8, progress=False, **given,
    )  # fmt: skip
    arms, _ = draw_tasks(described.experiment, described.session)
    return arms.tested, described.tasks()[1]


def test_nothing_is_changed_where_the_data_suffice() -> None:
    found, notes = fit(*[20] * 5)
    assert (found.n_way, found.n_query, notes) == (5, 15, ())


@pytest.mark.parametrize(
    ("sizes", "given", "shape", "told"),
    [
        # 5 shots of 19 images leave 14 queries; 10 is the next number tried.
        ([19] * 5, {}, (5, 10), "tasks of 15 queries per class; the tasks have 10 queries per"),
        ([20] * 3, {}, (3, 15), "tasks of 5 ways; the tasks have 3 ways"),
        (
            [9] * 2,
            {},
            (2, 4),
            "tasks of 5 ways and 15 queries per class; the tasks have 2 ways",
        ),
        ([3] * 5, {"shot": 2}, (5, 1), "the tasks have 1 query per class"),
        ([40] * 4, {"queries": 30}, (4, 30), "the tasks have 4 ways"),
        ([25] * 8, {"way": 8, "shot": 15}, (8, 10), "the tasks have 10 queries per class"),
    ],
)
def test_open_numbers_follow(
    sizes: list[int], given: dict[str, int], shape: tuple[int, int], told: str
) -> None:
    found, notes = fit(*sizes, **given)
    assert (found.n_way, found.n_query) == shape
    assert told in notes[0]
    assert "split test" in notes[0]
    own = {"way": found.n_way, "shot": found.n_shot, "queries": found.n_query}
    assert {name: own[name] for name in given} == given


@pytest.mark.parametrize(
    ("sizes", "given", "told"),
    [
        ([25] * 4, {"way": 5}, r"'test' \(4 classes of 25 images\): 5-way tasks need 5 classes"),
        ([25], {}, "has 1 class"),
        ([9] * 5, {"queries": 5}, "5 shots and 5 queries per class need .* 'c1', .* 9 images"),
        ([9, 1, 1], {"shot": 1}, "need 2 classes of 2 images, but 'c1', .* 1 image"),
        ([30, 1], {"way": 2, "shot": 2, "queries": 2}, r"2 classes of 1 to 30 images"),
    ],
)
def test_given_numbers_are_never_changed(
    sizes: list[int], given: dict[str, int], told: str
) -> None:
    with pytest.raises(InfeasibleTask, match=told):
        fit(*sizes, **given)


@pytest.mark.parametrize(
    ("sizes", "given", "queries", "left_out"),
    [
        # Three of five classes have the 20 images of 5 shots and 15 queries: more than half.
        ([30, 30, 30, 8, 4], {"way": 3}, 15, ["c3 (8)", "c4 (4)"]),
        # Two of five do, so queries go down to 5: 10 images, which c4 lacks.
        ([30, 30, 10, 10, 9], {"way": 2}, 5, ["c4 (9)"]),
        ([30, 30, 10, 10, 9], {"way": 2, "queries": 15}, 15, ["c2 (10)", "c3 (10)", "c4 (9)"]),
    ],
)
def test_small_classes_are_in_no_task(
    sizes: list[int], given: dict[str, int], queries: int, left_out: list[str]
) -> None:
    found, notes = fit(*sizes, **given)
    drawn = set(found.classes.ravel().tolist())
    assert found.n_query == queries
    assert {f"c{one}" for one in drawn}.isdisjoint(name.split()[0] for name in left_out)
    assert all(name in " ".join(notes) for name in left_out)


def test_words_limit_the_ways() -> None:
    """Three words are tied to at most three classes of a task."""
    found, notes = fit(*[30] * 5, sampler="fewstab", words=("red", "green", "blue"))
    assert (found.n_way, found.n_query) == (3, 15)
    assert "5 classes of 30 images, 3 words" in notes[0]


def test_the_arms_of_a_contrast_share_no_tasks_in_the_cache() -> None:
    """The sampler of each arm has the same options, and is in the same file."""
    sampler, shape = {"name": "context", "column": "words"}, {"way": 3, "shot": 1, "queries": 4}
    fresh = fsf.draw(sampler, fsf.pool(Blobs(), progress=False), tasks=40, **shape)
    assert not np.array_equal(fresh["iid"].query, fresh["ood"].query)
    for method in (Still, PixelPrototypes):  # drawn, then read
        found = run(method=method, sampler=sampler, training={"epochs": 0}, **shape)
        assert {arm: t.digest for arm, t in found.tasks.items()} == {
            arm: t.digest for arm, t in fresh.items()
        }
