"""The history of a training: rows of CSV, events that TensorBoard reads."""

from __future__ import annotations

import csv
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fsframework.engine.learning.history import Curve
from fsframework.records import Epoch


def row(stage: int, epoch: int, loss: float, accuracy: float | None) -> Epoch:
    return Epoch(stage, epoch, 0.1, loss, accuracy, 1.5)


HISTORY = [row(0, 0, 2.0, None), row(1, 0, 1.0, 0.5), row(1, 1, 0.5, 0.75)]


def test_csv_has_a_row_per_epoch_counted_from_one(tmp_path: Path) -> None:
    Curve(tmp_path, tensorboard=False)(HISTORY)
    with (tmp_path / "curve.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["stage"], r["epoch"], r["loss"]) for r in rows] == [
        ("1", "1", "2.0"), ("2", "1", "1.0"), ("2", "2", "0.5"),
    ]  # fmt: skip
    assert [r["validation_accuracy"] for r in rows] == ["", "0.5", "0.75"]


def test_tensorboard_reads_every_epoch_once(tmp_path: Path) -> None:
    curve = Curve(tmp_path, tensorboard=True)
    curve(HISTORY[:2])
    curve(HISTORY)
    found: dict[str, list[tuple[int, float]]] = {}
    for file in sorted((tmp_path / "tensorboard").iterdir()):
        events = EventAccumulator(str(file))
        events.Reload()
        for tag in events.Tags()["scalars"]:
            found.setdefault(tag, []).extend((e.step, e.value) for e in events.Scalars(tag))
    assert sorted(found["loss"]) == [(1, 2.0), (2, 1.0), (3, 0.5)]
    assert sorted(found["validation accuracy"]) == [(2, 0.5), (3, 0.75)]
    assert len(found["learning rate"]) == 3
