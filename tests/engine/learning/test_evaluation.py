"""Evaluation: each image embedded once, the same answers however the work is cut."""

from __future__ import annotations

import builtins
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fsframework as fsf
from fsframework.errors import DataError, PluginError
from fsframework.interfaces import Backbone, FewShotMethod
from fsframework.values import Outcomes
from tests.toys import (
    Blobs,
    Counting,
    Killed,
    PixelPrototypes,
    Prototypes,
    Still,
    TinyBackbone,
    run,
)

MODULE = "fsframework.engine.learning.evaluation."
EACH = {"method": Still}
"""A method on features, with nothing to train."""


@pytest.fixture(scope="module")
def arms() -> fsf.Arms:
    pool = fsf.pool(Blobs(), progress=False)
    return fsf.draw("random", pool, tasks=40, way=3, shot=2, queries=5)


def evaluated(
    method: type[FewShotMethod],
    arms: fsf.Arms,
    backbone: type[Backbone] = TinyBackbone,
    **more: Any,
) -> Outcomes:
    model = fsf.model(method, backbone=backbone, image_size=16, device="cpu")
    return fsf.evaluate(model, arms, Blobs(), progress=False, **more)["random"]


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One task a batch, and progress that is saved after each."""
    monkeypatch.setattr(f"{MODULE}_BYTES_A_BATCH", {"cpu": 1})
    monkeypatch.setattr(f"{MODULE}_SECONDS_BETWEEN_SAVES", -1.0)


class Doubled(Prototypes):
    """Scores in another precision."""

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        return super().scores(support, query).double()


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("method", [Prototypes, Doubled, PixelPrototypes])
def test_predictions_are_those_of_a_plain_loop(arms: fsf.Arms, method: type) -> None:
    model, data, tasks = (
        fsf.model(Prototypes, backbone=TinyBackbone, image_size=16),
        Blobs(),
        arms.tested,
    )
    vectors = model.embed(data.images(data.split_indices("test"), 16))
    found = evaluated(method, arms)
    for t in range(0, len(tasks), 7):
        prototypes = vectors[tasks.support[t]].mean(axis=1)
        distances = np.square(vectors[tasks.query[t]][:, :, None] - prototypes).sum(axis=3)
        np.testing.assert_array_equal(found.predictions[t], distances.argmin(axis=2))
    assert found.task_accuracy.mean() > 0.5


def test_every_image_is_decoded_and_embedded_once() -> None:
    first, again = Counting(), Counting()
    one = run(None, first, **EACH)
    assert first.units == {"test images": 60, "features": 60, "random tasks": 40}
    other = run(None, again, **EACH, task_seed=1)
    assert again.units == {"random tasks": 40}
    assert one.tasks["random"].digest != other.tasks["random"].digest


class Turned(PixelPrototypes):
    """Embeds an image as the mean of its vector and that of the image upside down."""

    def embed(self, items: Tensor) -> Tensor:
        return (self.backbone.encode(items) + self.backbone.encode(items.flip(-2))) / 2

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        return -torch.cdist(query, support.mean(dim=2))


def test_a_method_may_embed_several_views_of_each_image_once() -> None:
    counted = Counting()
    found = run(None, counted, method=Turned, training={"epochs": 0})
    assert counted.units["features"] == 60
    few = {"random": found.tasks["random"][:4]}
    again = evaluated(Turned, fsf.Arms(few))
    np.testing.assert_array_equal(again.predictions, found.outcomes["random"].predictions[:4])


class Varying(TinyBackbone):
    """Its weights follow what no identity knows of."""

    def __init__(self) -> None:
        super().__init__()
        if "toy_factor" in vars(builtins):
            self.body[0].weight.data.neg_()


@pytest.mark.one_in(3)
@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("change", ["none", "other weights", "damage"])
def test_a_killed_evaluation_goes_on_unless_what_is_kept_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    given = {"training": {"epochs": 0}, "backbone": Varying}
    whole = run(tmp_path / "whole", **given)
    if change == "other weights":
        monkeypatch.setattr(builtins, "toy_factor", -1, raising=False)
    with pytest.raises(Killed):
        run(None, Counting("random tasks", 25), **given)
    monkeypatch.delattr(builtins, "toy_factor", raising=False)
    [partial] = tmp_path.glob("runs/*/partial-random.safetensors")
    if change == "damage":
        partial.write_bytes(partial.read_bytes()[:-3] + b"\1\1\1")
    rest = Counting()
    resumed = run(None, rest, **given)
    assert rest.units["random tasks"] == (15 if change == "none" else 40)
    assert any("damaged" in line for line in rest.said) == (change == "damage")
    assert resumed.outcomes["random"].digest == whole.outcomes["random"].digest
    assert not partial.exists()


class Guessing(Prototypes):
    """Draws its scores."""

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        return torch.rand(*query.shape[:2], support.shape[1])


class Unequal(Prototypes):
    """Draws for all tasks twice; how much it draws depends on chance."""

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        shape = (*query.shape[:2], support.shape[1])
        return torch.from_numpy(np.random.gamma(0.5, size=shape) + np.random.gamma(0.5, size=shape))  # noqa: NPY002


class Rarely(Prototypes):
    """Draws for some tasks only, with Python's generator."""

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        found = super().scores(support, query)
        for task in torch.nonzero(query.sum(dim=(1, 2)) > query.sum(dim=(1, 2)).mean()):
            found[task] *= random.choice([-1, 1])
        return found


class Unseen(Prototypes):
    """Draws exactly as much as NumPy's generator makes at once."""

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        drawn = torch.from_numpy(np.random.rand(312))  # noqa: NPY002
        shape = (*query.shape[:2], support.shape[1])
        return drawn[torch.arange(math.prod(shape)) % 312].reshape(shape)


DRAWING = [Guessing, Unequal, Rarely, Unseen]


@pytest.fixture(scope="module")
def many() -> fsf.Arms:
    pool = fsf.pool(Blobs(), progress=False)
    return fsf.draw("random", pool, tasks=1025, way=2, shot=1, queries=2)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", ["task", "class"])
@pytest.mark.parametrize("method", DRAWING)
def test_what_is_drawn_for_a_task_depends_on_no_other(
    many: fsf.Arms, method: type[FewShotMethod], how: Any
) -> None:
    tasks = many["random"]
    whole = evaluated(method, many, query_batch=how).predictions
    for count in (1, 7, 600):
        torch.rand(count)
        few = evaluated(method, fsf.Arms({"random": tasks[:count]}), query_batch=how)
        assert np.array_equal(few.predictions, whole[:count])


@pytest.mark.parametrize("method", DRAWING)
def test_a_killed_evaluation_draws_the_same_when_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: type[FewShotMethod]
) -> None:
    monkeypatch.setattr(f"{MODULE}ModelClassifier.tasks_at_once", lambda *_: 16)
    monkeypatch.setattr(f"{MODULE}_SECONDS_BETWEEN_SAVES", -1.0)
    given = {"training": {"epochs": 0}, "method": method}
    whole = run(tmp_path / "whole", **given)
    with pytest.raises(Killed):
        run(None, Counting("random tasks", 25), **given)
    rest = Counting()
    assert run(None, rest, **given).outcomes["random"].digest == whole.outcomes["random"].digest
    assert rest.units["random tasks"] == 24


class FirstPlaces(Prototypes):
    """Would be right if the queries came in the order of their ways."""

    transductive = True

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        way = support.shape[1]
        places = torch.arange(query.shape[1]) * way // query.shape[1]
        return nn.functional.one_hot(places, way).float().expand(len(query), -1, -1)


def test_a_query_cannot_be_told_by_its_place(arms: fsf.Arms) -> None:
    assert evaluated(FirstPlaces, arms).task_accuracy.mean() < 0.7


class Counted(Still):
    """Answers otherwise in each call, without a generator or a buffer."""

    calls = 0

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        self.calls += 1
        return super().scores(support, query).roll(self.calls, dims=2)


class Undeclared(Still):
    """Ranks the queries it sees, and does not say so."""

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        return super().scores(support, query).cumsum(dim=1)


@pytest.mark.parametrize(
    ("method", "found"), [(Counted, "asked again"), (Undeclared, "in another order")]
)
def test_answers_that_follow_from_more_than_the_task_are_refused(
    arms: fsf.Arms, method: type[FewShotMethod], found: str
) -> None:
    with pytest.raises(PluginError, match=f"scores .* {found}"):
        evaluated(method, arms)


class Tied(Still):
    """Has one score for all classes of some queries."""

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        return super().scores(support, query) * (query[:, :, :1] > query[:, :, 1:2])


@pytest.mark.usefixtures("small_batches")
def test_many_ties_are_noted_in_the_record_even_of_a_resumed_run(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", method=Tied)
    [note] = whole.outcomes["random"].notes
    assert "tied" in note
    assert f"random tasks: {note}" in whole.record.notes
    with pytest.raises(Killed):
        run(None, Counting("random tasks", 25), method=Tied)
    assert run(None, method=Tied).outcomes["random"].notes == (note,)
    assert run(tmp_path / "still", method=Still).outcomes["random"].notes == ()


class Centred(Still):
    """Centres the queries it sees on their own mean, as BatchNorm in training mode does."""

    transductive = True

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        support = support - support.mean(dim=(1, 2), keepdim=True)
        return super().scores(support, query - query.mean(dim=1, keepdim=True))


@pytest.mark.parametrize("method", [Still, Centred])
def test_queries_shown_by_class_change_only_what_leans_on_the_batch(method: type) -> None:
    together, apart = (run(method=method, query_batch=how) for how in ("task", "class"))
    assert together.folder != apart.folder
    for found, how in ((together, "task"), (apart, "class")):
        assert found.outcomes["random"].query_batch == how
        assert found.estimates["acc-random"].query_batch == how
    accuracy = [found.outcomes["random"].task_accuracy.mean() for found in (together, apart)]
    if method is Still:
        answers = [found.outcomes["random"].predictions for found in (together, apart)]
        assert np.array_equal(*answers)
    else:  # centred on its own mean, a class lies in the middle and can no longer be told
        assert accuracy[0] > 0.8
        assert accuracy[1] < 0.5


class Drifting(Prototypes):
    """Without a guard, its scores would depend on how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()), persistent=False)
        self.norm = nn.BatchNorm1d(8)

    def drift(self, query: Tensor) -> None:
        """Count the calls in a buffer."""
        with torch.no_grad():
            self.calls.add_(1)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        self.drift(query)
        noise = torch.cos(query.sum(dim=2, keepdim=True) * 100 * self.calls)
        shift = torch.arange(support.shape[1]) * noise * self.scale
        running = self.norm.running_mean
        assert running is not None
        return super().scores(support, query) * 0.01 + shift + running.sum()


class Replacing(Drifting):
    """Puts another tensor in the place of a buffer."""

    def drift(self, query: Tensor) -> None:
        self.calls = self.calls + 1


class Moving(Drifting):
    """Gives a parameter other memory."""

    def drift(self, query: Tensor) -> None:
        self.scale.data = self.scale.data * 1.5


class Training(Drifting):
    """Switches to training mode, in which BatchNorm changes its statistics."""

    def drift(self, query: Tensor) -> None:
        self.train()
        self.norm(query.flatten(0, 1))


@pytest.mark.parametrize(
    ("method", "part"),
    [(Prototypes, ""), (Drifting, "calls"), (Replacing, "calls"), (Moving, "scale"),
     (Training, "norm.running_mean")],
)  # fmt: skip
def test_a_method_that_changes_itself_is_restored_and_named(
    arms: fsf.Arms, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    method: type[FewShotMethod], part: str,
) -> None:  # fmt: skip
    model = fsf.model(method, backbone=TinyBackbone, image_size=16, device="cpu")
    network = model.network.eval()
    before = {
        k: v.detach().clone() for k, v in (*network.named_buffers(), *network.named_parameters())
    }
    digests = set()
    for at_once in (1, 3, 40):
        monkeypatch.setattr(f"{MODULE}ModelClassifier.tasks_at_once", lambda *_, n=at_once: n)
        digests.add(fsf.evaluate(model, arms, Blobs())["random"].digest)
        after = dict((*network.named_buffers(), *network.named_parameters()))
        assert all(torch.equal(value, before[name]) for name, value in after.items())
        assert not network.method.training
    assert len(digests) == 1 or method is Training  # whose statistics depend on the batch
    notes = [line for line in capsys.readouterr().err.splitlines() if "changes its weights" in line]
    assert len(notes) == (3 if part else 0)
    assert all(
        f"'{method.__name__.lower()}'" in line.lower() and f"({part}" in line for line in notes
    )


class Losing(Backbone):
    """Loses an image."""

    def forward(self, images: Tensor) -> Tensor:
        return images[1:]


class NotFinite(Prototypes):
    """Embeds into nothing."""

    def embed(self, items: Tensor) -> Tensor:
        return items / 0


@pytest.mark.parametrize(
    ("backbone", "method", "message"),
    [
        (Losing, Prototypes, r"backbone 'Losing': encode returned float32 of shape \(15, 3\)"),
        (TinyBackbone, NotFinite, "method 'not-finite': embed returned .* not finite"),
    ],
)
def test_what_is_embedded_is_checked(
    arms: fsf.Arms, backbone: type[Backbone], method: type[FewShotMethod], message: str
) -> None:
    with pytest.raises(PluginError, match=f"(?i){message}"):
        evaluated(method, arms, backbone)


class Greedy(TinyBackbone):
    """Finds no memory for more than a few images."""

    most = 3

    def forward(self, images: Tensor) -> Tensor:
        if len(images) > self.most:
            raise torch.OutOfMemoryError("out of memory")
        return super().forward(images)


def test_batches_halve_where_the_memory_is_short(
    arms: fsf.Arms, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert evaluated(Prototypes, arms, Greedy).digest == evaluated(Prototypes, arms).digest
    model = fsf.model(Prototypes, backbone=Greedy, image_size=16, device="cpu")
    monkeypatch.setattr(Greedy, "most", 0)
    with pytest.raises(DataError, match="one image of 16 x 16 pixels"):
        fsf.evaluate(model, arms, Blobs(), progress=False)


@pytest.mark.parametrize("method", [Still, PixelPrototypes])
def test_lower_precision_gives_nearly_the_same_answers(method: type) -> None:
    counted = Counting()
    exact, short = (
        run(None, counted, method=method, precision=how, training={"epochs": 0})
        for how in ("fp32", "bf16")
    )
    assert counted.units.get("features", 120) == 120, "another precision is another cache"
    agree = exact.outcomes["random"].predictions == short.outcomes["random"].predictions
    assert agree.mean() > 0.97
