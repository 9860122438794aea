"""Every construction of FewSTAB, and the published generator, against independent conditions.

The checker reads the attribute table as a matrix of images and words and shares no code with the
samplers: it does not draw, and uses no cells, rows or bits.
"""

from __future__ import annotations

import csv
import dataclasses
import gzip
import json
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, mannwhitneyu

from fsf_samplers import FewStabPublishedSampler, FewStabSampler
from fsframework.interfaces import InfeasibleTask, TaskSampler
from fsframework.values import AttributeTable, ImagePool, TaskSet
from tests.toys import pool_of

SHARED = Path(__file__).resolve().parents[4] / "shared"
GOLDEN = SHARED / "golden" / "fewstab_published"
SEED = 20240611

CONSTRUCTIONS = list(
    product(("random", "targeted", "exclusive"), ("intra", "inter", "inter-least"))
)
ALL = [*CONSTRUCTIONS, ("published", "published")]


def sampler_of(support: str, query: str, **options: int) -> TaskSampler:
    if support == "published":
        return FewStabPublishedSampler(**options)
    return FewStabSampler(support=support, query=query, **options)  # type: ignore[arg-type]


# -- The checker -----------------------------------------------------------------------------------


class Facts:
    """The images of each class as a matrix of words."""

    def __init__(self, pool: ImagePool) -> None:
        assert pool.attributes is not None
        self.has = pool.attributes.rows(np.arange(len(pool)))
        n_classes = len(pool.class_names)
        self.members = [np.flatnonzero(pool.labels == c) for c in range(n_classes)]
        self.has_float = [self.has[m].astype(float) for m in self.members]
        self.place = np.zeros(len(pool), int)
        for member in self.members:
            self.place[member] = np.arange(member.size)
        self.present = np.array([self.has[m].sum(axis=0) for m in self.members])
        self.absent = np.array([m.size for m in self.members])[:, None] - self.present


def check_tasks(pool: ImagePool, tasks: TaskSet, support: str, query: str) -> None:
    """Assert every condition of a construction for every task."""
    tasks.verify(pool)
    facts = Facts(pool)
    n_shot, n_query = tasks.n_shot, tasks.n_query
    eligible = (facts.present >= n_shot) & (facts.absent >= n_query)
    counted = eligible.any(axis=0)  # of the published generator
    for t, w in np.ndindex(tasks.classes.shape):
        label, selected = tasks.classes[t, w], tasks.attribute[t]
        assert np.unique(selected).size == tasks.n_way
        has = facts.has[facts.members[label]]
        own, others = has[:, selected[w]], has[:, np.delete(selected, w)].sum(axis=1)
        supports, queries = (facts.place[x[t, w]] for x in (tasks.support, tasks.query))
        relaxed = bool(tasks.relaxed[t, w])

        assert 0 < own.sum() < own.size  # Definition 1
        if support in ("targeted", "exclusive", "published"):
            assert own[supports].all()
            assert own.sum() >= n_shot
        if support == "exclusive":
            assert not others[supports].any()
        intra = ~own
        if support == "random":
            intra[supports] = False
        inter = intra & (others > 0)

        if support == "published":
            assert eligible[label, selected[w]]
            assert eligible[label, np.delete(selected, w)].any()
            tainted = bool(others[supports].any())
            assert relaxed >= tainted
            assert relaxed or inter.sum() >= n_query
            weights = [
                (base, log_scores(facts.has_float[label], base, selected, counted))
                for base in ([intra, inter] if relaxed else [inter])
            ]
            # A way relaxed only for its support has queries by Eq. 5.
            assert any(
                base.sum() >= n_query and are_lowest(score, base, queries, 1e-9)
                for base, score in weights
                if tainted or base is intra or not relaxed
            )
            continue

        if query == "intra":
            assert not relaxed
            candidates = intra
        else:
            assert relaxed == (inter.sum() < n_query)
            candidates = intra if relaxed else inter
        assert candidates[queries].all()
        assert np.unique(queries).size == n_query
        if query == "inter-least":
            score = share_scores(facts.has_float[label], candidates, selected)
            assert are_lowest(score, candidates, queries, 1e-9)


def share_scores(has: Any, candidates: Any, selected: Any) -> Any:
    """Return the score of Eq. 6 for each image of the class."""
    share = has[candidates].mean(axis=0)
    share[selected] = 0
    return has @ share


def log_scores(has: Any, candidates: Any, selected: Any, counted: Any) -> Any:
    """Return the published generator's score of each image of the class, in its own form."""
    if not candidates.any():
        return np.zeros(len(has))
    words = counted.copy()
    words[selected] = False
    words &= has.any(axis=0)
    return np.log(has[:, words] * has[candidates][:, words].mean(axis=0) + 1e-10).sum(axis=1)


def are_lowest(score: Any, candidates: Any, queries: Any, tolerance: float) -> bool:
    """Return whether these are distinct candidates and no other has a lower score."""
    rest = candidates.copy()
    rest[queries] = False
    if not candidates[queries].all() or np.unique(queries).size < queries.size:
        return False
    return not rest.any() or bool(score[queries].max() <= score[rest].min() + tolerance)


def random_pool(seed: int, n_classes: int, n_images: int, n_words: int, mean: float) -> ImagePool:
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, n_words + 1)
    share /= share.sum()
    return pool_of(
        {
            f"c{c}": [
                " ".join(f"w{w}" for w in rng.choice(n_words, rng.poisson(mean), p=share))
                for _ in range(n_images + c)
            ]
            for c in range(n_classes)
        }
    )


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("support", "query"), ALL)
@pytest.mark.parametrize(
    ("n_way", "n_shot", "n_query", "n_words", "mean"),
    [(5, 1, 10, 60, 4), (5, 4, 5, 30, 3), (2, 3, 1, 6, 2), (3, 1, 1, 6, 3), (7, 1, 4, 200, 9)],
)
def test_every_condition_holds(
    support: str, query: str, n_way: int, n_shot: int, n_query: int, n_words: int, mean: float
) -> None:
    pool = random_pool(SEED, 9, 40, n_words, mean)
    sampler = sampler_of(support, query, n_way=n_way, n_shot=n_shot, n_query=n_query)
    tasks = sampler.draw(pool, 80, SEED)
    check_tasks(pool, tasks, support, query)
    if (n_query, query) == (10, "inter-least"):  # both kinds of candidates occur
        assert 0.1 < tasks.relaxed.mean() < 0.9


@hypothesis_seed(SEED)
@settings(max_examples=120, deadline=None)
@given(
    st.lists(
        st.lists(st.sets(st.sampled_from("abcde"), max_size=4), min_size=2, max_size=7),
        min_size=2,
        max_size=4,
    ),
    st.integers(2, 3),
    st.integers(1, 2),
    st.integers(1, 3),
    st.sampled_from(ALL),
)
def test_tiny_tables(
    classes: list[list[set[str]]],
    n_way: int,
    n_shot: int,
    n_query: int,
    construction: tuple[str, str],
) -> None:
    pool = pool_of({f"{c}": list(map(" ".join, images)) for c, images in enumerate(classes)})
    options = {"n_way": n_way, "n_shot": n_shot, "n_query": n_query, "max_restarts": 300}
    try:
        tasks = sampler_of(*construction, **options).draw(pool, 5, SEED)
    except InfeasibleTask:
        return
    check_tasks(pool, tasks, *construction)


@pytest.mark.parametrize("broken", ["support", "query", "relaxed", "attribute"])
@pytest.mark.parametrize(("support", "query"), [("exclusive", "inter-least"), ("published",) * 2])
def test_the_checker_finds_faults(support: str, query: str, broken: str) -> None:
    pool = random_pool(SEED, 9, 40, 60, 4)
    sampler = sampler_of(support, query, n_shot=1, n_query=6)
    tasks = sampler.draw(pool, 30, SEED)
    array = np.array(getattr(tasks, broken))
    if broken == "relaxed":
        array[:] = ~array
    elif broken == "attribute":
        array[:] = np.roll(array, 1, axis=1)
    else:  # another image of the class
        other = getattr(tasks, "query" if broken == "support" else "support")[..., 0]
        for t, w in np.ndindex(tasks.classes.shape):
            free = np.setdiff1d(
                pool.members(tasks.classes[t, w]), [*tasks.query[t, w], other[t, w]]
            )
            array[t, w, 0] = np.random.default_rng(t).choice(
                np.setdiff1d(free, tasks.support[t, w])
            )
    with pytest.raises(AssertionError):
        check_tasks(pool, dataclasses.replace(tasks, **{broken: array}), support, query)


def test_targeted_supports_may_have_anothers_attribute() -> None:
    classes = {name: ["a b", "a b", "", ""] for name in "xy"}
    options = {"n_way": 2, "n_shot": 1, "n_query": 1, "max_restarts": 50}
    tasks = sampler_of("targeted", "inter-least", **options).draw(pool_of(classes), 20, SEED)
    assert tasks.relaxed.all()  # no image has only the other's attribute
    with pytest.raises(InfeasibleTask, match="had at most 0 images with its attribute and none"):
        sampler_of("exclusive", "inter-least", **options).draw(pool_of(classes), 20, SEED)


# -- Constructions by hand ----------------------------------------------------------------------


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "n_shot", "digest"),
    [
        ("small", 1, "df612d9adfaa06ca531f50d1881afc24"),
        ("cub", 5, "25d67158a486924200593d32183b5153"),
    ],
)
def test_the_defaults_draw_what_they_drew_in_0_1(name: str, n_shot: int, digest: str) -> None:
    tasks = FewStabSampler(n_shot=n_shot).draw(table_pool(name), 500, 5)
    assert tasks.digest.startswith(digest)


def test_random_supports_need_no_images_with_the_attribute() -> None:
    classes = {"x": ["a", "", "", ""], "y": ["b", "", "", ""]}
    options = {"n_way": 2, "n_shot": 2, "n_query": 2}
    tasks = sampler_of("random", "intra", **options).draw(pool_of(classes), 20, SEED)
    check_tasks(pool_of(classes), tasks, "random", "intra")


# -- What failures allow ---------------------------------------------------------------------------


def test_published_supports_give_way_after_five_failures() -> None:
    # On "a", the support of "c0" must have "b" too; on "b", no query of it has "a". Either is
    # allowed after five failures, and only the first class can have that many.
    pool = pool_of({"c0": ["a b", "b", ""], "c1": ["a", "b", "a", "b"]})
    options = {"n_way": 2, "n_shot": 1, "n_query": 1}
    tasks = FewStabPublishedSampler(**options).draw(pool, 300, SEED)
    check_tasks(pool, tasks, "published", "published")
    assert np.all(tasks.classes[:, 0] == 0)
    assert np.array_equal(tasks.relaxed, tasks.classes == 0)
    on_a = tasks.attribute[:, 0] == 0
    assert 0 < on_a.sum() < len(tasks)
    assert np.all(tasks.support[on_a, 0, 0] == 0)
    # Both counts may have reached five: then the query need not have "b" either.
    assert np.all(np.isin(tasks.query[on_a, 0, 0], [1, 2]))
    assert np.mean(tasks.query[on_a, 0, 0] == 1) > 0.5
    for seed in range(30):
        with pytest.raises(InfeasibleTask):
            FewStabPublishedSampler(**options, max_restarts=4).draw(pool, 1, seed)


def test_published_queries_give_way_after_five_failures() -> None:
    # Only "c0" is short of images with another's attribute: it can only be the first class, the
    # only one to which a count of five failures applies.
    rich = ["a", "b", "c"] * 3
    pool = pool_of({"c0": ["a", "b", "c", "", "", ""], "c1": rich, "c2": rich})
    tasks = FewStabPublishedSampler(n_way=3, n_shot=1, n_query=3).draw(pool, 200, SEED)
    check_tasks(pool, tasks, "published", "published")
    assert np.all(tasks.classes[:, 0] == 0)
    assert np.array_equal(tasks.relaxed, tasks.classes == 0)


# -- Real tables -----------------------------------------------------------------------------------


def needed(path: Path) -> Path:
    if not path.exists():
        pytest.skip("the reference material is not available")
    return path


@cache
def table_pool(name: str) -> ImagePool:
    if name == "small":
        with needed(GOLDEN / "small_words.csv").open(newline="") as lines:
            rows = [(r["key"], r["class"], r["words"].split(";")) for r in csv.DictReader(lines)]
    else:
        folder = needed(SHARED / "data" / "cub")
        with (folder / "waterbirds_metadata.csv").open(newline="") as lines:
            scene = {
                Path(row["img_filename"]).name.lower(): row["place_filename"].split("/")[2]
                for row in csv.DictReader(lines)
            }
        with (folder / "feat_test.csv").open(newline="") as lines:
            rows = [
                (
                    file,
                    label,
                    [f"g{i}v{value}" for i, value in enumerate(groups) if int(value)]
                    + [scene[file.lower()]],
                )
                for file, label, *groups in list(csv.reader(lines))[1:]
            ]
    keys = tuple(key for key, _, _ in rows)
    names = sorted({label for _, label, _ in rows})
    labels = np.array([names.index(label) for _, label, _ in rows])
    table = AttributeTable.from_words(keys, [set(words) - {""} for _, _, words in rows])
    return ImagePool(keys, labels, tuple(names)).with_attributes(table)


@pytest.mark.one_in(4)
@pytest.mark.shared_data
@pytest.mark.parametrize("n_shot", [1, 5, 10])
@pytest.mark.parametrize(("support", "query"), ALL)
def test_cub(support: str, query: str, n_shot: int) -> None:
    pool = table_pool("cub")
    sampler = sampler_of(support, query, n_shot=n_shot)
    tasks = sampler.draw(pool, 1000, SEED)
    check_tasks(pool, tasks, support, query)
    used, relaxed = tasks.n_images / len(pool), float(tasks.relaxed.mean())
    print(f"{support}, {query}, {n_shot}-shot: relaxed {relaxed:.2%}, images used {used:.1%}")
    assert tasks.reuses_images
    assert used > 0.9
    assert len(np.unique(tasks.classes)) == 50
    if query == "intra":
        assert relaxed == 0
    elif support == "published":
        assert 0 < relaxed < 0.05
    else:
        assert 0.1 < relaxed < 0.7


# -- The published generator's own tasks -----------------------------------------------------------

TABLES = [("small", 1), ("small", 5), ("cub", 1), ("cub", 5)]
FILES = {"small": "small_{}shot_500.jsonl.gz", "cub": "cub_test_{}shot_300.jsonl.gz"}


@cache
def golden(name: str, n_shot: int) -> TaskSet:
    pool = table_pool(name)
    assert pool.attributes is not None
    with gzip.open(needed(GOLDEN / FILES[name].format(n_shot)), "rt") as lines:
        tasks = [json.loads(line) for line in lines]
    image = {key: i for i, key in enumerate(pool.keys)}
    word = {word: i for i, word in enumerate(pool.attributes.words)}
    support, query = (
        np.array([[[image[k] for k in way] for way in task[part]] for task in tasks])
        for part in ("support", "query")
    )
    attribute = np.array([[word[a] for a in task["attributes"]] for task in tasks])
    # The file does not record this: a way is relaxed if an image shows it.
    has = pool.attributes.rows(np.arange(len(pool)))
    others = np.stack([np.delete(attribute, w, axis=1) for w in range(5)], axis=1)[:, :, None, :]
    relaxed = ~has[query[..., None], others].any(axis=3).all(axis=2)
    relaxed |= has[support[..., None], others].any(axis=(2, 3))
    classes = np.array([[pool.class_names.index(c) for c in task["classes"]] for task in tasks])
    drawn = TaskSet.of(pool, classes, support, query, sampler="golden", options={}, seed=0)
    return drawn.with_attributes(pool.attributes, attribute.astype(np.int32), relaxed)


@cache
def ours(name: str, n_shot: int, seed: int = SEED) -> TaskSet:
    n_tasks = len(golden(name, n_shot))
    return FewStabPublishedSampler(n_shot=n_shot).draw(table_pool(name), n_tasks, seed)


@pytest.mark.shared_data
@pytest.mark.parametrize(("name", "n_shot"), TABLES)
def test_the_published_tasks_meet_our_conditions(name: str, n_shot: int) -> None:
    # One by one, not in distribution: each of the 8,000 query sets has exactly the lowest scores.
    check_tasks(table_pool(name), golden(name, n_shot), "published", "published")


def same_frequencies(ours: Any, golden: Any, n_values: int) -> float:
    """Return the p-value of a chi-square test that two samples have one distribution.

    Values are pooled, from the rarest up, into cells of at least 10 in both samples together. The
    ways of one task are not quite independent (its words and classes are distinct), so the counts
    vary less than the test assumes: it errs towards agreement, by a fraction of the order of the
    number of ways over the number of values.
    """
    counts = np.stack([np.bincount(x.reshape(-1), minlength=n_values) for x in (ours, golden)])
    order = np.argsort(counts.sum(axis=0), kind="stable")
    cells: list[Any] = [np.zeros(2)]
    for column in counts[:, order].T:
        cells[-1] = cells[-1] + column
        if cells[-1].sum() >= 10:
            cells.append(np.zeros(2))
    if len(cells) > 1:  # the remainder joins the last
        cells[-2:] = [cells[-2] + cells[-1]]
    return float(chi2_contingency(np.array(cells).T).pvalue)


def compare(name: str, n_shot: int, seed: int) -> dict[str, float]:
    """Return the p-value of each comparison with the golden tasks.

    Tasks are independent but the queries of one task are not, so everything about queries is one
    number per task, compared by ranks (Mann-Whitney), which assumes no distribution and handles
    ties. Whether a task is relaxed is a two-by-two table.
    """
    pool, a, b = table_pool(name), ours(name, n_shot, seed), golden(name, n_shot)
    assert pool.attributes is not None
    has = pool.attributes.rows(np.arange(len(pool)))
    facts = Facts(pool)

    def per_task(tasks: TaskSet) -> dict[str, Any]:
        query, selected = tasks.query.reshape(len(tasks), -1), tasks.attribute
        shown = has[query[..., None], selected[:, None, :]]
        label, word = tasks.classes, tasks.attribute
        return {
            "queries with another's attribute": shown.any(axis=2).mean(axis=1),
            "non-selected words per query": (
                has[query].sum(axis=2).mean(axis=1) - shown.sum(axis=2).mean(axis=1)
            ),
            "images of the class with its attribute": facts.present[label, word].mean(axis=1),
            "images with the attributes": facts.present.sum(axis=0)[word].mean(axis=1),
        }

    x, y = per_task(a), per_task(b)
    result = {key: float(mannwhitneyu(x[key], y[key]).pvalue) for key in x}
    result["attributes"] = same_frequencies(a.attribute, b.attribute, len(a.words))
    result["classes"] = same_frequencies(a.classes, b.classes, len(pool.class_names))
    result["first class"] = same_frequencies(a.classes[:, 0], b.classes[:, 0], 50)
    relaxed = [[t.relaxed.any(axis=1).sum(), (~t.relaxed.any(axis=1)).sum()] for t in (a, b)]
    result["relaxed tasks"] = float(chi2_contingency(relaxed, correction=False).pvalue)
    return result


@pytest.mark.shared_data
@pytest.mark.parametrize(("name", "n_shot"), TABLES)
def test_our_tasks_are_distributed_as_the_published(name: str, n_shot: int) -> None:
    found = compare(name, n_shot, SEED)
    print(name, n_shot, {key: round(p, 4) for key, p in found.items()})
    assert min(found.values()) > 0.01, found


@pytest.mark.one_in(4)
@pytest.mark.shared_data
@pytest.mark.parametrize(("name", "n_shot"), TABLES)
def test_as_many_images_are_used_as_by_the_published(name: str, n_shot: int) -> None:
    # One number per set of tasks, so a sample of sets is needed. The golden number is one draw from
    # the distribution that 20 of our sets sample, a sum of many small parts: (x - mean) over
    # sd sqrt(1 + 1/20) follows Student's t with 19 degrees of freedom, 2.86 at 1 %.
    pool, n_tasks, n_sets = table_pool(name), len(golden(name, n_shot)), 20
    sets = FewStabPublishedSampler(n_shot=n_shot).draw(pool, n_sets * n_tasks, SEED)
    numbers = [np.unique(queries).size for queries in np.split(sets.query, n_sets)]
    found = np.unique(golden(name, n_shot).query).size
    deviation = (found - np.mean(numbers)) / np.std(numbers, ddof=1) / np.sqrt(1 + 1 / n_sets)
    print(f"{name} {n_shot}-shot: {found}, ours {np.mean(numbers):.0f}, t = {deviation:.2f}")
    assert abs(deviation) < 2.86
