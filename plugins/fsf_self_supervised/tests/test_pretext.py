"""Pretext tasks: SSFSL and BF3S beside the base's own loss, SLA and HTS instead of it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.gradient import MAML
from fsf_methods.metric import DN4, R2D2, ProtoNet, RENet
from fsf_methods.transfer import Baseline
from fsf_self_supervised.pretext import BF3S, HTS, SLA, SSFSL, SSFSLJigsaw
from fsf_self_supervised.pretext._bf3s import (
    CosineClassifier,
    ResidualHead,
    location_loss,
    standardised,
)
from fsf_self_supervised.pretext._hts import TreeLSTM
from fsf_self_supervised.pretext._sla import distillation, joint_batch
from fsf_self_supervised.views import ColorPermutation, Jigsaw, Patches, Rotation
from fsframework.interfaces import Batch, ViewMaker
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


def pixels(method: Any) -> list[int]:
    """Return a list that grows by the number of images at each pass of the backbone."""
    seen: list[int] = []
    [backbone] = [m for m in method.modules() if isinstance(m, ToyBackbone)]
    backbone.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    return seen


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

    assert location_loss(head, patches, cells).item() == pytest.approx(0, abs=1e-6)
    assert seen[0][:8].tolist() == [[float(c), 4.0] for c in (0, 1, 2, 3, 5, 6, 7, 8)]
    assert seen[0].shape == (40, 2)


def test_bf3s_also_trains_a_base_on_the_mean_patch() -> None:
    patches = Patches(gap=0.0)
    options: dict[str, Any] = {"pretext": "location", "alpha": 0.5, "patch_weight": 2.0}
    method: Any = built(lambda: BF3S(base=ProtoNet(), views=patches, **options))
    batch = episode(patches)
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


def turned() -> Rotation:
    return Rotation(angles=(0, 90))


@torch.no_grad()
def test_scores_and_loss_of_sla_one_by_one() -> None:
    method, batch = built(lambda: SLA(base=ProtoNet(), views=turned())), episode(None)
    support, query = method.embed_episode(batch)
    assert support.shape[:4] == (2, 3, 1, 2)
    found, losses = method.scores(support, query), []
    of_support, of_query = (
        [vectors(method, torch.rot90(images, turns, (-2, -1))) for turns in range(2)]
        for images in (batch.support, batch.query)
    )
    for t in range(2):
        prototypes = [of_support[v][t, c].mean(dim=0) for c in range(3) for v in range(2)]
        for i in range(6):
            joint = torch.stack(
                [
                    torch.stack([-(of_query[v][t, i] - p).square().sum() for p in prototypes])
                    for v in range(2)
                ]
            )
            expected = torch.stack([(joint[0, 2 * c] + joint[1, 2 * c + 1]) / 2 for c in range(3)])
            torch.testing.assert_close(found[t, i], expected, rtol=1e-4, atol=1e-4)
            label = int(batch.query_labels[t, i])
            losses += [-joint[v].log_softmax(0)[label * 2 + v] for v in range(2)]
    torch.testing.assert_close(method.loss(batch), torch.stack(losses).mean(), rtol=1e-4, atol=0)


def test_a_joint_batch_has_a_class_for_each_view_of_each_class() -> None:
    # Numbers instead of images: image i has the views 10 i and 10 i + 1.
    batch = Batch(
        support=torch.tensor([[[0, 1], [2, 3]]]),
        query=torch.tensor([[4, 5, 6]]),
        query_labels=torch.tensor([[1, 0, 1]]),
        support_classes=torch.tensor([[[7, 7], [3, 3]]]),
        query_classes=torch.tensor([[3, 7, 3]]),
        items=torch.tensor([7]),
        classes=torch.tensor([5]),
    )
    joint = joint_batch(batch, torch.tensor([[10 * i, 10 * i + 1] for i in range(8)]))
    expected = {
        "support": [[[0, 10], [1, 11], [20, 30], [21, 31]]],
        "support_classes": [[[14, 14], [15, 15], [6, 6], [7, 7]]],
        "query": [[40, 41, 50, 51, 60, 61]],
        "query_labels": [[2, 3, 0, 1, 2, 3]],
        "query_classes": [[6, 7, 14, 15, 6, 7]],
        "items": [70, 71],
        "classes": [10, 11],
    }
    for name, values in expected.items():
        assert getattr(joint, name).tolist() == values, name


def test_distillation_adds_to_the_joint_loss_and_scores_without_views() -> None:
    options = {"self_distillation": True, "temperature": 3.0}
    both = built(lambda: SLA(base=ProtoNet(), views=turned(), **options))
    fast = built(lambda: SLA(base=ProtoNet(), views=turned(), inference="single", **options))
    plain = built(lambda: SLA(base=ProtoNet(), views=turned()))
    batch = episode(None)
    support, query = fast.embed_episode(batch)
    assert query.shape == (2, 6, 32), "an image is embedded as one vector"
    alone = fast.scores(support, query).flatten(0, 1)
    together = plain.scores(*plain.embed_episode(batch)).flatten(0, 1)
    cross_entropy = functional.cross_entropy(alone, batch.query_labels.flatten())
    expected = plain.loss(batch) + cross_entropy + distillation(together, alone, 3.0)
    torch.testing.assert_close(both.loss(batch), expected)


@pytest.mark.parametrize("base", [DN4, RENet, Baseline, MAML])
def test_an_image_passes_the_backbone_once_per_view(base: Any) -> None:
    options = {"n_way": 10, "train_steps": 1, "test_steps": 1} if base is MAML else {}
    method = built(lambda: SLA(base=base(**options), views=turned()))
    seen = pixels(method)
    with torch.no_grad():
        method.embed(torch.randn(6, 3, 20, 20))
    # MAML adapts its backbone to each task, so its views stay images.
    assert seen == ([] if base is MAML else [12])
    assert method.embeds == (base is not MAML)
    assert method.n_way == (5 if base is MAML else None)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def node(tree: TreeLSTM, x: Tensor, children: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return hidden state and cell of one node ``(D,)``, plainly."""
    gates = tree.W_iou(x)
    if children:
        gates = gates + tree.U_iou(torch.stack([h for h, _ in children]).sum(dim=0))
    i, o, u = gates.split(len(x))
    cell = i.sigmoid() * u.tanh()
    for h, c in children:
        cell = cell + (tree.W_f(x) + tree.U_f(h)).sigmoid() * c
    return o.sigmoid() * cell.tanh(), cell


@torch.no_grad()
def test_two_levels_hang_on_their_own_views() -> None:
    turn, swap = Rotation(angles=(0, 180)), ColorPermutation(orders=("rgb", "grb", "bgr"))
    method = built(lambda: HTS(base=ProtoNet(), views=turn, deeper=(swap,), beta=0.5))
    images = torch.randn(4, 3, 20, 20)
    root, first, second = method.nodes(images, method.viewed(images))
    assert (first.shape, second.shape) == ((4, 2, 32), (8, 3, 32))
    encode, tree = method.backbone.encode, method.tree
    for i, image in enumerate(images):
        above = []
        for j, view in enumerate(method.viewed(image[None])[0]):
            deep = encode(method.made(swap, view[None]).images[0])
            below = [node(tree, x, []) for x in deep]
            torch.testing.assert_close(second[2 * i + j], torch.stack([h for h, _ in below]))
            above.append(node(tree, encode(view[None])[0], below))
        torch.testing.assert_close(first[i], torch.stack([h for h, _ in above]))
        torch.testing.assert_close(root[i], node(tree, encode(image[None])[0], above)[0])
    assert torch.equal(method.embed(images), root)
    # The loss: the base's on the roots, and half of both levels'.
    labels = torch.tensor([[1, 0]])
    batch = Batch(images[None, :2, None], images[None, 2:], labels)
    scores = ProtoNet().scores(root[None, :2, None], root[None, 2:])[0]
    expected = functional.cross_entropy(scores, labels[0])
    for classify, hidden in zip(method.classifiers, (first, second), strict=True):
        numbers = torch.arange(hidden.shape[1]).repeat(len(hidden))
        expected += 0.5 * functional.cross_entropy(classify(hidden.flatten(0, 1)), numbers)
    torch.testing.assert_close(method.loss(batch), expected)


def test_all_images_of_a_tree_pass_the_backbone_together() -> None:
    method = built(lambda: HTS(base=R2D2(), views=Rotation()))
    seen = pixels(method)
    method.embed(torch.randn(3, 3, 20, 20))
    assert seen == [15]
    patched = built(lambda: HTS(base=R2D2(), views=Patches(gap=0.0)))
    assert patched.embed(torch.randn(3, 3, 20, 20)).shape == (3, 32)
