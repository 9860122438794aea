"""Tasks: drawn once and cached, permuted for the placebo, written for other tools."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np

from fsframework._files import atomic_path
from fsframework.components.resolution import Component, canonical
from fsframework.errors import DataError
from fsframework.interfaces.sampler import TaskSampler
from fsframework.pipeline.cache.workspace import Workspace
from fsframework.values import ImagePool, TaskSet, digest_of, task_rng

__all__ = ["check_tasks", "draw_tasks", "export_jsonl", "placebo"]


def draw_tasks(
    component: Component, pool: ImagePool, n_tasks: int | None, seed: int, workspace: Workspace
) -> TaskSet:
    """Draw tasks with a sampler, or take them from the cache.

    Raises:
        InfeasibleTask: the pool cannot yield such tasks.
    """
    sampler: TaskSampler = component.create()
    table = pool.attributes.fingerprint if pool.attributes and sampler.needs_attributes else ""
    key = digest_of(
        "tasks", component.fingerprint, pool.fingerprint, table, canonical([n_tasks, seed])
    )
    path = workspace.cache / "tasks" / f"{key[:24]}.safetensors"
    if path.exists():
        try:
            return TaskSet.load(path)
        except DataError:
            path.unlink()
    tasks = sampler.draw(pool, n_tasks, seed)
    options = {k: v for k, v in component.to_json().items() if k != "name"}
    tasks = dataclasses.replace(tasks, sampler=component.name, options=options, seed=seed)
    tasks.verify(pool)
    tasks.save(path)
    return tasks


def placebo(tasks: TaskSet, pool: ImagePool, seed: int) -> TaskSet:
    """Return the same tasks with the images of each class permuted at random, anew a task.

    Classes, ways, shots, queries and the words tied to them stay; which image of a class stands
    where is drawn uniformly, so the words say nothing of the pixels any more. An image stands at
    most once in a task, as before.
    """
    support, query = tasks.support.copy(), tasks.query.copy()
    members = [pool.members(label) for label in range(len(pool.class_names))]
    for t in range(len(tasks)):
        rng = task_rng(seed, t, f"placebo {tasks.sampler}")
        for way, label in enumerate(tasks.classes[t]):
            # Permuting all images of the class and reading off the places in use is the same as
            # drawing that many images without replacement.
            images = rng.choice(members[label], tasks.n_shot + tasks.n_query, replace=False)
            support[t, way], query[t, way] = np.split(images, [tasks.n_shot])
    return dataclasses.replace(
        tasks, support=support, query=query, sampler=f"placebo({tasks.sampler})"
    )


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
            f"these tasks were drawn from another attribute table: fingerprint "
            f"{tasks.attributes_fingerprint[:12]}, this one's {pool.attributes.fingerprint[:12]}"
        )


def export_jsonl(tasks: TaskSet, pool: ImagePool, path: Path) -> None:
    """Write a JSON object a line and task: class names, attributes and image keys.

    Fields: ``classes``, ``attributes`` (null where there is none), ``support`` and ``query`` (a
    list of keys a class), ``relaxed``.
    """
    tasks.verify(pool)
    keys = np.array(pool.keys, dtype=object)
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for t in range(len(tasks)):
            record = {
                "classes": [pool.class_names[c] for c in tasks.classes[t]],
                "attributes": [tasks.words[a] if a >= 0 else None for a in tasks.attribute[t]],
                "support": keys[tasks.support[t]].tolist(),
                "query": keys[tasks.query[t]].tolist(),
                "relaxed": tasks.relaxed[t].tolist(),
            }
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
