from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch.nn import functional

from fsf_backbones import Conv64F
from fsf_methods.adaptation import ContrastiveCentroids
from fsf_methods.adaptation._views_contrast import (
    aligned_similarities,
    distance_scaled,
    views_contrast,
)
from fsf_methods.adaptation._yang import supervised_contrast
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks
from fsframework.testing.method import ToyBackbone
from tests.toy_views import Dimmed


@parametrize_with_checks(
    [
        ContrastiveCentroids,
        partial(ContrastiveCentroids, scale=2.0, weight=0),
        partial(ContrastiveCentroids, views=Dimmed(), width=8),
        partial(ContrastiveCentroids, attention=True),
    ]
)
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def test_scores_worked_by_hand() -> None:
    support = torch.tensor([[[[0.0, 0.0], [2.0, 0.0]], [[0.0, 3.0], [0.0, 5.0]]]])
    query = torch.tensor([[[1.0, 2.0]]])
    # The means are (1, 0) and (0, 4); squared distances 4 and 5, over a length of 2.
    scores = ContrastiveCentroids().scores(support, query)
    torch.testing.assert_close(scores, torch.tensor([[[-2.0, -2.5]]]))
    scores = ContrastiveCentroids(scale=1.0).scores(support, query)
    torch.testing.assert_close(scores, torch.tensor([[[-4.0, -5.0]]]))


def test_the_contrastive_loss_worked_by_hand() -> None:
    # Two of class 0 at a right angle, one of class 1 along the first, one alone in class 2.
    vectors = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [0.0, -1.0]])
    classes = torch.tensor([0, 0, 1, 2])
    # The first: cosines 0 (its friend), 1, 0. The second: 0 (its friend), 0, -1.
    first = math.log(1 + math.e**2 + 1)
    second = math.log(1 + 1 + math.e**-2)
    found = supervised_contrast(vectors, classes, temperature=0.5)
    torch.testing.assert_close(found, torch.tensor((first + second) / 2))
    assert supervised_contrast(vectors, torch.arange(4), temperature=0.5) == 0


def test_a_step_has_the_loss_of_what_it_shows() -> None:
    torch.manual_seed(0)
    method = ContrastiveCentroids(weight=0.5)
    method.build((4,), 3, Conv64F())
    assert method.classify is not None
    items, classes = torch.rand(6, 4), torch.arange(6) % 3
    of_batch = method.loss(Batch(items=items, classes=classes))
    contrast = supervised_contrast(method.project(items), classes, 0.1)
    expected = functional.cross_entropy(method.classify(items), classes) + 0.5 * contrast
    torch.testing.assert_close(of_batch, expected)
    episode = {
        "support": torch.rand(1, 2, 1, 4),
        "query": torch.rand(1, 4, 4),
        "query_labels": torch.tensor([[0, 1, 0, 1]]),
    }
    of_episode = method.loss(Batch(**episode))
    scores = method.scores(episode["support"], episode["query"])[0]
    torch.testing.assert_close(
        of_episode, functional.cross_entropy(scores, episode["query_labels"][0])
    )
    both = method.loss(Batch(items=items, classes=classes, **episode))
    torch.testing.assert_close(both, of_batch + of_episode)
    with pytest.raises(OptionError, match="learns from batches or episodes"):
        method.loss(Batch())


def test_views_are_classified_and_contrasted() -> None:
    torch.manual_seed(0)
    method = ContrastiveCentroids(
        views=Dimmed(), weight=0.5, global_weight=0.25, local_weight=0.0, width=8
    )
    method.build((32,), 3, ToyBackbone())
    method.eval()
    views, classes = torch.rand(4, 2, 3, 20, 20), torch.tensor([0, 1, 2, 0])
    found = method.loss(Batch(views=views, classes=classes))
    vectors = torch.cat([method.backbone.encode(views[:, v]) for v in range(2)])
    both, projected = classes.repeat(2), method.project(vectors)
    units = functional.normalize(projected, dim=1)
    expected = (
        functional.cross_entropy(method.class_logits(vectors), both)
        + 0.5 * supervised_contrast(projected, both, 0.1)
        + 0.25 * views_contrast(units @ units.mT, 0.1)
    )
    torch.testing.assert_close(found, expected)
    method.local_weight = 2.0
    assert method.loss(Batch(views=views, classes=classes)) != found


def test_queries_of_each_view_are_classified_by_supports_of_each() -> None:
    torch.manual_seed(0)
    method = ContrastiveCentroids(views=Dimmed(), width=8, episode_weight=0.0)
    method.build((32,), 3, ToyBackbone())
    method.eval()
    images = torch.rand(2 * (2 + 4), 2, 3, 20, 20)
    labels = torch.tensor([[0, 1, 0, 1], [1, 1, 0, 0]])
    batch = Batch(
        support=images[:4, 0].reshape(2, 2, 1, 3, 20, 20),
        query=images[4:, 0].reshape(2, 4, 3, 20, 20),
        query_labels=labels,
        views=images,
    )
    vectors = torch.stack([method.backbone.encode(images[:, v]) for v in range(2)])
    support, query = vectors[:, :4].reshape(2, 2, 2, 1, 32), vectors[:, 4:].reshape(2, 2, 4, 32)
    expected = torch.stack(
        [
            functional.cross_entropy(method.scores(s, q).flatten(0, 1), labels.flatten())
            for s in support
            for q in query
        ]
    )
    torch.testing.assert_close(method.loss(batch), expected.mean())
    method.episode_weight = 0.5
    means = method.project(support.mean(dim=3)).transpose(0, 1)
    queries = torch.cat([method.project(one) for one in query], dim=1)
    contrast = distance_scaled(queries, labels.repeat(1, 2), means, 0.1)
    torch.testing.assert_close(method.loss(batch), expected.mean() + 0.5 * contrast)


def test_the_distance_scaled_loss_worked_by_hand() -> None:
    # Two queries of two ways at a right angle; the first class mean is the first query's opposite
    # in one view and equal to it in the other, the second one is the second query.
    queries = torch.tensor([[[2.0, 0.0], [0.0, 1.0]]])
    means = torch.tensor([[[[-1.0, 0.0], [0.0, 3.0]], [[1.0, 0.0], [0.0, 1.0]]]])
    # The cosines 1, 0 and -1 have the coefficients 1, 2 and 3; exp(cosine / 0.5) is e^2, 1, e^-2.
    near, right, far = math.e**2, 2.0, 3 * math.e**-2
    first = right + far + right + near + right  # the other query, two means of each view
    second = right + right + near + right + near
    expected = (
        2 * math.log(first) - math.log(far) - math.log(near)
        + 2 * math.log(second) - 2 * math.log(near)
    ) / 4  # fmt: skip
    found = distance_scaled(queries, torch.tensor([[0, 1]]), means, 0.5)
    assert found.item() == pytest.approx(expected, abs=1e-5)
    # Two tasks do not see each other.
    both = distance_scaled(
        torch.cat([queries, queries.flip(2)]),
        torch.tensor([[0, 1], [0, 1]]),
        torch.cat([means, means.flip(3)]),
        0.5,
    )
    assert both.item() == pytest.approx(expected, abs=1e-5)


def test_attention_starts_from_plain_class_means_and_mixes_them() -> None:
    torch.manual_seed(0)
    method = ContrastiveCentroids(attention=True)
    method.build((6,), 3, ToyBackbone())
    support, query = torch.randn(2, 3, 2, 6), torch.randn(2, 4, 6)
    plain = ContrastiveCentroids().scores(support, query)
    torch.testing.assert_close(method.scores(support, query), plain)
    assert method.attend is not None
    torch.nn.init.eye_(method.attend.output.weight)
    asked, keys, values = method.attend.inputs(support.mean(dim=2)).chunk(3, dim=2)
    weights = (asked @ keys.mT / 6**0.5).softmax(dim=2)
    means = support.mean(dim=2) + weights @ values
    expected = ContrastiveCentroids().scores(means[:, :, None], query)
    torch.testing.assert_close(method.scores(support, query), expected)


def test_maps_are_compared_where_attention_brings_them() -> None:
    torch.manual_seed(0)
    asked, keys, values = torch.randn(3, 4, 5, 6)
    found = aligned_similarities(asked, keys, values)
    for i in range(4):
        for j in range(4):
            brought = (asked[i] @ keys[j].mT / 6**0.5).softmax(dim=1) @ values[j]
            expected = functional.cosine_similarity(values[i], brought, dim=1).mean()
            torch.testing.assert_close(found[i, j], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight": -1.0}, "weight must be at least 0, got -1"),
        ({"episode_weight": -1.0}, "episode_weight must be at least 0, got -1"),
        ({"temperature": 0.0}, "temperature must be above 0, got 0"),
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"scale": 0.0}, "scale must be above 0, got 0"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ContrastiveCentroids(**options)
