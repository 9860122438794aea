"""Tasks as JSON lines, for other tools."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from fsframework.values import ImagePool, TaskSet, atomic_path

__all__ = ["export_jsonl"]


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
