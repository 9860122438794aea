"""Tasks of FewSTAB: worked by hand, their distribution, and requests that cannot be met."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numba
import numpy as np
import pytest

from fsf_samplers import FewStabPublishedSampler, FewStabSampler
from fsframework.interfaces import InfeasibleTask, OptionError, TaskSampler
from fsframework.values import AttributeTable, ImagePool

SHARED = Path(__file__).resolve().parents[4] / "shared"
SEED = 20240611
FitsUniform = Callable[[Counter[object], int], None]

Words = Sequence[frozenset[str]]


def pool_of(classes: dict[str, list[str]]) -> ImagePool:
    """Make a pool from the words of each class's images, separated by spaces."""
    keys = tuple(f"{name}{i}" for name, images in classes.items() for i in range(len(images)))
    labels = np.repeat(np.arange(len(classes)), [len(images) for images in classes.values()])
    words = [set(image.split()) for images in classes.values() for image in images]
    table = AttributeTable.from_words(keys, words)
    return ImagePool(keys, labels, tuple(classes)).with_attributes(table)


# -- By hand ---------------------------------------------------------------------------------------


def test_a_pool_with_a_single_task() -> None:
    # Two images of each class must share their class's attribute: "grass" for cats, "sofa" for
    # dogs. cat2 and dog2 have the other's too, so they cannot be in the support, nor be queries,
    # since they have their own. Queries lack their own and have the other's attribute.
    pool = pool_of(
        {
            "cat": ["grass", "grass ball", "grass sofa", "sofa", "sofa ball", "ball"],
            "dog": ["sofa", "sofa", "grass sofa", "grass", "grass", "red"],
        }
    )
    sampler = FewStabSampler(n_way=2, n_shot=2, n_query=2)
    seen = set()
    for t, classes in enumerate((tasks := sampler.draw(pool, 40, SEED)).classes.tolist()):
        words = [tasks.words[a] for a in tasks.attribute[t]]
        if sorted(zip(classes, words, strict=True)) != [(0, "grass"), (1, "sofa")]:
            continue
        cat, dog = classes.index(0), classes.index(1)
        assert sorted(pool.keys[i] for i in tasks.support[t, cat]) == ["cat0", "cat1"]
        assert sorted(pool.keys[i] for i in tasks.support[t, dog]) == ["dog0", "dog1"]
        assert sorted(pool.keys[i] for i in tasks.query[t, cat]) == ["cat3", "cat4"]
        assert sorted(pool.keys[i] for i in tasks.query[t, dog]) == ["dog3", "dog4"]
        assert not tasks.relaxed[t].any()
        seen.add(tuple(classes))
    assert seen == {(0, 1), (1, 0)}


@pytest.mark.parametrize(
    ("cats", "dogs", "queries", "relaxed"),
    [
        # The candidates of "cat" are cat1 .. cat5, with "sofa" and not "grass". Of five candidates,
        # "ball" is in 3, "red" in 2, "blue" in 1: scores 3, 3 + 2, 0, 1, 3 + 2; the three lowest
        # are cat3, cat4 and cat1. "sofa" is selected and does not count.
        (
            ["grass", "sofa ball", "sofa ball red", "sofa", "sofa blue", "sofa red ball"],
            ["sofa", "grass", "grass", "grass"],
            ["cat1", "cat3", "cat4"],
            False,
        ),
        # No cat has "sofa", so the candidates are the cats without "grass"; the queries are the two
        # with the rarer words: among cat1 .. cat4, "ball" is in 2, "red" and "blue" in 1.
        (
            ["grass", "ball", "ball", "red", "blue"],
            ["sofa", "sofa", "grass", "grass grey"],
            ["cat3", "cat4"],
            True,
        ),
    ],
)
def test_queries_have_the_fewest_common_words(
    cats: list[str], dogs: list[str], queries: list[str], relaxed: bool
) -> None:
    pool = pool_of({"cat": cats, "dog": dogs})
    tasks = FewStabSampler(n_way=2, n_shot=1, n_query=len(queries)).draw(pool, 200, SEED)
    found = 0
    for t, classes in enumerate(tasks.classes.tolist()):
        cat = classes.index(0)
        if [tasks.words[a] for a in tasks.attribute[t, [cat, 1 - cat]]] == ["grass", "sofa"]:
            assert sorted(pool.keys[i] for i in tasks.query[t, cat]) == queries
            assert bool(tasks.relaxed[t, cat]) == relaxed
            assert not tasks.relaxed[t, 1 - cat]
            found += 1
    assert found


def test_a_class_that_can_form_no_task_is_never_drawn() -> None:
    usable = ["a", "b", "c", ""]
    pool = pool_of({"x": usable, "y": usable, "bare": ["", "", ""], "always": ["a", "a", "a"]})
    tasks = FewStabSampler(n_way=2, n_shot=1, n_query=2).draw(pool, 50, SEED)
    assert set(tasks.classes.reshape(-1).tolist()) == {0, 1}


# -- Distributions ---------------------------------------------------------------------------------


def test_classes_are_uniform(fits_uniform: FitsUniform) -> None:
    # No two classes share a word and all are alike, so no task ever restarts.
    pool = pool_of({f"c{c}": [f"a{c}", f"b{c}", f"c{c}", ""] for c in range(5)})
    tasks = FewStabSampler(n_way=3, n_shot=1, n_query=2).draw(pool, 6000, SEED)
    fits_uniform(Counter(map(tuple, tasks.classes.tolist())), 5 * 4 * 3)


def test_attributes_are_uniform_among_those_that_fill_a_support(fits_uniform: FitsUniform) -> None:
    # "rare" is in one image, too few for two shots; "all" in every image, so not spurious.
    images = ["p q all", "p q all", "r all", "r s all", "s rare all", "all", "all"]
    named = {f"c{c}": [i.replace(" ", f"{c} ") + f"{c}" for i in images] for c in range(3)}
    tasks = FewStabSampler(n_way=2, n_shot=2, n_query=2).draw(pool_of(named), 6000, SEED)
    counts = Counter(tasks.words[a] for a in tasks.attribute.reshape(-1))
    fits_uniform(counts, 3 * len("pqrs"))


def test_supports_are_uniform(fits_uniform: FitsUniform) -> None:
    pool = pool_of({f"c{c}": [f"a{c}"] * 4 + ["", ""] for c in range(2)})
    tasks = FewStabSampler(n_way=2, n_shot=2, n_query=2).draw(pool, 3000, SEED)
    fits_uniform(Counter(map(tuple, (tasks.support % 6).reshape(-1, 2).tolist())), 4 * 3)


@pytest.mark.parametrize("relaxed", [False, True])
def test_ties_are_broken_uniformly(relaxed: bool, fits_uniform: FitsUniform) -> None:
    # In tasks on "a0" and "a1", the candidates of a class are its last five images. The first of
    # these has no other word and is always taken; the others tie for two places.
    def images(own: str, other: str) -> list[str]:
        return [own, *(f"{word} {'' if relaxed else other}" for word in ("", *"bcde"))]

    pool = pool_of({"0": images("a0", "a1"), "1": images("a1", "a0")})
    tasks = FewStabSampler(n_way=2, n_shot=1, n_query=3).draw(pool, 12_000, SEED)
    words = np.array(tasks.words)[tasks.attribute]
    asked = np.all(words == np.array(["a0", "a1"])[tasks.classes], axis=1)
    assert np.all(tasks.relaxed[asked] == relaxed)
    queries = np.sort(tasks.query[asked] % 6, axis=2).reshape(-1, 3)
    assert np.all(queries[:, 0] == 1)
    fits_uniform(Counter(map(tuple, queries[:, 1:].tolist())), 6)


def test_random_bits_are_those_of_splitmix64(fits_uniform: FitsUniform) -> None:
    from fsf_samplers._kernels import below, next_random

    @numba.njit
    def draw(state: np.ndarray, n: int) -> tuple[list[int], list[int]]:
        bits = [next_random(state) for _ in range(3)]
        return bits, [below(n, state) for _ in range(7000)]

    bits, integers = draw(np.array([1234567], np.uint64), 7)
    assert bits == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    fits_uniform(Counter(integers), 7)


# -- The compiled code -------------------------------------------------------------------------


def test_it_works_without_a_writable_cache() -> None:
    code = (
        "from fsf_samplers import FewStabSampler; from fsframework.testing import toy_pool; "
        "print(len(FewStabSampler().draw(toy_pool(), 2, 3)))"
    )
    nowhere = {
        "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator",
        "NUMBA_CACHE_DIR": os.path.join(os.devnull, "cache"),  # noqa: PTH118
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, **nowhere},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr


# -- Requests that cannot be met -------------------------------------------------------------------

TWO = {"cat": ["a", "a", "b", ""], "dog": ["a", "c", "d", ""]}


def refusal(classes: dict[str, list[str]], **options: int) -> str:
    with pytest.raises(InfeasibleTask) as caught:
        FewStabSampler(**options).draw(pool_of(classes), 3, SEED)
    return str(caught.value)


def test_options_are_checked() -> None:
    with pytest.raises(OptionError, match="max_restarts must be at least 0, not -1"):
        FewStabSampler(max_restarts=-1)
    with pytest.raises(OptionError, match="n_shot must be at least 1, not 0"):
        FewStabSampler(n_shot=0)
    pool, sampler = pool_of(TWO), FewStabSampler(n_way=2, n_shot=1, n_query=1)
    for n_tasks, seed, message in (
        (None, 0, "'fewstab' never runs out of tasks"),
        (0, 0, "n_tasks must be at least 1, not 0"),
        (1, -3, "seed must be at least 0, not -3"),
    ):
        with pytest.raises(OptionError, match=message):
            sampler.draw(pool, n_tasks, seed)


@pytest.mark.parametrize("sampler", [FewStabSampler, FewStabPublishedSampler])
def test_no_attributes(sampler: type[TaskSampler]) -> None:
    bare = ImagePool(("a", "b"), np.array([0, 1]), ("cat", "dog"))
    with pytest.raises(InfeasibleTask, match="needs the images' attributes"):
        sampler(n_way=2).draw(bare, 1, 0)


@pytest.mark.parametrize(
    ("classes", "shape", "named", "remedy"),
    [
        (TWO, (3, 1, 1), "the number of classes, 2, not 3", ""),
        ({"cat": ["", ""], "dog": ["", ""]}, (2, 5, 15), "no image has any", ""),
        (
            {**TWO, "bare": ["", "", ""], "always": ["a", "a", "a", "a"]},
            (3, 1, 2),
            "only 2 of 4 can be in a task: 'bare' with 3 images has no word",
            "n_way at most 2",
        ),
        (TWO, (2, 2, 2), "'dog' with 4 images", "n_shot at most 1 with n_query = 2"),
        (TWO, (2, 1, 4), "", "n_query at most 3 with n_shot = 1"),
        ({name: ["a", "b", ""] for name in "xyz"}, (3, 1, 1), "n_way is 3", "'a', 'b'"),
    ],
)
def test_requests_that_cannot_be_met_name_what_would_do(
    classes: dict[str, list[str]], shape: tuple[int, int, int], named: str, remedy: str
) -> None:
    message = refusal(classes, **dict(zip(("n_way", "n_shot", "n_query"), shape, strict=True)))
    assert named in message
    assert message.endswith(remedy)


def test_restarts_end() -> None:
    always_both = {name: ["a b", "a b", ""] for name in ("cat", "dog")}
    message = refusal(always_both, n_way=2, n_shot=1, n_query=1, max_restarts=20)
    assert message.startswith("task 0 restarted more than max_restarts = 20 times: ")
    assert "had at most 0 images with its attribute and none of the others' (n_shot = 1)" in message


def test_restarts_blame_attributes_taken_before() -> None:
    classes = {"cat": ["a", ""], "dog": ["a", ""], "emu": ["b", "c", "", ""]}
    message = refusal(classes, n_way=3, n_shot=1, n_query=1, max_restarts=50)
    assert "had no attribute that the earlier classes had not taken (n_way = 3)" in message


def test_restarts_blame_too_few_queries() -> None:
    # "b" or "y" would leave enough queries, but only one of the two can then be in a support.
    classes = {"cat": ["a", "a", "a b", ""], "dog": ["x", "x", "x b", ""]}
    message = refusal(classes, n_way=2, n_shot=1, n_query=3, max_restarts=50)
    assert "had at most 1 images without its attribute (n_query = 3)" in message
