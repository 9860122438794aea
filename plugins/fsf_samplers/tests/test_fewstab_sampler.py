"""Tasks of FewSTAB, checked against the definition by independent code."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from fsf_samplers import FewStabSampler
from fsframework.interfaces import InfeasibleTask, OptionError
from fsframework.testing import Check, Make, parametrize_with_checks
from fsframework.values import AttributeTable, ImagePool, TaskSet

SHARED = Path(__file__).resolve().parents[4] / "shared"
SEED = 20240611

Words = Sequence[frozenset[str]]


def pool_of(classes: dict[str, list[str]]) -> ImagePool:
    """Make a pool from the words of each class's images, separated by spaces."""
    keys = tuple(f"{name}{i}" for name, images in classes.items() for i in range(len(images)))
    labels = np.repeat(np.arange(len(classes)), [len(images) for images in classes.values()])
    words = [set(image.split()) for images in classes.values() for image in images]
    table = AttributeTable.from_words(keys, words)
    return ImagePool(keys, labels, tuple(classes)).with_attributes(table)


def random_pool(
    rng: np.random.Generator, n_classes: int, n_images: int, n_words: int, mean: float
) -> ImagePool:
    """Make a pool of classes of unequal size, with Zipf-distributed words and shuffled images."""
    labels = rng.permutation(np.repeat(np.arange(n_classes), n_images))[: -n_images // 3]
    labels = np.concatenate([labels, np.arange(n_classes)])
    share = 1 / np.arange(1, n_words + 1)
    words = [
        {f"w{w}" for w in rng.choice(n_words, rng.poisson(mean), p=share / share.sum())}
        for _ in labels
    ]
    keys = tuple(f"{i:04}.png" for i in range(labels.size))
    names = tuple(f"c{c}" for c in range(n_classes))
    return ImagePool(keys, labels, names).with_attributes(AttributeTable.from_words(keys, words))


def words_of(pool: ImagePool) -> Words:
    assert pool.attributes is not None
    return [frozenset(pool.attributes.words_of(i)) for i in range(len(pool))]


def check_tasks(pool: ImagePool, tasks: TaskSet) -> None:
    """Derive every condition of every task from the images' words only."""
    words = words_of(pool)
    members = [
        [i for i in range(len(pool)) if pool.labels[i] == c] for c in range(len(set(pool.labels)))
    ]
    for t in range(len(tasks)):
        classes = tasks.classes[t].tolist()
        selected = [tasks.words[a] for a in tasks.attribute[t]]
        assert len(set(classes)) == len(set(selected)) == tasks.n_way
        for way, label in enumerate(classes):
            own, others = selected[way], set(selected) - {selected[way]}
            support, query = tasks.support[t, way].tolist(), tasks.query[t, way].tolist()
            assert len(set(support)) == tasks.n_shot
            assert len(set(query)) == tasks.n_query
            assert set(support) | set(query) <= set(members[label])

            carriers = [i for i in members[label] if own in words[i]]
            assert tasks.n_shot <= len(carriers) < len(members[label])
            assert all(own in words[i] and not others & words[i] for i in support)

            intra = [i for i in members[label] if own not in words[i]]
            inter = [i for i in intra if others & words[i]]
            assert bool(tasks.relaxed[t, way]) == (len(inter) < tasks.n_query)
            candidates = intra if tasks.relaxed[t, way] else inter
            assert set(query) <= set(candidates)

            share = {
                a: Fraction(sum(a in words[i] for i in candidates), len(candidates))
                for i in candidates
                for a in words[i]
                if a not in selected
            }
            scores = {
                i: sum((share[a] for a in words[i] if a in share), Fraction()) for i in candidates
            }
            left_out = [scores[i] for i in candidates if i not in query]
            assert max(scores[i] for i in query) <= min(left_out, default=max(scores.values()))


@parametrize_with_checks([FewStabSampler])
def test_conformance(make: Make, check: Check) -> None:
    check(make)


# -- By the definition -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_way", "n_shot", "n_query", "n_words", "mean"),
    [(5, 1, 15, 60, 4), (5, 5, 8, 30, 3), (2, 3, 1, 6, 2), (3, 2, 5, 9, 1.5), (7, 1, 4, 200, 9)],
)
def test_every_condition_holds(
    n_way: int, n_shot: int, n_query: int, n_words: int, mean: float
) -> None:
    pool = random_pool(np.random.default_rng(SEED), 9, 60, n_words, mean)
    tasks = FewStabSampler(n_way=n_way, n_shot=n_shot, n_query=n_query).draw(pool, 150, SEED)
    tasks.verify(pool)
    check_tasks(pool, tasks)


def test_both_kinds_of_candidates_occur() -> None:
    pool = random_pool(np.random.default_rng(SEED), 9, 60, 60, 4)
    tasks = FewStabSampler(n_shot=1, n_query=6).draw(pool, 150, SEED)
    assert 0.1 < tasks.relaxed.mean() < 0.9


@seed(SEED)
@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.lists(st.sets(st.sampled_from("abcde"), max_size=4), min_size=2, max_size=7),
        min_size=2,
        max_size=4,
    ),
    st.integers(2, 3),
    st.integers(1, 2),
    st.integers(1, 3),
)
def test_tiny_tables(classes: list[list[set[str]]], n_way: int, n_shot: int, n_query: int) -> None:
    pool = pool_of({f"c{c}": [" ".join(i) for i in images] for c, images in enumerate(classes)})
    sampler = FewStabSampler(n_way=n_way, n_shot=n_shot, n_query=n_query, max_restarts=300)
    try:
        tasks = sampler.draw(pool, 5, SEED)
    except InfeasibleTask:
        return
    check_tasks(pool, tasks)


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


def test_queries_have_the_fewest_common_words() -> None:
    # The candidates of "cat" are cat1 .. cat5, with "sofa" and not "grass". Of five candidates,
    # "ball" is in 3, "red" in 2, "blue" in 1: scores 3, 3 + 2, 0, 1, 3 + 2; the three lowest are
    # cat3, cat4 and cat1. "sofa" is selected and does not count.
    pool = pool_of(
        {
            "cat": ["grass", "sofa ball", "sofa ball red", "sofa", "sofa blue", "sofa red ball"],
            "dog": ["sofa", "grass", "grass", "grass"],
        }
    )
    tasks = FewStabSampler(n_way=2, n_shot=1, n_query=3).draw(pool, 60, SEED)
    found = 0
    for t, classes in enumerate(tasks.classes.tolist()):
        cat = classes.index(0)
        if [tasks.words[a] for a in tasks.attribute[t, [cat, 1 - cat]]] == ["grass", "sofa"]:
            assert sorted(pool.keys[i] for i in tasks.query[t, cat]) == ["cat1", "cat3", "cat4"]
            found += 1
    assert found


def test_relaxed_candidates_are_those_without_their_own_attribute() -> None:
    # No cat has "sofa", so the candidates are the cats without "grass"; the queries are the two
    # with the rarer words: among cat1 .. cat4, "ball" is in 2, "red" and "blue" in 1.
    pool = pool_of(
        {
            "cat": ["grass", "ball", "ball", "red", "blue"],
            "dog": ["sofa", "sofa", "grass", "grass grey"],
        }
    )
    tasks = FewStabSampler(n_way=2, n_shot=1, n_query=2).draw(pool, 200, SEED)
    found = 0
    for t, classes in enumerate(tasks.classes.tolist()):
        cat = classes.index(0)
        if [tasks.words[a] for a in tasks.attribute[t, [cat, 1 - cat]]] == ["grass", "sofa"]:
            assert sorted(pool.keys[i] for i in tasks.query[t, cat]) == ["cat3", "cat4"]
            assert tasks.relaxed[t].tolist() == [way == cat for way in range(2)]
            found += 1
    assert found


def test_a_class_that_can_form_no_task_is_never_drawn() -> None:
    usable = ["a", "b", "c", ""]
    pool = pool_of({"x": usable, "y": usable, "bare": ["", "", ""], "always": ["a", "a", "a"]})
    tasks = FewStabSampler(n_way=2, n_shot=1, n_query=2).draw(pool, 50, SEED)
    assert set(tasks.classes.reshape(-1).tolist()) == {0, 1}


# -- Distributions ---------------------------------------------------------------------------------


def fits_uniform(counts: Counter[object], n_outcomes: int) -> None:
    assert len(counts) == n_outcomes
    p = chisquare(list(counts.values())).pvalue
    print(f"seed {SEED}: p = {p:.3g} of {dict(counts)}")
    assert p > 1e-3


def test_classes_are_uniform() -> None:
    # No two classes share a word and all are alike, so no task ever restarts.
    pool = pool_of({f"c{c}": [f"a{c}", f"b{c}", f"c{c}", ""] for c in range(5)})
    tasks = FewStabSampler(n_way=3, n_shot=1, n_query=2).draw(pool, 6000, SEED)
    fits_uniform(Counter(map(tuple, tasks.classes.tolist())), 5 * 4 * 3)


def test_attributes_are_uniform_among_those_that_fill_the_support() -> None:
    # "rare" is in one image, too few for two shots; "all" in every image, so not spurious.
    images = ["p q all", "p q all", "r all", "r s all", "s rare all", "all", "all"]
    named = {f"c{c}": [i.replace(" ", f"{c} ") + f"{c}" for i in images] for c in range(3)}
    tasks = FewStabSampler(n_way=2, n_shot=2, n_query=2).draw(pool_of(named), 6000, SEED)
    counts = Counter(tasks.words[a] for a in tasks.attribute.reshape(-1))
    fits_uniform(counts, 3 * len("pqrs"))


def test_supports_are_uniform() -> None:
    pool = pool_of({f"c{c}": [f"a{c}"] * 4 + ["", ""] for c in range(2)})
    tasks = FewStabSampler(n_way=2, n_shot=2, n_query=2).draw(pool, 3000, SEED)
    fits_uniform(Counter(map(tuple, (tasks.support % 6).reshape(-1, 2).tolist())), 4 * 3)


@pytest.mark.parametrize("relaxed", [False, True])
def test_ties_are_broken_uniformly(relaxed: bool) -> None:
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


def test_random_bits_are_those_of_splitmix64() -> None:
    from fsf_samplers._kernels import below, next_random

    @numba.njit
    def draw(state: np.ndarray, n: int) -> tuple[list[int], list[int]]:
        bits = [next_random(state) for _ in range(3)]
        return bits, [below(n, state) for _ in range(7000)]

    bits, integers = draw(np.array([1234567], np.uint64), 7)
    assert bits == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    fits_uniform(Counter(integers), 7)


# -- What tasks depend on --------------------------------------------------------------------------


def test_a_shorter_draw_begins_a_longer_one() -> None:
    pool = random_pool(np.random.default_rng(SEED), 9, 60, 60, 4)
    sampler = FewStabSampler(n_shot=2)
    assert sampler.draw(pool, 100, 1)[:30].digest == sampler.draw(pool, 30, 1).digest


def test_fresh_processes_draw_the_same_tasks() -> None:
    code = (
        "from fsf_samplers import FewStabSampler; from fsframework.testing import toy_pool; "
        "print(FewStabSampler().draw(toy_pool(), 20, 3).digest)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "4242")
    }
    assert len(digests) == 1


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
    with pytest.raises(OptionError, match="'fewstab' never runs out of tasks"):
        sampler.draw(pool, None, 0)
    with pytest.raises(OptionError, match="n_tasks must be at least 1, not 0"):
        sampler.draw(pool, 0, 0)
    with pytest.raises(OptionError, match="seed must be at least 0, not -3"):
        sampler.draw(pool, 1, -3)


def test_too_few_classes() -> None:
    message = refusal(TWO, n_way=3, n_shot=1, n_query=1)
    assert message == "n_way must be at most the number of classes, 2, not 3"


def test_no_attributes() -> None:
    bare = ImagePool(("a", "b"), np.array([0, 1]), ("cat", "dog"))
    with pytest.raises(
        InfeasibleTask, match="needs the images' attributes, but the data set has none"
    ):
        FewStabSampler(n_way=2).draw(bare, 1, 0)
    assert "no image has any" in refusal({"cat": ["", ""], "dog": ["", ""]}, n_way=2)


def test_too_few_usable_classes() -> None:
    classes = {**TWO, "bare": ["", "", ""], "always": ["a", "a", "a", "a"]}
    assert refusal(classes, n_way=3, n_shot=1, n_query=2) == (
        "n_way = 3 classes are needed but only 2 of 4 can be in a task: 'bare' with 3 images "
        "has no word that is present in n_shot = 1 of them and absent from n_query = 2; n_way at "
        "most 2"
    )
    assert refusal(TWO, n_way=2, n_shot=2, n_query=2) == (
        "n_way = 2 classes are needed but only 1 of 2 can be in a task: 'dog' with 4 images "
        "has no word that is present in n_shot = 2 of them and absent from n_query = 2; n_shot at "
        "most 1 with n_query = 2"
    )
    assert refusal(TWO, n_way=2, n_shot=1, n_query=4).endswith("n_query at most 3 with n_shot = 1")


def test_too_few_words() -> None:
    message = refusal({name: ["a", "b", ""] for name in "xyz"}, n_way=3, n_shot=1, n_query=1)
    assert message == (
        "each class of a task needs a different attribute, but n_way is 3 and only 2 words "
        "can be one: 'a', 'b'"
    )


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


# -- Real tables -----------------------------------------------------------------------------------


def small_pool() -> ImagePool:
    file = SHARED / "golden" / "fewstab_published" / "small_words.csv"
    if not file.is_file():
        pytest.skip("the reference material is not available")
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    classes: dict[str, list[str]] = {}
    for row in rows:
        classes.setdefault(row["class"], []).append(row["words"].replace(";", " "))
    return pool_of(classes)


def cub_pool() -> ImagePool:
    folder = SHARED / "data" / "cub"
    if not folder.is_dir():
        pytest.skip("the reference material is not available")
    with (folder / "waterbirds_metadata.csv").open(newline="") as lines:
        scene = {
            Path(row["img_filename"]).name.lower(): row["place_filename"].split("/")[2]
            for row in csv.DictReader(lines)
        }
    classes: dict[str, list[str]] = {}
    with (folder / "feat_test.csv").open(newline="") as lines:
        for file, name, *groups in list(csv.reader(lines))[1:]:
            words = [f"g{i}v{value}" for i, value in enumerate(groups) if int(value)]
            words += [scene[file.lower()]] if file.lower() in scene else []
            classes.setdefault(name, []).append(" ".join(words))
    return pool_of(classes)


@pytest.mark.shared_data
@pytest.mark.parametrize("make_pool", [small_pool, cub_pool])
@pytest.mark.parametrize("n_shot", [1, 5])
def test_every_condition_holds_on_published_tables(
    make_pool: Callable[[], ImagePool], n_shot: int
) -> None:
    pool = make_pool()
    tasks = FewStabSampler(n_shot=n_shot).draw(pool, 60, SEED)
    tasks.verify(pool)
    check_tasks(pool, tasks)
