"""Draw tasks in a separate process: ``python -m fsframework.testing._fresh`` reads a job as JSON.

What a process has hashed, imported or drawn before cannot affect another process, so this shows
whether a sampler depends only on its arguments.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from fsframework.components.kinds import kind_of
from fsframework.testing._suite import ConformanceError, NotApplicable, options_of
from fsframework.testing.toys import toy_pool
from fsframework.values import TaskSet, digest_of

__all__ = ["digests_in_fresh_processes", "draw_digest"]


def draw_digest(tasks: TaskSet) -> str:
    """Return a digest of all five arrays; ``TaskSet.digest`` covers only three of them."""
    return digest_of(tasks.digest, tasks.attribute, tasks.relaxed)


def digests_in_fresh_processes(
    sampler: object, pool: Sequence[int], n_tasks: int, seed: int, hash_seeds: Sequence[int]
) -> list[str]:
    """Return ``draw_digest`` of the same draw in one process per hash seed, run in parallel.

    Args:
        sampler: rebuilt from its class and options in each process.
        pool: arguments of ``toy_pool``.
        n_tasks: number of tasks to draw.
        seed: the seed of the draw.
        hash_seeds: values of ``PYTHONHASHSEED``.

    Raises:
        NotApplicable: a process cannot import the class or receive an option.
        ConformanceError: a process failed; the message ends with the last line of its output.
    """
    job = {"sampler": _described(sampler), "pool": list(pool), "n_tasks": n_tasks, "seed": seed}
    running = [_start(job, hash_seed) for hash_seed in hash_seeds]
    answers = [process.communicate(json.dumps(job)) for process in running]
    for process, (_, complaint) in zip(running, answers, strict=True):
        if process.returncode:
            last = complaint.strip().splitlines()[-1:]
            raise ConformanceError(f"it cannot draw in a fresh process: {' '.join(last)}")
    return [answer.split()[-1] for answer, _ in answers]


def _start(job: dict[str, Any], hash_seed: int) -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-m", __name__],
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(hash_seed)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _described(value: Any) -> Any:
    """Return a value as JSON; a component becomes its class and its options."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_described(item) for item in value]
    cls = type(value)
    if kind_of(value) is None:
        raise NotApplicable(f"an option of type {cls.__name__} cannot be passed to another process")
    if "<locals>" in cls.__qualname__:
        raise NotApplicable(
            f"{cls.__name__} is defined in a function, so no other process can import it"
        )
    return {
        "module": cls.__module__,
        "file": getattr(sys.modules.get(cls.__module__), "__file__", None),
        "class": cls.__qualname__,
        "options": {name: _described(getattr(value, name)) for name in options_of(cls)},
    }


def _rebuilt(value: Any) -> Any:
    if isinstance(value, list):
        return [_rebuilt(item) for item in value]
    if not isinstance(value, dict):
        return value
    found: Any = _module(value["module"], value["file"])
    for name in value["class"].split("."):
        found = getattr(found, name)
    return found(**{name: _rebuilt(option) for name, option in value["options"].items()})


def _module(name: str, file: str | None) -> ModuleType:
    """Import a module, from its file where its name is not importable or names another module.

    That is the case for a script, a file given with ``--plugin`` and most test files.
    """
    try:
        module = importlib.import_module(name)
    except ImportError:
        module = None
    if module is not None and (file is None or getattr(module, "__file__", None) == file):
        return module
    if file is None:
        raise ImportError(f"no other process can import the module {name}")
    alias = f"fresh_{Path(file).stem}_{hashlib.sha256(file.encode()).hexdigest()[:8]}"
    if alias not in sys.modules:
        spec = importlib.util.spec_from_file_location(alias, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[alias] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[alias])
    return sys.modules[alias]


def _main() -> None:
    job = json.load(sys.stdin)
    sampler = _rebuilt(job["sampler"])
    print(draw_digest(sampler.draw(toy_pool(*job["pool"]), job["n_tasks"], job["seed"])))


if __name__ == "__main__":
    _main()
