"""Steps on views: what a batch holds, queues that resume, groups, and splits without labels."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fsframework.components.registry import Registry
from fsframework.engine.learning.episodes import check_stages
from fsframework.engine.learning.model import build_model
from fsframework.engine.learning.training import Split, train
from fsframework.engine.stages import Stage
from fsframework.errors import OptionError, PluginError
from fsframework.interfaces import Batch, FewShotMethod, ViewMaker, Views
from tests.engine.learning.test_training import training_of
from tests.toy_views import Dimmed, Queued
from tests.toys import (
    Blobs,
    Counting,
    Killed,
    PixelPrototypes,
    Prototypes,
    TinyBackbone,
    component,
)

STAGE = Stage(epochs=2, steps=5, batch_size=6, validation_tasks=0)


class Recording(PixelPrototypes):
    """Keeps the batches of its steps."""

    def __init__(self, *, views: ViewMaker, learns_from: str, uses_labels: bool = True) -> None:
        super().__init__()
        self.views, self.learns_from, self.uses_labels = views, learns_from, uses_labels
        self.seen: list[Batch] = []

    def loss(self, batch: Batch) -> Tensor:
        self.seen.append(batch)
        views = batch.views
        assert views is not None
        return self.backbone(views.flatten(0, 1)).square().mean()


def split_of(*, labelled: bool = True) -> Split:
    data = Blobs()
    pool = dataclasses.replace(data.pool("train"), labelled=labelled)
    return Split(pool, data.images(data.split_indices("train"), 16))


def trained(
    folder: Path, method: Any, stage: Stage, split: Split, reporter: Counting | None = None
) -> FewShotMethod:
    model = build_model(component(TinyBackbone), method, 16, split.pool.n_classes, 0)
    train(model, training_of([stage], (split, None)), folder, reporter or Counting())
    return model.method


def batches(tmp_path: Path, shown: str, **options: Any) -> list[Batch]:
    method = component(Recording, views=component(Dimmed), learns_from=shown, **options)
    stage = dataclasses.replace(STAGE, epochs=1, n_query=2)
    found = trained(tmp_path, method, stage, split_of())
    assert isinstance(found, Recording)
    return found.seen


def test_a_step_on_views_has_views_of_a_batch(tmp_path: Path) -> None:
    seen = batches(tmp_path, "views")
    assert len(seen) == 5
    for batch in seen:
        assert batch.views is not None
        assert batch.views.shape == (6, 2, 3, 16, 16)
        assert batch.applied is not None
        assert batch.applied[:, 1].tolist() == list(range(6))
        assert batch.classes is not None
        assert batch.classes.shape == (6,)
        assert batch.items is batch.support is batch.small_views is None
        flat = batch.views.flatten(0, 1)
        assert flat.is_contiguous(memory_format=torch.channels_last)


def test_a_method_without_labels_sees_none(tmp_path: Path) -> None:
    assert all(batch.classes is None for batch in batches(tmp_path, "views", uses_labels=False))


@pytest.mark.parametrize(("shown", "n"), [("episodes", 12), ("batches", 6), ("both", 18)])
def test_other_steps_have_views_of_all_their_images_in_order(
    tmp_path: Path, shown: str, n: int
) -> None:
    for batch in batches(tmp_path, shown):
        assert batch.views is not None
        assert batch.views.shape == (n, 2, 3, 16, 16)
        parts = [batch.support, batch.query, batch.items]
        items = torch.cat([t.reshape(-1, 3, 16, 16) for t in parts if t is not None])
        # A dimmed view lies, before it is normalised, on the line from black to the image.
        mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
        std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
        image, view = items * std + mean, batch.views[:, 0] * std + mean
        factor = (view.flatten(1).sum(1) / image.flatten(1).sum(1)).view(-1, 1, 1, 1)
        assert ((factor >= 0.5) & (factor <= 1)).all()
        torch.testing.assert_close(view, factor * image, atol=1e-4, rtol=0)


def test_views_differ_from_step_to_step_and_follow_the_seed(tmp_path: Path) -> None:
    first, again = (batches(tmp_path / name, "views") for name in ("1", "2"))
    for left, right in zip(first, again, strict=True):
        assert left.views is not None
        assert right.views is not None
        assert torch.equal(left.views, right.views)
    factors = [
        batch.views[0].std(dim=0).mean().item() for batch in first if batch.views is not None
    ]
    assert len(set(factors)) == 5


QUEUED = component(Queued, views=component(Dimmed))


@pytest.mark.parametrize("after", [3, 5, 7])
def test_queue_and_momentum_copy_are_resumed(tmp_path: Path, after: int) -> None:
    split = split_of(labelled=False)
    whole = trained(tmp_path / "whole", QUEUED, STAGE, split).state_dict()
    with pytest.raises(Killed):
        trained(tmp_path / "killed", QUEUED, STAGE, split, Counting("training", after))
    resumed = trained(tmp_path / "killed", QUEUED, STAGE, split).state_dict()
    for name, value in whole.items():
        assert torch.equal(value, resumed[name]), name
    assert not torch.equal(whole["queue"], torch.ones_like(whole["queue"]))
    assert any(name.startswith("copy.") for name in whole)


def test_after_step_gets_what_the_step_carried(tmp_path: Path) -> None:
    class Telling(Queued):
        """Keeps what it is given after steps."""

        def __init__(self, *, views: ViewMaker) -> None:
            super().__init__(views=views)
            self.rows: list[Tensor] = []
            self.shown: list[Tensor] = []

        def loss(self, batch: Batch) -> Tensor:
            loss = super().loss(batch)
            self.shown.append(self.carried["keys"])
            return loss

        def after_step(self, carried: Any) -> None:
            super().after_step(carried)
            assert not torch.is_grad_enabled()
            self.rows.append(carried["keys"])

    method = trained(tmp_path, component(Telling, views=component(Dimmed)), STAGE, split_of())
    assert isinstance(method, Telling)
    assert len(method.rows) == 10
    assert all(len(rows) == 6 for rows in method.rows)
    assert torch.equal(torch.cat(method.rows), torch.cat(method.shown))
    assert method.carried == {}


def checked(method: type[FewShotMethod], *, labelled: bool = True, **options: Any) -> None:
    pool = split_of(labelled=labelled).pool
    made = component(method, **options).create()
    check_stages([STAGE], made, (3, 2), pool, Registry())


def test_without_labels_only_some_methods_learn() -> None:
    checked(Queued, labelled=False, views=component(Dimmed))
    with pytest.raises(OptionError, match="Prototypes learns from labels, but the images of the"):
        checked(Prototypes, labelled=False)


def test_views_need_a_maker() -> None:
    stage = dataclasses.replace(STAGE, learns_from="views")
    with pytest.raises(OptionError, match="training: Prototypes makes no views of images"):
        check_stages([stage], Prototypes(), (3, 2), split_of().pool, Registry())


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (lambda n: torch.zeros(n, 2, 3, 8, 8), "type Tensor; it must return Views"),
        (
            lambda n: Views(torch.zeros(n, 3, 3, 8, 8), torch.zeros(n, 3)),
            r"shape \(6, 2, 3, ..., ...\)",
        ),
    ],
)
def test_malformed_views_are_named(tmp_path: Path, found: Any, message: str) -> None:
    class Malformed(Dimmed):
        """Returns what it should not."""

        def make(self, images: Tensor) -> Views:
            made: Views = found(len(images))
            return made

    method = component(Queued, views=component(Malformed))
    with pytest.raises(PluginError, match=message):
        trained(tmp_path, method, STAGE, split_of())
