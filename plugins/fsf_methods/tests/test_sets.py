"""The methods that adapt sets of vectors: DSN, FEAT and FGFL."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.fft import dctn
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.sets import DSN, FEAT, FGFL, _fgfl
from fsf_methods.sets._frequencies import Frequencies
from fsframework.interfaces import Backbone, Batch, OptionError
from plugins.fsf_methods.tests.toys import assert_same_gradients, built, by_task, episode, scored


class Flat(Backbone):
    """The pixels themselves."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :, None, None]


def dsn(**options: Any) -> DSN:
    return built(DSN, 3, 2, 4, backbone=Flat(), **options)


def plain_dsn(method: DSN, support: Tensor, query: Tensor) -> Tensor:
    """Score images ``(n, ...)`` for classes ``(way, shot, ...)`` by singular vectors."""
    support, query = support.flatten(2), query.flatten(1)
    scores = torch.zeros(len(query), len(support))
    for k, vectors in enumerate(support):
        mean = vectors.mean(dim=0) if method.centre else torch.zeros(vectors.shape[1])
        basis = torch.linalg.svd((vectors - mean).T, full_matrices=False).U[:, : len(vectors) - 1]
        for i, q in enumerate(query - mean):
            rest = q - basis @ (basis.T @ q)
            scores[i, k] = -rest.square().sum() / len(q)
    return scores


@pytest.mark.parametrize("shot", [2, 3, 5])
@pytest.mark.parametrize("centre", [True, False])
def test_scores_of_dsn_are_the_literal_ones(centre: bool, shot: int) -> None:
    method, batch = dsn(centre=centre), episode(3, 2, 4, shot=shot)
    with torch.no_grad():
        method.scale.fill_(3.0)
        torch.testing.assert_close(scored(method, batch), 3 * by_task(plain_dsn, method, batch))


@pytest.mark.parametrize(("mirror", "dimension"), [("columns", -1), ("channels", -3)])
def test_the_only_image_of_a_class_is_joined_by_its_mirror_image(
    mirror: str, dimension: int
) -> None:
    method, batch = dsn(mirror=mirror), episode(3, 2, 4, shot=1)
    both = torch.cat([batch.support, batch.support.flip(dimension)], dim=2)
    torch.testing.assert_close(scored(method, batch), scored(method, Batch(both, batch.query)))


def test_equal_images_span_nothing() -> None:
    support, query = episode(3, 2, 4, shot=1).support, episode(3, 2, 4).query
    scores = scored(dsn(), Batch(support.repeat(1, 1, 3, 1, 1, 1), query))
    mean = support[:, :, 0].flatten(2)
    expected = -torch.cdist(query.flatten(2), mean).square() / mean.shape[2]
    torch.testing.assert_close(scores.detach(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("centre", [True, False])
def test_gradients_are_those_of_the_singular_vectors(centre: bool) -> None:
    vectors = torch.randn(1, 2, 4, 6, dtype=torch.float64, requires_grad=True)
    _, bases = dsn(centre=centre).subspaces(vectors)
    projectors = bases.mT @ bases
    rows = vectors - vectors.mean(dim=2, keepdim=True) if centre else vectors
    basis = torch.linalg.svd(rows.mT, full_matrices=False).U[..., :3]
    expected = basis @ basis.mT
    torch.testing.assert_close(projectors, expected)
    assert_same_gradients(projectors, expected, [vectors], rtol=1e-5, atol=1e-6)


def test_the_loss_of_dsn_is_the_literal_one() -> None:
    method, batch = dsn(smoothing=0.2, discriminative_weight=0.5), episode(3, 2, 4, shot=3)
    with torch.no_grad():
        found = method.loss(batch)
        logits = scored(method, batch).log_softmax(dim=2)
        truth = functional.one_hot(batch.query_labels, 3)
        expected = -(logits * (0.8 * truth + 0.1 * (1 - truth))).sum(dim=2).mean()
        for maps in batch.support.flatten(3):
            rows = maps - maps.mean(dim=1, keepdim=True)
            bases = torch.linalg.svd(rows.mT, full_matrices=False).U[..., :2]
            for i in range(3):
                for j in range(3):
                    if i != j:
                        cosines = (bases[i].T @ bases[j]).square().sum()
                        expected += 0.5 * cosines / 2
    torch.testing.assert_close(found, expected)


def feat(**options: Any) -> FEAT:
    off = {"dropout": 0.0, "attention_dropout": 0.0}
    return built(FEAT, 6, temperature=2.0, **off, **options)


def attended(method: FEAT, items: Tensor) -> Tensor:
    """Transform one set ``(m, D)``."""
    layer = method.attention
    logits = layer.queries(items) @ layer.keys(items).T / 6**0.5
    found = layer.leave(logits.softmax(dim=1) @ layer.values(items))
    return functional.layer_norm(found + items, (6,))


def compared(method: FEAT, query: Tensor, points: Tensor) -> Tensor:
    if method.metric == "cosine":
        return functional.cosine_similarity(query[:, None], points, dim=2)
    return -torch.cdist(query, points).square()


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_scores_of_feat_are_the_literal_ones(metric: str) -> None:
    method, batch = feat(metric=metric), episode(6)

    def plain(method: FEAT, support: Tensor, query: Tensor) -> Tensor:
        return compared(method, query, attended(method, support.mean(dim=1))) / 2

    with torch.no_grad():
        torch.testing.assert_close(scored(method, batch), by_task(plain, method, batch))


@pytest.mark.parametrize("objective", ["paper", "libfewshot"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_the_loss_of_feat_is_the_literal_one(metric: str, objective: str) -> None:
    method = feat(metric=metric, objective=objective, balance=0.3, regulariser_temperature=5.0)
    batch = episode(6)
    with torch.no_grad():
        logits = method.scores(batch.support, batch.query)
        own = functional.cross_entropy(logits.flatten(0, 1), batch.query_labels.flatten())
        losses = []
        for t in range(2):
            labels = batch.query_labels[t]
            sets = [torch.cat([batch.support[t, k], batch.query[t][labels == k]]) for k in range(3)]
            centres = torch.stack([attended(method, items).mean(dim=0) for items in sets])
            scores = compared(method, torch.cat(sets), centres) / 5
            truth = torch.arange(3).repeat_interleave(4)
            if objective == "libfewshot":
                truth = torch.cat([torch.arange(3).repeat_interleave(2)] * 2)
            losses.append(functional.cross_entropy(scores, truth))
        regulariser = torch.stack(losses).mean()
        found = method.loss(batch)
    weights = (1.0, 0.3) if objective == "paper" else (0.3, 1.0)
    torch.testing.assert_close(found, weights[0] * own + weights[1] * regulariser)


@pytest.mark.parametrize("training", [False, True])
def test_dropout_of_feat_is_for_training(training: bool) -> None:
    method, batch = built(FEAT, 6).train(training), episode(6)
    assert torch.equal(scored(method, batch), scored(method, batch)) != training


class Small(Backbone):
    """A convolution with BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 6, 3, stride=4, padding=1), nn.BatchNorm2d(6), nn.ReLU()
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


def fgfl(**options: Any) -> FGFL:
    off = {"dropout": 0.0, "attention_dropout": 0.0}
    return built(FGFL, 3, 16, 20, backbone=Small(), **off, **options)


def test_frequencies_are_those_of_scipy() -> None:
    frequencies = Frequencies((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    pixels = torch.rand(2, 3, 16, 27, generator=torch.Generator().manual_seed(0))
    mean, std = (torch.tensor(v)[:, None, None] for v in ((0.4, 0.5, 0.6), (0.2, 0.3, 0.4)))
    found = frequencies((pixels - mean) / std)
    red, green, blue = (255 * pixels[:, i].double() for i in range(3))
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    colours = torch.stack([luma - 128, (blue - luma) / 1.772, (red - luma) / 1.402], dim=1)
    expected = np.zeros(colours.shape)
    for row in (0, 8):
        for column in (0, 8, 16):
            block = colours[:, :, row : row + 8, column : column + 8].numpy()
            expected[:, :, row : row + 8, column : column + 8] = dctn(
                block, axes=(2, 3), norm="ortho"
            )
    torch.testing.assert_close(found.double(), torch.from_numpy(expected), rtol=1e-4, atol=1e-2)
    # The last three columns fill no block; they come back as grey.
    back = frequencies.images(found) * std + mean
    torch.testing.assert_close(back[..., :24], pixels[..., :24], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(back[..., 24:], torch.full((2, 3, 16, 3), 128 / 255))


def test_scores_of_fgfl_are_the_literal_ones() -> None:
    def plain(method: FGFL, support: Tensor, query: Tensor) -> Tensor:
        adapted = method.attention(torch.cat([support.flatten(0, 1), query])[None])[0]
        classes, queries = adapted[:6].reshape(3, 2, 6), adapted[6:]
        shares = (-torch.cdist(queries, classes.mean(dim=1)).square() / 3).softmax(dim=1)
        joined = classes.sum(dim=1) + shares.T @ queries
        prototypes = joined / (2 + shares.sum(dim=0))[:, None]
        return -torch.cdist(queries, prototypes).square() / 3

    method, batch = fgfl(temperature=3.0), episode(6)
    with torch.no_grad():
        found = method.scores(batch.support, batch.query)
        torch.testing.assert_close(found, by_task(plain, method, batch))


def test_the_order_of_queries_and_shots_does_not_change_the_loss() -> None:
    batch, order = episode(3, 16, 20), [4, 2, 0, 5, 3, 1]
    other = Batch(batch.support[:, :, [1, 0]], batch.query[:, order], batch.query_labels[:, order])
    found, expected = (fgfl().train().loss(b).detach() for b in (other, batch))
    torch.testing.assert_close(found, expected)


def test_the_loss_of_tasks_is_the_mean_of_theirs() -> None:
    # With running statistics, tasks share nothing.
    method, batch = fgfl(), episode(3, 16, 20)
    parts = batch.support, batch.query, batch.query_labels
    alone = [method.loss(Batch(*(p[t : t + 1] for p in parts))).detach() for t in range(2)]
    torch.testing.assert_close(method.loss(batch).detach(), sum(alone) / 2)


@pytest.mark.parametrize("frozen", [False, True])
def test_training_reaches_both_backbones_and_counts_their_batches_once(frozen: bool) -> None:
    method = fgfl(balance=0.5).train()
    backbones = method.backbone, method.frequency_backbone
    for backbone in backbones:
        backbone.requires_grad_(not frozen)
    method.loss(episode(3, 16, 20)).backward()
    # One that is not trained still guides.
    assert method.attention.leave.weight.grad is not None
    for backbone in backbones:
        assert backbone.layers[1].num_batches_tracked == 1
        assert backbone.layers[1].training
        assert frozen or backbone.layers[0].weight.grad.any()


def test_the_mask_worked_by_hand() -> None:
    # Two tasks of one image; relevance grows from left to right, in one of them ten times as fast.
    relevance = torch.tensor([0.0, 1.0]).reshape(1, 1, 1, 2) * torch.tensor([1.0, 10.0]).reshape(
        2, 1, 1, 1
    )
    found = _fgfl._mask(relevance, torch.Size((1, 5)), 2)
    shares = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0])
    expected = (100 * (shares - 0.1)).sigmoid().expand(2, 1, 1, 5)
    torch.testing.assert_close(found, expected)


def test_products_with_the_directions_of_means() -> None:
    task = _fgfl._Task(torch.tensor([[[3.0, 0.0], [0.0, 2.0], [1.0, 4.0]]]), 2, 2)
    expected = torch.tensor([[[3.0, 0.0], [0.0, 2.0], [1.0, 4.0]]])
    torch.testing.assert_close(_fgfl._cosines(task, task), expected)
    halved = task._replace(items=task.items / 2)
    torch.testing.assert_close(_fgfl._cosines(task, halved), expected)


def test_images_smaller_than_a_block_are_refused() -> None:
    with pytest.raises(OptionError, match="images of at least 8 x 8 pixels, got 7 x 20"):
        FGFL().build((3, 7, 20), 0, Small())
