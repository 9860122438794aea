"""Training of methods with parts of their own is interrupted after any step, and taken up again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fsframework.engine.learning import training
from tests.toys import Counting, Killed, equal, run, weights

SHORT = {"epochs": 1, "steps": 3, "validation_tasks": 2, "n_query": 2, "batch_size": 6}
FROZEN = {**SHORT, "freeze": ["backbone"]}
HEAD = {"n_way": 3, "train_steps": 1, "test_steps": 1}
VIEWS = {"name": "simclr", "blur": 0.0, "min_area": 0.5}

CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    # Scales and shifts on a backbone that another method has trained.
    "mtl": (
        {"name": "mtl", "hard_tasks": True, **HEAD},
        [
            {**SHORT, "method": "baseline"},
            {**FROZEN, "tasks_per_step": 3},
        ],
    ),
    # Generation 1 has a teacher.
    "skd": ({"name": "skd"}, [SHORT, {**SHORT, "distill": True}]),
    # Class means are collected in buffers; the second stage adapts several copies of MAML.
    "ifsl": (
        {"name": "ifsl", "n_splits": 2, "base": {"name": "maml", **HEAD}},
        [{**SHORT, "learns_from": "batches"}, FROZEN],
    ),
    # The ascent draws kernels, and changes no buffer.
    "ata": (
        {"name": "ata", "steps": 1, "lr": 1.0, "base": {"name": "relationnet"}},
        [SHORT, {**SHORT, "learning_rate": 1e-4}],
    ),
    # Puzzles are drawn, and so is what a head drops; a tree beside it has views of its own.
    "ssfsl": (
        {"name": "ssfsl-jigsaw", "hidden": 8, "base": {"name": "hts", "base": {"name": "r2d2"}}},
        [SHORT, {**SHORT, "learning_rate": 1e-4}],
    ),
    # Weights of groups and counts of words; the second time, errors of the first weigh more.
    "group-dro": (
        {"name": "group-dro", "eta": 0.5, "base": {"name": "jtt", "base": "baseline"}},
        [SHORT, {**SHORT, "distill": True}],
    ),
    # Directions of words are collected from a fixed backbone.
    "word-projected": (
        {"name": "word-projected", "base": "ncc"},
        [{**SHORT, "method": "baseline"}, FROZEN],
    ),
    # A teacher of views.
    "unisiam": (
        {"name": "unisiam", "views": VIEWS, "width": 4, "teacher_width": 4},
        [SHORT, {**SHORT, "distill": True}],
    ),
    # A momentum copy follows, and a queue is written over, after each step.
    "moco": (
        {"name": "moco", "views": VIEWS, "queue": 16, "width": 4, "momentum": 0.9, "parts": 2},
        [SHORT, SHORT],
    ),
    "psco": (
        {"name": "psco", "views": VIEWS, "queue": 16, "width": 4, "hidden": 8, "momentum": 0.9},
        [SHORT, SHORT],
    ),
    # The memories are full after the second step; k-means and the steps with neighbours follow.
    "beclr": (
        {
            "name": "beclr", "views": VIEWS, "memory": 24, "clusters": 3, "k": 2, "start": 4,
            "rounds": 2, "momentum": 0.9, "cell": 4,
        },
        [SHORT, SHORT],
    ),
}  # fmt: skip


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", CASES)
def test_interrupted_and_resumed_it_ends_in_equal_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(training, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    method, stages = CASES[name]
    given: dict[str, Any] = {"method": method, "training": {"stages": stages}, "tasks": 2}
    whole = run(tmp_path / "whole", **given)
    for after in (1, 4):  # within the first stage, and within the second
        killed, rest = tmp_path / f"killed-{after}", Counting()
        with pytest.raises(Killed):
            run(killed, Counting("training", after), **given)
        resumed = run(killed, rest, **given)
        assert rest.units["training"] == 6 - after, "the last step had not been written down"
        assert equal(weights(whole), weights(resumed))
        rows = [[row.loss for row in one.record.training.history] for one in (whole, resumed)]
        assert rows[0] == rows[1]
