"""Tasks: drawn as the data allow or read from a file, cached, permuted for the placebo."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from operator import ne
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from fsframework._calls import checked, seeded
from fsframework._files import load_sealed, save_sealed
from fsframework.components.objects import component_of
from fsframework.components.registry import Registry
from fsframework.components.resolution import Component, canonical
from fsframework.engine.progress import Reporter
from fsframework.engine.session import Session
from fsframework.errors import DataError, InfeasibleTask, argument, naming
from fsframework.interfaces.dataset import Dataset
from fsframework.interfaces.sampler import Control, TaskSampler
from fsframework.records import RunRecord
from fsframework.values import (
    Arms,
    Contrast,
    FloatArray,
    ImagePool,
    IntArray,
    TaskSet,
    demand_disk,
    demand_memory,
    digest_of,
    task_rng,
    watched_tasks,
)

__all__ = [
    "FEWEST_WAYS",
    "QUERIES",
    "SHAPE",
    "allows",
    "check_columns",
    "check_images",
    "check_tasks",
    "draw_arms",
    "fitted",
    "keeps_most",
    "left_out",
    "placebo",
    "read_thumbnails",
    "shape_text",
    "size_text",
]

_COPIES = 4
"""Copies of the indices of tasks in memory while they are drawn, checked and written."""
_THUMBNAILS, _SIDE, _LEVELS = 8, 4, 2.0
"""Images of a data set that tell it from others, their height and width, and how alike they are."""
_MANY, _REPORTED = 20_000, 1000
"""Tasks from which on progress is reported, and tasks between two reports."""


def draw_tasks(
    component: Component, pool: ImagePool, n_tasks: int | None, seed: int, session: Session | None
) -> TaskSet:
    """Draw tasks with a sampler, or take them from the cache.

    Args:
        component: the sampler.
        session: whose cache is used; ``None`` to draw in any case.

    Raises:
        InfeasibleTask: the pool cannot yield such tasks.
        OptionError: memory or disk cannot hold them.
    """
    sampler: TaskSampler = component.create()
    table = pool.attributes.fingerprint if pool.attributes and sampler.needs_attributes else ""
    key = digest_of(
        "tasks",
        # A control has the name and the options of the sampler that declares it.
        [component.fingerprint, component.cls.__qualname__],
        pool.fingerprint,
        table,
        canonical([n_tasks, seed]),
    )
    path, reporter = None, Reporter()
    if session is not None:
        path = session.workspace.cache / "tasks" / f"{key[:24]}.safetensors"
        reporter = session.reporter
        if (kept := load_sealed(path, TaskSet.load, reporter.note)) is not None:
            return kept
    if n_tasks is not None:
        _demand_room(sampler, pool, n_tasks, None if path is None else path.parent)
    with _progress(component.name, n_tasks or 0, reporter), seeded(seed):
        tasks = checked(sampler, "draw", sampler.draw(pool, n_tasks, seed), TaskSet)
    options = {k: v for k, v in component.to_json().items() if k != "name"}
    tasks = replace(
        tasks, sampler=component.name, options=options, seed=seed, uniform=sampler.uniform
    )
    tasks.verify(pool)
    if path is not None:
        save_sealed(path, tasks.save)
    return tasks


def _demand_room(sampler: TaskSampler, pool: ImagePool, n_tasks: int, cache: Path | None) -> None:
    """Check that memory and disk can hold tasks, whose classes and images the pool limits."""
    way = min(sampler.n_way, len(pool.class_names))
    images = min(sampler.n_shot + sampler.n_query, int(pool.class_sizes.max()))
    held = n_tasks * way * (8 * (images + 2) + 1)
    what = f"{n_tasks:,} tasks of {way} ways and {images} images per class"
    advice = f"draw fewer with {argument('tasks')}"
    demand_memory(_COPIES * held, what, advice)
    if cache is not None:
        demand_disk(held, cache, what, advice)


@contextmanager
def _progress(name: str, n_tasks: int, reporter: Reporter) -> Iterator[None]:
    """Report the progress of a long draw."""
    if n_tasks < _MANY:
        yield
        return
    with reporter.stage(f"drawing {name} tasks", n_tasks) as advance:
        drawn = 0

        def watch() -> None:
            nonlocal drawn
            drawn += 1
            if drawn % _REPORTED == 0 and drawn <= n_tasks:
                advance(_REPORTED)

        with watched_tasks(watch):
            yield


def _control_of(registry: Registry, component: Component) -> tuple[Component, Control] | None:
    """Return the control of a sampler, as a component and as declared; ``None`` without one.

    Raises:
        PluginError: what the sampler declares is not a control.
    """
    sampler = component.create()
    control = checked(sampler, "control", sampler.control(), Control, NoneType)
    if control is None:
        return None
    drawer = checked(sampler, "control", control.sampler, TaskSampler)
    found = component_of(registry, "sampler", drawer)
    if found.plugin.version == "-":
        # Not a plugin itself, but a part of the one that declares it.
        plugin = replace(component.plugin, target=found.plugin.target)
        found = replace(found, plugin=plugin)
    return found, control


def draw_arms(
    registry: Registry,
    component: Component,
    pool: ImagePool,
    n_tasks: int | None,
    seed: int,
    session: Session | None,
    *,
    words: bool = True,
) -> Arms:
    """Draw the tasks of a sampler and of its control; the control comes first.

    Args:
        session: whose cache is used; ``None`` to draw in any case.
        words: whether the pool has what samplers need; if not, only the others draw.

    Raises:
        InfeasibleTask: the pool cannot yield such tasks.
        OptionError: memory or disk cannot hold them.
    """
    declared = _control_of(registry, component)
    samplers, contrast, symbols = {component.name: component}, None, {}
    if declared is not None:
        other, control = declared
        samplers = dict(zip(control.arms, (other, component), strict=True))
        contrast = Contrast(*control.arms, control.paired)
        symbols = dict(zip(control.arms, control.symbols, strict=True))
    if not words:
        samplers = {arm: one for arm, one in samplers.items() if not one.cls.needs_attributes}
        contrast = None
    drawn = {
        arm: replace(draw_tasks(sampler, pool, n_tasks, seed, session), arm=arm)
        for arm, sampler in samplers.items()
    }
    return Arms(drawn, contrast, {arm: symbol for arm, symbol in symbols.items() if symbol})


def placebo(tasks: TaskSet, pool: ImagePool, seed: int) -> TaskSet:
    """Return the same tasks with the images of each class permuted at random for each task.

    Classes, ways, shots, queries and the words tied to them stay; the position of each image of a
    class is drawn uniformly, so that the words say nothing about the pixels. An image appears at
    most once in a task, as before.
    """
    support, query = tasks.support.copy(), tasks.query.copy()
    members = [pool.members(label) for label in range(len(pool.class_names))]
    for t in range(len(tasks)):
        rng = task_rng(seed, t, f"placebo {tasks.sampler}")
        for way, label in enumerate(tasks.classes[t]):
            # Permuting all images of the class and reading off the positions in use is the same
            # as drawing that many images without replacement.
            images = rng.choice(members[label], tasks.n_shot + tasks.n_query, replace=False)
            support[t, way], query[t, way] = np.split(images, [tasks.n_shot])
    return replace(tasks, support=support, query=query, placebo=True)


def check_tasks(arms: Arms, pool: ImagePool, called: str | Path) -> None:
    """Check that the tasks of arms belong to a pool and, if tied to words, to its attribute table.

    Args:
        called: their file, as messages name it.

    Raises:
        DataError: they do not.
    """
    words = None if pool.attributes is None else pool.attributes.fingerprint
    for tasks in arms.values():
        with naming(called):
            tasks.verify(pool)
        own = tasks.attributes_fingerprint
        if own is not None and words is not None and own != words:
            raise DataError(
                f"{called}: these tasks were drawn with another attribute table: fingerprint "
                f"{own[:12]}, not {words[:12]}"
            )


def check_columns(tasks: TaskSet, pool: ImagePool, drawn_from: ImagePool, called: str) -> None:
    """Check that images have the contexts, words or other metadata that their tasks were drawn by.

    Args:
        pool: with the keys of ``drawn_from``, and perhaps without the columns. Those compared are
            ``words`` and the ones that options of the sampler name.
        called: the file of the tasks, as messages name it.

    Raises:
        DataError: an image has another value.
    """
    names = {"words", *(value for value in tasks.options.values() if isinstance(value, str))}
    for name in sorted(names & pool.metadata.keys() & drawn_from.metadata.keys()):
        if changed := sum(map(ne, pool.metadata[name], drawn_from.metadata[name])):
            raise DataError(
                f"{called}: {changed:,} of {len(pool):,} images have another {name} than those "
                "that the tasks were drawn from"
            )


def read_thumbnails(dataset: Dataset, split: str) -> str:
    """Return a few images of a split, evenly spaced, at 4 × 4 pixels: RGB, as hexadecimal digits.

    Unlike a digest of pixels they are nearly the same for images of another size or encoding. The
    text is empty where an image cannot be read: tasks are made and verified without pixels too.
    """
    rows = dataset.split_indices(split)
    sample = np.unique(np.linspace(0, len(rows) - 1, _THUMBNAILS).astype(int))
    try:
        return dataset.images(rows[sample], _SIDE).tobytes().hex()
    except (DataError, OSError):
        return ""


def check_images(dataset: Dataset, split: str, record: RunRecord, called: str) -> None:
    """Check that images are those that tasks were drawn from; their keys are known to agree.

    A program's images are the same where the options that decide them are. Others are taken to be
    the same where their thumbnails are less than half as far from those of the record as these are
    from each other, or differ by two of 255 levels at most.

    Args:
        record: of the tasks.
        called: their file, as messages name it.

    Raises:
        DataError: they are others.
    """
    is_same = True
    if dataset.rendered:
        is_same = record.digests.get("data", dataset.fingerprint) == dataset.fingerprint
    elif record.data.thumbnails and (thumbnails := read_thumbnails(dataset, split)):
        recorded, current = map(_parse_thumbnails, (record.data.thumbnails, thumbnails))
        n_pairs = len(recorded) * max(len(recorded) - 1, 1)
        spread = np.abs(recorded[:, None] - recorded).mean(axis=2).sum() / n_pairs
        is_same = recorded.shape == current.shape
        is_same = is_same and np.abs(recorded - current).mean() <= max(_LEVELS, spread / 2)
    if not is_same:
        raise DataError(
            f"{called}: these images have the names of those that the tasks were drawn from, and "
            "other pixels"
        )


def _parse_thumbnails(digits: str) -> FloatArray:
    """Return the levels of thumbnails, a row for each."""
    levels = np.frombuffer(bytes.fromhex(digits), np.uint8)
    return levels.reshape(-1, _SIDE * _SIDE * 3).astype(np.float64)


FEWEST_WAYS = 2
SHAPE = {
    "n_way": ("way", "ways"),
    "n_shot": ("shot", "shots"),
    "n_query": ("query per class", "queries per class"),
}
QUERIES = (10, 8, 6, 5, 4, 3, 2, 1)
"""Numbers of queries below the default, in the order tried."""
_MOST_WAYS = 5
"""The most ways below the number of classes that are tried."""
ORIGIN = "what the data allow"
_NAMED = 5


def fitted(
    sampler: Component, split: str, pool: ImagePool, draw: Callable[[Component], Arms]
) -> tuple[Component, Arms, str]:
    """Return what a sampler draws from a pool, with fewer ways or queries if these are open.

    Args:
        sampler: options whose origin is ``default`` are open.
        split: name of the pool, for messages.
        draw: draws with a sampler, or raises ``InfeasibleTask``.

    Returns:
        The sampler, what was drawn with it, and what was changed and why; empty if nothing was.

    Raises:
        InfeasibleTask: no tasks can be drawn with the given options; the message names the split
            and its size.
    """
    last = ""
    tried = [sampler, *_alternatives(sampler, pool)]
    for other in sorted(tried, key=lambda one: not keeps_most(pool, one.options)):
        n_way = other.options.get("n_way", FEWEST_WAYS)
        if n_way > len(pool.class_names):
            if other is tried[-1] or not last:
                last = f"{n_way}-way tasks need {n_way} classes"
            continue
        try:
            arms = draw(other)
        except InfeasibleTask as error:
            # The error for the smallest tasks says why none can be drawn.
            last = str(error) if other is tried[-1] else last or str(error)
            continue
        return other, arms, "" if other is sampler else _note(sampler, other, split, pool)
    raise InfeasibleTask(
        f"no such tasks can be drawn from the split {split!r} ({size_text(pool)}): {last}"
    )


def keeps_most(pool: ImagePool, shape: Mapping[str, Any]) -> bool:
    """Return whether at least half of the classes have the images of a task of a shape.

    Samplers never draw the others. Before more classes are left out, tasks have fewer queries.
    """
    return 2 * len(_too_small(pool, shape)) <= len(pool.class_names)


def _too_small(pool: ImagePool, shape: Mapping[str, Any]) -> IntArray:
    images = shape.get("n_shot", 1) + shape.get("n_query", 1)
    return np.flatnonzero(pool.class_sizes < images)


def allows(pool: ImagePool, shape: Mapping[str, Any]) -> bool:
    """Return whether enough classes have the images of a task of a shape."""
    enough = len(pool.class_names) - len(_too_small(pool, shape))
    return bool(enough >= shape.get("n_way", FEWEST_WAYS))


def left_out(pool: ImagePool, shape: Mapping[str, Any]) -> str:
    """Return which classes have too few images for tasks of a shape; empty if none has."""
    small = _too_small(pool, shape)
    if not len(small):
        return ""
    named = [f"{pool.class_names[one]} ({pool.class_sizes[one]})" for one in small[:_NAMED]]
    more = ", ..." if len(small) > _NAMED else ""
    return (
        f"{len(small):,} of {len(pool.class_names):,} classes are in no task, because they have "
        f"fewer images than its shots and queries: {', '.join(named)}{more}"
    )


def _alternatives(sampler: Component, pool: ImagePool) -> Iterator[Component]:
    """Yield the sampler with fewer queries, then ways, as far as these are open.

    Shots are part of what is measured, and stay.
    """
    shape: dict[str, Any] = {n: sampler.options[n] for n in SHAPE if n in sampler.options}
    choices = {name: [value] for name, value in shape.items()}
    if sampler.origins.get("n_way") == "default":
        most = max(min(shape["n_way"], len(pool.class_names)), FEWEST_WAYS)
        choices["n_way"] = [most, *range(min(most - 1, _MOST_WAYS), FEWEST_WAYS - 1, -1)]
    if sampler.origins.get("n_query") == "default":
        room = int(pool.class_sizes.max()) - shape.get("n_shot", 1)
        choices["n_query"] += [q for q in QUERIES if q < shape["n_query"] and q <= room]
    order = [name for name in ("n_way", "n_query") if name in choices]
    for values in itertools.product(*(choices[name] for name in order)):
        tried = zip(order, values, strict=True)
        changed: dict[str, Any] = {name: v for name, v in tried if v != shape[name]}
        if changed:
            yield sampler.with_options(changed, ORIGIN)


def _note(sampler: Component, other: Component, split: str, pool: ImagePool) -> str:
    changed = [k for k in SHAPE if other.options.get(k) != sampler.options.get(k)]
    wanted, possible = (shape_text(one.options, changed) for one in (sampler, other))
    return (
        f"the split {split} ({size_text(pool)}) does not allow tasks of {wanted}; "
        f"the tasks have {possible}"
    )


def shape_text(options: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return the numbers of a shape as text.

    >>> shape_text({"n_way": 5, "n_shot": 1, "n_query": 1}, ["n_way", "n_query"])
    '5 ways and 1 query per class'
    """
    parts = [f"{options[name]} {SHAPE[name][options[name] != 1]}" for name in names]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def size_text(pool: ImagePool) -> str:
    """Return the size of a pool as text: ``3 classes of 5 to 25 images, 6 words``."""
    low, high = int(pool.class_sizes.min()), int(pool.class_sizes.max())
    images = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    count = len(pool.class_names)
    text = (
        f"{count:,} {'class' if count == 1 else 'classes'} of {images} "
        f"{'image' if high == 1 else 'images'}"
    )
    if pool.attributes is None:
        return text
    words = np.count_nonzero(np.bincount(pool.attributes.indices))
    return f"{text}, {words:,} {'word' if words == 1 else 'words'}"
