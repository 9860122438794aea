"""Tasks by context: what the two arms share and how they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from fsf_samplers import ContextSampler
from fsframework.interfaces import InfeasibleTask, OptionError
from fsframework.values import ImagePool, TaskSet

SEED = 20240611
FitsUniform = Callable[[Counter[Any], int], None]


def pool_of(*classes: dict[str, int], column: str = "context") -> ImagePool:
    """Make a pool from the number of images of each context of each class, images shuffled."""
    cells = [
        (c, where) for c, one in enumerate(classes) for where, n in one.items() for _ in [0] * n
    ]
    order = np.random.default_rng(SEED).permutation(len(cells))
    labels = np.array([cells[i][0] for i in order])
    metadata = {column: tuple(cells[i][1] for i in order)}
    keys = tuple(f"{i:04}" for i in range(len(cells)))
    return ImagePool(keys, labels, tuple(f"class-{c}" for c in range(len(classes))), metadata)


def contexts(pool: ImagePool, images: Any, column: str = "context") -> Any:
    return np.array(pool.metadata[column])[images]


def both(pool: ImagePool, n_tasks: int, seed: int, **options: Any) -> tuple[TaskSet, TaskSet]:
    sampler = ContextSampler(**options)
    control = sampler.control()
    assert control is not None
    assert control.arms == ("iid", "ood")
    assert control.paired
    return control.sampler.draw(pool, n_tasks, seed), sampler.draw(pool, n_tasks, seed)


@st.composite
def requests(draw: st.DrawFn) -> tuple[ImagePool, dict[str, Any], int]:
    """Draw a pool that allows the requested tasks, with classes and contexts that do not."""
    n_shot, n_query = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    m = draw(st.integers(1, n_shot))
    need = -(-n_shot // m) - (-n_query // m)
    able = st.lists(st.integers(need, need + 3), min_size=2 * m, max_size=2 * m + 3)
    small = st.lists(st.integers(1, need + 1), max_size=3)
    classes = []
    n_way = draw(st.integers(2, 3))
    for _ in range(draw(st.integers(n_way, 5))):
        sizes = draw(able) + draw(small)
        classes.append({f"c{i}": n for i, n in enumerate(sizes)} | {"": draw(st.integers(1, 3))})
    unable = st.lists(small, max_size=2)
    classes += [{"": 5} | {f"c{i}": n for i, n in enumerate(sizes)} for sizes in draw(unable)]
    shape = {"n_way": n_way, "n_shot": n_shot, "n_query": n_query, "n_contexts": m}
    return pool_of(*classes), shape, draw(st.integers(0, 2**20))


@seed(SEED)
@settings(max_examples=80, deadline=None)
@given(requests())
def test_queries_share_all_contexts_of_the_support_or_none(
    request_: tuple[ImagePool, dict[str, Any], int],
) -> None:
    pool, shape, seed_ = request_
    iid, ood = both(pool, 12, seed_, **shape)
    assert np.array_equal(iid.classes, ood.classes)
    assert np.array_equal(iid.support, ood.support)
    m = shape["n_contexts"]
    for tasks, same in ((iid, True), (ood, False)):
        tasks.verify(pool)  # a TaskSet itself checks that no image is twice in a task
        for support, query in zip(
            contexts(pool, tasks.support).reshape(-1, tasks.n_shot),
            contexts(pool, tasks.query).reshape(-1, tasks.n_query),
            strict=True,
        ):
            shots, queries = Counter(support.tolist()), Counter(query.tolist())
            assert "" not in shots | queries
            assert len(shots) == m
            assert len(queries) == min(m, tasks.n_query)
            for counts in (shots, queries):
                assert max(counts.values()) - min(counts.values()) <= 1
            assert set(queries) <= set(shots) if same else not set(queries) & set(shots)
    again = ContextSampler(**shape).draw(pool, 5, seed_)
    assert ood[:5].digest == again.digest


def test_classes_contexts_and_images_are_uniform_and_independent(fits_uniform: FitsUniform) -> None:
    """Small contexts are drawn as often as large ones, by support and queries of both arms."""
    pool = pool_of(*[{"a": 3, "b": 4, "c": 9, "d": 2}] * 4)
    iid, ood = both(pool, 4000, SEED, n_way=2, n_shot=1, n_query=2)
    fits_uniform(Counter(map(tuple, iid.classes.tolist())), 4 * 3)
    for images in (iid.support, iid.query[:, :, :1], ood.query[:, :, :1]):
        fits_uniform(Counter(contexts(pool, images).reshape(-1).tolist()), 3)
    pairs = np.stack([contexts(pool, t[:, :, 0]) for t in (ood.support, ood.query)], axis=-1)
    fits_uniform(Counter(map(tuple, pairs.reshape(-1, 2).tolist())), 3 * 2)
    of_c = iid.query[contexts(pool, iid.query) == "c"]
    fits_uniform(Counter(of_c.tolist()), 4 * 9)
    two = pool_of(*[{"a": 3, "b": 3}] * 2)
    tasks = ContextSampler(n_way=2, n_shot=1, n_query=2).draw(two, 2000, SEED)
    fits_uniform(Counter(map(tuple, contexts(two, tasks.support[:, :, 0]).tolist())), 4)


def test_any_column_works() -> None:
    pool = pool_of(*[{"a": 2, "b": 2}] * 2, column="texture")
    shape: dict[str, Any] = {"n_way": 2, "n_shot": 1, "n_query": 1}
    tasks = ContextSampler(**shape, column="texture").draw(pool, 3, 0)
    assert (
        contexts(pool, tasks.support, "texture") != contexts(pool, tasks.query, "texture")
    ).all()
    with pytest.raises(OptionError, match="columns are 'texture'; .*sampler=.*column"):
        ContextSampler(**shape).draw(pool, 3, 0)


def test_requests_that_cannot_be_met_name_what_would_do() -> None:
    pool = pool_of(
        {"a": 9, "b": 9, "c": 9, "d": 9},
        {"a": 9, "b": 9, "c": 5, "d": 5},
        {"a": 9, "b": 6, "c": 6, "d": 6},
    )
    shape: dict[str, Any] = {"n_way": 3, "n_shot": 4, "n_query": 4}
    with pytest.raises(InfeasibleTask) as caught:
        ContextSampler(**shape).draw(pool, 1, 0)
    assert str(caught.value).startswith("3-way tasks need 3 classes, but only 2 of 3 have 2 ")
    assert str(caught.value).endswith(
        "'class-2' has 6; at most 2 ways or at most 2 shots with 4 queries or at most "
        "2 queries with 4 shots or n_contexts = 2"
    )
    for better in ({"n_way": 2}, {"n_shot": 2}, {"n_query": 2}, {"n_contexts": 2}):
        ContextSampler(**shape | better).draw(pool, 1, 0)
    for worse in ({"n_shot": 3}, {"n_query": 3}):
        with pytest.raises(InfeasibleTask):
            ContextSampler(**shape | worse).draw(pool, 1, 0)
    with pytest.raises(InfeasibleTask, match="'class-[01]' has only 1$"):
        ContextSampler(n_way=2).draw(pool_of({"a": 99}, {"a": 99}), 1, 0)
