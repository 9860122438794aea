"""What every sampler of this package does before and after drawing."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from fsframework.interfaces import InfeasibleTask, OptionError, TaskSampler
from fsframework.values import AttributeTable, ImagePool, IntArray, TaskSet

if TYPE_CHECKING:
    from fsf_samplers._index import WordIndex
    from fsf_samplers._kernels import Drawn

__all__ = [
    "attributes_of",
    "check_class_sizes",
    "check_request",
    "check_seed_and_ways",
    "counted",
    "empty_tasks",
    "exhausted",
    "greatest",
    "resolved_options",
    "task_set",
    "too_few_classes",
    "too_few_words",
]


def resolved_options(sampler: TaskSampler) -> dict[str, Any]:
    """Return the value of each constructor parameter, by its name."""
    cls = type(sampler)
    names = inspect.signature(cls).parameters
    return {name: getattr(sampler, cls.stored_as.get(name, name)) for name in names}


def check_request(
    sampler: TaskSampler, name: str, pool: ImagePool, n_tasks: int | None, seed: int
) -> int:
    """Return the number of tasks, after the checks of a sampler that never runs out of tasks.

    Raises:
        OptionError: ``n_tasks`` is ``None`` or below 1, or ``seed`` is negative.
        InfeasibleTask: the pool has fewer classes than a task.
    """
    if n_tasks is None:
        raise OptionError(f"n_tasks must be a number, not None: {name!r} never runs out of tasks")
    check_seed_and_ways(sampler, pool, n_tasks, seed)
    return n_tasks


def check_seed_and_ways(
    sampler: TaskSampler, pool: ImagePool, n_tasks: int | None, seed: int
) -> None:
    """Check what every sampler requires.

    Raises:
        OptionError: ``n_tasks`` is below 1, or ``seed`` is negative.
        InfeasibleTask: the pool has fewer classes than a task.
    """
    if n_tasks is not None and n_tasks < 1:
        raise OptionError(f"n_tasks must be at least 1, not {n_tasks}")
    if seed < 0:
        raise OptionError(f"seed must be at least 0, not {seed}")
    n_classes = len(pool.class_names)
    if sampler.n_way > n_classes:
        raise InfeasibleTask(
            f"{sampler.n_way}-way tasks need {sampler.n_way} classes, and there "
            f"{'is' if n_classes == 1 else 'are'} only {n_classes}"
        )


def check_class_sizes(sampler: TaskSampler, pool: ImagePool) -> None:
    """Check that enough classes have the images of a task.

    Raises:
        InfeasibleTask: too few classes have as many images as shots and queries.
    """
    wanted = sampler.n_shot + sampler.n_query
    n_usable = int((pool.class_sizes >= wanted).sum())
    if sampler.n_way <= n_usable:
        return
    # In descending order, the class at place n_way sets the limit.
    limiting = int(np.argsort(-pool.class_sizes, kind="stable")[sampler.n_way - 1])
    size = int(pool.class_sizes[limiting])
    remedies = [f"at most {n_usable} ways"] if n_usable > 1 else []
    remedies += [
        f"at most {counted(size - other, one)} with {counted(other, other_one)}"
        for one, other_one, other in (
            ("shot", "query", sampler.n_query),
            ("query", "shot", sampler.n_shot),
        )
        if other < size
    ]
    if not remedies and size > 1:
        remedies = [f"at most {counted(size - 1, 'shot')} with 1 query"]
    raise InfeasibleTask(
        f"{sampler.n_way}-way tasks of {counted(sampler.n_shot, 'shot')} and "
        f"{counted(sampler.n_query, 'query')} per class need {sampler.n_way} classes of {wanted} "
        f"images, but {pool.class_names[limiting]!r}, at place {sampler.n_way} by size, has "
        f"{counted(size, 'image')}" + (f"; {' or '.join(remedies)}" if remedies else "")
    )


def counted(number: int, one: str) -> str:
    """Return a number of shots, queries or images as text.

    >>> counted(1, "query"), counted(2, "query"), counted(5, "shot")
    ('1 query', '2 queries', '5 shots')
    """
    many = "queries" if one == "query" else f"{one}s"
    return f"{number} {one if number == 1 else many}"


# -- Shared by the samplers of attribute-biased tasks ----------------------------------------------


def attributes_of(name: str, pool: ImagePool) -> tuple[AttributeTable, WordIndex]:
    """Return the pool's attribute table and its index.

    Raises:
        InfeasibleTask: the pool has no attribute table, or no image has an attribute.
    """
    from fsf_samplers._index import WordIndex

    table = pool.attributes
    if table is None:
        raise InfeasibleTask(
            f"{name!r} needs the images' attributes, but the data set has none: "
            "name a detector or an attribute table"
        )
    index = WordIndex.of(pool, table)
    if not index.cells.size:
        raise InfeasibleTask(f"{name!r} needs attributes, but no image has any")
    return table, index


def empty_tasks(sampler: TaskSampler, n_tasks: int) -> Drawn:
    """Return uninitialised arrays for ``n_tasks`` tasks."""
    from fsf_samplers._kernels import Drawn

    return Drawn(
        np.empty((n_tasks, sampler.n_way), np.int32),
        np.empty((n_tasks, sampler.n_way, sampler.n_shot), np.int32),
        np.empty((n_tasks, sampler.n_way, sampler.n_query), np.int32),
        np.empty((n_tasks, sampler.n_way), np.int32),
        np.empty((n_tasks, sampler.n_way), np.bool_),
    )


def task_set(
    sampler: TaskSampler, name: str, pool: ImagePool, seed: int, index: WordIndex, drawn: Drawn
) -> TaskSet:
    """Return the drawn tasks as indices into the pool."""
    assert pool.attributes is not None, "the index is made of them"
    tasks = TaskSet.of(
        pool,
        drawn.classes,
        index.images[drawn.support],
        index.images[drawn.query],
        sampler=name,
        options=resolved_options(sampler),
        seed=seed,
    )
    return tasks.with_attributes(pool.attributes, drawn.attribute, drawn.relaxed)


def greatest(values: IntArray, labels: IntArray, n_classes: int, place: int = 1) -> IntArray:
    """Return each class's ``place``-th greatest value; 0 where the class has too few values."""
    order = np.lexsort((-values, labels))
    start = np.searchsorted(labels[order], np.arange(n_classes + 1))
    found = start[:-1] + place - 1
    has = found < start[1:]
    result = np.zeros(n_classes, np.int64)
    result[has] = values[order[found[has]]]
    return result


def too_few_classes(
    sampler: TaskSampler,
    pool: ImagePool,
    n_usable: int,
    most_shot: IntArray,
    most_query: IntArray,
    lack: str,
) -> InfeasibleTask:
    """Return an error that names the best class that cannot be in a task.

    Args:
        sampler: the sampler, which needs ``n_way`` classes.
        pool: the pool of the classes.
        n_usable: number of classes that can be in a task.
        most_shot: the most shots that each class could give with this ``n_query``.
        most_query: the most queries that each class could give with this ``n_shot``.
        lack: what the named class lacks.
    """
    # In descending order, the class at place n_way sets the limit.
    by_shot, by_query = np.argsort(-most_shot, kind="stable"), np.sort(most_query)[::-1]
    missing = int(by_shot[sampler.n_way - 1])
    remedies = [
        f"at most {counted(int(most), one)}{given}"
        for one, most, least, given in (
            ("way", n_usable, 2, ""),
            ("shot", most_shot[missing], 1, f" with {counted(sampler.n_query, 'query')}"),
            (
                "query",
                by_query[sampler.n_way - 1],
                1,
                f" with {counted(sampler.n_shot, 'shot')}",
            ),
        )
        if most >= least
    ]
    return InfeasibleTask(
        f"{sampler.n_way}-way tasks need {sampler.n_way} classes, but only {n_usable} of "
        f"{len(most_shot)} can be in a task: {pool.class_names[missing]!r} with "
        f"{counted(int(pool.class_sizes[missing]), 'image')} {lack}"
        + (f"; {' or '.join(remedies)}" if remedies else "")
    )


def too_few_words(sampler: TaskSampler, table: AttributeTable, words: IntArray) -> InfeasibleTask:
    """Return an error that names the few words that can be an attribute."""
    named = ", ".join(repr(table.words[word]) for word in words)
    return InfeasibleTask(
        f"each of the {sampler.n_way} classes of a task needs a different attribute, but only "
        f"{counted(words.size, 'word')} can be one: {named}"
    )


def exhausted(
    task: int, max_restarts: int, n_times: int, culprit: str, blame: str
) -> InfeasibleTask:
    """Return an error that names the most frequent cause."""
    return InfeasibleTask(
        f"task {task} restarted more than max_restarts = {max_restarts} times: {n_times} times "
        f"because {culprit!r} {blame}"
    )
