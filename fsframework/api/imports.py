"""Runs of models and results that were made elsewhere, for packages that import them."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from fsframework.api.components import Component
from fsframework.api.running import Run
from fsframework.engine.run import component_record, environment, plugin_records
from fsframework.engine.session import Session
from fsframework.errors import RecordError
from fsframework.records import ArmRecord, DataRecord, ImportedRecord, RunRecord

__all__ = ["ArmRecord", "DataRecord", "ImportedRecord", "RunRecord", "save_import"]


def save_import(
    session: Session,
    name: str,
    record: RunRecord,
    write: Callable[[Path], object],
    *,
    roles: Mapping[str, Component] | None = None,
    used: Sequence[Component] = (),
) -> Run:
    """Write a run of a model or of results that were made elsewhere.

    An equal import becomes the same run, which keeps its date and its notes. Of a failed one
    nothing is left.

    Args:
        session: where the run is written.
        name: of its folder, to which the beginning of its fingerprint is added.
        record: what is known; its components, plugins and environment are filled in.
        write: writes the files of the run into a folder.
        roles: components of the model, by role: ``method`` and ``backbone``.
        used: further components that had a part in it.
    """
    parts = dict(roles or {})
    record = dataclasses.replace(
        record,
        components={role: component_record(part) for role, part in parts.items()},
        plugins=plugin_records(c for part in (*used, *parts.values()) for c in part.walk()),
        environment=environment(torch.device("cpu")),
    )
    folder = session.workspace.runs / f"{name}-{record.fingerprint[:8]}"
    try:
        earlier = RunRecord.load(folder)
    except RecordError:
        earlier = None
    if earlier is not None:
        notes = tuple(dict.fromkeys((*earlier.notes, *record.notes)))
        record = dataclasses.replace(record, created=earlier.created, notes=notes)
    is_new = not folder.exists()
    try:
        write(folder)
        # Last: the record is what makes a folder a run.
        record.save(folder)
    except BaseException:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return Run(folder, record, earlier is not None)
