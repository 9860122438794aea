"""Training: learns, resumes to the same weights, keeps the best epoch, says what is wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fsf_methods.cross_domain import FT
from fsf_methods.gradient import MAML
from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.engine.learning import batches, training
from fsframework.engine.learning.episodes import EPISODES, check_stages
from fsframework.engine.learning.model import FewShotModel, build_model
from fsframework.engine.learning.training import (
    Split,
    Trained,
    Training,
    start_from,
    train,
)
from fsframework.engine.stages import Stage
from fsframework.errors import DataError, InfeasibleTask, OptionError
from fsframework.interfaces import Backbone, Batch, FewShotMethod, Preprocessing
from tests.toy_views import Dimmed, Queued
from tests.toys import (
    Blobs,
    Classifier,
    Counting,
    Killed,
    PixelPrototypes,
    Prototypes,
    Still,
    TinyBackbone,
    component,
)


@pytest.fixture(scope="module")
def splits() -> tuple[Split, Split]:
    data = Blobs()
    return tuple(  # type: ignore[return-value]
        Split(data.pool(name), data.images(data.split_indices(name), 16))
        for name in ("train", "val")
    )


def training_of(
    stages: list[Stage],
    splits: tuple[Split, Split | None],
    seed: int = 0,
    fresh: Callable[[int], FewShotModel] | None = None,
) -> Training:
    episodes = resolve_component(Registry(), "sampler", EPISODES)
    device = torch.device("cpu")
    return Training(tuple(stages), (3, 2), splits, seed, device, episodes, fresh)


def run(
    folder: Path,
    splits: tuple[Split, Split | None],
    stages: list[Stage],
    reporter: Counting | None = None,
    seed: int = 0,
    method: type[FewShotMethod] = Prototypes,
) -> tuple[FewShotModel, Trained]:
    def fresh(seed: int) -> FewShotModel:
        return build_model(component(TinyBackbone), component(method), 16, 6, seed)

    model = fresh(seed)
    trained = train(model, training_of(stages, splits, seed, fresh), folder, reporter or Counting())
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
    rows, again = (
        [dataclasses.replace(row, seconds=0) for row in trained.history]
        for trained in (told, told_again)
    )
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
    assert trained.history[-1].loss < trained.history[0].loss
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
    accuracies = [row.validation_accuracy for row in trained.history]
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
    with pytest.raises(OptionError, match="training.freeze bakcbone: no parameter has that name"):
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
    train(model, training_of([stage], splits), tmp_path, Counting())
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


def rule(**options: Any) -> torch.optim.Optimizer:
    layers = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    return Stage(weight_decay=0.1, **options).optimizer_of(list(layers.parameters()))


def test_an_optimiser_of_another_library_gets_the_options_of_the_stage() -> None:
    found = rule(optimizer="torch.optim.sgd:SGD", learning_rate=0.3, momentum=0.8)
    assert type(found) is torch.optim.SGD
    (group,) = found.param_groups
    assert [group[k] for k in ("lr", "momentum", "weight_decay", "nesterov")] == [
        0.3,
        0.8,
        0.1,
        True,
    ]


def test_biases_and_batch_norm_need_not_decay() -> None:
    (whole,) = rule().param_groups
    assert (len(whole["params"]), whole["weight_decay"]) == (4, 0.1)
    matrices, vectors = rule(decayed="matrices").param_groups
    assert [p.ndim for p in matrices["params"]] == [2]
    assert [p.ndim for p in vectors["params"]] == [1, 1, 1]
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.1, 0.0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lars", "'lars' is not in torch.optim.*; give that of another library as module:Class"),
        ("no_such_library:Lars", "no_such_library:Lars cannot be imported: .*no_such_library"),
        ("torch.optim:Lars", "torch.optim:Lars cannot be imported: .*Lars"),
        ("torch.nn:Linear", "torch.nn:Linear is not a subclass of torch.optim.Optimizer"),
    ],
)
def test_unknown_optimisers_are_refused(name: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        rule(optimizer=name)


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


def equal(first: FewShotModel, second: FewShotModel) -> bool:
    return all(torch.equal(v, weights(second)[k]) for k, v in weights(first).items())


ELABORATE = {
    "teacher": (
        Classifier,
        [
            Stage(epochs=1, steps=4, validation_tasks=5, n_query=4),
            Stage(epochs=2, steps=4, validation_tasks=5, n_query=4, distill=True),
        ],
    ),
    "another method first": (
        Still,
        [
            Stage(
                epochs=3, steps=4, validation_tasks=5, n_query=4, method=component(Classifier),
                augment=("resized-crop", "color-jitter", "flip"),
            )
        ],
    ),
    "half precision, clipped": (
        Prototypes,
        [
            Stage(
                epochs=3, steps=4, validation_tasks=5, n_query=4, precision="fp16", clip_norm=1.0,
                optimizer="sgd",
            )
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ELABORATE)
@pytest.mark.parametrize("after", [1, 6, 10])
def test_every_kind_of_stage_resumes_to_the_same_weights(
    tmp_path: Path,
    splits: tuple[Split, Split],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    after: int,
) -> None:
    """With a checkpoint after every step, so that one within an epoch is taken up too."""
    monkeypatch.setattr(training, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    method, stages = ELABORATE[name]
    whole, told = run(tmp_path / "whole", splits, stages, method=method)
    with pytest.raises(Killed):
        run(tmp_path / "killed", splits, stages, Counting("training", after), method=method)
    assert (tmp_path / "killed" / "checkpoint.safetensors").exists()
    rest = Counting()
    resumed, again = run(tmp_path / "killed", splits, stages, rest, method=method)
    assert equal(whole, resumed)
    assert [row.loss for row in told.history] == [row.loss for row in again.history]
    # The step at which it was killed had been done, but not yet written down.
    assert rest.units["training"] == 12 - after


def test_the_backbone_may_be_trained_by_another_method(
    tmp_path: Path, splits: tuple[Split, Split]
) -> None:
    before = build_model(component(TinyBackbone), component(PixelPrototypes), 16, 6, 0)
    stage = Stage(epochs=2, steps=5, validation_tasks=5, n_query=4, method=component(Classifier))
    after, trained = run(tmp_path, splits, [stage], method=PixelPrototypes)
    assert set(weights(after)) == set(weights(before))
    assert not equal(before, after)
    assert trained.history[1].loss < trained.history[0].loss
    assert trained.best_accuracy is not None


def test_a_student_starts_anew_and_learns_what_the_teacher_says(
    tmp_path: Path, splits: tuple[Split, Split]
) -> None:
    first = Stage(epochs=2, steps=10, validation_tasks=0)
    idle = Stage(epochs=1, steps=1, validation_tasks=0, distill=True, learning_rate=1e-12)
    more = Stage(epochs=2, steps=30, validation_tasks=0, distill=True, learning_rate=0.01)
    teacher, _ = run(tmp_path / "a", splits, [first], method=Classifier)
    student, _ = run(tmp_path / "b", splits, [first, idle], method=Classifier)
    learned, trained = run(tmp_path / "c", splits, [first, more], method=Classifier)

    def said(model: FewShotModel) -> torch.Tensor:
        model.eval()
        with torch.no_grad():
            pixels = torch.from_numpy(splits[0].pixels[::7])
            return model.method.class_logits(model.items(pixels))

    far = (said(student) - said(teacher)).square().mean()
    near = (said(learned) - said(teacher)).square().mean()
    assert far > 0.1
    assert near < far / 3
    assert trained.history[-1].loss < trained.history[2].loss


class Shifted(TinyBackbone):
    """Expects images that are normalised otherwise."""

    preprocessing = Preprocessing(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))


class Hearing(Classifier):
    """Keeps its batches, which are of images."""

    trains_on_images = True

    def build(self, item_shape, n_base_classes, backbone):  # type: ignore[no-untyped-def]
        super().build(item_shape, n_base_classes, backbone)
        self.backbone, self.heard = backbone, list[Batch]()

    def loss(self, batch: Batch) -> torch.Tensor:
        self.heard.append(batch)
        return super().loss(dataclasses.replace(batch, items=self.backbone.encode(batch.items)))


def test_a_run_with_another_backbone_teaches_and_the_student_keeps_its_weights(
    tmp_path: Path, splits: tuple[Split, Split]
) -> None:
    teacher = build_model(component(Shifted), component(Classifier), 16, 6, 5)
    student = build_model(component(TinyBackbone), component(Hearing), 16, 6, 0)
    before = {name: value.clone() for name, value in weights(student).items()}
    stage = Stage(epochs=1, steps=1, validation_tasks=0, teacher=Path("run"), learning_rate=1e-12)
    asked = list[Path]()

    def model_of(folder: Path) -> FewShotModel:
        asked.append(folder)
        return teacher

    given = dataclasses.replace(training_of([stage], splits), model_of=model_of)
    train(student, given, tmp_path / "a", Counting())
    assert asked == [Path("run")]
    assert all(
        torch.allclose(value, before[name], atol=1e-6)
        for name, value in weights(student).items()
        if name.endswith(("weight", "bias"))
    )
    (batch,) = student.method.heard  # type: ignore[union-attr]
    plain = batch.items * student.std + student.mean
    with torch.no_grad():
        own = (plain / 255 - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)) / torch.tensor(
            [0.5, 0.6, 0.7]
        ).view(3, 1, 1)
        expected = teacher.method.class_logits(teacher.extractor.encode(own))
    torch.testing.assert_close(batch.teacher_logits, expected, rtol=1e-4, atol=1e-5)
    # Of other data, it may know another number of classes.
    teacher = build_model(component(TinyBackbone), component(Classifier), 16, 4, 5)
    with pytest.raises(OptionError, match="knows 4 classes, but the split 'train' has 6"):
        train(student, given, tmp_path / "b", Counting())


def test_a_stage_has_one_teacher() -> None:
    with pytest.raises(OptionError, match="omit it or training.teacher"):
        Stage(distill=True, teacher=Path("run"))


def test_training_stops_when_validation_no_longer_rises(
    tmp_path: Path, splits: tuple[Split, Split]
) -> None:
    flat = Stage(
        epochs=9, steps=2, validation_tasks=5, n_query=4, learning_rate=1e-12, patience=3,
        schedule="constant",
    )  # fmt: skip
    reporter = Counting()
    _, trained = run(tmp_path, splits, [flat], reporter)
    # BatchNorm's statistics still move, so that the best epoch need not be the first.
    accuracies = [row.validation_accuracy for row in trained.history]
    best = accuracies.index(max(accuracies))
    assert len(accuracies) == best + 4 < 9
    assert any("had not improved for 3 epochs" in note for note in trained.notes)
    assert reporter.units["training"] == 18


def test_validation_is_of_the_tasks_under_test(
    tmp_path: Path, splits: tuple[Split, Split], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    plain = training.predict

    def watching(model, tasks, source):  # type: ignore[no-untyped-def]
        seen.append(tasks)
        return plain(model, tasks, source)

    monkeypatch.setattr(training, "predict", watching)
    run(tmp_path, splits, [Stage(epochs=1, steps=1, n_way=6, n_shot=1, n_query=4)])
    assert {(t.n_way, t.n_shot, t.n_query) for t in seen} == {(3, 2, 4)}


def test_a_frozen_backbone_sees_each_image_once(
    tmp_path: Path, splits: tuple[Split, Split], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    plain = TinyBackbone.forward

    def counting(self, images):  # type: ignore[no-untyped-def]
        seen.append((self.training, len(images)))
        return plain(self, images)

    stage = Stage(epochs=3, steps=4, validation_tasks=0, n_query=4, freeze=("backbone",))
    monkeypatch.setattr(TinyBackbone, "forward", counting)
    cached, _ = run(tmp_path / "cached", splits, [stage])
    assert not any(training for training, _ in seen)
    assert sum(n for _, n in seen) <= len(splits[0].pixels) + 3
    monkeypatch.setattr(batches, "_MOST_BYTES_OF_ITEMS", 0)
    step_by_step, _ = run(tmp_path / "each", splits, [stage])
    torch.testing.assert_close(cached.method.scale, step_by_step.method.scale)


def test_parts_of_other_weights_can_be_taken(tmp_path: Path, splits: tuple[Split, Split]) -> None:
    first, _ = run(tmp_path / "first", splits, STAGES)
    source = tmp_path / "first"
    only = Stage(epochs=0, init_from=source, init_parts=("backbone",))
    second, _ = run(tmp_path / "second", splits, [only], seed=5)
    untouched = build_model(component(TinyBackbone), component(Prototypes), 16, 6, 5)
    for name, value in weights(second).items():
        origin = first if name.startswith("backbone.") else untouched
        assert torch.equal(value, weights(origin)[name]), name
    wrong = Stage(epochs=0, init_from=source, init_parts=("bakcbone",))
    with pytest.raises(DataError, match="training.init_parts bakcbone: .* it has backbone, method"):
        run(tmp_path / "third", splits, [wrong])


class Holding(Prototypes):
    """Holds the backbone itself, as methods do that adapt it."""

    consumes = "images"

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        super().build(item_shape, n_base_classes, backbone)
        self.backbone = backbone


def test_a_backbone_is_found_also_where_the_method_holds_it(
    tmp_path: Path, splits: tuple[Split, Split]
) -> None:
    first, _ = run(tmp_path / "first", splits, STAGES)
    model = build_model(component(TinyBackbone), component(Holding), 16, 6, 5)
    training.start_from(model, tmp_path / "first", ("backbone",))
    given = {k: v for k, v in weights(first).items() if k.startswith("backbone.")}
    assert given
    for name, value in given.items():
        assert torch.equal(weights(model)[f"method.{name}"], value), name


class OnImages(Prototypes):
    """Learns from images, and is evaluated on what the backbone makes of them."""

    trains_on_images = True

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        super().build(item_shape, n_base_classes, backbone)
        self.backbone = backbone

    def loss(self, batch: Batch) -> torch.Tensor:
        assert batch.support is not None
        assert batch.query is not None
        shapes = batch.support.shape, batch.query.shape
        assert {s[-3:] for s in shapes} == {(3, 16, 16)}
        images = torch.cat([batch.support.flatten(0, 2), batch.query.flatten(0, 1)])
        items = self.backbone.encode(images)
        n = shapes[0][:3].numel()
        parts = items[:n], items[n:]
        support, query = (
            part.reshape(*shape[:-3], -1) for part, shape in zip(parts, shapes, strict=True)
        )
        return super().loss(dataclasses.replace(batch, support=support, query=query))


def test_a_method_may_train_on_images_and_be_evaluated_on_features(
    tmp_path: Path, splits: tuple[Split, Split]
) -> None:
    usual, trained = run(tmp_path / "usual", splits, STAGES)
    model, told = run(tmp_path / "images", splits, STAGES, method=OnImages)
    assert told.best_accuracy == trained.best_accuracy
    found = {k.replace("method.backbone.", "backbone."): v for k, v in weights(model).items()}
    assert found.keys() == weights(usual).keys()
    for name, value in weights(usual).items():
        torch.testing.assert_close(found[name], value)
    frozen = dataclasses.replace(STAGES[0], freeze=("backbone",))
    run(tmp_path / "frozen", splits, [frozen], method=OnImages)


class Noted(Prototypes):
    """Notes in which mode it is whenever the backbone is trained."""

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        super().build(item_shape, n_base_classes, backbone)
        self.modes: list[bool] = []
        backbone.register_forward_hook(self.note)
        self.eval()

    def note(self, backbone: torch.nn.Module, *_: object) -> None:
        if backbone.training:
            self.modes.append(self.training)


def test_a_method_is_in_training_mode_in_its_own_stages_only(
    tmp_path: Path, splits: tuple[Split, Split]
) -> None:
    one = dataclasses.replace(STAGES[0], epochs=1, validation_tasks=0)
    other = dataclasses.replace(one, method=component(Classifier))
    model, _ = run(tmp_path, splits, [other, one, other], method=Noted)
    modes = model.method.modes
    assert modes == [False] * one.steps + [True] * one.steps + [False] * one.steps


def test_half_precision_computes_products_in_it_and_keeps_weights_whole(
    tmp_path: Path, splits: tuple[Split, Split]
) -> None:
    seen = []

    class Looking(Prototypes):
        """Looks at the items' type."""

        def loss(self, batch):  # type: ignore[no-untyped-def]
            seen.append(batch.query.dtype)
            return super().loss(batch)

    stage = Stage(epochs=1, steps=2, validation_tasks=5, n_query=4, precision="bf16")
    model, trained = run(tmp_path, splits, [stage], method=Looking)
    assert set(seen) == {torch.bfloat16}
    assert all(v.dtype != torch.bfloat16 for v in weights(model).values())
    assert trained.history[0].loss > 0


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (Still, {}, "Still does not learn; name the method that trains the backbone"),
        (Prototypes, {"distill": True}, "Prototypes learns from episodes without a teacher"),
        (
            partial(Queued, views=Dimmed()),
            {"teacher": Path("a-run")},
            "Queued learns from views without a teacher; distill and teacher need",
        ),
        (
            Classifier,
            {"distill": True, "method": component(Classifier)},
            "distill makes the method under test the teacher; omit training.method, or",
        ),
        (
            PixelPrototypes,
            {"compile": True},
            "compile works only where the backbone sees each image once",
        ),
        (Prototypes, {"n_way": 7}, "training episodes"),
    ],
)
def test_impossible_stages_are_told_before_anything_is_trained(
    splits: tuple[Split, Split],
    method: Callable[[], FewShotMethod],
    options: dict[str, Any],
    message: str,
) -> None:
    with pytest.raises((OptionError, InfeasibleTask), match=message):
        check_stages([Stage(**options)], method(), (3, 2), splits[0].pool, Registry())


def test_a_backbone_held_by_a_method_in_a_method_is_found(
    tmp_path: Path, splits: tuple[Split, Split]
) -> None:
    def model(method: Any, seed: int) -> FewShotModel:
        return build_model(component(TinyBackbone), method, 16, 6, seed)

    inner = component(MAML, n_way=3, train_steps=1, test_steps=1)
    source, held = model(component(Prototypes), 0), model(component(FT, base=inner), 1)
    names = {n for n in held.state_dict() if n.startswith("method.base.backbone.")}
    assert len(names) == len(source.extractor.state_dict())
    save_file(source.state_dict(), tmp_path / "weights.safetensors")
    start_from(held, tmp_path / "weights.safetensors", ["backbone"])
    for name, value in source.extractor.state_dict().items():
        assert torch.equal(held.extractor.state_dict()[name], value), name
    other = model(component(Prototypes), 2)
    save_file(held.state_dict(), tmp_path / "held.safetensors")
    start_from(other, tmp_path / "held.safetensors", ["backbone"])
    assert all(
        torch.equal(value, source.extractor.state_dict()[name])
        for name, value in other.extractor.state_dict().items()
    )
    before = {k: v.clone() for k, v in held.extractor.state_dict().items()}
    stage = Stage(epochs=1, steps=2, validation_tasks=0, n_query=2, freeze=("backbone",))
    train(held, training_of([stage], splits), tmp_path / "frozen", Counting())
    after = held.extractor.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
