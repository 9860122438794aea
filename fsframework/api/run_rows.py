"""What tells a run from others, in the words of users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fsframework.records import RunRecord

__all__ = ["dataset_of", "run_options", "run_settings", "words_of"]


def dataset_of(record: RunRecord) -> str:
    """Return the data set as users name it, with the folder or file it is read from."""
    component = record.components.get("dataset")
    if component is None:
        return record.data.name
    added = component.added_as
    if added is None or added == component.name:
        return component.called
    return f"{added} ({component.called})"


def words_of(record: RunRecord) -> str:
    """Return where the words of the images come from, and which were dropped."""
    detector, settings = record.components.get("detector"), record.settings
    source = settings.get("attributes") or "the data set's own"
    if detector is not None:
        source = f"detected by {detector.called}"
    dropped = [
        f"{name.replace('_', '-')} {settings[name] if settings[name] is not True else ''}".strip()
        for name, usual in (("drop_class_words", False), ("drop_words", []), ("min_count", 1))
        if settings.get(name, usual) != usual
    ]
    return ", ".join([str(source), *dropped])


def run_settings(folder: Path, record: RunRecord) -> dict[str, Any]:
    """Return what tells a run from others, by name; its estimates are not among it."""
    tested, settings = record.tested, record.settings
    return {
        "run": folder.name,
        "folder": str(folder),
        "status": record.status,
        "created": record.created,
        "date": record.created.partition("T")[0],
        "dataset": dataset_of(record),
        "method": record.method.called if record.method else "",
        "backbone": record.backbone.called if record.backbone else "",
        "sampler": (tested.sampler or tested.name) if tested else "",
        "arms": ", ".join(record.arms),
        "tasks": tested.n_tasks if tested else 0,
        "way": tested.n_way if tested else 0,
        "shot": tested.n_shot if tested else 0,
        "queries": tested.n_query if tested else 0,
        "queries-by": settings.get("query_batch", ""),
        "task-seed": settings.get("task_seed", ""),
        "training-seed": settings.get("training_seed", ""),
        "epochs": len(record.training.history),
        "recipe": settings.get("recipe") or "",
        "words": words_of(record) if len(record.arms) > 1 else "",
        "intervals": _intervals(record),
        "device": record.environment.device,
        "fingerprint": record.fingerprint,
    }


def run_options(record: RunRecord) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of a run as a tree, and in the same shape where each value came from."""
    values: dict[str, Any] = dict(record.settings)
    origins: dict[str, Any] = dict(record.origins)
    for role, component in record.components.items():
        values[role], origins[role] = component.to_tree(), dict(component.origins)
    if record.stages:
        values["training"] = [dict(stage.options) for stage in record.stages]
        origins["training"] = [dict(stage.origins) for stage in record.stages]
    return values, origins


def _intervals(record: RunRecord) -> str:
    """Return level, scope and estimator of the intervals; a slash separates different ones."""
    estimates = record.estimates.values()
    parts = (
        [f"{100 * e.level:g} %" for e in estimates],
        [e.scope for e in estimates],
        [e.estimator for e in estimates],
    )
    return " ".join("/".join(dict.fromkeys(part)) for part in parts).strip()
