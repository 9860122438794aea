"""LARS of timm in a training: what it does, and that an interrupted training resumes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.engine.learning import training
from fsframework.engine.learning.episodes import EPISODES
from fsframework.engine.learning.model import FewShotModel, build_model
from fsframework.engine.learning.training import Split, Training, train
from fsframework.engine.stages import Stage
from tests.toys import Blobs, Classifier, Counting, Killed, TinyBackbone, component

LARS = Stage(
    optimizer="fsf_timm:Lars", decayed="matrices", momentum=0.9, nesterov=False,
    learning_rate=0.5, weight_decay=0.1, epochs=2, steps=4, batch_size=8, validation_tasks=0,
)  # fmt: skip


def test_lars_adapts_the_rate_of_matrices_to_their_length() -> None:
    matrix = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))
    vector = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    optimizer = LARS.optimizer_of([matrix, vector])
    for parameter in (matrix, vector):
        parameter.grad = torch.tensor([2.0, 0.0]).view_as(parameter)
    optimizer.step()
    # The matrix: a trust of 0.001 * 5 / (2 + 0.1 * 5), for the gradient with the penalty's.
    step = 0.5 * 0.001 * 5 / 2.5 * torch.tensor([2.0 + 0.3, 0.4])
    torch.testing.assert_close(matrix.detach(), torch.tensor([[3.0, 4.0]]) - step)
    torch.testing.assert_close(vector.detach(), torch.tensor([2.0, 4.0]))


def trained(folder: Path, reporter: Counting) -> FewShotModel:
    data = Blobs()
    split = Split(data.pool("train"), data.images(data.split_indices("train"), 16))
    model = build_model(component(TinyBackbone), component(Classifier), 16, 6, 0)
    episodes = resolve_component(Registry(), "sampler", EPISODES)
    given = Training((LARS,), (3, 2), (split, None), 0, torch.device("cpu"), episodes)
    train(model, given, folder, reporter)
    return model


def test_killed_and_resumed_gives_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    whole = trained(tmp_path / "whole", Counting()).state_dict()
    with pytest.raises(Killed):
        trained(tmp_path / "killed", Counting("training", 5))
    rest = Counting()
    resumed = trained(tmp_path / "killed", rest).state_dict()
    assert rest.units["training"] == 3
    assert all(torch.equal(value, resumed[name]) for name, value in whole.items())
