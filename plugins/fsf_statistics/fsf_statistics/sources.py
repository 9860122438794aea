"""Sources of results named on the command line: runs, folders of runs, files."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fsf_statistics.accuracies import SUFFIXES, Reading, TaskAccuracies, read_accuracies, unit_text
from fsf_statistics.given import finished_of, results_of
from fsf_statistics.seed_groups import joined_over_seeds
from fsframework.api.running import load_runs
from fsframework.errors import DataError, FsfWarning, OptionError, RecordError
from fsframework.statistics.facts import LEADING
from fsframework.statistics.results import MethodResult

__all__ = ["labelled_results", "read_results"]

_ARM = "tasks"
_STATED = "tasks stated to be equal"


def read_results(
    sources: Sequence[str],
    runs_dir: Path,
    reading: Reading,
    *,
    same_tasks: bool = False,
    by_tasks: bool = False,
    notes: list[str] | None = None,
) -> list[MethodResult]:
    """Read every result: runs by folder or name, folders of runs, files of accuracies.

    Args:
        sources: each may be ``LABEL=SOURCE``, which gives it another name.
        runs_dir: folder in which runs are found by name.
        reading: how files are read.
        same_tasks: whether row i of every file of accuracies is the same task, after sorting by a
            column ``task``.
        by_tasks: whether results on different tasks are allowed.
        notes: where the unit of each file of accuracies is added.

    Raises:
        RecordError: a run does not exist or has no outcomes.
        DataError: a file cannot be read, or files were not stated to have the same tasks.
    """
    found: list[MethodResult] = []
    single: dict[str, Path] = {}
    for source in sources:
        label, path = _labelled(source, runs_dir)
        read: list[TaskAccuracies] = []
        if path.suffix in SUFFIXES and path.is_file():
            name = _STATED if same_tasks else str(path)
            single[name] = path
            read = read_accuracies([path], dataclasses.replace(reading, task_set=name))
        elif path.is_dir() and not _holds_runs(path):
            read = read_accuracies([path], reading)
        else:
            finished, left_out = finished_of([path], runs_dir)
            if left_out:
                warnings.warn(f"{path}: {left_out}", FsfWarning, stacklevel=2)
            part = list(results_of(finished, runs_dir))
        if read:
            part = [_of_accuracies(one) for one in read]
            if notes is not None:
                notes.append(f"the accuracies in {path} were read as {unit_text(read[0].unit)}")
        found += part if label is None else _renamed(part, label, source)
    if len(single) > 1 and not by_tasks:
        names = " and ".join(str(path) for path in list(single.values())[:2])
        raise DataError(
            f"{names} may have different tasks; if row i of each is the same task, give "
            "--same-tasks (--by-tasks compares only within each file)"
        )
    return found


def labelled_results(sources: Sequence[str], runs_dir: Path) -> list[Any]:
    """Return sources of runs, those named by ``LABEL=SOURCE`` as results with that label.

    Raises:
        RecordError: a run with a label does not exist or has no outcomes.
        OptionError: a label is given to several methods.
    """
    found: list[Any] = []
    for source in sources:
        label, path = _labelled(source, runs_dir) if source.strip() else (None, source)
        if label is None:
            found.append(source)
        else:
            found += _renamed(list(results_of([path], runs_dir)), label, source)
    return found


def _renamed(results: list[MethodResult], label: str, source: str) -> list[MethodResult]:
    if (n := len(joined_over_seeds(results))) != 1:
        raise OptionError(f"{source}: contains the results of {n} methods, not one")
    return [dataclasses.replace(one, label=label) for one in results]


def _holds_runs(folder: Path) -> bool:
    """Return whether a folder is a run or contains runs, including broken ones."""
    if list(folder.glob("*/run.json")):
        return True
    return (folder / "run.json").exists()


def _labelled(source: str, runs_dir: Path) -> tuple[str | None, Path]:
    label, equals, rest = source.partition("=")
    named = equals and label and "/" not in label and not _selects(source)
    if not named or Path(source).exists() or _matches(source, rest, runs_dir):
        label, rest = "", source
    if not rest.strip():
        raise RecordError(f"{source!r}: names no run, folder or file")
    return label or None, Path(rest)


def _selects(text: str) -> bool:
    """Return whether a text selects a run, rather than being a name or ``LABEL=SOURCE``.

    >>> _selects("method=ncc,shot=5"), _selects("dataset.strength=0.2"), _selects("mine=runs/a")
    (True, True, False)
    """
    name, equals, _ = text.partition("=")
    return bool(equals) and (name.strip() in (*LEADING, "detector") or "." in name)


def _matches(source: str, rest: str, runs_dir: Path) -> bool:
    """Return whether ``NAME=VALUE`` describes runs, as ``seed=1`` does, and is no label."""
    if not rest.strip() or Path(rest).exists():
        return False
    try:
        return len(load_runs(source, runs_dir)) > 0
    except (OptionError, RecordError):
        return False


def _of_accuracies(read: TaskAccuracies) -> MethodResult:
    outcomes = read.outcomes
    return MethodResult(read.method, {_ARM: outcomes}, task_set=read.task_set, source=read.source)
