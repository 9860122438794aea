"""Runs made from accuracies of tasks that were measured elsewhere."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fsf_statistics.accuracies import TaskAccuracies, unit_text
from fsframework.api.components import component
from fsframework.api.imports import ArmRecord, ImportedRecord, RunRecord, save_import
from fsframework.api.running import Run
from fsframework.api.running import runs as all_runs
from fsframework.api.session import Session, open_session
from fsframework.statistics.estimation import estimates_of
from fsframework.statistics.results import MethodResult
from fsframework.values import digest_of

__all__ = ["ARM", "import_accuracies", "save_accuracies"]

ARM = "tasks"
"""The name of the only arm of such runs."""


def import_accuracies(
    read: Sequence[TaskAccuracies],
    runs_dir: str | Path | None = None,
    given: Mapping[str, Any] | None = None,
) -> tuple[list[Run], list[str]]:
    """Make one run per method, or find the run of an equal import; all or none.

    Args:
        read: by ``read_accuracies``.
        runs_dir: where runs are written; by default ``FSF_RUNS``, else ``./runs``.
        given: options from the user, for the records.

    Returns:
        The runs, and a sentence for each that differs from an earlier import of its name.
    """
    session = open_session(runs_dir=runs_dir, progress=False)
    earlier = [run for run in all_runs(runs_dir) if run.record.status == "imported"]
    runs, notes = [], []
    try:
        for one in read:
            run = save_accuracies(session, one, given or {})
            runs.append(run)
            others = [old.name for old in earlier if _is_same(old, one) and old.name != run.name]
            if others and not run.reused:
                notes.append(
                    f"{run.name}: other accuracies of this method and tasks are stored as "
                    + ", ".join(sorted(others))
                )
    except BaseException:
        for run in runs:
            if not run.reused:
                shutil.rmtree(run.folder, ignore_errors=True)
        raise
    return runs, notes


def _is_same(run: Run, read: TaskAccuracies) -> bool:
    imported = run.record.imported
    named = [arm.name for arm in run.record.arms.values()]
    return imported is not None and imported.method == read.method and named == [read.task_set]


def save_accuracies(session: Session, read: TaskAccuracies, given: Mapping[str, Any]) -> Run:
    """Make a run from the accuracies of a method, or find the run of an equal import.

    It can be compared with other runs on the same tasks. Nothing is replaced: other accuracies of
    the same method and tasks become another run.

    Args:
        session: where the run is written.
        read: the accuracies. They carry no tasks: those with equal name, number and scope are
            taken to be of the same tasks in the same order.
        given: the user's options, for the record.

    Raises:
        DataError: an accuracy is not a number in 0..1.
    """
    outcomes = read.outcomes
    statistic = component(session.registry, "statistic", "acc")
    result = MethodResult(read.method, {ARM: outcomes}, task_set=read.task_set)
    [found] = estimates_of({"acc": statistic.create()}, result).values()
    record = RunRecord(
        fingerprint=digest_of(
            "accuracies", read.method, outcomes.task_digest, outcomes.task_accuracy
        ),
        status="imported",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        given=dict(given),
        arms={
            ARM: ArmRecord(digest=outcomes.task_digest, n_tasks=len(outcomes), name=read.task_set)
        },
        digests={f"outcomes-{ARM}": outcomes.digest},
        imported=ImportedRecord(source=str(read.source.resolve()), method=read.method),
        notes=(
            f"the name of the tasks ({read.task_set!r}) and the scope of the interval "
            f"({read.scope}) were stated at the import; the accuracies were read as "
            f"{unit_text(read.unit)}",
        ),
        statistics={"acc": statistic.fingerprint},
        estimates={found.name: found},
    )

    def write(folder: Path) -> None:
        outcomes.save(record.outcomes_file(folder, ARM))

    name = _in_path(f"{read.method}-{read.task_set}")
    return save_import(session, name, record, write, used=(statistic,))


def _in_path(text: str) -> str:
    return re.sub(r"[^\w.]+", "-", text).strip("-") or "accuracies"
