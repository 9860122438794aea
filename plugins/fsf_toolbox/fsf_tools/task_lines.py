"""Tasks as JSON lines, for and from other tools."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fsf_tools.fewstab import find_images
from fsframework.errors import DataError, naming
from fsframework.values import (
    ImagePool,
    TaskSet,
    atomic_path,
    normalize,
    open_file,
    parse_json,
    text_lines,
)

__all__ = ["export_jsonl", "import_tasks", "read_jsonl"]


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


def read_jsonl(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the tasks that ``export_jsonl`` wrote.

    Raises:
        DataError: the file cannot be read, or a line is not a task.
    """
    try:
        for number, line in enumerate(text_lines(open_file(path)), start=1):
            if line.strip():
                task = parse_json(line)
                if not isinstance(task, dict) or not {"support", "query"} <= task.keys():
                    raise DataError(f"{path}, line {number}: is not a task with support and query")
                yield task
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: not JSON lines ({reason})") from None


def import_tasks(
    lines: Iterable[Mapping[str, Any]], pool: ImagePool, source: Path, images: Path | None = None
) -> TaskSet:
    """Return tasks of image keys or file names as indices into a pool.

    Args:
        lines: with the fields of ``export_jsonl``; only ``support`` and ``query`` must be there.
        source: the file, for messages.
        images: the list that has the names of the images, for messages; by default the file.

    Raises:
        DataError: an image is not in the pool, ``classes`` are not those of the images, or the
            tasks have no common shape.
    """
    tasks = list(lines)
    if not tasks:
        raise DataError(f"{source}: has no tasks")
    try:
        keys = [[task["support"], task["query"]] for task in tasks]
        flat = [key for task in keys for part in task for row in part for key in row]
        with naming(images or source):
            places = iter(find_images(flat, pool.keys).tolist())
        with naming(source):
            parts = [[[[next(places) for _ in row] for row in part] for part in t] for t in keys]
            support, query = ([task[i] for task in parts] for i in (0, 1))
            labels = [[int(pool.labels[row[0]]) for row in task] for task in support]
            for t, (task, own) in enumerate(zip(tasks, labels, strict=True)):
                classes = [pool.class_names[label] for label in own]
                if (task.get("classes") or classes) != classes:
                    raise DataError(f"task {t}: classes are {task['classes']}, images of {classes}")
            drawn = TaskSet.of(
                pool, labels, support, query,
                sampler="imported", options={"file": source.name}, seed=0,
            )  # fmt: skip
            named = [task.get("attributes") or [None] * drawn.n_way for task in tasks]
            words = sorted({normalize(word) for task in named for word in task if word})
            code: dict[Any, int] = {word: i for i, word in enumerate(words)}
            attribute = [[code[normalize(w)] if w else -1 for w in task] for task in named]
            relaxed = [task.get("relaxed") or [False] * drawn.n_way for task in tasks]
            result = dataclasses.replace(
                drawn,
                attribute=np.array(attribute),
                relaxed=np.array(relaxed),
                words=tuple(words),
                arm=tasks[0].get("arm") or "",
                placebo=bool(tasks[0].get("placebo")),
            )
            result.verify(pool)
    except (IndexError, TypeError, ValueError) as error:
        raise DataError(f"{source}: the tasks have no common shape ({error})") from None
    return result
