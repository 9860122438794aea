"""Runs of the methods on the embedded data set, with a tiny CLIP in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fsframework as fsf
from fsframework.errors import FsfError
from tests.tiny_models import tiny_model

SMALL = {
    "dataset": {"name": "planted", "n_per_class": 5},
    "sampler": "random",
    "way": 3,
    "shot": 1,
    "queries": 4,
    "tasks": 8,
    "offline": True,
    "progress": False,
}


def run(method: str | dict[str, Any], *, backbone: str = "", **options: Any) -> fsf.Run:
    return fsf.run(
        method=method, backbone=backbone or f"clip:{tiny_model('clip')}", **SMALL, **options
    )


def predictions(found: fsf.Run) -> np.ndarray[Any, Any]:
    return found.outcomes["random"].predictions


def test_runs_are_not_trained_and_state_names_and_weights(shared_cache: Path) -> None:
    found = run("tip-adapter")
    record = found.record
    assert record.training.history == ()
    assert record.data is not None
    assert record.data.weights_from["weights"].startswith("sha256:")
    assert record.class_names["shape_080"] == "shape_080"
    again = run("tip-adapter")
    assert again.reused
    other = run("zero-shot-clip", class_names="shuffled")
    assert sorted(other.record.class_names.values()) == sorted(record.class_names)
    plain = run("zero-shot-clip")
    assert not np.array_equal(predictions(plain), predictions(other))


def test_a_context_is_learned_in_a_run_and_repeats(shared_cache: Path, tmp_path: Path) -> None:
    method = {"name": "coop", "length": 2, "steps": 2}
    first, second = (run(method, runs_dir=tmp_path / name) for name in ("first", "second"))
    assert not second.reused
    assert np.array_equal(predictions(first), predictions(second))
    assert not np.array_equal(predictions(run({**method, "seed": 1})), predictions(first))


def test_methods_of_images_alone_run_on_the_same_backbone(shared_cache: Path) -> None:
    found = run("ncc")
    assert found.record.class_names in ({}, None)


def test_a_backbone_without_a_text_tower_is_refused(shared_cache: Path) -> None:
    with pytest.raises(FsfError, match="clap needs a backbone that reads text"):
        run("clap", backbone="conv64f")
