from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fsf_backbones import Conv64F
from fsf_methods.metric import Versa
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks(
    [partial(Versa, dim=32), partial(Versa, dim=16, sample=False, dropout=0.1)]
)
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def constant(network: nn.Module, values: list[float]) -> None:
    """Let a network return given numbers, whatever it is given."""
    last = network[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor(values))


def by_hand(**options: Any) -> Versa:
    """A classifier with the weights (1, 2), the variances (4, 1) and the bias 0.5 ± sqrt(3)."""
    method = Versa(dim=2, **options)
    method.build((2,), 0, Conv64F())
    constant(method.weight_mean, [1.0, 2.0])
    constant(method.weight_logvar, [math.log(4), 0.0])
    constant(method.bias_mean, [0.5])
    constant(method.bias_logvar, [math.log(3)])
    return method.eval()


SUPPORT, QUERY = torch.zeros(1, 2, 1, 2), torch.tensor([[[3.0, 1.0]]])
# The logits are 3 + 2 + 0.5, their variance 9 * 4 + 1 * 1 + 3 = 40.
MEAN, DEVIATION = 5.5, math.sqrt(40)
NOISE = torch.tensor([[1.0, -1.0], [0.5, 0.0]])[:, None, None]


def logits() -> list[list[float]]:
    return [[MEAN + DEVIATION * e for e in draw] for draw in ((1.0, -1.0), (0.5, 0.0))]


def softmax(pair: list[float]) -> list[float]:
    total = sum(map(math.exp, pair))
    return [math.exp(x) / total for x in pair]


def test_scores_are_the_logits_of_the_mean_weights() -> None:
    torch.testing.assert_close(by_hand().scores(SUPPORT, QUERY), torch.tensor([[[MEAN, MEAN]]]))


@pytest.mark.parametrize("average", ["probabilities", "logits"])
def test_scores_from_noise_worked_by_hand(average: Any) -> None:
    found = by_hand(average=average).scores_from(SUPPORT, QUERY, NOISE)
    draws = logits()
    if average == "probabilities":
        draws = [[math.log(p) for p in softmax(pair)] for pair in draws]
    expected = [math.log((math.exp(a) + math.exp(b)) / 2) for a, b in zip(*draws, strict=True)]
    torch.testing.assert_close(found, torch.tensor([[expected]]), rtol=1e-4, atol=1e-4)


def test_the_loss_averages_likelihoods_worked_by_hand() -> None:
    labels = torch.tensor([[1]])
    found = by_hand().loss_from(SUPPORT, QUERY, labels, NOISE)
    mean = sum(softmax(pair)[1] for pair in logits()) / 2
    torch.testing.assert_close(found, torch.tensor(-math.log(mean)), rtol=1e-4, atol=1e-4)


def test_training_draws_unless_it_is_told_not_to() -> None:
    generator = torch.Generator().manual_seed(0)
    batch = Batch(
        support=torch.randn(2, 3, 2, 5, generator=generator),
        query=torch.randn(2, 6, 5, generator=generator),
        query_labels=torch.arange(6).repeat(2, 1) % 3,
    )
    for sample in (True, False):
        torch.manual_seed(0)
        method = Versa(dim=4, sample=sample)
        method.build((5,), 0, Conv64F())
        losses: list[Tensor] = [method.eval().loss(batch) for _ in range(2)]
        assert (losses[0] != losses[1]) == sample


@pytest.mark.parametrize(
    ("name", "value"),
    [("dim", 0), ("n_samples", 0), ("average", "weights"), ("dropout", 1.0)],
)
def test_options_are_checked(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"{name} must be .* got {value!r}"):
        Versa(**{name: value})
