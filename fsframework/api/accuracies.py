"""Runs made from accuracies that were measured elsewhere."""

from __future__ import annotations

import dataclasses
import platform
import re
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import fsframework
from fsframework.api.running import Run
from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.errors import RecordError
from fsframework.pipeline.cache.workspace import Workspace
from fsframework.records import (
    ArmRecord,
    Environment,
    ImportedRecord,
    PluginRecord,
    RunRecord,
)
from fsframework.statistics.estimation import estimate
from fsframework.values import AccuracyOutcomes, Scope, digest_of

__all__ = ["ARM", "import_accuracies"]

ARM = "tasks"
"""The name of the only arm of such runs."""


def import_accuracies(
    accuracies: npt.ArrayLike,
    *,
    method: str,
    task_set: str,
    scope: Scope = "closed",
    n_images: int = 0,
    source: str = "",
    given: Mapping[str, Any] | None = None,
    runs_dir: str | Path | None = None,
) -> Run:
    """Make a run from accuracies of whole tasks that were measured elsewhere.

    It can be compared with other runs on the same tasks. Nothing is replaced: other accuracies of
    the same method and tasks become another run.

    Args:
        accuracies: float ``(T,)``, the share of each task's queries that were right, 0..1.
        method: what the method is called.
        task_set: what the tasks are called. Accuracies carry no tasks: those with equal name,
            number and scope are taken to be of the same tasks in the same order.
        scope: ``open`` if no image appears in two of the tasks, which only the caller knows.
        n_images: distinct images in all tasks, 0 if not known.
        source: file that they come from.
        given: the caller's options, for the record.
        runs_dir: where runs are written; by default ``FSF_RUNS``, else ``./runs``.

    Raises:
        DataError: an accuracy is not a number in 0..1.
    """
    outcomes = AccuracyOutcomes.of_named_tasks(accuracies, task_set, scope, n_images)
    fingerprint = digest_of("accuracies", method, outcomes.task_digest, outcomes.task_accuracy)
    runs = Workspace.default(None if runs_dir is None else Path(runs_dir)).runs
    folder = runs / f"{_in_path(f'{method}-{task_set}')}-{fingerprint[:8]}"
    try:
        return Run(folder, RunRecord.load(folder), reused=True)
    except RecordError:
        is_new = not folder.exists()
    component = resolve_component(Registry(), "statistic", "acc")
    plugin = component.loaded.plugin
    record = RunRecord(
        fingerprint=fingerprint,
        status="imported",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        given=dict(given or {}),
        plugins=(
            PluginRecord(
                plugin.kind, plugin.name, plugin.target, plugin.distribution, plugin.version
            ),
        ),
        environment=Environment(
            fsframework=fsframework.__version__,
            python=platform.python_version(),
            numpy=np.__version__,
        ),
        arms={ARM: ArmRecord(digest=outcomes.task_digest, n_tasks=len(outcomes), name=task_set)},
        imported=ImportedRecord(source=source, method=method),
        notes=(
            f"the name of the tasks ({task_set!r}) and the scope of the interval ({scope}) were "
            "stated at the import",
        ),
        statistics={"acc": component.fingerprint},
    )
    try:
        outcomes.save(record.outcomes_file(folder, ARM))
        found = dataclasses.replace(estimate("acc", component.create(), outcomes), arms=(ARM,))
        record = dataclasses.replace(record, estimates={found.name: found})
        # Last: the record is what makes a folder a run.
        record.save(folder)
    except BaseException:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return Run(folder, record)


def _in_path(text: str) -> str:
    return re.sub(r"[^\w.]+", "-", text).strip("-") or "accuracies"
