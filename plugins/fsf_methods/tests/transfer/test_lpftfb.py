from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch.nn import functional

from fsf_methods.transfer import LPFTFB, Baseline, BaselinePlusPlus
from fsf_methods.transfer._classifiers import penalised_loss
from fsframework.interfaces import OptionError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks([partial(LPFTFB, steps=50), partial(LPFTFB, steps=50, head="dist")])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def episode() -> Any:
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(2, 3, 2, 7, generator=generator)
    return support, torch.randn(2, 5, 7, generator=generator)


def test_the_penalty_worked_by_hand() -> None:
    # Probabilities of 3/4 and 1/4.
    logits, labels = torch.tensor([[math.log(3), 0.0]]), torch.tensor([0])
    found = penalised_loss(logits, labels, firth=0.5)
    expected = -math.log(3 / 4) - 0.5 * (math.log(3 / 4) + math.log(1 / 4)) / 2
    torch.testing.assert_close(found, torch.tensor(expected))


@pytest.mark.parametrize("head", ["softmax", "dist"])
def test_the_fast_fit_does_what_the_general_one_does(head: Any) -> None:
    support, query = episode()
    method = LPFTFB(head=head, steps=30, lr=0.1, firth_c=0.7)
    if head == "softmax":
        start = {"weight": torch.zeros(2, 3, 7), "bias": torch.zeros(2, 3)}
    else:
        means = functional.normalize(functional.normalize(support, dim=3).mean(dim=2), dim=2)
        start = {"directions": means / 3**0.5, "lengths": torch.full((2, 3), 1 / 3**0.5)}
    general = method.scores_from(start, support, query, batch_size=None)
    torch.testing.assert_close(method.scores(support, query), general, rtol=1e-3, atol=1e-3)


def test_without_the_penalty_it_is_the_baselines() -> None:
    support, query = episode()
    found = LPFTFB(firth_c=0.0, steps=30).scores(support, query)
    assert torch.equal(found, Baseline(steps=30).scores(support, query))
    found = LPFTFB(firth_c=0.0, steps=30, head="dist").scores(support, query)
    assert torch.equal(found, BaselinePlusPlus(steps=30).scores(support, query))
    assert torch.equal(LPFTFB().scores(support, query), LPFTFB(steps=600).scores(support, query))


def test_the_penalty_brings_scores_together() -> None:
    support, query = episode()
    spreads = [
        float(LPFTFB(firth_c=c, steps=300, lr=0.1).scores(support, query).std(dim=2).mean())
        for c in (0.0, 0.5, 2.0)
    ]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[0] > 1.5 * spreads[2]


@pytest.mark.parametrize(
    ("name", "value"), [("head", "cosine"), ("firth_c", -1.0), ("steps", 0), ("lr", 0.0)]
)
def test_options_are_checked(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"{name} must be .* got {value!r}"):
        LPFTFB(**{name: value})
