from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fsf_methods.transductive import SIB
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks
from fsframework.testing.method import ToyBackbone
from tests.golden_heads import Case, assert_loss, assert_scores, golden_heads, read_case


@parametrize_with_checks([SIB])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


NAMES = {
    "bias": "bias",
    "scale_cls": "scale",
    "wnLayerFavg.weight": "weight",
    **{f"dni.layer1.0.{p}": f"gradient.0.{p}" for p in ("weight", "bias")},
    **{f"dni.layer1.2.{p}": f"gradient.2.{p}" for p in ("weight", "bias")},
    **{f"dni.layer2.0.{p}": f"gradient.3.{p}" for p in ("weight", "bias")},
    **{f"dni.layer2.2.{p}": f"gradient.5.{p}" for p in ("weight", "bias")},
    **{f"dni.layer3.{p}": f"gradient.6.{p}" for p in ("weight", "bias")},
}
"""Our name of each parameter of the reference, whose running statistics are never used."""


def from_case(case: Case, **options: Any) -> SIB:
    given = {"steps": int(case.number("q_steps")), "lr": case.number("lr"), **options}
    method = SIB(n_way=case.way, **given)
    method.build(case.arrays["query"].shape[1:], 0, ToyBackbone())
    state = {ours: case.parameters[theirs] for theirs, ours in NAMES.items()}
    method.load_state_dict(state)
    return method


@golden_heads("SIB")
def test_golden_heads_sib(path: Path) -> None:
    case = read_case(path)
    support, query = case.tensor("support")[None], case.tensor("query")[None]
    method = from_case(case)
    # Several tasks at once: the other one has other statistics.
    pair = torch.cat([support, support.flip(3)]), torch.cat([query, query.roll(1, 2)])
    assert_scores(method.eval().scores(*pair)[0], case.tensor("scores"))
    start = from_case(case, steps=0).scores(support, query)
    assert_scores(start[0], case.tensor("scores_initial"))
    labels = case.tensor("query_labels")[None]
    batch = Batch(support=support, query=query, query_labels=labels)
    assert_loss(method.train().loss(batch).detach(), case.number("loss"))


def test_the_pulled_back_gradient_is_that_of_the_scores() -> None:
    torch.manual_seed(0)
    method = SIB(n_way=3, initial_scale=4.0)
    query = torch.randn(2, 5, 6)
    inverse = 1 / query.norm(dim=2, keepdim=True)
    prototypes = torch.randn(2, 3, 6, requires_grad=True)
    gradient = torch.randn(2, 5, 3)
    scores = method._scored(query, inverse, prototypes)
    [expected] = torch.autograd.grad(scores, prototypes, gradient)
    found = method._pulled_back(inverse * gradient, query, prototypes)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_scores_worked_by_hand() -> None:
    # Without steps: cosines of (3, 4) to the axes, plus 1, times 2.
    method = SIB(n_way=2, steps=0, initial_scale=2.0, initial_bias=1.0)
    method.build((2,), 0, ToyBackbone())
    support = torch.tensor([[[[5.0, 0.0]], [[0.0, 0.1]]]])
    found = method.scores(support, torch.tensor([[[3.0, 4.0]]]))
    torch.testing.assert_close(found, torch.tensor([[[3.2, 3.6]]]))


def test_the_order_of_the_queries_is_of_no_effect() -> None:
    torch.manual_seed(0)
    method = SIB(n_way=3, lr=0.5).eval()
    method.build((8,), 0, ToyBackbone())
    support, query = torch.randn(2, 3, 2, 8), torch.randn(2, 9, 8)
    order = torch.randperm(9)
    found = method.scores(support, query[:, order])
    torch.testing.assert_close(found, method.scores(support, query)[:, order], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_way": 1}, "n_way must be at least 2, got 1"),
        ({"steps": -1}, "steps must be at least 0, got -1"),
        ({"lr": 0.0}, "lr must be above 0 and finite, got 0.0"),
        ({"initial_bias": float("nan")}, "initial_bias must be finite, got nan"),
    ],
)
def test_options_outside_their_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        SIB(**options)
