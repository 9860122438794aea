"""Tasks that follow what the data allow; the numbers are worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fsframework.components.options import Given
from fsframework.components.registry import Registry
from fsframework.components.resolution import Component, resolve_component
from fsframework.errors import InfeasibleTask
from fsframework.pipeline.fitting import Fit, fitted, shape_of, size_of
from fsframework.pipeline.tasks import draw_arms
from fsframework.values import AttributeTable, ImagePool

REGISTRY = Registry()


def pool(*sizes: int, words: list[frozenset[str]] | None = None) -> ImagePool:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    keys = tuple(f"{i}" for i in range(len(labels)))
    made = ImagePool(keys, labels, tuple(f"c{i}" for i in range(len(sizes))), {})
    return made if words is None else made.with_attributes(AttributeTable.from_words(keys, words))


def sampler(name: str = "random", **given: int) -> Component:
    return resolve_component(
        REGISTRY, "sampler", {"name": name, **{k: Given(v, "call") for k, v in given.items()}}
    )


def fit(one: Component, images: ImagePool) -> Fit:
    return fitted(one, "test", images, lambda s: draw_arms(REGISTRY, s, images, 4, 0, None))


def test_nothing_is_changed_where_the_data_suffice() -> None:
    found = fit(sampler(), pool(*[20] * 5))
    assert (found.shape, found.note) == ((5, 15), "")


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
        ([3] * 5, {"n_shot": 2}, (5, 1), "the tasks have 1 query per class"),
        ([40] * 4, {"n_query": 30}, (4, 30), "the tasks have 4 ways"),
        ([25] * 8, {"n_way": 8, "n_shot": 15}, (8, 10), "the tasks have 10 queries per class"),
    ],
)
def test_open_numbers_follow(
    sizes: list[int], given: dict[str, int], shape: tuple[int, int], told: str
) -> None:
    found = fit(sampler(**given), pool(*sizes))
    assert found.shape == shape
    assert told in found.note
    assert found.note.startswith(f"the split test ({size_of(pool(*sizes))}) does not allow")
    assert all(found.sampler.options[name] == value for name, value in given.items())


@pytest.mark.parametrize(
    ("sizes", "given", "told"),
    [
        ([25] * 4, {"n_way": 5}, r"'test' \(4 classes of 25 images\): 5-way tasks need 5 classes"),
        ([25], {}, r"'test' \(1 class of 25 images\): 2-way tasks need 2 classes"),
        ([9] * 5, {"n_query": 5}, "not 5 [+] 5"),
        ([9, 1, 9], {"n_shot": 1}, "'c1' with 1 image, not 1 [+] 1"),
        ([30, 1], {"n_way": 2, "n_shot": 2, "n_query": 2}, r"2 classes of 1 to 30 images"),
    ],
)
def test_given_numbers_are_never_changed(
    sizes: list[int], given: dict[str, int], told: str
) -> None:
    with pytest.raises(InfeasibleTask, match=told):
        fit(sampler(**given), pool(*sizes))


def test_words_limit_the_ways() -> None:
    """Three words are tied to at most three classes of a task."""
    words = [frozenset({("red", "green", "blue")[i % 3]}) for i in range(150)]
    found = fit(sampler("fewstab"), pool(*[30] * 5, words=words))
    assert found.shape == (3, 15)
    assert "5 classes of 30 images, 3 words" in found.note


def test_numbers_in_words() -> None:
    assert shape_of({"n_way": 2, "n_shot": 1, "n_query": 3}, ["n_way", "n_shot", "n_query"]) == (
        "2 ways, 1 shot and 3 queries per class"
    )
    assert size_of(pool(1)) == "1 class of 1 image"
    assert size_of(pool(1, 3)) == "2 classes of 1 to 3 images"
