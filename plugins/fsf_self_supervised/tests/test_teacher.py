"""A finished run teaches a network of another size, and the student's run is its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fsframework as fsf
from fsframework.engine.stages import Stage, stage_digests
from fsframework.errors import DataError, OptionError

DATA = {"name": "planted", "size": 32, "n_per_class": 8}
SMALL: dict[str, Any] = {
    "dataset": DATA, "sampler": "random", "way": 3, "shot": 1, "queries": 2, "tasks": 5,
    "recipe": "none", "progress": False,
}  # fmt: skip
TRAINING = {"epochs": 1, "steps": 2, "batch_size": 6, "validation_tasks": 0}
WIDE = {"name": "unisiam", "views": "simclr", "width": 12}
NARROW = {"name": "unisiam", "views": "simclr", "width": 8}


def student(**more: Any) -> fsf.Run:
    method, training = more.pop("method", {}), more.pop("training", {})
    return fsf.run(
        method={**NARROW, **method},
        backbone="conv32f",
        training={**TRAINING, **training},
        **SMALL,
    )


def test_the_weights_of_a_teacher_decide_what_is_trained(tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    stage, digests = Stage(teacher=tmp_path), []
    for content in (b"first", b"second"):
        weights.write_bytes(content)
        digests += stage_digests([stage])
    assert digests[0] != digests[1]
    weights.unlink()
    with pytest.raises(DataError, match=r"teacher.*weights.safetensors: No such file"):
        stage_digests([stage])


@pytest.mark.slow
def test_a_run_teaches_a_smaller_network() -> None:
    teacher = fsf.run(method=WIDE, backbone="conv64f", training=TRAINING, **SMALL)
    folder = teacher.folder
    alone = student(method={"teacher_width": 12})
    taught = student(method={"teacher_width": 12}, training={"teacher": folder})
    digests = [run.record.digests["weights"] for run in (alone, taught)]
    assert digests[0] != digests[1]
    # Another method learns from the trained backbone in the same way.
    other = fsf.run(
        method="ncc",
        backbone="conv32f",
        training={**TRAINING, "method": {**NARROW, "teacher_width": 12}, "teacher": folder},
        **SMALL,
    )
    assert other.record.stages[0].options["teacher"] == str(folder)
    with pytest.raises(OptionError, match="teacher_width must be 12, the length of the"):
        student(training={"teacher": folder})
    with pytest.raises(OptionError, match="NCC has no vectors of views, so it cannot teach"):
        student(method={"teacher_width": 12}, training={"teacher": other.folder})
    with pytest.raises(DataError, match="training.teacher elsewhere: No such file"):
        student(training={"teacher": Path("elsewhere")})
