"""Evaluation: each image embedded once, the same answers however the work is cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import fsframework as fsf
from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.engine.cache.images import ImageStore, Pixels, pixels_of
from fsframework.engine.learning import evaluation
from fsframework.engine.learning.evaluation import ImageSource, evaluate, predict
from fsframework.engine.learning.model import FewShotModel, build_model
from fsframework.engine.session import Workspace
from fsframework.errors import PluginError
from fsframework.values import ArmOutcomes, Arms, Outcomes, QueryBatch, TaskSet
from tests.toys import (
    Blobs,
    Counting,
    Killed,
    PixelPrototypes,
    Prototypes,
    TinyBackbone,
    component,
)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "runs", tmp_path / "cache")


@pytest.fixture(scope="module")
def tasks() -> TaskSet:
    options = {"name": "random", "n_way": 3, "n_shot": 2, "n_query": 5}
    sampler = resolve_component(Registry(), "sampler", options).create()
    drawn: TaskSet = sampler.draw(Blobs().pool("test"), 40, 0)
    return drawn


def images(
    workspace: Workspace, reporter: Counting | None = None, data: Blobs | None = None
) -> Pixels:
    data = data or Blobs()
    store = ImageStore(data, "blobs", 16, "bilinear", "exact", workspace)
    return pixels_of(store, data, "test", reporter or Counting())


def model(method: type = Prototypes) -> FewShotModel:
    return build_model(component(TinyBackbone), component(method), 16, 0, 0)


def test_scores_become_predictions(workspace: Workspace, tasks: TaskSet) -> None:
    """The pipeline's predictions equal those of a plain loop over tasks and images."""
    net = model().eval()
    source = ImageSource.cached(net, images(workspace), workspace, Counting())
    predicted = predict(net, tasks, source)
    pixels = torch.from_numpy(images(workspace)[:])
    with torch.no_grad():
        vectors = net.items(pixels)
    for t in range(0, len(tasks), 7):
        prototypes = torch.stack([vectors[torch.tensor(s)].mean(0) for s in tasks.support[t]])
        for way in range(tasks.n_way):
            for place, image in enumerate(tasks.query[t, way]):
                nearest = (prototypes - vectors[int(image)]).square().sum(1).argmin()
                assert predicted[t, way, place] == nearest
    assert (predicted == np.arange(3)[None, :, None]).mean() > 0.5


def test_every_image_is_decoded_and_embedded_once(workspace: Workspace, tasks: TaskSet) -> None:
    data, reporter = Blobs(), Counting()
    stored = images(workspace, reporter, data)
    assert data.decoded == 60
    ImageSource.cached(model(), stored, workspace, reporter)
    assert reporter.units == {"images of test": 60, "features": 60}
    again = Counting()
    ImageSource.cached(model(), images(workspace, again, data), workspace, again)
    assert again.units == {}, "a second run redoes nothing"
    assert data.decoded == 60


def test_a_method_that_sees_pixels_agrees_with_one_on_features(
    workspace: Workspace, tasks: TaskSet
) -> None:
    on_features, on_pixels = model(), model(PixelPrototypes)
    state = {
        k.replace("backbone.", "method.backbone."): v for k, v in on_features.state_dict().items()
    }
    on_pixels.load_state_dict(state, strict=False)
    stored = images(workspace)
    first = predict(
        on_features, tasks, ImageSource.cached(on_features, stored, workspace, Counting())
    )
    second = predict(on_pixels, tasks, ImageSource.cached(on_pixels, stored, workspace, Counting()))
    assert (first == second).all()


class Turned(PixelPrototypes):
    """Embeds an image as the mean of its vector and that of the image upside down."""

    embeds_images = True

    def embed(self, items: torch.Tensor) -> torch.Tensor:
        return (self.backbone.encode(items) + self.backbone.encode(items.flip(-2))) / 2

    def scores(self, support: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        return -torch.cdist(query, support.mean(dim=2))


def test_a_method_may_embed_several_views_of_each_image_once(
    workspace: Workspace, tasks: TaskSet
) -> None:
    net, stored, reporter = model(Turned).eval(), images(workspace), Counting()
    source = ImageSource.cached(net, stored, workspace, reporter)
    assert reporter.units == {"features": 60}
    with torch.no_grad():
        shown = net.images(torch.from_numpy(stored[:]))
        both = torch.stack([net.extractor.encode(shown), net.extractor.encode(shown.flip(-2))])
    assert source.items is not None
    torch.testing.assert_close(source.items, both.mean(dim=0))
    few = ImageSource.computed(net, stored, tasks[:4])
    assert few.items is not None
    assert (predict(net, tasks[:4], few) == predict(net, tasks[:4], source)).all()
    again = Counting()
    ImageSource.cached(net, stored, workspace, again)
    assert again.units == {}


def test_the_size_of_a_batch_changes_nothing(
    workspace: Workspace, tasks: TaskSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = model()
    source = ImageSource.cached(net, images(workspace), workspace, Counting())
    together = predict(net, tasks, source)
    monkeypatch.setattr(evaluation, "_BYTES_A_BATCH", {"cpu": 1})
    assert (predict(net, tasks, source) == together).all()


def test_only_the_images_of_the_tasks_are_embedded(tasks: TaskSet, workspace: Workspace) -> None:
    net, stored = model(), images(workspace)
    few = tasks[0:1]
    source = ImageSource.computed(net, stored, few)
    assert len(source.items) == few.n_images
    everything = ImageSource.cached(net, stored, workspace, Counting())
    assert (predict(net, few, source) == predict(net, few, everything)).all()


def test_a_killed_evaluation_goes_on(
    workspace: Workspace, tasks: TaskSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "_BYTES_A_BATCH", {"cpu": 1})
    monkeypatch.setattr(evaluation, "_SECONDS_BETWEEN_SAVES", 0.0)
    net, partial = model(), tmp_path / "partial.safetensors"
    source = ImageSource.cached(net, images(workspace), workspace, Counting())
    with pytest.raises(Killed):
        evaluate(net, tasks, source, label="x", partial=partial, reporter=Counting("x", 25))
    reporter = Counting()
    outcomes = evaluate(net, tasks, source, label="x", partial=partial, reporter=reporter)
    assert 0 < reporter.units["x"] < 20
    assert (outcomes.predictions == predict(net, tasks, source)).all()
    assert not partial.exists()


def test_partial_predictions_of_other_weights_are_not_taken(
    workspace: Workspace, tasks: TaskSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "_BYTES_A_BATCH", {"cpu": 1})
    monkeypatch.setattr(evaluation, "_SECONDS_BETWEEN_SAVES", 0.0)
    net, partial = model(), tmp_path / "partial.safetensors"
    source = ImageSource.cached(net, images(workspace), workspace, Counting())
    with pytest.raises(Killed):
        evaluate(net, tasks, source, label="x", partial=partial, reporter=Counting("x", 25))
    with torch.no_grad():
        net.method.scale.mul_(2)
    reporter = Counting()
    evaluate(net, tasks, source, label="x", partial=partial, reporter=reporter)
    assert reporter.units["x"] == len(tasks)


def test_a_killed_build_of_an_array_goes_on(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsframework.engine.cache import images as module

    monkeypatch.setattr(module, "_IMAGES_A_BLOCK", 8)
    with pytest.raises(Killed):
        images(workspace, Counting("images of test", 20))
    reporter = Counting()
    stored = images(workspace, reporter)
    assert reporter.units["images of test"] == 60 - 24
    data = Blobs()
    expected = data.images(data.split_indices("test"), 16)
    assert (stored[:] == expected).all()


def test_a_cache_that_lost_its_array_is_built_again(workspace: Workspace) -> None:
    images(workspace)
    for array in workspace.cache.rglob("array.npy"):
        array.unlink()
    reporter = Counting()
    assert len(images(workspace, reporter)) == 60
    assert reporter.units == {"images of test": 60}


class NotFinite(Prototypes):
    """Divides by zero."""

    def scores(self, support: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        return super().scores(support, query) * float("nan")


class WrongShape(Prototypes):
    """Forgets a way."""

    def scores(self, support: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        return super().scores(support, query)[..., 1:]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (NotFinite, "scores of tasks 0 to 39 returned float32 .*, 1800 of them not finite"),
        (WrongShape, r"returned float32 of shape \(40, 15, 2\) on cpu; .* \(40, 15, 3\) on cpu"),
    ],
)
def test_scores_that_are_none_are_refused(
    workspace: Workspace, tasks: TaskSet, method: type, message: str
) -> None:
    net = model(method)
    source = ImageSource.cached(net, images(workspace), workspace, Counting())
    with pytest.raises(PluginError, match=message):
        predict(net, tasks, source)


class Guessing(Prototypes):
    """Draws its scores."""

    def scores(self, support: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        return torch.rand(*query.shape[:2], support.shape[1])


def test_what_a_method_draws_does_not_depend_on_what_was_drawn_before(
    workspace: Workspace, tasks: TaskSet
) -> None:
    net = model(Guessing)
    source = ImageSource.cached(net, images(workspace), workspace, Counting())
    first = predict(net, tasks, source)
    torch.rand(7)
    assert (predict(net, tasks, source) == first).all()


class FirstPlaces(Prototypes):
    """Would be right if the queries came in the order of their ways."""

    transductive = True

    def scores(self, support: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        way = support.shape[1]
        places = torch.arange(query.shape[1]) * way // query.shape[1]
        return torch.nn.functional.one_hot(places, way).float().expand(len(query), -1, -1)


def test_a_query_cannot_be_told_by_its_place(workspace: Workspace, tasks: TaskSet) -> None:
    net = model(FirstPlaces)
    source = ImageSource.cached(net, images(workspace), workspace, Counting())
    right = (predict(net, tasks, source) == np.arange(3)[None, :, None]).mean()
    assert right < 0.7


class Centred(Prototypes):
    """Centres the queries it sees on their own mean, as BatchNorm in training mode does."""

    transductive = True

    def scores(self, support: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        support = support - support.mean(dim=(1, 2), keepdim=True)
        return super().scores(support, query - query.mean(dim=1, keepdim=True))


def by_task_and_class(workspace: Workspace, tasks: TaskSet, method: type) -> list[np.ndarray]:
    net = model(method).eval()
    source = ImageSource.cached(net, images(workspace), workspace, Counting())
    return [predict(net, tasks, source, "task"), predict(net, tasks, source, "class")]


def test_queries_shown_by_class_change_nothing_for_an_inductive_method(
    workspace: Workspace, tasks: TaskSet
) -> None:
    together, apart = by_task_and_class(workspace, tasks, Prototypes)
    np.testing.assert_array_equal(together, apart)


def test_queries_shown_by_class_show_what_leans_on_the_batch(
    workspace: Workspace, tasks: TaskSet
) -> None:
    """Centred on its own mean, a class lies in the middle and can no longer be told."""
    together, apart = by_task_and_class(workspace, tasks, Centred)
    accuracy = [Outcomes.of(tasks, p).class_accuracy.mean() for p in (together, apart)]
    assert accuracy[0] > 0.8
    assert accuracy[1] < 0.5


@pytest.mark.parametrize("query_batch", ["task", "class"])
def test_outcomes_and_estimates_say_which_queries_were_together(
    workspace: Workspace, tasks: TaskSet, tmp_path: Path, query_batch: QueryBatch
) -> None:
    net = model()
    source = ImageSource.cached(net, images(workspace), workspace, Counting())
    outcomes = evaluate(
        net, tasks, source, label="tasks", partial=tmp_path / "partial", reporter=Counting(),
        query_batch=query_batch,
    )  # fmt: skip
    outcomes.save(tmp_path / "outcomes.parquet")
    again = Outcomes.load(tmp_path / "outcomes.parquet")
    assert again.query_batch == query_batch
    found = fsf.estimate(ArmOutcomes({"random": again}, Arms({"random": tasks})), "acc")
    assert found["acc-random"].query_batch == query_batch


def test_a_partial_evaluation_of_another_protocol_is_not_gone_on_with(
    workspace: Workspace, tasks: TaskSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "_SECONDS_BETWEEN_SAVES", 0.0)
    monkeypatch.setattr(evaluation, "_tasks_a_batch", lambda *_: 9)
    net = model(Centred)
    source = ImageSource.cached(net, images(workspace), workspace, Counting())
    partial = tmp_path / "partial"
    with pytest.raises(Killed):
        evaluate(net, tasks, source, label="tasks", partial=partial, reporter=Counting("tasks", 20))
    assert partial.exists()
    found = evaluate(
        net, tasks, source, label="tasks", partial=partial, reporter=Counting(),
        query_batch="class",
    )  # fmt: skip
    np.testing.assert_array_equal(found.predictions, predict(net, tasks, source, "class"))
