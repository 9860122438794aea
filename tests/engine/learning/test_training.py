"""Training: learns, resumes to the same weights, keeps the best epoch, says what is wrong."""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor, nn

import fsframework as fsf
from fsf_methods.cross_domain import FT
from fsf_methods.gradient import MAML
from fsframework.errors import DataError, FsfError, OptionError, PluginError
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
    equal,
    run,
    weights,
)

SHORT = {"epochs": 3, "steps": 4, "validation_tasks": 10, "n_query": 4}
ONCE = {"epochs": 1, "steps": 4, "validation_tasks": 0, "n_query": 4}
CHECKPOINTS = "fsframework.engine.learning.training._SECONDS_BETWEEN_CHECKPOINTS"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> fsf.Run:
    """A run whose weights other runs start from."""
    return run(tmp_path_factory.mktemp("first"), training=SHORT)


def untrained(**options: Any) -> dict[str, Tensor]:
    """Return the weights that a run starts with."""
    return weights(run(training={"epochs": 0}, **options))


RESUMED: dict[str, tuple[type[FewShotMethod], list[dict[str, Any]]]] = {
    "two stages": (
        Prototypes,
        [{**SHORT, "epochs": 2}, {**ONCE, "validation_tasks": 10, "freeze": ["backbone"]}],
    ),
    "plateau": (
        Prototypes,
        [{**SHORT, "schedule": "plateau", "step_epochs": 1, "patience": 3, "learning_rate": 0.3}],
    ),
    "teacher": (Classifier, [ONCE, {**ONCE, "epochs": 2, "distill": True}]),
    "another method first": (
        Still,
        [{**SHORT, "method": "baseline", "augment": ["resized-crop", "color-jitter", "flip"]}],
    ),
    "half precision, clipped": (
        Prototypes, [{**SHORT, "precision": "fp16", "clip_norm": 1.0, "optimizer": "sgd"}],
    ),
}  # fmt: skip


@pytest.mark.one_in(5)
@pytest.mark.parametrize("between", [0.0, 60.0], ids=["each step", "each epoch"])
@pytest.mark.parametrize("name", RESUMED)
def test_killed_and_resumed_it_ends_in_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, between: float
) -> None:
    monkeypatch.setattr(CHECKPOINTS, between)
    method, training = RESUMED[name]
    given: dict[str, Any] = {"method": method, "training": training}
    whole = run(tmp_path / "whole", **given)
    for after in (1, 6, 10):
        killed, rest = tmp_path / f"killed-{after}", Counting()
        with pytest.raises(Killed):
            run(killed, Counting("training", after), **given)
        resumed = run(killed, rest, **given)
        assert equal(weights(whole), weights(resumed))
        rows = [
            [replace(row, seconds=0) for row in r.record.training.history] for r in (whole, resumed)
        ]
        assert rows[0] == rows[1]
        # The step at which it was killed had been done, but not yet written down.
        assert rest.units["training"] == (12 - after if not between else 12 - after // 4 * 4)
        assert not list(killed.rglob("checkpoint.safetensors"))


def test_training_lowers_the_loss_and_the_seed_decides_all(tmp_path: Path) -> None:
    training = {**SHORT, "epochs": 6, "steps": 10, "learning_rate": 0.01}
    one = run(tmp_path / "a", training=training)
    history = one.record.training.history
    assert history[-1].loss < history[0].loss
    torch.manual_seed(99)  # the global state must not matter
    assert equal(weights(one), weights(run(tmp_path / "b", training=training)))
    assert not equal(weights(one), weights(run(tmp_path / "c", training=training, seed=1)))


@pytest.mark.parametrize(
    "training",
    [
        {**ONCE, "method": Prototypes},
        [{**ONCE, "method": Prototypes}],
        [{**ONCE, "method": {"name": Prototypes()}}],
    ],
)
def test_a_class_may_train_in_a_stage(training: Any) -> None:
    found = run(method=Still, training=training)
    assert found.options[0]["training"][0]["method"] == {"name": "prototypes"}
    assert equal(weights(found), weights(run(method=Still, training=training, tasks=2)))
    assert not equal(weights(found), untrained(method=Still))


def test_the_history_is_a_table_and_what_tensorboard_reads() -> None:
    found = run(training=[ONCE, {**SHORT, "epochs": 2}], tensorboard=True)
    with (found.folder / "curve.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    history = found.record.training.history
    assert [(r["stage"], r["epoch"]) for r in rows] == [("1", "1"), ("2", "1"), ("2", "2")]
    assert [float(r["loss"]) for r in rows] == [epoch.loss for epoch in history]
    assert [r["validation_accuracy"] != "" for r in rows] == [False, True, True]
    scalars: dict[str, list[tuple[int, float]]] = {}
    for events in sorted((found.folder / "tensorboard").iterdir()):
        read = EventAccumulator(str(events))
        read.Reload()
        for tag in read.Tags()["scalars"]:
            scalars.setdefault(tag, []).extend((e.step, e.value) for e in read.Scalars(tag))
    losses = [(step, pytest.approx(epoch.loss)) for step, epoch in enumerate(history, start=1)]
    assert sorted(scalars["loss"]) == losses
    assert [step for step, _ in sorted(scalars["validation accuracy"])] == [2, 3]
    assert len(scalars["learning rate"]) == 3


def test_the_best_epoch_is_kept(tmp_path: Path) -> None:
    # A rate that ruins the model from the second epoch on: the first must come back.
    stage = {"steps": 3, "validation_tasks": 20, "n_query": 4, "learning_rate": 1e-3}
    ruin = {**stage, "epochs": 3, "schedule": "multi-step", "milestones": [1], "gamma": 1e4}
    ruined = run(training=ruin)
    accuracies = [row.validation_accuracy for row in ruined.record.training.history]
    assert ruined.record.training.best_validation_accuracy == max(accuracies) == accuracies[0]
    only = run(training={**stage, "epochs": 1, "schedule": "constant"})
    assert equal(weights(ruined), weights(only))


def test_frozen_parts_stay() -> None:
    frozen = run(training={**ONCE, "freeze": ["backbone"]})
    before, after = untrained(), weights(frozen)
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert changed == {"method.scale"}
    assert frozen.record.training.best_validation_accuracy is None
    assert any("no validation" in note for note in frozen.record.notes)


def test_a_stage_may_start_from_other_weights(first: fsf.Run, tmp_path: Path) -> None:
    source = first.folder
    again = run(training={**ONCE, "steps": 1, "learning_rate": 1e-12, "init_from": source}, seed=5)
    assert (weights(first)["method.scale"] - weights(again)["method.scale"]).abs() < 1e-6
    as_it_is = run(training={"epochs": 0, "init_from": source}, seed=5)
    assert equal(weights(first), weights(as_it_is))
    part = {"epochs": 0, "init_from": source, "init_parts": ["backbone"]}
    mixed, other = weights(run(training=part, seed=5)), untrained(seed=5)
    assert {n for n, v in mixed.items() if not torch.equal(v, other[n])} <= {
        name for name, value in weights(first).items()
        if name.startswith("backbone.") and torch.equal(value, mixed[name])
    }  # fmt: skip
    assert not equal(mixed, other)
    with pytest.raises(DataError, match="absent.safetensors"):
        run(training={**ONCE, "init_from": tmp_path / "absent.safetensors"})
    with pytest.raises(DataError, match="training.init_parts bakcbone: .* it has backbone, method"):
        run(training={**part, "init_parts": ["bakcbone"]})


def test_a_stage_may_start_from_a_backbone_of_another_program(
    first: fsf.Run, tmp_path: Path
) -> None:
    own = {k: v for k, v in weights(first).items() if k.startswith("backbone.")}
    theirs = {k.replace("backbone.", "module.feature."): v for k, v in own.items()}
    file = tmp_path / "checkpoint.pth"
    start = {"epochs": 0, "init_from": file}
    torch.save({"epoch": 3, "state": {**theirs, "fc.bias": torch.ones(3)}}, file)
    found = weights(run(training=start, seed=5))
    assert all(torch.equal(found[name], value) for name, value in own.items())
    theirs.pop("module.feature.body.0.bias")
    torch.save({"state": theirs}, file)
    with pytest.raises(DataError, match=r"checkpoint.pth: does not fit: state: it lacks "):
        run(training=start, seed=5)


def test_a_backbone_is_found_also_where_a_method_holds_it_however_deep(first: fsf.Run) -> None:
    given = {k: v for k, v in weights(first).items() if k.startswith("backbone.")}
    maml = {"name": MAML, "n_way": 3, "train_steps": 1, "test_steps": 1}
    deep = {"name": FT, "base": maml}
    taken = {"epochs": 0, "init_from": first.folder, "init_parts": ["backbone"]}
    holders = [(run(method=PixelPrototypes, training=taken, seed=5), "method.")]
    held = run(method=deep, training=taken, seed=1)
    holders.append((held, "method.base."))
    frozen = {**ONCE, "steps": 2, "freeze": ["backbone"]}
    holders.append((run(method=deep, training={**taken, **frozen}, seed=1), "method.base."))
    back = run(training={**taken, "init_from": held.folder}, seed=2)
    for found, holder in [*holders, (back, "")]:
        own = weights(found)
        assert all(torch.equal(own[holder + name], value) for name, value in given.items())


def test_batches_reach_a_method_that_asks_for_them() -> None:
    seen: list[Batch] = []

    class Both(Prototypes):
        """Looks at what it is shown."""

        learns_from = "both"

        def loss(self, batch: Batch) -> Tensor:
            seen.append(batch)
            return super().loss(batch)

    run(method=Both, training={**ONCE, "steps": 1, "tasks_per_step": 2, "batch_size": 7})
    [batch] = seen
    assert batch.support.shape == (2, 3, 2, 8)
    assert batch.query.shape == (2, 12, 8)
    assert batch.query_labels.tolist() == [[0] * 4 + [1] * 4 + [2] * 4] * 2
    assert batch.items.shape == (7, 8)
    # Every image of a way is of one base class, and the queries' classes are the support's.
    assert (batch.support_classes == batch.support_classes[:, :, :1]).all()
    by_way = batch.support_classes[:, :, 0].repeat_interleave(4, dim=1)
    assert torch.equal(batch.query_classes, by_way)


class Idle(Prototypes):
    """Has no gradient, so that its weights only decay."""

    def loss(self, batch: Batch) -> Tensor:
        return 0 * super().loss(batch)


def test_an_optimiser_gets_the_options_of_the_stage_and_decays_what_it_should() -> None:
    stage = {**ONCE, "learning_rate": 0.1, "weight_decay": 1.0, "momentum": 0.5}
    before = untrained(method=Idle)
    # In SGD with Nesterov's momentum, a weight w decays with g = w: v = 0.5 v + w, then
    # w - 0.1 (w + 0.5 v). That is v = w and 0.85 w after a step, 1.35 w and 0.6975 w after two.
    stage = {**stage, "steps": 2, "optimizer": "torch.optim.sgd:SGD", "schedule": "constant"}
    for decayed, kept in (("all", 0.6975), ("matrices", 1.0)):
        after = weights(run(method=Idle, training={**stage, "decayed": decayed}))
        for name, share in (("backbone.body.0.weight", 0.6975), ("backbone.body.1.weight", kept)):
            torch.testing.assert_close(after[name], share * before[name])


def test_schedules_worked_by_hand() -> None:
    schedules: dict[str, tuple[dict[str, Any], list[float]]] = {
        "constant": ({}, [1, 1, 1, 1]),
        "cosine": ({}, [1.0, 0.8536, 0.5, 0.1464]),
        "step": ({"step_epochs": 2, "gamma": 0.5}, [1, 1, 0.5, 0.5]),
        "multi-step": ({"milestones": [1, 3], "gamma": 0.1}, [1, 0.1, 0.1, 0.01]),
    }
    stages = [
        {**ONCE, "epochs": 4, "steps": 1, "learning_rate": 1.0, "schedule": name, **more}
        for name, (more, _) in schedules.items()
    ]
    rates = [row.learning_rate for row in run(training=stages).record.training.history]
    expected = [rate for _, found in schedules.values() for rate in found]
    assert rates == pytest.approx(expected, abs=1e-4)


def test_the_backbone_may_be_trained_by_another_method() -> None:
    stage = {**SHORT, "epochs": 2, "method": "baseline"}
    found = run(method=PixelPrototypes, training=stage)
    before, after = untrained(method=PixelPrototypes), weights(found)
    assert after.keys() == before.keys()
    assert not equal(before, after)
    training = found.record.training
    assert training.history[1].loss < training.history[0].loss
    assert training.best_validation_accuracy is not None


def test_what_another_method_trains_is_shared_by_methods_that_add_nothing(tmp_path: Path) -> None:
    stage = {**ONCE, "method": "baseline"}

    def trainings(method: Any, *stages: dict[str, Any]) -> int:
        run(tmp_path, method=method, training=list(stages))
        return len([*tmp_path.glob("cache/training/*/weights.safetensors")])

    assert trainings("ncc", stage) == trainings("knn", stage) == 1
    assert trainings(PixelPrototypes, stage) == 2  # holds the backbone itself


HEARD: list[Batch] = []


class Hearing(Classifier):
    """Keeps its batches, which are of images."""

    trains_on_images = True

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        super().build(item_shape, n_base_classes, backbone)
        self.backbone = backbone

    def loss(self, batch: Batch) -> Tensor:
        HEARD.append(batch)
        return super().loss(replace(batch, items=self.backbone.encode(batch.items)))


TEACHERS = """
from fsframework.interfaces import Preprocessing
from tests.toys import Classifier, TinyBackbone

class Teacher(Classifier):
    "Knows the classes."

class Shifted(TinyBackbone):
    "Expects images that are normalised otherwise."
    preprocessing = Preprocessing(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
"""
USUAL = Preprocessing()


def class_logits(found: fsf.Run, images: Tensor, expects: Preprocessing = USUAL) -> Tensor:
    """Return the class logits of images, values 0..1, from the weights of a run."""
    state, backbone = weights(found), TinyBackbone().eval()
    own = {k.removeprefix("backbone."): v for k, v in state.items() if k.startswith("backbone.")}
    backbone.load_state_dict(own)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (expects.mean, expects.std))
    with torch.no_grad():
        items = backbone.encode((images - mean) / std)
        return items @ state["method.classify.weight"].mT + state["method.classify.bias"]


class FewerClasses(Blobs):
    """Of the same images, with fewer classes to learn from."""

    def __init__(self) -> None:
        super().__init__()
        self.splits = {**self.splits, "train": self.class_names[:4]}


def test_a_run_with_another_backbone_teaches_and_the_student_keeps_its_weights(
    tmp_path: Path,
) -> None:
    plugin = tmp_path / "teachers.py"
    plugin.write_text(TEACHERS)
    HEARD.clear()
    one = {**ONCE, "steps": 1, "learning_rate": 1e-12}
    given: dict[str, Any] = {"plugins": [plugin], "method": "teacher", "training": one, "seed": 5}
    teacher = run(backbone="shifted", **given)
    student = run(plugins=[plugin], method=Hearing, training={**one, "teacher": teacher.folder})
    [batch] = HEARD
    before, after = weights(run(method=Hearing, training=one)), weights(student)
    learnt = [name for name in before if name.endswith(("weight", "bias"))]
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in learnt)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (USUAL.mean, USUAL.std))
    shifted = Preprocessing(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    expected = class_logits(teacher, batch.items * std + mean, shifted)
    torch.testing.assert_close(batch.teacher_logits, expected, rtol=1e-4, atol=1e-5)
    # Of other data, it may know another number of classes.
    ignorant = run(backbone="shifted", dataset=FewerClasses, **given)
    with pytest.raises(OptionError, match="knows 4 classes, but the split 'train' has 6"):
        run(plugins=[plugin], method=Hearing, training={**one, "teacher": ignorant.folder})


def test_a_student_starts_anew_and_learns_what_the_teacher_says() -> None:
    stage = {**ONCE, "epochs": 2, "steps": 10}
    idle = {**ONCE, "steps": 1, "distill": True, "learning_rate": 1e-12}
    more = {**stage, "steps": 30, "distill": True, "learning_rate": 0.01}
    data = Blobs()
    images = torch.from_numpy(data.images(data.split_indices("train")[::7], 16))
    teacher, student, learned = (
        run(method=Classifier, training=stages)
        for stages in ([stage], [stage, idle], [stage, more])
    )
    expected, start, end = (
        class_logits(one, images.permute(0, 3, 1, 2) / 255) for one in (teacher, student, learned)
    )
    far, near = (start - expected).square().mean(), (end - expected).square().mean()
    assert far > 0.1
    assert near < far / 3
    history = learned.record.training.history
    assert history[-1].loss < history[2].loss


def test_training_stops_when_validation_no_longer_rises() -> None:
    flat = {**SHORT, "epochs": 9, "steps": 2, "validation_tasks": 5, "patience": 3}
    reporter = Counting()
    found = run(None, reporter, training={**flat, "learning_rate": 1e-12, "schedule": "constant"})
    # BatchNorm's statistics still move, so that the best epoch need not be the first.
    accuracies = [row.validation_accuracy for row in found.record.training.history]
    assert len(accuracies) == accuracies.index(max(accuracies)) + 4 < 9
    assert any("had not improved for 3 epochs" in note for note in found.record.notes)
    assert reporter.units["training"] == 18


def test_the_rate_falls_where_validation_no_longer_rises_also_after_an_interruption() -> None:
    stage = {**SHORT, "epochs": 9, "steps": 2, "validation_tasks": 5, "learning_rate": 1e-12}
    plateau = {"schedule": "plateau", "step_epochs": 2, "gamma": 0.5}
    rows = run(training={**stage, **plateau}).record.training.history
    expected, best, waited, rate = [], -1.0, 0, 1e-12
    for row in rows:
        expected.append(rate)
        waited = 0 if row.validation_accuracy > best else waited + 1
        best = max(best, row.validation_accuracy)
        if waited == 2:
            rate, waited = rate / 2, 0
    assert [row.learning_rate for row in rows] == pytest.approx(expected)
    assert rate <= 0.5e-12
    unknown = run(training={**stage, **plateau, "validation_tasks": 0, "patience": 1})
    assert [row.learning_rate for row in unknown.record.training.history] == [1e-12] * 9


class Modes(Prototypes):
    """Notes its mode whenever the backbone is trained, and the tasks that it scores."""

    modes: list[bool] = []  # noqa: RUF012
    scored: set[tuple[int, ...]] = set()  # noqa: RUF012

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        super().build(item_shape, n_base_classes, backbone)
        backbone.register_forward_hook(self.note)
        self.eval()

    def note(self, backbone: nn.Module, *_: object) -> None:
        if backbone.training:
            self.modes.append(self.training)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        if not self.training:
            self.scored.add((*support.shape[1:3], query.shape[1]))
        return super().scores(support, query)


def test_a_method_is_in_training_mode_in_its_own_stages_and_validated_as_it_is_tested() -> None:
    Modes.modes.clear()
    Modes.scored.clear()
    other = {**ONCE, "method": "baseline"}
    own = {**ONCE, "n_way": 6, "n_shot": 1, "validation_tasks": 10}
    run(method=Modes, training=[other, own, other], queries=5)
    assert Modes.modes == [False] * 4 + [True] * 4 + [False] * 4
    assert Modes.scored == {(3, 2, 3 * 4), (3, 2, 3 * 5)}


class Counted(TinyBackbone):
    """Counts the images that it sees, by its mode."""

    seen = {True: 0, False: 0}  # noqa: RUF012

    def forward(self, images: Tensor) -> Tensor:
        self.seen[self.training] += len(images)
        return super().forward(images)


class OnImages(Prototypes):
    """Learns from images, and is evaluated on what the backbone makes of them."""

    trains_on_images = True

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        super().build(item_shape, n_base_classes, backbone)
        self.backbone = backbone

    def loss(self, batch: Batch) -> Tensor:
        shape = batch.support.shape
        images = torch.cat([batch.support.flatten(0, 2), batch.query.flatten(0, 1)])
        items = self.backbone.encode(images)
        n = shape[:3].numel()
        support = items[:n].reshape(*shape[:3], -1)
        query = items[n:].reshape(*batch.query.shape[:2], -1)
        return super().loss(replace(batch, support=support, query=query))


def test_a_frozen_backbone_sees_each_image_once_unless_the_method_trains_on_images() -> None:
    frozen = {**SHORT, "validation_tasks": 0, "freeze": ["backbone"]}
    once = run(training=frozen, backbone=Counted)
    assert Counted.seen[True] == 0
    assert Counted.seen[False] <= 120 + 60 + 3
    scales = [
        weights(found)["method.scale"] for found in (once, run(method=OnImages, training=frozen))
    ]
    torch.testing.assert_close(*scales)


def test_a_method_may_train_on_images_and_be_evaluated_on_features(first: fsf.Run) -> None:
    found = run(method=OnImages, training=SHORT)
    assert (
        found.record.training.best_validation_accuracy
        == first.record.training.best_validation_accuracy
    )
    own = {k.replace("method.backbone.", "backbone."): v for k, v in weights(found).items()}
    torch.testing.assert_close(own, weights(first))


def test_half_precision_computes_products_in_it_and_keeps_weights_whole() -> None:
    seen = set()

    class Looking(Prototypes):
        """Looks at the items' type."""

        def loss(self, batch: Batch) -> Tensor:
            seen.add(batch.query.dtype)
            return super().loss(batch)

    found = run(method=Looking, training={**ONCE, "precision": "bf16"})
    assert seen == {torch.bfloat16}
    assert all(value.dtype != torch.bfloat16 for value in weights(found).values())
    assert found.record.training.history[0].loss > 0


class Spoilt(torch.autograd.Function):
    """Has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        raise SystemExit(0)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda self, _: self.scale.detach(), "loss of step 1 of epoch 1 returned a constant"),
        (lambda self, _: self.scale.expand(2), r"loss .* returned float32 of shape \(2,\) on cpu"),
        (lambda self, _: 0.5, "loss of step 1 of epoch 1 returned a result of type float"),
        (lambda self, _: 1 / 0, "loss of step 1 of epoch 1 raised ZeroDivisionError"),
        (lambda self, _: Spoilt.apply(self.scale), "the gradient of loss .* SystemExit: 0"),
    ],
)
def test_a_broken_loss_is_named(loss: Any, message: str) -> None:
    loss.__name__ = loss.__qualname__ = "loss"
    loss.__code__ = loss.__code__.replace(co_name="loss", co_qualname="loss")
    method = type("Lossy", (Prototypes,), {"__module__": __name__, "loss": loss})
    with pytest.raises(PluginError, match=f"method 'lossy': {message}"):
        run(method=method, training=ONCE)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (Prototypes, {"method": "knn"}, "KNN does not learn; name the method"),
        (Prototypes, {"distill": True}, "Prototypes learns from episodes without a teacher"),
        (
            partial(Queued, views=Dimmed()),
            {"teacher": Path("a-run")},
            "Queued learns from views without a teacher; distill and teacher need",
        ),
        (
            Classifier,
            {"distill": True, "method": "baseline"},
            "distill makes the method under test the teacher; omit training.method, or",
        ),
        (Classifier, {"distill": True, "teacher": Path("a-run")}, "omit it or training.teacher"),
        (PixelPrototypes, {"compile": True}, "compile works only where the backbone sees each"),
        (Prototypes, {"n_way": 7}, "training episodes"),
        (Prototypes, {"learns_from": "views"}, "Prototypes makes no views of images"),
        (Prototypes, {"freeze": ["bakcbone"]}, "training.freeze bakcbone: no parameter has that"),
        (Prototypes, {"freeze": ["backbone", "method"]}, "leaves nothing to train"),
        (Prototypes, {"learning_rate": 1e30, "optimizer": "sgd"}, "a lower training.learning_rate"),
        (Prototypes, {"optimizer": "lars"}, "'lars' is not in torch.optim"),
        (Prototypes, {"optimizer": "no_such_library:Lars"}, "no_such_library:Lars cannot be"),
        (Prototypes, {"optimizer": "torch.optim:Lars"}, "torch.optim:Lars cannot be imported"),
        (Prototypes, {"optimizer": "torch.nn:Linear"}, "not a subclass of torch.optim.Optimizer"),
    ],
)  # fmt: skip
def test_impossible_stages_are_told(method: Any, options: dict[str, Any], message: str) -> None:
    made = method if isinstance(method, type) else method()
    with pytest.raises(FsfError, match=message):
        run(method=made, training={**ONCE, **options})
