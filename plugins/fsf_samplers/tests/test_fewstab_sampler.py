"""Tasks of FewSTAB: worked by hand, their distribution, and requests that cannot be met."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numba
import numpy as np
import pytest

import fsframework as fsf
from fsf_samplers import FewStabPublishedSampler, FewStabSampler
from fsframework.interfaces import InfeasibleTask, OptionError
from tests.toys import pool_of

SEED = 20240611
FitsUniform = Callable[[Counter[object], int], None]

# -- By hand ---------------------------------------------------------------------------------------


def test_a_pool_with_a_single_task() -> None:
    # Two images of each class must share their class's attribute: "grass" for cats, "sofa" for
    # dogs. The third ones have the other's too, so they cannot be in the support, nor be queries,
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
        assert np.sort(tasks.support[t, [cat, dog]]).tolist() == [[0, 1], [6, 7]]
        assert np.sort(tasks.query[t, [cat, dog]]).tolist() == [[3, 4], [9, 10]]
        assert not tasks.relaxed[t].any()
        seen.add(tuple(classes))
    assert seen == {(0, 1), (1, 0)}


@pytest.mark.parametrize(
    ("cats", "dogs", "queries", "relaxed"),
    [
        # The candidates of "cat" are 1 .. 5, with "sofa" and not "grass". Of five candidates,
        # "ball" is in 3, "red" in 2, "blue" in 1: scores 3, 3 + 2, 0, 1, 3 + 2; the three lowest
        # are 3, 4 and 1. "sofa" is selected and does not count.
        (
            ["grass", "sofa ball", "sofa ball red", "sofa", "sofa blue", "sofa red ball"],
            ["sofa", "grass", "grass", "grass"],
            [1, 3, 4],
            False,
        ),
        # No cat has "sofa", so the candidates are the cats without "grass"; the queries are the two
        # with the rarer words: among 1 .. 4, "ball" is in 2, "red" and "blue" in 1.
        (
            ["grass", "ball", "ball", "red", "blue"],
            ["sofa", "sofa", "grass", "grass grey"],
            [3, 4],
            True,
        ),
    ],
)
def test_queries_have_the_fewest_common_words(
    cats: list[str], dogs: list[str], queries: list[int], relaxed: bool
) -> None:
    pool = pool_of({"cat": cats, "dog": dogs})
    tasks = FewStabSampler(n_way=2, n_shot=1, n_query=len(queries)).draw(pool, 200, SEED)
    found = 0
    for t, classes in enumerate(tasks.classes.tolist()):
        cat = classes.index(0)
        if [tasks.words[a] for a in tasks.attribute[t, [cat, 1 - cat]]] == ["grass", "sofa"]:
            assert sorted(tasks.query[t, cat]) == queries
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


ALIKE = {f"{c}": [f"a{c}", f"a{c}", "", f"b{1 - c}", f"b{1 - c}", "x y"] for c in range(2)}
"""Two classes of six images, identical except for the words' names."""


def test_random_supports_are_any_images_and_queries_none_of_them(fits_uniform: FitsUniform) -> None:
    tasks = FewStabSampler(n_way=2, n_shot=1, n_query=3, support="random", query="intra").draw(
        pool_of(ALIKE), 6000, SEED
    )
    fits_uniform(Counter((tasks.support % 6).reshape(-1).tolist()), 6)
    # In tasks on a word in two images, four lack it, less the support where it lacks it too.
    words = np.array(tasks.words)[tasks.attribute]
    on_a = np.char.startswith(words, "a")
    lacking = (tasks.support[..., 0] % 6) >= 2
    beside = on_a & (tasks.support[..., 0] % 6 == 2)
    assert np.all(np.sort(tasks.query[beside] % 6) == [3, 4, 5])
    fits_uniform(Counter(map(tuple, np.sort(tasks.query[on_a & ~lacking] % 6).tolist())), 4)


def test_intra_queries_are_uniform_among_those_without_it(fits_uniform: FitsUniform) -> None:
    tasks = FewStabSampler(n_way=2, n_shot=2, n_query=3, query="intra").draw(
        pool_of(ALIKE), 6000, SEED
    )
    on_a = np.char.startswith(np.array(tasks.words)[tasks.attribute], "a")
    fits_uniform(Counter(map(tuple, np.sort(tasks.query[on_a] % 6).tolist())), 4)


def test_inter_queries_are_uniform_among_those_with_anothers(fits_uniform: FitsUniform) -> None:
    # In tasks on "a0" and "a1", three images of each class have the other's; two have more words,
    # so that "inter-least" would never take both.
    classes = {
        f"{c}": [f"a{c}", f"a{1 - c}", f"a{1 - c} p q", f"a{1 - c} p q", "p"] for c in range(2)
    }
    tasks = FewStabSampler(n_way=2, n_shot=1, n_query=2, query="inter").draw(
        pool_of(classes), 12_000, SEED
    )
    words = np.array(tasks.words)[tasks.attribute]
    asked = np.all(words == np.array(["a0", "a1"])[tasks.classes], axis=1)
    assert not tasks.relaxed[asked].any()
    queries = np.sort(tasks.query[asked] % 5).reshape(-1, 2)
    fits_uniform(Counter(map(tuple, queries.tolist())), 3)


def test_random_bits_are_those_of_splitmix64(fits_uniform: FitsUniform) -> None:
    from fsf_samplers._kernels import below, next_random

    @numba.njit
    def draw(state: np.ndarray, n: int) -> tuple[list[int], list[int]]:
        bits = [next_random(state) for _ in range(3)]
        return bits, [below(n, state) for _ in range(7000)]

    bits, integers = draw(np.array([1234567], np.uint64), 7)
    assert bits == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    fits_uniform(Counter(integers), 7)


# -- The control -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [FewStabSampler, FewStabPublishedSampler])
def test_a_matched_control_has_the_classes_of_the_biased_tasks(
    make: Any, fits_uniform: FitsUniform
) -> None:
    # The class "few" rarely has an image with its word and none of the other class's.
    images = {"few": ["a", "a b", "b", "b"], "x": ["a", "b", "c", "d"] * 3, "y": ["b", "c"] * 6}
    pool = pool_of(images)
    options = {"n_way": 2, "n_shot": 1, "n_query": 2}
    biased = make(**options).draw(pool, 3000, SEED)
    usual, matched = (
        fsf.draw({"name": make, "control": control, **options}, pool, tasks=3000, seed=SEED)
        for control in ("random", "matched")
    )
    for arms in (usual, matched):
        assert np.array_equal(arms["biased"].images, biased.images)
    assert not usual.contrast.paired
    assert matched.contrast == replace(usual.contrast, paired=True)
    shares = [np.bincount(tasks.classes.ravel()) for tasks in (usual["random"], biased)]
    assert np.abs(shares[0] - shares[1]).max() > 200
    control = matched["random"]
    assert np.array_equal(control.classes, biased.classes)
    for part in (control.support[..., 0], control.query.reshape(-1)):
        drawn = part[(part >= 4) & (part < 16)]
        fits_uniform(Counter(drawn.tolist()), 12)
    assert (control.attribute < 0).all()


def test_an_unknown_control_is_refused() -> None:
    with pytest.raises(OptionError, match="'random', 'matched', not 'none'"):
        FewStabSampler(control="none")  # type: ignore[arg-type]


# -- The compiled code -------------------------------------------------------------------------


@pytest.mark.slow
def test_it_works_without_a_writable_cache() -> None:
    code = (
        "from fsf_samplers import FewStabSampler; from fsframework.testing import toy_pool; "
        "print(len(FewStabSampler().draw(toy_pool(), 2, 3)))"
    )
    nowhere = {
        "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator",
        "NUMBA_CACHE_DIR": os.path.join(os.devnull, "cache"),  # noqa: PTH118
        "NUMBA_OPT": "0",  # compiling is what takes the time
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
AB = ["a", "b", ""]
SHORT = {"0": ["a", "", "", ""], "1": ["b", "", ""]}
by_any = partial(FewStabSampler, support="random", query="intra")
by_own = partial(FewStabSampler, support="targeted", query="intra")
published = FewStabPublishedSampler


@pytest.mark.parametrize(
    ("make", "classes", "shape", "message"),
    [
        (FewStabSampler, TWO, (3, 1, 1), "3-way tasks need 3 classes, and there are only 2"),
        (FewStabSampler, {"cat": ["", ""], "dog": ["", ""]}, (2, 5, 15), "no image has any"),
        (
            FewStabSampler,
            {**TWO, "bare": ["", "", ""], "always": ["a", "a", "a", "a"]},
            (3, 1, 2),
            "only 2 of 4 can be in a task: 'bare' with 3 images has no word .* at most 2 ways$",
        ),
        (FewStabSampler, TWO, (2, 2, 2), "'dog' with 4 .*; at most 1 shot with 2 queries$"),
        (FewStabSampler, TWO, (2, 1, 4), "at most 3 queries with 1 shot$"),
        (
            FewStabSampler,
            {name: ["a", "b", ""] for name in "xyz"},
            (3, 1, 1),
            "each of the 3 classes .*'a', 'b'$",
        ),
        (
            by_own,
            {"0": ["a", "", "", ""], "1": ["b", "", "", ""]},
            (2, 2, 2),
            "absent from 2 .queries.; at most 1 shot with 2 queries$",
        ),
        (
            by_any,
            SHORT,
            (2, 2, 2),
            "only 1 of 2 can be in a task: '1' with 3 images cannot give .*; "
            "at most 1 shot with 2 queries or at most 1 query with 2 shots$",
        ),
        (published, {"0": ["a", "b", ""], "1": ["a", "", ""]}, (2, 1, 1), "'1' with 3 images does"),
        (
            published,
            {name: ["a", "a", "b", ""] for name in "xy"},
            (2, 2, 1),
            "absent from 1 .queries.; at most 1 shot with 1 query$",
        ),
        (
            published,
            {name: ["a", "b"] for name in "xyz"},
            (3, 1, 1),
            "each of the 3 classes .*'a', 'b'$",
        ),
    ],
)
def test_requests_that_cannot_be_met_name_what_would_do(
    make: Any, classes: dict[str, list[str]], shape: tuple[int, int, int], message: str
) -> None:
    n_way, n_shot, n_query = shape
    with pytest.raises(InfeasibleTask, match=message):
        make(n_way=n_way, n_shot=n_shot, n_query=n_query).draw(pool_of(classes), 3, SEED)


@pytest.mark.parametrize(
    ("make", "classes", "shape", "blame"),
    [
        (
            FewStabSampler,
            {name: ["a b", "a b", ""] for name in "xy"},
            (2, 1, 1),
            r"at most 0 images with its attribute and none of the others' \(1 shot\)",
        ),
        (
            FewStabSampler,
            {"cat": ["a", ""], "dog": ["a", ""], "emu": ["b", "c", "", ""]},
            (3, 1, 1),
            r"had no attribute that the earlier classes had not taken \(3 ways\)",
        ),
        (  # "b" or "y" would leave enough queries, but only one of them can be in a support
            FewStabSampler,
            {"cat": ["a", "a", "a b", ""], "dog": ["x", "x", "x b", ""]},
            (2, 1, 3),
            r"had at most 1 image without its attribute \(3 queries\)",
        ),
        (  # two of three images must remain, so the support must be the one with the attribute
            by_any,
            {"0": ["a", "", ""], "1": ["b", "", ""]},
            (2, 1, 2),
            "had at most 1 image without its attribute outside its support",
        ),
        (  # at most one class is eligible for two of the drawn words
            published,
            {"0": ["a", "b", ""], "1": ["c", "d", ""], "2": ["e", "f", ""]},
            (3, 1, 1),
            "had no class left that was eligible for it and another word",
        ),
        (  # each class is short of images with another's; four failures are too few to relax
            published,
            {name: ["a", "b", "c", "", "", ""] for name in "xyz"},
            (3, 1, 4),
            "had at most 2 images without its attribute and with one of the others'",
        ),
        (  # all images with one word have the others too
            published,
            {name: ["a b c", ""] for name in "xyz"},
            (3, 1, 1),
            "had at most 0 images with its attribute and few enough of the others'",
        ),
    ],
)
def test_restarts_end_and_name_the_culprit(
    make: Any, classes: dict[str, list[str]], shape: tuple[int, int, int], blame: str
) -> None:
    n_way, n_shot, n_query = shape
    sampler = make(n_way=n_way, n_shot=n_shot, n_query=n_query, max_restarts=3)
    with pytest.raises(InfeasibleTask, match=f"than max_restarts = 3 times: .*{blame}"):
        sampler.draw(pool_of(classes), 3, SEED)
