"""Steps on views: what a batch holds, what a step carries, and splits without labels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fsframework.errors import OptionError, PluginError
from fsframework.interfaces import Batch, ViewMaker, Views
from tests.toy_views import Dimmed, Queued
from tests.toys import Blobs, PixelPrototypes, Prototypes, equal, run, weights

STEPS = {"epochs": 1, "steps": 5, "batch_size": 6, "validation_tasks": 0, "n_query": 2}
SEEN: list[Batch] = []
"""The batches of a training."""


class Recording(PixelPrototypes):
    """Keeps the batches of its steps; without ``assert``, whose code pytest rewrites."""

    def __init__(
        self, *, views: ViewMaker, learns_from: str = "views", uses_labels: bool = True
    ) -> None:
        super().__init__()
        self.views, self.learns_from, self.uses_labels = views, learns_from, uses_labels

    def loss(self, batch: Batch) -> Tensor:
        SEEN.append(batch)
        return self.backbone(batch.views.flatten(0, 1)).square().mean()


def batches(**options: Any) -> list[Batch]:
    SEEN.clear()
    run(method=Recording(views=Dimmed(), **options), training=STEPS)
    assert len(SEEN) == 5
    return [*SEEN]


@pytest.mark.parametrize("uses_labels", [True, False])
def test_a_step_on_views_has_views_of_a_batch(uses_labels: bool) -> None:
    for batch in batches(uses_labels=uses_labels):
        assert batch.views is not None
        assert batch.views.shape == (6, 2, 3, 16, 16)
        assert batch.applied is not None
        assert batch.applied[:, 1].tolist() == list(range(6))
        assert (batch.classes is not None) == uses_labels
        assert batch.classes is None or batch.classes.shape == (6,)
        assert batch.items is batch.support is batch.small_views is None
        flat = batch.views.flatten(0, 1)
        assert flat.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("shown", "n"), [("episodes", 12), ("batches", 6), ("both", 18)])
def test_other_steps_have_views_of_all_their_images_in_order(shown: str, n: int) -> None:
    factors = set()
    for batch in batches(learns_from=shown):
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
        factors.add(round(factor[0].item(), 4))
    assert len(factors) == 5, "views differ from step to step"


class Unlabelled(Blobs):
    """What the images of the split train show is not known."""

    unlabelled = frozenset({"train"})


class Telling(Queued):
    """Keeps what its steps carry, and what it is given after them."""

    carrying: list[Tensor] = []  # noqa: RUF012
    given: list[Tensor] = []  # noqa: RUF012
    states: list[object] = []  # noqa: RUF012

    def loss(self, batch: Batch) -> Tensor:
        self.states.append(self.carried)
        loss = super().loss(batch)
        self.carrying.append(self.carried["keys"])
        return loss

    def after_step(self, carried: Any) -> None:
        super().after_step(carried)
        self.states.append(torch.is_grad_enabled())
        self.given.append(carried["keys"])


def test_after_step_gets_what_the_step_carried_and_no_labels_are_needed(tmp_path: Any) -> None:
    method = Telling(views=Dimmed())
    found = run(method=method, training=STEPS, dataset=Unlabelled)
    assert [len(keys) for keys in Telling.given] == [6] * 5
    assert Telling.states == [{}, False] * 5
    assert torch.equal(torch.cat(Telling.given), torch.cat(Telling.carrying))
    queue = torch.cat([Telling.given[-1], Telling.given[-2]])
    torch.testing.assert_close(weights(found)["method.queue"], queue)
    again = run(tmp_path, method=method, training=STEPS, dataset=Unlabelled)
    assert equal(weights(found), weights(again)), "the seed decides the views"
    with pytest.raises(OptionError, match="Prototypes learns from labels, but the images of the"):
        run(method=Prototypes, training=STEPS, dataset=Unlabelled)


class Tensors(Dimmed):
    """Forgets to say which views were made."""

    def make(self, images: Tensor) -> Views:
        return torch.zeros(len(images), 2, 3, 8, 8)  # type: ignore[return-value]


class OneMore(Dimmed):
    """Makes a view more than it declares."""

    def make(self, images: Tensor) -> Views:
        n = len(images)
        return Views(torch.zeros(n, 3, 3, 8, 8), torch.zeros(n, 3))


@pytest.mark.parametrize(
    ("maker", "message"),
    [(Tensors, "type Tensor; it must return Views"), (OneMore, r"shape \(6, 2, 3, ..., ...\)")],
)
def test_malformed_views_are_named(maker: type[ViewMaker], message: str) -> None:
    with pytest.raises(PluginError, match=message):
        run(method=Queued(views=maker()), training=STEPS)
