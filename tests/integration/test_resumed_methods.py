"""Training of methods with parts of their own is interrupted after any step, and taken up again."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.engine.learning import training
from fsframework.engine.learning.episodes import EPISODES
from fsframework.engine.learning.model import FewShotModel, build_model
from fsframework.engine.learning.training import Split, Trained, Training, train
from fsframework.engine.stages import Stage
from tests.toys import Blobs, Counting, Killed, TinyBackbone, component

SHORT = Stage(epochs=1, steps=3, validation_tasks=2, n_query=2, batch_size=6)
FROZEN = replace(SHORT, freeze=("backbone",))
HEAD = {"n_way": 3, "train_steps": 1, "test_steps": 1}
VIEWS = {"name": "simclr", "blur": 0.0, "min_area": 0.5}

CASES: dict[str, tuple[dict[str, Any], list[Stage]]] = {
    # Scales and shifts on a backbone that another method has trained.
    "mtl": (
        {"name": "mtl", "hard_tasks": True, **HEAD},
        [
            replace(SHORT, method=resolve_component(Registry(), "method", "baseline")),
            replace(FROZEN, tasks_per_step=3),
        ],
    ),
    # Generation 1 has a teacher.
    "skd": ({"name": "skd"}, [SHORT, replace(SHORT, distill=True)]),
    # Class means are collected in buffers; the second stage adapts several copies of MAML.
    "ifsl": (
        {"name": "ifsl", "n_splits": 2, "base": {"name": "maml", **HEAD}},
        [replace(SHORT, learns_from="batches"), FROZEN],
    ),
    # The ascent draws kernels, and changes no buffer.
    "ata": (
        {"name": "ata", "steps": 1, "lr": 1.0, "base": {"name": "relationnet"}},
        [SHORT, replace(SHORT, learning_rate=1e-4)],
    ),
    # Puzzles are drawn, and so is what a head drops; a tree beside it has views of its own.
    "ssfsl": (
        {"name": "ssfsl-jigsaw", "hidden": 8, "base": {"name": "hts", "base": {"name": "r2d2"}}},
        [SHORT, replace(SHORT, learning_rate=1e-4)],
    ),
    # A teacher of views.
    "unisiam": (
        {"name": "unisiam", "views": VIEWS, "width": 4, "teacher_width": 4},
        [SHORT, replace(SHORT, distill=True)],
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
            "name": "beclr",
            "views": VIEWS,
            "memory": 24,
            "clusters": 3,
            "k": 2,
            "start": 4,
            "rounds": 2,
            "momentum": 0.9,
            "cell": 4,
        },
        [SHORT, SHORT],
    ),
}


@pytest.fixture(scope="module")
def splits() -> tuple[Split, Split]:
    data = Blobs()
    made = [
        Split(data.pool(name), data.images(data.split_indices(name), 16))
        for name in ("train", "val")
    ]
    return made[0], made[1]


def untrained(name: str, seed: int) -> FewShotModel:
    method = resolve_component(Registry(), "method", CASES[name][0])
    return build_model(component(TinyBackbone), method, 16, 6, seed)


def run(
    name: str, folder: Path, splits: tuple[Split, Split], reporter: Counting
) -> tuple[FewShotModel, Trained]:
    stages = tuple(CASES[name][1])
    episodes = resolve_component(Registry(), "sampler", EPISODES)
    fresh = partial(untrained, name)
    inputs = Training(stages, (3, 2), splits, 0, torch.device("cpu"), episodes, fresh)
    model = fresh(0)
    return model, train(model, inputs, folder, reporter)


@pytest.mark.parametrize("name", CASES)
def test_interrupted_and_resumed_it_ends_in_equal_weights(
    tmp_path: Path, splits: tuple[Split, Split], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(training, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    whole, told = run(name, tmp_path / "whole", splits, Counting())
    expected, first = whole.state_dict(), untrained(name, seed=0).state_dict()
    assert any(not torch.equal(value, first[key]) for key, value in expected.items())
    for after in (1, 4):  # within the first stage, and within the second
        folder = tmp_path / f"killed-{after}"
        with pytest.raises(Killed):
            run(name, folder, splits, Counting("training", after))
        rest = Counting()
        resumed, again = run(name, folder, splits, rest)
        assert rest.units["training"] == 6 - after, "the last step had not been written down"
        assert [row.loss for row in told.history] == [row.loss for row in again.history]
        found = resumed.state_dict()
        assert all(torch.equal(value, found[key]) for key, value in expected.items())
