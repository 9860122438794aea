from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_backbones import Conv64F
from fsf_methods.transfer import Baseline, BaselinePlusPlus, NegCosine
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks([partial(NegCosine, steps=50, inner_margin=-0.1)])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def episode(way: int = 3, shot: int = 3, dim: int = 9) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(2, way, shot, dim, generator=generator)
    return support, torch.randn(2, 6, dim, generator=generator)


def test_the_loss_worked_by_hand() -> None:
    method = NegCosine(margin=-0.5, scale=2.0)
    method.build((2,), 2, Conv64F())
    assert isinstance(method.classify, nn.Module)
    method.classify.load_state_dict({"directions": torch.tensor([[3.0, 0.0], [0.0, 0.5]])})
    # The cosines are 0.6 and 0.8; the own class's is raised by 1/2: logits 2.2 and 1.6.
    batch = Batch(items=torch.tensor([[3.0, 4.0]]), classes=torch.tensor([0]))
    expected = torch.tensor(1 + 2.718281828459045**-0.6).log()
    torch.testing.assert_close(method.loss(batch), expected)
    torch.testing.assert_close(method.class_logits(batch.items), torch.tensor([[1.2, 1.6]]))


@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("kind", ["negcosine", "baseline++", "baseline"])
def test_from_a_given_start_it_does_what_literal_steps_do(
    kind: str, optimizer: Any, batch_size: int | None
) -> None:
    support, query = episode()
    options: dict[str, Any] = {"steps": 7, "lr": 0.3, "weight_decay": 0.02}
    options["optimizer"] = optimizer
    generator = torch.Generator().manual_seed(1)
    start = {"directions": torch.randn(2, 3, 9, generator=generator)}
    margin, scale = 0.0, 2.0
    method: Any
    if kind == "negcosine":
        margin, scale = -0.2, 5.0
        method = NegCosine(inner_margin=margin, inner_scale=scale, **options)
    elif kind == "baseline++":
        method = BaselinePlusPlus(**options)
        start["lengths"] = torch.rand(2, 3, generator=generator)
    else:
        method = Baseline(**options)
        start = {"weight": start["directions"], "bias": torch.rand(2, 3, generator=generator)}
    scores = method.scores_from(start, support, query, batch_size=batch_size)

    def logits(parts: dict[str, Tensor], items: Tensor) -> Tensor:
        if kind == "baseline":
            return functional.linear(items, parts["weight"], parts["bias"])
        cosines = functional.cosine_similarity(items[:, None], parts["directions"], dim=2)
        return scale * cosines * parts.get("lengths", torch.ones(3))

    labels = torch.arange(3).repeat_interleave(3)
    for task in range(2):
        parts = {name: value[task].clone().requires_grad_() for name, value in start.items()}
        made: Any = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
        more = {"momentum": 0.9, "dampening": 0.9} if optimizer == "sgd" else {}
        steps = made(parts.values(), lr=0.3, weight_decay=0.02, **more)
        items = support[task].flatten(0, 1)
        for step in range(7):
            part = slice(None) if batch_size is None else slice(4 * (step % 3), 4 * (step % 3) + 4)
            found = logits(parts, items[part])
            found = found - scale * margin * functional.one_hot(labels[part], 3)
            steps.zero_grad()
            functional.cross_entropy(found, labels[part]).backward()
            steps.step()
        torch.testing.assert_close(scores[task], logits(parts, query[task]), rtol=1e-3, atol=1e-3)


def test_the_fast_fit_does_what_the_general_one_does() -> None:
    support, query = episode()
    method = NegCosine(steps=30, inner_margin=-0.2, lr=0.1)
    means = functional.normalize(functional.normalize(support, dim=3).mean(dim=2), dim=2) / 3**0.5
    general = method.scores_from({"directions": means}, support, query, batch_size=None)
    torch.testing.assert_close(method.scores(support, query), general, rtol=1e-3, atol=1e-3)
    unlike = NegCosine(steps=30, inner_margin=0.2, lr=0.1).scores(support, query)
    assert (unlike - general).abs().max() > 0.01


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("margin", -1.5),
        ("inner_margin", 2.0),
        ("scale", 0.0),
        ("inner_scale", -1.0),
        ("steps", 0),
        ("lr", 0.0),
        ("weight_decay", -1.0),
        ("optimizer", "lbfgs"),
    ],
)
def test_options_are_checked(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"{name} must be .* got {value!r}"):
        NegCosine(**{name: value})
