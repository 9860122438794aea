"""Groups of a training step: the gradient of the whole step, whoever computes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fsframework.components.registry import Registry
from fsframework.errors import OptionError
from fsframework.pipeline.experiment.stages import Stage
from fsframework.pipeline.learning.groups import GroupSum
from fsframework.pipeline.learning.model import build_model
from fsframework.pipeline.learning.training import Split, check_stages, train
from fsframework.pipeline.processes import Processes
from tests.pipeline.learning.test_training import training_of
from tests.toys import Blobs, Classifier, Counting, Prototypes, TinyBackbone, component


class PlainBackbone(TinyBackbone):
    """Without BatchNorm and dropout, so that images do not influence each other."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4))


def trained(folder: Path, stage: Stage, method: type = Prototypes) -> dict[str, Tensor]:
    """Return weights in float64, of a training without validation."""
    data = Blobs()
    split = Split(data.pool("train"), data.images(data.split_indices("train"), 16))
    model = build_model(component(PlainBackbone), component(method), 16, 6, 0).double()
    train(model, training_of([stage], (split, None)), folder, Counting())
    return model.state_dict()


@pytest.mark.parametrize("method", [Prototypes, Classifier])
def test_without_batch_statistics_groups_change_nothing(tmp_path: Path, method: type) -> None:
    # Five tasks, and seven images, in three groups of unequal size.
    common = {
        "epochs": 1, "steps": 8, "n_query": 2, "tasks_per_step": 5, "batch_size": 7,
        "optimizer": "sgd", "learning_rate": 0.01, "clip_norm": 0.5,
    }  # fmt: skip
    whole = trained(tmp_path / "1", Stage(**common), method)
    divided = trained(tmp_path / "3", Stage(**common, groups=3), method)
    for name, value in whole.items():
        torch.testing.assert_close(divided[name], value, rtol=0, atol=1e-12, msg=name)


class Two(Processes):
    """The first of two processes; what the second one adds is given."""

    def __init__(self, other: Tensor) -> None:
        super().__init__(0, 2)
        self._other = other

    def total(self, values: Tensor) -> Tensor:
        return values.add_(self._other)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


class Averaging(nn.Module):
    """Two parameters of two values, a running average and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Parameter(numbers(0, 0))
        self.unused = nn.Parameter(numbers(0, 0))
        self.register_buffer("average", numbers(10))
        self.register_buffer("count", torch.tensor(4))

    def step(self, gradient: Sequence[float], average: float) -> None:
        """Do what a group does, with a gradient that is weighted already."""
        before = torch.zeros(2) if self.used.grad is None else self.used.grad
        self.used.grad = before + numbers(*gradient)
        self.average.fill_(average)
        self.count += 1


def test_sums_by_hand() -> None:
    model = Averaging()
    parameters = [model.used, model.unused]
    added = GroupSum(model, parameters, torch.device("cpu"), several=True)
    # This process has groups of a quarter and a half, the other one has one of a quarter.
    model.step((1, 2), 18)
    added.add(torch.tensor(4.0), 0.25)
    assert model.average.item() == 10  # the next group starts from it as well
    model.step((10, 20), 12)
    added.add(torch.tensor(2.0), 0.5)
    # Of the other: loss 8 / 4; which parameters it used; gradients; change of the average 4 / 4.
    added.exchange(Two(numbers(2, 1, 0, 100, 200, 0, 0, 1)))
    assert added.finish().item() == 1 + 1 + 2
    assert model.used.grad is not None
    assert model.used.grad.tolist() == [111, 222]
    assert model.unused.grad is None  # its optimiser must not decay it
    assert model.average.item() == 10 + 8 / 4 + 2 / 2 + 4 / 4
    assert model.count.item() == 5


def test_a_process_without_a_group_takes_what_the_others_computed() -> None:
    model = Averaging()
    parameters = [model.used, model.unused]
    added = GroupSum(model, parameters, torch.device("cpu"), several=True)
    added.exchange(Two(numbers(2, 1, 0, 100, 200, 0, 0, 1)))
    assert added.finish().item() == 2
    assert model.used.grad is not None
    assert model.used.grad.tolist() == [100, 200]
    assert model.unused.grad is None
    assert model.average.item() == 11


@pytest.mark.parametrize(
    ("method", "options", "room"),
    [
        (Prototypes, {"tasks_per_step": 3}, 3),
        (Classifier, {"batch_size": 9}, 4),
        (Prototypes, {"tasks_per_step": 8, "batch_size": 9, "learns_from": "both"}, 4),
    ],
)
def test_a_step_must_have_room_for_its_groups(
    method: type, options: dict[str, object], room: int
) -> None:
    pool = Blobs().pool("train")
    for groups in (room, room + 1):
        stage = Stage(groups=groups, n_query=2, **options)  # type: ignore[arg-type]
        if groups == room:
            check_stages([stage], method(), (3, 2), pool, Registry())
            continue
        with pytest.raises(OptionError, match=f"groups={groups} is too large: .* room for {room},"):
            check_stages([stage], method(), (3, 2), pool, Registry())
