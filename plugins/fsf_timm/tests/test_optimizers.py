"""LARS of timm in a training: what it does, and that an interrupted training resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fsframework import Run
from fsframework.engine.learning import training
from fsframework.engine.stages import Stage
from tests.toys import Counting, Killed, equal, run, weights

OPTIONS: dict[str, Any] = {
    "optimizer": "fsf_timm:Lars", "decayed": "matrices", "momentum": 0.9, "nesterov": False,
    "learning_rate": 0.5, "weight_decay": 0.1, "epochs": 2, "steps": 4, "batch_size": 8,
    "validation_tasks": 0,
}  # fmt: skip


def test_lars_adapts_the_rate_of_matrices_to_their_length() -> None:
    matrix = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))
    vector = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    optimizer = Stage(**OPTIONS).optimizer_of([matrix, vector])
    for parameter in (matrix, vector):
        parameter.grad = torch.tensor([2.0, 0.0]).view_as(parameter)
    optimizer.step()
    # The matrix: a trust of 0.001 * 5 / (2 + 0.1 * 5), for the gradient with the penalty's.
    step = 0.5 * 0.001 * 5 / 2.5 * torch.tensor([2.0 + 0.3, 0.4])
    torch.testing.assert_close(matrix.detach(), torch.tensor([[3.0, 4.0]]) - step)
    torch.testing.assert_close(vector.detach(), torch.tensor([2.0, 4.0]))


def test_killed_and_resumed_gives_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)

    def trained(place: Path, reporter: Counting) -> Run:
        return run(place, reporter, method="baseline", training=OPTIONS)

    whole = trained(tmp_path / "whole", Counting())
    with pytest.raises(Killed):
        trained(tmp_path / "killed", Counting("training", 5))
    rest = Counting()
    resumed = trained(tmp_path / "killed", rest)
    assert rest.units["training"] == 3
    assert equal(weights(whole), weights(resumed))
