from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_backbones import Conv64F
from fsf_methods.transfer import Baseline, BaselinePlusPlus
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks(
    [
        Baseline,
        partial(Baseline, steps=20, lr=0.1, weight_decay=0.0),
        BaselinePlusPlus,
        partial(BaselinePlusPlus, learn_lengths=False, scale=10.0, steps=50),
    ]
)
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def episode(*, tasks: int = 2, way: int = 3, shot: int = 4, n: int = 6, dim: int = 9) -> Any:
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(tasks, way, 1, dim, generator=generator)
    support = centres + torch.randn(tasks, way, shot, dim, generator=generator)
    return support, torch.randn(tasks, n, dim, generator=generator)


def fitted(classifier: nn.Module, support: Tensor, steps: int, **sgd: Any) -> None:
    """Fit a classifier to the whole support ``(way, shot, D)`` by PyTorch's own SGD."""
    way, shot, _ = support.shape
    labels = torch.arange(way).repeat_interleave(shot)
    optimiser = torch.optim.SGD(classifier.parameters(), momentum=0.9, dampening=0.9, **sgd)
    for _ in range(steps):
        optimiser.zero_grad()
        functional.cross_entropy(classifier(support.flatten(0, 1)), labels).backward()
        optimiser.step()


class Cosines(nn.Module):
    """The authors' classifier with a given start: 1/sqrt(3) long, along the means of unit items."""

    def __init__(self, support: Tensor, scale: float, learn_lengths: bool) -> None:
        super().__init__()
        way, _, dim = support.shape
        means = (support / (support.norm(dim=2, keepdim=True) + 1e-5)).mean(dim=1)
        layer = nn.Linear(dim, way, bias=False)
        layer.weight.data = means / means.norm(dim=1, keepdim=True) / 3**0.5
        self.layer = nn.utils.parametrizations.weight_norm(layer)
        if not learn_lengths:
            lengths = self.layer.parametrizations.weight.original0
            lengths.requires_grad_(False).fill_(1.0)
        self.scale = scale

    def forward(self, items: Tensor) -> Tensor:
        scores: Tensor = self.layer(items / (items.norm(dim=1, keepdim=True) + 1e-5))
        return self.scale * scores


@pytest.mark.parametrize(("steps", "lr", "weight_decay"), [(1, 0.5, 0.1), (40, 0.1, 0.02)])
def test_baseline_does_what_literal_sgd_does(steps: int, lr: float, weight_decay: float) -> None:
    support, query = episode()
    method = Baseline(steps=steps, lr=lr, weight_decay=weight_decay)
    scores = method.scores(support, query)
    for task in range(2):
        linear = nn.Linear(9, 3)
        nn.init.zeros_(linear.weight)
        nn.init.zeros_(linear.bias)
        fitted(linear, support[task], steps, lr=lr, weight_decay=weight_decay)
        torch.testing.assert_close(scores[task], linear(query[task]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("learn_lengths", [True, False])
@pytest.mark.parametrize(("steps", "lr", "weight_decay"), [(1, 0.5, 0.1), (40, 0.1, 0.02)])
def test_baseline_plus_plus_does_what_literal_sgd_does(
    steps: int, lr: float, weight_decay: float, learn_lengths: bool
) -> None:
    support, query = episode()
    method = BaselinePlusPlus(
        steps=steps, lr=lr, weight_decay=weight_decay, learn_lengths=learn_lengths, scale=5.0
    )
    scores = method.scores(support, query)
    for task in range(2):
        cosines = Cosines(support[task], 5.0, learn_lengths)
        fitted(cosines, support[task], steps, lr=lr, weight_decay=weight_decay)
        torch.testing.assert_close(scores[task], cosines(query[task]), rtol=1e-4, atol=1e-5)


def test_first_step_of_baseline_worked_by_hand() -> None:
    support = torch.tensor([[[[2.0, 0.0]], [[0.0, 2.0]]]])
    scores = Baseline(steps=1, lr=0.5, weight_decay=0.0).scores(support, torch.tensor([[[1.0, 0]]]))
    # From probabilities of 1/2, each of two items moves its own row by 0.5 * 1/2 * 1/2 of itself
    # and the other by as much in the other direction; the biases' moves cancel.
    torch.testing.assert_close(scores, torch.tensor([[[0.25, -0.25]]]))


@pytest.mark.parametrize("method", [Baseline, BaselinePlusPlus])
@pytest.mark.parametrize(("way", "shot", "steps"), [(5, 5, 700), (5, 1, 200), (2, 2, 100)])
def test_there_are_as_many_steps_as_in_100_epochs_of_batches_of_4(
    method: Any, way: int, shot: int, steps: int
) -> None:
    support, query = episode(way=way, shot=shot)
    expected = method(steps=steps).scores(support, query)
    assert torch.equal(method().scores(support, query), expected)
    assert not torch.equal(method(steps=steps - 1).scores(support, query), expected)


@pytest.mark.parametrize("method", [Baseline, BaselinePlusPlus])
def test_default_fit_separates_its_support(method: Any) -> None:
    support, _ = episode(tasks=20, way=5, shot=5, dim=64)
    labels = torch.arange(5).repeat_interleave(5)
    found = method().scores(support, support.flatten(1, 2)).argmax(dim=2)
    assert (found == labels).all()


@pytest.mark.parametrize("method", [Baseline, BaselinePlusPlus])
def test_zeros_and_long_vectors_have_finite_scores(method: Any) -> None:
    support, query = episode()
    for factor in (0.0, 1e4):
        assert method().scores(factor * support, factor * query).isfinite().all()


@pytest.mark.parametrize("method", [Baseline, BaselinePlusPlus])
def test_precision_follows_the_items(method: Any) -> None:
    support, query = episode()
    exact = method().scores(support.double(), query.double())
    assert exact.dtype == torch.float64
    torch.testing.assert_close(
        method().scores(support, query).double(), exact, rtol=1e-3, atol=1e-4
    )
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(method().scores(support, query), method().scores(support, query))
    assert method().scores(support.bfloat16(), query.bfloat16()).dtype == torch.bfloat16


def test_loss_of_baseline_is_the_cross_entropy_of_a_linear_layer() -> None:
    torch.manual_seed(0)
    method = Baseline()
    method.build((9,), 4, Conv64F())
    linear = nn.Linear(9, 4)
    assert method.classify is not None
    method.classify.load_state_dict(linear.state_dict())
    items, classes = torch.randn(6, 9), torch.tensor([0, 1, 2, 3, 3, 0])
    expected = functional.cross_entropy(linear(items), classes)
    torch.testing.assert_close(method.loss(Batch(items=items, classes=classes)), expected)


@pytest.mark.parametrize("learn_lengths", [True, False])
def test_class_logits_of_baseline_plus_plus_are_scaled_cosines(learn_lengths: bool) -> None:
    torch.manual_seed(0)
    method = BaselinePlusPlus(learn_lengths=learn_lengths)
    method.build((9,), 4, Conv64F())
    state = method.state_dict()
    assert set(state) == {"classify.directions"} | (
        {"classify.lengths"} if learn_lengths else set()
    )
    items = torch.randn(6, 9)
    cosines = functional.cosine_similarity(items[:, None], state["classify.directions"], dim=2)
    lengths = state["classify.lengths"] if learn_lengths else torch.ones(4)
    torch.testing.assert_close(
        method.class_logits(items), 2 * cosines * lengths, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    ("options", "n_classes", "scale"),
    [
        ({}, 200, 2.0),
        ({}, 201, 10.0),
        ({"scale": 7.0}, 201, 7.0),
    ],
)
def test_scale_follows_the_number_of_classes(
    options: dict[str, float], n_classes: int, scale: float
) -> None:
    method = BaselinePlusPlus(**options)
    method.build((9,), n_classes, Conv64F())
    assert method.classify is not None
    assert method.classify.scale == scale


@pytest.mark.parametrize("method", [Baseline, BaselinePlusPlus])
def test_neither_accepts_a_teacher(method: Any) -> None:
    made = method()
    made.build((9,), 4, Conv64F())
    batch = Batch(
        items=torch.randn(6, 9), classes=torch.arange(6) % 4, teacher_logits=torch.zeros(6, 4)
    )
    with pytest.raises(OptionError, match="does not learn from a teacher"):
        made.loss(batch)


@pytest.mark.parametrize("method", [Baseline, BaselinePlusPlus])
@pytest.mark.parametrize(("name", "value"), [("steps", 0), ("lr", 0.0), ("weight_decay", -1.0)])
def test_options_are_checked(method: Any, name: str, value: float) -> None:
    with pytest.raises(OptionError, match=f"{name} must be .* got {value}"):
        method(**{name: value})


def test_scale_is_checked() -> None:
    with pytest.raises(OptionError, match="scale must be above 0, got 0"):
        BaselinePlusPlus(scale=0.0)
