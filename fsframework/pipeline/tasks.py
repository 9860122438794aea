"""Tasks: drawn once and cached, permuted for the placebo, written for other tools."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import NoneType

import numpy as np

from fsframework._calls import checked
from fsframework._files import atomic_path
from fsframework.components.objects import component_of
from fsframework.components.registry import Loaded, Registry
from fsframework.components.resolution import Component, canonical
from fsframework.errors import DataError, PluginError, argument
from fsframework.interfaces.sampler import Control, TaskSampler
from fsframework.pipeline.cache.sealed import load_sealed, save_sealed
from fsframework.pipeline.progress import Reporter
from fsframework.pipeline.session import Session
from fsframework.values import (
    Arms,
    Contrast,
    ImagePool,
    TaskSet,
    demand_disk,
    demand_memory,
    digest_of,
    task_rng,
    watched_tasks,
)

__all__ = ["check_tasks", "control_of", "draw_arms", "draw_tasks", "export_jsonl", "placebo"]

_COPIES = 4
"""Copies of the indices of tasks in memory while they are drawn, checked and written."""
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
        path, reporter = (
            session.workspace.cache / "tasks" / f"{key[:24]}.safetensors",
            session.reporter,
        )
        kept = load_sealed(path, TaskSet.load, reporter)
        if kept is not None:
            return kept
    if n_tasks is not None:
        _demand_room(sampler, pool, n_tasks, None if path is None else path.parent)
    with _progress(component.name, n_tasks or 0, reporter):
        tasks = checked(sampler, "draw", sampler.draw(pool, n_tasks, seed), TaskSet)
    options = {k: v for k, v in component.to_json().items() if k != "name"}
    tasks = dataclasses.replace(
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


def control_of(registry: Registry, component: Component) -> tuple[Component, Control] | None:
    """Return the control of a sampler, as a component and as declared; ``None`` without one.

    Raises:
        PluginError: what the sampler declares is not a control.
    """
    sampler = component.create()
    control = checked(sampler, "control", sampler.control(), Control, NoneType)
    if control is None:
        return None
    if not isinstance(control, Control) or not isinstance(control.sampler, TaskSampler):
        raise PluginError(
            f"{component.loaded.plugin.described()}: control must return a Control with a "
            f"TaskSampler, or None, not {control!r}"
        )
    found = component_of(registry, "sampler", control.sampler)
    if found.loaded.plugin.version == "-":
        # Not a plugin itself, but a part of the one that declares it.
        plugin = dataclasses.replace(component.loaded.plugin, target=found.loaded.plugin.target)
        found = dataclasses.replace(found, loaded=Loaded(plugin, found.cls))
    return found, control


def draw_arms(
    registry: Registry,
    component: Component,
    pool: ImagePool,
    n_tasks: int | None,
    seed: int,
    session: Session | None,
) -> Arms:
    """Draw the tasks of a sampler and of its control; the control comes first.

    Raises:
        InfeasibleTask: the pool cannot yield such tasks.
        OptionError: memory or disk cannot hold them.
    """
    declared = control_of(registry, component)
    draw = (pool, n_tasks, seed, session)
    if declared is None:
        tasks = draw_tasks(component, *draw)
        return Arms({component.name: dataclasses.replace(tasks, arm=component.name)})
    other, control = declared
    drawn = {
        control.arms[0]: draw_tasks(other, *draw),
        control.arms[1]: draw_tasks(component, *draw),
    }
    return Arms(
        {arm: dataclasses.replace(tasks, arm=arm) for arm, tasks in drawn.items()},
        Contrast(*control.arms, control.paired),
        {arm: symbol for arm, symbol in zip(control.arms, control.symbols, strict=True) if symbol},
    )


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
    return dataclasses.replace(tasks, support=support, query=query, placebo=True)


def check_tasks(tasks: TaskSet, pool: ImagePool) -> None:
    """Check that tasks belong to a pool and, if tied to words, to its attribute table.

    Raises:
        DataError: they do not.
    """
    tasks.verify(pool)
    if tasks.attributes_fingerprint is None or pool.attributes is None:
        return
    if tasks.attributes_fingerprint != pool.attributes.fingerprint:
        raise DataError(
            f"these tasks were drawn with another attribute table: fingerprint "
            f"{tasks.attributes_fingerprint[:12]}, not {pool.attributes.fingerprint[:12]}"
        )


def export_jsonl(tasks: TaskSet, pool: ImagePool, path: Path) -> None:
    """Write one JSON object per task and line: class names, attributes and image keys.

    Fields: ``arm`` (null if unknown), ``placebo``, ``classes``, ``attributes`` (null for none),
    ``support`` and ``query`` (a list of keys per class), ``relaxed``.
    """
    tasks.verify(pool)
    keys = np.array(pool.keys, dtype=object)
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for t in range(len(tasks)):
            record = {
                "arm": tasks.arm or None,
                "placebo": tasks.placebo,
                "classes": [pool.class_names[c] for c in tasks.classes[t]],
                "attributes": [tasks.words[a] if a >= 0 else None for a in tasks.attribute[t]],
                "support": keys[tasks.support[t]].tolist(),
                "query": keys[tasks.query[t]].tolist(),
                "relaxed": tasks.relaxed[t].tolist(),
            }
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
