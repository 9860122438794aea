from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fsf_methods.transfer import RFS, SKD
from fsframework.interfaces import Backbone, Batch, OptionError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks([SKD])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


class Corner(Backbone):
    """The red values of the first row of a 2 x 2 image."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, images: Tensor) -> Tensor:
        return self.factor * images[:, 0, 0, :, None, None]


IMAGE = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).expand(1, 3, 2, 2)
# Counter-clockwise: the first rows are [1, 2], [2, 4], [4, 3] and [3, 1].
ROWS = [(1.0, 2.0), (2.0, 4.0), (4.0, 3.0), (3.0, 1.0)]


def made(**options: Any) -> SKD:
    method = SKD(**options)
    method.build((3, 2, 2), 2, Corner())
    assert method.classify is not None
    assert method.classify_rotation is not None
    with torch.no_grad():
        method.classify.weight.copy_(torch.eye(2))
        method.classify.bias.zero_()
        method.classify_rotation.weight.copy_(torch.tensor([[1.0, 0], [0, 1], [0, 0], [-1, 0]]))
        method.classify_rotation.bias.zero_()
    return method


def test_the_loss_of_generation_0_worked_by_hand() -> None:
    batch = Batch(items=IMAGE, classes=torch.tensor([1]))
    of_classes = sum(math.log(1 + math.exp(a - b)) for a, b in ROWS) / 4
    of_turns = 0.0
    for turn, (a, b) in enumerate(ROWS):
        for place, logit in enumerate((a, b, 0.0, -a)):
            of_turns += math.log(1 + math.exp(-logit if place == turn else logit)) / 16
    for gamma, alpha in ((1.0, 0.0), (0.0, 1.0), (0.5, 3.0)):
        found = float(made(gamma=gamma, alpha=alpha).loss(batch).detach())
        assert found == pytest.approx(gamma * of_classes + alpha * of_turns, rel=1e-5)


def test_the_loss_of_generation_1_worked_by_hand() -> None:
    teacher = torch.tensor([[2.0, 1.0]])
    batch = Batch(items=IMAGE, classes=torch.tensor([1]), teacher_logits=teacher)
    away = sum(math.dist(ROWS[0], row) for row in ROWS[1:]) / 3
    found = float(made(distill_gamma=0.0, distill_alpha=0.3).loss(batch).detach())
    assert found == pytest.approx(0.3 * away, rel=1e-5)
    # At temperature 2 the logits differ by -1/2 and 1/2; the divergence is by the square of 2.
    p = 1 / (1 + math.exp(-0.5))
    divergence = p * math.log(p / (1 - p)) + (1 - p) * math.log((1 - p) / p)
    found = float(made(distill_alpha=0.0, temperature=2.0).loss(batch).detach())
    assert found == pytest.approx(4 * divergence, rel=1e-5)


def test_tasks_are_scored_as_by_rfs() -> None:
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(2, 3, 2, 7, generator=generator)
    query = torch.randn(2, 5, 7, generator=generator)
    assert torch.equal(SKD().scores(support, query), RFS().scores(support, query))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gamma", -1.0),
        ("alpha", -1.0),
        ("distill_gamma", -1.0),
        ("distill_alpha", -1.0),
        ("temperature", 0.0),
        ("c", 0.0),
        ("tol", 0.0),
    ],
)
def test_options_are_checked(name: str, value: float) -> None:
    with pytest.raises(OptionError, match=f"{name} must be .* got {value}"):
        SKD(**{name: value})
