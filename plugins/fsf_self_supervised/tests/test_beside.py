"""SSFSL and BF3S: pretext tasks beside the base's own loss."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.metric import DN4, ProtoNet
from fsf_methods.transfer import NCC, Baseline
from fsf_self_supervised.pretext import BF3S, SSFSL, SSFSLJigsaw
from fsf_self_supervised.pretext._bf3s import (
    CosineClassifier,
    ResidualHead,
    location_loss,
    standardised,
)
from fsf_self_supervised.views import Jigsaw, Patches, Rotation, SimCLR
from fsframework.interfaces import Batch, FewShotMethod, OptionError, ViewMaker
from fsframework.testing.method import ToyBackbone, built


def episode(views: ViewMaker | None) -> Batch:
    """Return an episode of two tasks, with views of all its images."""
    torch.manual_seed(0)
    support, query = torch.rand(2, 3, 1, 3, 24, 24), torch.rand(2, 6, 3, 24, 24)
    batch = Batch(support, query, (torch.arange(6) % 3).expand(2, -1))
    if views is None:
        return batch
    made = views.make(torch.cat([support.flatten(0, 2), query.flatten(0, 1)]))
    return dataclasses.replace(batch, views=made.images, applied=made.applied)


def vectors(method: Any, images: Tensor) -> Tensor:
    return method.backbone.encode(images.flatten(0, -4)).unflatten(0, images.shape[:-3])


def proto_loss(method: Any, batch: Batch) -> Tensor:
    encoded = Batch(
        vectors(method, batch.support), vectors(method, batch.query), batch.query_labels
    )
    return ProtoNet().loss(encoded)


@pytest.mark.parametrize("views", [Rotation(), Jigsaw(n_permutations=6)])
def test_ssfsl_weighs_the_two_losses(views: ViewMaker) -> None:
    method: Any = built(lambda: SSFSL(base=ProtoNet(), views=views, lbda=0.25, hidden=8))
    batch = episode(views)
    assert batch.views is not None
    assert batch.applied is not None
    pooled = vectors(method, batch.views)
    if views.together:
        logits, kinds = method.head(pooled), batch.applied[:, 0]
    else:
        logits, kinds = method.head(pooled.flatten(0, 1)[:, None]), batch.applied.flatten()
    assert logits.shape == (18 if views.together else 72, 6 if views.together else 4)
    expected = 0.75 * proto_loss(method, batch) + 0.25 * functional.cross_entropy(logits, kinds)
    torch.testing.assert_close(method.loss(batch), expected)


def test_the_head_has_the_authors_widths() -> None:
    alone = built(lambda: SSFSL(base=ProtoNet(), views=Rotation())).head
    puzzle = built(lambda: SSFSLJigsaw(base=ProtoNet(), views=Jigsaw())).head
    shapes = [
        [tuple(getattr(head, n).weight.shape) for n in ("each", "joint", "classify")]
        for head in (alone, puzzle)
    ]
    assert shapes == [
        [(32, 32), (128, 32), (4, 128)],
        [(32, 32), (4096, 288), (35, 4096)],
    ]


def test_two_pretext_tasks_nest_with_views_of_their_own() -> None:
    def nested() -> SSFSL:
        inner = SSFSLJigsaw(base=ProtoNet(), views=Jigsaw(), lbda=1 / 3, hidden=8)
        return SSFSL(base=inner, views=Rotation(), lbda=0.25, hidden=8)

    method: Any = built(nested)
    batch = episode(Rotation())
    shown: list[Batch] = []
    inner = method.base.pretext_loss
    method.base.pretext_loss = lambda batch: (shown.append(batch), inner(batch))[1]
    torch.manual_seed(1)
    loss = method.loss(batch)
    assert shown[0].applied is not None
    assert shown[0].applied.shape == (18, 9)
    method.base.pretext_loss = inner
    puzzle = method.base.pretext_loss(shown[0])
    turns = method.pretext_loss(batch)
    expected = 0.5 * proto_loss(method.base, batch) + 0.25 * puzzle + 0.25 * turns
    torch.testing.assert_close(loss, expected)
    assert sum(isinstance(m, ToyBackbone) for m in method.modules()) == 1


def test_views_that_a_wrapper_makes_are_those_of_the_images() -> None:
    method: Any = built(lambda: SSFSL(base=ProtoNet(), views=Rotation(), hidden=8))
    plain = torch.rand(5, 3, 20, 20)
    normalised = (plain - method.mean) / method.std
    expected = (Rotation().make(plain).images - method.mean) / method.std
    torch.testing.assert_close(method.made(Rotation(), normalised).images, expected)
    assert method.mean.flatten().tolist() == pytest.approx([0.485, 0.456, 0.406])


def test_bf3s_adds_the_rotations_of_residual_maps() -> None:
    method: Any = built(lambda: BF3S(base=ProtoNet(), views=Rotation(), alpha=2.0))
    batch = episode(Rotation())
    assert batch.views is not None
    assert batch.applied is not None
    logits = method.head(method.backbone(batch.views.flatten(0, 1)))
    expected = functional.cross_entropy(logits, batch.applied.flatten())
    torch.testing.assert_close(method.loss(batch), proto_loss(method, batch) + 2 * expected)
    assert sum(isinstance(m, nn.Conv2d) for m in method.head.modules()) == 4 * 2 + 1
    maps = torch.randn(2, 32, 5, 5)
    assert method.head[0](maps).shape == (2, 32, 3, 3)
    assert ResidualHead(32, 1, 3)(maps).shape == (2, 3)


def test_a_cosine_classifier_worked_by_hand() -> None:
    classify = CosineClassifier(2, 2)
    classify.weight.data.copy_(torch.tensor([[3.0, 0.0], [1.0, 1.0]]))
    found = classify(torch.tensor([[0.0, 5.0]])).detach()
    torch.testing.assert_close(found, torch.tensor([[0.0, 10 / math.sqrt(2)]]))


def test_the_place_of_a_patch_is_told_from_it_and_the_middle_one() -> None:
    # A patch's number is its cell; the head knows how pairs (cell, 4) are numbered.
    cells = torch.stack([torch.randperm(9) for _ in range(5)])
    patches = cells.float()[:, :, None]
    seen: list[Tensor] = []

    def head(pairs: Tensor) -> Tensor:
        seen.append(pairs)
        place = pairs[:, 0] - (pairs[:, 0] > 4).float()
        return 100 * functional.one_hot(place.long(), 8).float()

    assert location_loss(head, patches, cells).item() == pytest.approx(0, abs=1e-6)  # type: ignore[arg-type]
    assert seen[0][:8].tolist() == [[float(c), 4.0] for c in (0, 1, 2, 3, 5, 6, 7, 8)]
    assert seen[0].shape == (40, 2)


def test_bf3s_also_trains_a_base_on_the_mean_patch() -> None:
    patches = Patches(gap=0.0)
    options: dict[str, Any] = {"pretext": "location", "alpha": 0.5, "patch_weight": 2.0}
    method: Any = built(lambda: BF3S(base=ProtoNet(), views=patches, **options))
    batch = episode(patches)
    assert batch.views is not None
    assert batch.applied is not None
    flat = batch.views.flatten(0, 1)
    means = vectors(method, standardised(flat)).unflatten(0, (18, 9))
    places = location_loss(method.head, means, batch.applied)
    mean = means.mean(dim=1)
    on_patches = ProtoNet().loss(
        Batch(mean[:6].reshape(2, 3, 1, 32), mean[6:].reshape(2, 6, 32), batch.query_labels)
    )
    expected = proto_loss(method, batch) + 0.5 * places + 2 * on_patches
    torch.testing.assert_close(method.loss(batch), expected)
    shifted = standardised(3 * flat + 1)
    torch.testing.assert_close(shifted, standardised(flat), rtol=1e-3, atol=1e-3)
    assert shifted[0].std().item() == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("wrapper", [SSFSL, BF3S])
def test_batches_work_as_well(wrapper: Any) -> None:
    method: FewShotMethod = built(lambda: wrapper(base=Baseline(), views=Rotation()))
    assert method.learns_from == "batches"
    images = torch.rand(4, 3, 20, 20)
    made = Rotation().make(images)
    batch = Batch(items=images, classes=torch.arange(4), views=made.images, applied=made.applied)
    assert torch.isfinite(method.loss(batch))
    with pytest.raises(OptionError, match="learns from views, but this step has none"):
        method.loss(Batch(items=images, classes=torch.arange(4)))


def test_what_does_not_fit_is_one_sentence() -> None:
    for wrapper in (SSFSL, BF3S):
        with pytest.raises(OptionError, match="to recognise, .*, but SimCLR has only one"):
            wrapper(base=ProtoNet(), views=SimCLR())
        with pytest.raises(OptionError, match="but NCC learns from nothing"):
            wrapper(base=NCC(), views=Rotation())
    with pytest.raises(OptionError, match=r"lbda must be in \[0, 1\), got 1.0"):
        SSFSL(base=ProtoNet(), views=Rotation(), lbda=1.0)
    with pytest.raises(OptionError, match="but Jigsaw makes all views of an image together"):
        BF3S(base=ProtoNet(), views=Jigsaw())
    with pytest.raises(OptionError, match="needs views=patches, .* Rotation makes 4 views of 4"):
        BF3S(base=ProtoNet(), views=Rotation(), pretext="location")
    with pytest.raises(OptionError, match="but DN4 is not; use patch_weight=0"):
        BF3S(base=DN4(), views=Patches(), pretext="location")
    assert BF3S(base=DN4(), views=Patches(), pretext="location", patch_weight=0.0)
