from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.fft import dctn
from torch import Tensor, nn

from fsf_methods.sets import FGFL, _fgfl
from fsf_methods.sets._frequencies import Frequencies
from fsframework.interfaces import Backbone, Batch, OptionError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks([FGFL])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


class Small(Backbone):
    """A convolution with BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 6, 3, stride=4, padding=1), nn.BatchNorm2d(6), nn.ReLU()
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


def built(**options: Any) -> FGFL:
    torch.manual_seed(0)
    method = FGFL(dropout=0.0, attention_dropout=0.0, **options)
    method.build((3, 16, 20), 0, Small())
    return method


def images(*, tasks: int = 2, shot: int = 2) -> Batch:
    generator = torch.Generator().manual_seed(0)
    return Batch(
        torch.randn(tasks, 3, shot, 3, 16, 20, generator=generator),
        torch.randn(tasks, 6, 3, 16, 20, generator=generator),
        torch.tensor([[0, 2, 1, 0, 2, 1], [2, 2, 1, 1, 0, 0]])[:tasks],
    )


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


def test_scores_are_the_literal_ones() -> None:
    method = built(temperature=3.0).eval()
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(2, 3, 2, 6, generator=generator)
    query = torch.randn(2, 5, 6, generator=generator)
    with torch.no_grad():
        found = method.scores(support, query)
        for t in range(2):
            items = torch.cat([support[t].flatten(0, 1), query[t]])
            adapted = method.attention(items[None])[0]
            classes, queries = adapted[:6].reshape(3, 2, 6), adapted[6:]
            distances = torch.cdist(queries, classes.mean(dim=1)).square()
            shares = (-distances / 3).softmax(dim=1)
            prototypes = torch.stack(
                [
                    (classes[k].sum(dim=0) + (shares[:, k, None] * queries).sum(dim=0))
                    / (2 + shares[:, k].sum())
                    for k in range(3)
                ]
            )
            expected = -torch.cdist(queries, prototypes).square() / 3
            torch.testing.assert_close(found[t], expected)


def test_the_order_of_queries_and_shots_does_not_change_the_loss() -> None:
    batch = images()
    assert batch.support is not None
    assert batch.query is not None
    assert batch.query_labels is not None
    order = [4, 2, 0, 5, 3, 1]
    other = Batch(batch.support[:, :, [1, 0]], batch.query[:, order], batch.query_labels[:, order])
    found, expected = (built().loss(b).detach() for b in (other, batch))
    torch.testing.assert_close(found, expected)


def test_the_loss_of_tasks_is_the_mean_of_theirs() -> None:
    # With running statistics, tasks share nothing.
    batch = images()
    assert batch.support is not None
    assert batch.query is not None
    assert batch.query_labels is not None
    method = built().eval()
    alone = [
        method.loss(
            Batch(batch.support[t : t + 1], batch.query[t : t + 1], batch.query_labels[t : t + 1])
        ).detach()
        for t in range(2)
    ]
    torch.testing.assert_close(method.loss(batch).detach(), sum(alone) / 2)


def test_training_reaches_both_backbones_and_counts_their_batches_once() -> None:
    method = built(balance=0.5)
    method.loss(images()).backward()
    for backbone in (method.backbone, method.frequency_backbone):
        assert isinstance(backbone, Small)
        assert backbone.layers[1].num_batches_tracked == 1
        assert backbone.layers[1].training
        gradient = backbone.layers[0].weight.grad
        assert gradient is not None
        assert gradient.any()


def test_a_backbone_that_is_not_trained_still_guides() -> None:
    method = built()
    for part in (method.backbone, method.frequency_backbone):
        part.requires_grad_(False)
    method.loss(images()).backward()
    assert method.attention.leave.weight.grad is not None


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature must be above 0, got 0.0"),
        ({"regulariser_temperature": -1.0}, "regulariser_temperature must be above 0, got -1.0"),
        ({"balance": -1.0}, "balance must be at least 0, got -1.0"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        ({"attention_dropout": -0.5}, r"attention_dropout must be in \[0, 1\), got -0.5"),
    ],
)
def test_options_are_validated(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        FGFL(**options)


def test_images_smaller_than_a_block_are_refused() -> None:
    with pytest.raises(OptionError, match="images of at least 8 x 8 pixels, got 7 x 20"):
        FGFL().build((3, 7, 20), 0, Small())
