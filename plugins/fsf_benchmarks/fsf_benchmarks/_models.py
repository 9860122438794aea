"""Runs whose backbones are used without further training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fsframework.api.running import Run, load_run
from fsframework.errors import RecordError, argument

__all__ = ["frozen_backbone", "loaded_model", "of_model"]


def loaded_model(folder: Path) -> Run:
    """Open the run in a folder.

    Raises:
        RecordError: the folder has no run, or the run has no backbone weights.
    """
    run = load_run(folder)
    if run.record.backbone is None or not (run.folder / "weights.safetensors").exists():
        raise RecordError(f"{argument('model', str(folder))}: the run has no backbone weights")
    return run


def frozen_backbone(backbone: dict[str, Any], image_size: Any, folder: Path) -> dict[str, Any]:
    """Return arguments that take a backbone and its weights from a run and train nothing.

    Args:
        backbone: name and options of the backbone.
        image_size: pixels per side of its training images, ``None`` for its default.
        folder: folder of the run.
    """
    training = {"epochs": 0, "init_from": str(folder), "init_parts": ["backbone"]}
    found: dict[str, Any] = {"backbone": backbone, "recipe": "none", "training": training}
    return {**found, "image_size": image_size}


def of_model(folder: Path, method: str) -> dict[str, Any]:
    """Return arguments that take weights from a run and train nothing.

    A run of the same method provides all weights, a run of another method only the backbone's.

    Raises:
        RecordError: the folder has no run, or the run has no backbone weights.
    """
    run = loaded_model(folder)
    assert run.record.backbone is not None
    tree = run.record.backbone.to_tree()
    found = frozen_backbone(tree, run.record.seen_size, run.folder)
    own = run.record.method
    if own is not None and own.name == method:
        found["training"] = {**found["training"], "init_parts": []}
        found["method"] = {key: v for key, v in own.to_tree().items() if key != "n_way"}
    return found
