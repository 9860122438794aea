from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fsf_methods.sets import DSN
from fsframework.interfaces import Backbone, Batch, OptionError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks(
    [DSN, partial(DSN, centre=False, mirror="channels"), partial(DSN, learn_scale=False)]
)
def test_conformance(make: Any, check: Any) -> None:
    check(make)


class Flat(Backbone):
    """The pixels themselves."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :, None, None]


def built(**options: Any) -> DSN:
    method = DSN(**options)
    method.build((3, 2, 4), 0, Flat())
    return method.eval()


def images(shot: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(2, 3, shot, 3, 2, 4, generator=generator),
        torch.randn(2, 5, 3, 2, 4, generator=generator),
    )


def literal(method: DSN, support: Tensor, query: Tensor) -> Tensor:
    """Score vectors ``(n, D)`` for classes ``(way, shot, D)`` by singular vectors."""
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
def test_scores_are_the_literal_ones(centre: bool, shot: int) -> None:
    method = built(centre=centre)
    support, query = images(shot)
    expected = torch.stack(
        [literal(method, s.flatten(2), q.flatten(1)) for s, q in zip(support, query, strict=True)]
    )
    with torch.no_grad():
        method.scale.fill_(3.0)
        torch.testing.assert_close(method.scores(support, query), 3 * expected)


@pytest.mark.parametrize(("mirror", "dimension"), [("columns", -1), ("channels", -3)])
def test_the_only_image_of_a_class_is_joined_by_its_mirror_image(
    mirror: str, dimension: int
) -> None:
    support, query = images(1)
    both = torch.cat([support, support.flip(dimension)], dim=2)
    method = built(mirror=mirror)
    with torch.no_grad():
        torch.testing.assert_close(method.scores(support, query), method.scores(both, query))


def test_scores_worked_by_hand() -> None:
    # Two shots on the line y = 1 of the plane: (0, 1) and (2, 1). The query (5, 4) is 3 away.
    vectors = torch.tensor([[[[0.0, 1.0], [2.0, 1.0]]]])
    method = DSN()
    means, bases = method.subspaces(vectors)
    found = method._scores(means, bases, torch.tensor([[[5.0, 4.0]]]))
    torch.testing.assert_close(found.detach(), torch.tensor([[[-4.5]]]))


@pytest.mark.parametrize("centre", [True, False])
def test_equal_images_span_nothing(centre: bool) -> None:
    support, query = images(1)
    method = built(centre=centre)
    support = support.repeat(1, 1, 3, 1, 1, 1).requires_grad_()
    scores = method.scores(support, query)
    if centre:
        mean = support.detach()[:, :, 0].flatten(2)
        expected = -torch.cdist(query.flatten(2), mean).square() / mean.shape[2]
        torch.testing.assert_close(scores.detach(), expected, rtol=1e-4, atol=1e-4)
    assert scores.isfinite().all()
    scores.sum().backward()
    assert support.grad is not None
    assert support.grad.isfinite().all()


@pytest.mark.parametrize("centre", [True, False])
def test_gradients_are_those_of_the_singular_vectors(centre: bool) -> None:
    method = built(centre=centre)
    vectors = torch.randn(1, 2, 4, 6, dtype=torch.float64, requires_grad=True)
    _, bases = method.subspaces(vectors)
    projectors = bases.mT @ bases
    rows = vectors - vectors.mean(dim=2, keepdim=True) if centre else vectors
    basis = torch.linalg.svd(rows.mT, full_matrices=False).U[..., :3]
    expected = basis @ basis.mT
    torch.testing.assert_close(projectors, expected)
    weights = torch.randn(6, 6, dtype=torch.float64)
    mine = torch.autograd.grad((projectors * weights).sum(), vectors)[0]
    theirs = torch.autograd.grad((expected * weights).sum(), vectors)[0]
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_the_loss_is_the_literal_one() -> None:
    method = built(smoothing=0.2, discriminative_weight=0.5)
    support, query = images(3)
    labels = torch.arange(5).expand(2, 5) % 3
    with torch.no_grad():
        found = method.loss(Batch(support, query, labels))
        logits = method.scores(support, query).log_softmax(dim=2)
        truth = functional.one_hot(labels, 3)
        expected = -(logits * (0.8 * truth + 0.1 * (1 - truth))).sum(dim=2).mean()
        for maps in support.flatten(3):
            rows = maps - maps.mean(dim=1, keepdim=True)
            bases = torch.linalg.svd(rows.mT, full_matrices=False).U[..., :2]
            for i in range(3):
                for j in range(3):
                    if i != j:
                        cosines = (bases[i].T @ bases[j]).square().sum()
                        expected += 0.5 * cosines / len(support)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mirror": "rows"}, "mirror must be 'columns' or 'channels', got 'rows'"),
        ({"smoothing": 1.0}, r"smoothing must be in \[0, 1\), got 1.0"),
        (
            {"discriminative_weight": -0.1},
            "discriminative_weight must be at least 0, got -0.1",
        ),
    ],
)
def test_options_are_validated(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        DSN(**options)
