"""Training: learns, resumes to the same weights, keeps the best epoch, says what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fsframework.errors import DataError, OptionError
from fsframework.pipeline.model import FewShotModel, build_model
from fsframework.pipeline.training import Split, Stage, Trained, train
from fsframework.registry import Registry
from tests.toys import Blobs, Counting, Killed, Prototypes, TinyBackbone, component


@pytest.fixture(scope="module")
def splits() -> tuple[Split, Split]:
    data = Blobs()
    return tuple(  # type: ignore[return-value]
        Split(data.pool(name), data.images(data.split_indices(name), 16))
        for name in ("train", "val")
    )


def run(
    folder: Path,
    splits: tuple[Split, Split | None],
    stages: list[Stage],
    reporter: Counting | None = None,
    seed: int = 0,
) -> tuple[FewShotModel, Trained]:
    model = build_model(component(TinyBackbone), component(Prototypes), 16, 6, seed)
    trained = train(
        model, stages, (3, 2), splits, seed=seed, device=torch.device("cpu"), folder=folder,
        registry=Registry(), reporter=reporter or Counting(),
    )  # fmt: skip
    return model, trained


def weights(model: FewShotModel) -> dict[str, torch.Tensor]:
    return model.state_dict()


STAGES = [Stage(epochs=3, steps=4, validation_tasks=10, n_query=4)]


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("after", [0, 4, 9])
def test_killed_and_resumed_gives_the_same_weights(
    tmp_path: Path, splits: tuple[Split, Split], optimizer: str, after: int
) -> None:
    stages = [
        Stage(epochs=3, steps=4, validation_tasks=10, n_query=4, optimizer=optimizer),  # type: ignore[arg-type]
        Stage(epochs=2, steps=2, validation_tasks=10, n_query=4, freeze=("backbone",)),
    ]
    whole, told = run(tmp_path / "whole", splits, stages)
    with pytest.raises(Killed):
        run(tmp_path / "killed", splits, stages, Counting("training", after))
    resumed, told_again = run(tmp_path / "killed", splits, stages)
    for name, value in weights(whole).items():
        assert torch.equal(value, weights(resumed)[name]), name
    rows = [{k: v for k, v in row.items() if k != "seconds"} for row in told.history]
    again = [{k: v for k, v in row.items() if k != "seconds"} for row in told_again.history]
    assert rows == again
    assert len(rows) == 5


def test_a_finished_training_is_reused(tmp_path: Path, splits: tuple[Split, Split]) -> None:
    first, trained = run(tmp_path, splits, STAGES)
    reporter = Counting()
    second, reused = run(tmp_path, splits, STAGES, reporter)
    assert (trained.reused, reused.reused) == (False, True)
    assert reporter.units == {}
    assert all(torch.equal(v, weights(second)[k]) for k, v in weights(first).items())
    assert not (tmp_path / "checkpoint.safetensors").exists()


def test_training_lowers_the_loss_and_the_seed_decides_all(
    tmp_path: Path, splits: tuple[Split, Split]
) -> None:
    stages = [Stage(epochs=6, steps=10, validation_tasks=20, n_query=4, learning_rate=0.01)]
    first, trained = run(tmp_path / "a", splits, stages)
    assert trained.history[-1]["loss"] < trained.history[0]["loss"]
    torch.manual_seed(99)  # the global state must not matter
    np.random.seed(99)  # noqa: NPY002
    same, _ = run(tmp_path / "b", splits, stages)
    other, _ = run(tmp_path / "c", splits, stages, seed=1)
    assert all(torch.equal(v, weights(same)[k]) for k, v in weights(first).items())
    assert not all(torch.equal(v, weights(other)[k]) for k, v in weights(first).items())


def test_the_best_epoch_is_kept(tmp_path: Path, splits: tuple[Split, Split]) -> None:
    # A rate that ruins the model from the second epoch on: the first must come back.
    ruin = Stage(
        epochs=3, steps=3, validation_tasks=20, n_query=4, learning_rate=1e-3,
        schedule="multi-step", milestones=(1,), gamma=1e4,
    )  # fmt: skip
    model, trained = run(tmp_path / "ruined", splits, [ruin])
    accuracies = [row["validation_accuracy"] for row in trained.history]
    assert trained.best_accuracy == max(accuracies)
    one = Stage(
        epochs=1, steps=3, validation_tasks=20, n_query=4, learning_rate=1e-3, schedule="constant"
    )
    first_epoch, _ = run(tmp_path / "one", splits, [one])
    if accuracies.index(max(accuracies)) == 0:
        assert all(torch.equal(v, weights(first_epoch)[k]) for k, v in weights(model).items())
    assert accuracies[0] >= accuracies[2]


def test_frozen_parts_stay(tmp_path: Path, splits: tuple[Split, Split]) -> None:
    before = build_model(component(TinyBackbone), component(Prototypes), 16, 6, 0)
    frozen = Stage(epochs=1, steps=3, validation_tasks=0, n_query=4, freeze=("backbone",))
    after, trained = run(tmp_path, splits, [frozen])
    for name, value in before.backbone.state_dict().items():
        assert torch.equal(value, after.backbone.state_dict()[name]), name
    assert all(p.requires_grad for p in after.parameters())
    assert not torch.equal(before.method.scale, after.method.scale)
    assert trained.best_accuracy is None
    assert any("no validation" in note for note in trained.notes)
    with pytest.raises(OptionError, match="training.freeze bakcbone: no parameter is of that name"):
        run(tmp_path / "y", splits, [Stage(freeze=("bakcbone",))])
    with pytest.raises(OptionError, match="leaves nothing to train"):
        run(tmp_path / "x", splits, [Stage(freeze=("backbone", "method"))])


def test_a_stage_may_start_from_other_weights(tmp_path: Path, splits: tuple[Split, Split]) -> None:
    first, _ = run(tmp_path / "first", splits, STAGES)
    again = Stage(
        epochs=1, steps=1, validation_tasks=0, n_query=4, learning_rate=1e-12,
        init_from=tmp_path / "first",
    )  # fmt: skip
    second, _ = run(tmp_path / "second", splits, [again], seed=5)
    difference = (first.method.scale - second.method.scale).detach().abs()
    assert float(difference) < 1e-6
    nothing = Stage(epochs=0, init_from=tmp_path / "first")
    third, trained = run(tmp_path / "as-is", splits, [nothing], seed=5)
    assert trained.history == ()
    assert all(torch.equal(v, weights(third)[k]) for k, v in weights(first).items())
    wrong = Stage(epochs=1, steps=1, init_from=tmp_path / "absent.safetensors")
    with pytest.raises(DataError, match="cannot be read as weights"):
        run(tmp_path / "third", splits, [wrong])


def test_batches_reach_a_method_that_asks_for_them(
    tmp_path: Path, splits: tuple[Split, Split]
) -> None:
    seen = []

    class Both(Prototypes):
        """Looks at what it is shown."""

        learns_from = "both"

        def loss(self, batch):  # type: ignore[no-untyped-def]
            seen.append(batch)
            return super().loss(batch)

    model = build_model(component(TinyBackbone), component(Both), 16, 6, 0)
    stage = Stage(epochs=1, steps=1, tasks_per_step=2, batch_size=7, n_query=4, validation_tasks=0)
    train(
        model, [stage], (3, 2), splits, seed=0, device=torch.device("cpu"), folder=tmp_path,
        registry=Registry(), reporter=Counting(),
    )  # fmt: skip
    batch = seen[0]
    assert batch.support.shape == (2, 3, 2, 8)
    assert batch.query.shape == (2, 12, 8)
    assert batch.query_labels.tolist() == [[0] * 4 + [1] * 4 + [2] * 4] * 2
    assert batch.items.shape == (7, 8)
    # Every image of a way is of one base class, and the queries' classes are the support's.
    assert (batch.support_classes == batch.support_classes[:, :, :1]).all()
    by_way = batch.support_classes[:, :, 0].repeat_interleave(4, dim=1)
    assert torch.equal(batch.query_classes, by_way)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": -1}, "training.epochs must be at least 0, not -1"),
        ({"weight_decay": -1.0}, "training.weight_decay must be at least 0"),
        ({"n_way": 1}, "training.n_way must be at least 2, not 1"),
        ({"learning_rate": 0.0}, "training.learning_rate must be above 0"),
    ],
)
def test_stage_options_are_checked(options: dict[str, float], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Stage(**options)  # type: ignore[arg-type]


def test_schedules() -> None:
    def rates(**options: object) -> list[float]:
        stage = Stage(epochs=4, learning_rate=1.0, **options)  # type: ignore[arg-type]
        return [round(stage.rate(e), 4) for e in range(4)]

    assert rates(schedule="constant") == [1, 1, 1, 1]
    assert rates(schedule="cosine") == [1.0, 0.8536, 0.5, 0.1464]
    assert rates(schedule="step", step_epochs=2, gamma=0.5) == [1, 1, 0.5, 0.5]
    assert rates(schedule="multi-step", milestones=(1, 3), gamma=0.1) == [1, 0.1, 0.1, 0.01]


def test_a_loss_that_explodes_is_said(tmp_path: Path, splits: tuple[Split, Split]) -> None:
    stage = Stage(epochs=2, steps=4, n_query=4, learning_rate=1e30, optimizer="sgd")
    with pytest.raises(OptionError, match="try a lower training.learning_rate"):
        run(tmp_path, splits, [stage])
