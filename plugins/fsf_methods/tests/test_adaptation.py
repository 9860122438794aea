"""CDKT, DETA, TSA and contrastive centroids."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_backbones import ResNet12
from fsf_methods.adaptation import CDKT, DETA, TSA, ContrastiveCentroids
from fsf_methods.adaptation._adapters import Adapters
from fsf_methods.adaptation._logistic_softmax import (
    MeanField,
    expected_log_sigmoid,
    log_probabilities,
)
from fsf_methods.adaptation._views_contrast import (
    aligned_similarities,
    distance_scaled,
    views_contrast,
)
from fsf_methods.adaptation._yang import supervised_contrast
from fsframework.interfaces import Backbone, Batch, OptionError
from plugins.fsf_methods.tests.toys import built, episode
from tests.toy_views import Dimmed


def gaussians() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    mean = 3 * torch.randn(1, 4, 6, generator=generator, dtype=torch.float64)
    return mean - 2, 4 * torch.rand(1, 4, 6, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_integral_is_what_many_samples_approach(temperature: float) -> None:
    mean, variance = gaussians()
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(200_000, 4, 6, generator=generator, dtype=torch.float64)
    latent = (mean[0] + variance[0].sqrt() * noise) / temperature
    odds = latent.sigmoid()
    expected = (odds / odds.sum(dim=1, keepdim=True)).mean(dim=0)
    found = log_probabilities(mean, variance, temperature)[0].exp()
    torch.testing.assert_close(found, expected, atol=3e-3, rtol=0)
    torch.testing.assert_close(
        expected_log_sigmoid(mean, variance, temperature)[0],
        torch.nn.functional.logsigmoid(latent).mean(dim=0),
        atol=3e-2,
        rtol=0,
    )


def test_without_variance_the_probabilities_are_those_of_the_means() -> None:
    # Sigmoids of 1/2 and 3/4.
    mean = torch.tensor([[[0.0], [math.log(3)]]])
    found = log_probabilities(mean, torch.zeros_like(mean), 1.0)[0, :, 0].exp()
    torch.testing.assert_close(found, torch.tensor([0.4, 0.6]), atol=1e-5, rtol=0)
    # Far below 0, where all sigmoids are small, their ratio is e.
    found = log_probabilities(torch.tensor([[[-50.0], [-51.0]]]), torch.zeros(1, 2, 1), 1.0)
    torch.testing.assert_close(found[0, 0] - found[0, 1], torch.tensor([1.0]), atol=1e-4, rtol=0)


def test_the_bound_does_not_fall_from_step_to_step() -> None:
    generator = torch.Generator().manual_seed(0)
    items = torch.randn(3, 12, 5, generator=generator, dtype=torch.float64)
    covariance = (items @ items.mT / 5)[:, None]
    targets = torch.eye(3, dtype=torch.float64).repeat(1, 4).expand(3, -1, -1)
    field = MeanField(covariance, targets, temperature=0.7, mean=0.3)
    bounds = []
    for _ in range(60):
        field.step()
        bounds.append(field.lower_bound(complete=True))
    # Factors of two steps meet in the bound, so the first ones may overshoot.
    for before, after in itertools.pairwise(bounds[10:]):
        assert (after >= before - 1e-9).all()
    # At the end it is below the log-likelihood, which is below 0.
    assert (bounds[-1] < 0).all()
    torch.testing.assert_close(bounds[-1], bounds[-2], atol=1e-6, rtol=0)


def test_more_images_than_dimensions_have_finite_scores_and_gradients() -> None:
    method = built(CDKT, 3)
    loss = method.loss(episode(3, shot=10, n=30))
    loss.backward()
    assert loss.isfinite()
    assert method.raw_outputscale.grad.isfinite().all()


def test_crops_are_parts_of_the_image_enlarged() -> None:
    # A crop of a ramp is a ramp of smaller slope; all images have the same crops.
    ramp = torch.arange(8.0).expand(2, 3, 8, 8)
    method = DETA(n_patches=4, least_area=0.2)
    crops = method._cropped(ramp, random.Random(0))
    assert crops.shape == (8, 3, 8, 8)
    torch.testing.assert_close(crops[:4], crops[4:])
    for crop in crops[:4, 0]:
        steps = crop[0].diff()
        inner = steps[1:-1]
        torch.testing.assert_close(crop[0].expand(8, 8), crop)
        assert 0.3 < inner[0] <= 1
        torch.testing.assert_close(inner, inner[:1].expand(5), atol=1e-4, rtol=0)


def test_adapters_worked_by_hand() -> None:
    # A convolution without a stem cannot be adapted, so there are two, of one location.
    class Two(Backbone):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 2, 1, bias=False)
            self.conv = nn.Conv2d(2, 2, 3, padding=1, bias=False)

        def forward(self, images: Tensor) -> Tensor:
            maps: Tensor = self.conv(self.stem(images))
            return maps

    backbone = Two()
    with torch.no_grad():
        backbone.stem.weight.copy_(torch.eye(2, 3)[..., None, None])
        backbone.conv.weight.zero_()
        backbone.conv.weight[:, :, 1, 1] = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    image = torch.tensor([5.0, 7.0, 0.0]).reshape(1, 3, 1, 1)
    alpha = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    bias = torch.tensor([0.5, 0.0])
    # The convolution returns (7, 10).
    cases = [
        ("residual", "matrix", {"conv.alpha": alpha}, [7.0 + 5, 10 + 12]),
        ("residual", "vector", {"conv.alpha": torch.tensor([1.0, 2.0])}, [7.0 + 5, 10 + 14]),
        ("serial", "matrix", {"conv.alpha": alpha, "conv.bias": bias}, [7.5, 17]),
    ]
    for kind, form, weights, expected in cases:
        adapters = Adapters(backbone, kind, form)
        assert set(adapters.start(image)) == set(weights)
        assert all(weights[n].shape == w.shape for n, w in adapters.start(image).items())
        torch.testing.assert_close(adapters.encode(weights, image), torch.tensor([expected]))
    assert not backbone.conv._forward_hooks


def test_all_but_the_first_3x3_convolution_are_adapted() -> None:
    backbone = ResNet12(widths=(4, 4, 4, 4))
    names = set(Adapters(backbone, "residual", "matrix").convolutions)
    every = {f"stages.{stage}.conv{n}" for stage in range(4) for n in (1, 2, 3)}
    assert names == every - {"stages.0.conv1"}


def test_a_backbone_without_3x3_convolutions_is_refused() -> None:
    class Patches(Backbone):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Conv2d(3, 4, 4, stride=4)

        def forward(self, images: Tensor) -> Tensor:
            maps: Tensor = self.project(images)
            return maps

    with pytest.raises(OptionError, match="but Patches has none"):
        TSA().build((3, 20, 20), 0, Patches())


def centroids(size: int, **options: Any) -> ContrastiveCentroids:
    return built(ContrastiveCentroids, size, n_base=3, **options)


def test_scores_of_centroids_worked_by_hand() -> None:
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
    method = centroids(4, weight=0.5)
    items, classes = torch.rand(6, 4), torch.arange(6) % 3
    of_batch = method.loss(Batch(items=items, classes=classes))
    contrast = supervised_contrast(method.project(items), classes, 0.1)
    expected = functional.cross_entropy(method.classify(items), classes) + 0.5 * contrast
    torch.testing.assert_close(of_batch, expected)
    tasks = episode(4)
    of_episode = method.loss(tasks)
    scores = method.scores(tasks.support, tasks.query)
    expected = functional.cross_entropy(scores.flatten(0, 1), tasks.query_labels.flatten())
    torch.testing.assert_close(of_episode, expected)
    both = Batch(tasks.support, tasks.query, tasks.query_labels, items=items, classes=classes)
    torch.testing.assert_close(method.loss(both), of_batch + of_episode)
    with pytest.raises(OptionError, match="learns from batches or episodes"):
        method.loss(Batch())


def test_views_are_classified_and_contrasted() -> None:
    weights = {"weight": 0.5, "global_weight": 0.25, "local_weight": 0.0}
    method = centroids(32, views=Dimmed(), width=8, **weights)
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
    method = centroids(32, views=Dimmed(), width=8, episode_weight=0.0)
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
    method = centroids(6, attention=True)
    support, query = torch.randn(2, 3, 2, 6), torch.randn(2, 4, 6)
    plain = ContrastiveCentroids().scores(support, query)
    torch.testing.assert_close(method.scores(support, query), plain)
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
