from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from fsf_backbones import Conv64F
from fsf_methods.transfer import RFS, Logistic
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks([RFS, partial(RFS, normalize=False), Logistic, partial(Logistic, c=0.1)])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def built(n_base: int = 3, dim: int = 2, **options: Any) -> RFS:
    method = RFS(**options)
    method.build((dim,), n_base, Conv64F())
    return method


def theirs(support: Tensor, query: Tensor) -> Tensor:
    """Return the decision function of one task: support ``(way, shot, D)``, query ``(n, D)``."""
    labels = np.repeat(np.arange(len(support)), support.shape[1])
    model = LogisticRegression(max_iter=1000).fit(support.flatten(0, 1).double().numpy(), labels)
    return torch.from_numpy(model.decision_function(query.double().numpy()))


def unit(items: Tensor) -> Tensor:
    return items / items.norm(dim=-1, keepdim=True)


def test_scores_are_scikit_learns() -> None:
    torch.manual_seed(0)
    support, query = 3 * torch.rand(3, 5, 4, 50), torch.rand(3, 20, 50)
    for method, change in (
        (RFS(), unit),
        (RFS(normalize=False), torch.clone),
        (Logistic(), torch.clone),
        (Logistic(normalize=True), unit),
    ):
        scores = method.scores(support, query)
        assert scores.dtype == torch.float32
        for task in range(3):
            expected = theirs(change(support[task]), change(query[task]))
            spread = expected.max() - expected.min()
            assert (scores[task] - expected).abs().max() < 1e-4 * spread


def test_two_ways() -> None:
    torch.manual_seed(0)
    support, query = torch.rand(1, 2, 4, 50), torch.rand(1, 20, 50)
    expected = theirs(support[0], query[0])
    scores = Logistic(tol=1e-6).scores(support, query)[0]
    apart = scores[:, 1] - scores[:, 0]
    torch.testing.assert_close(apart.double(), expected, rtol=0.02, atol=0.002)
    # RFS has two weight vectors, which is one with twice the c, so this difference is not small.
    softmax = RFS(normalize=False).scores(support, query)[0]
    assert (softmax[:, 1] - softmax[:, 0]).abs().mean() > 1.2 * expected.abs().mean()


def test_more_weight_on_the_losses_separates_more() -> None:
    torch.manual_seed(0)
    support, query = torch.rand(1, 5, 2, 30), torch.rand(1, 20, 30)
    spreads = [RFS(c=c).scores(support, query).std().item() for c in (0.1, 1.0, 10.0)]
    assert spreads[0] < 0.5 * spreads[1] < 0.25 * spreads[2]


def test_length_of_items_does_not_matter_where_normalised() -> None:
    torch.manual_seed(0)
    support, query = torch.rand(1, 5, 2, 30), torch.rand(1, 20, 30)
    lengths = torch.tensor([1e-3, 1e3]).repeat(15)[:, None]
    expected = RFS().scores(support, query)
    found = RFS().scores(support * lengths[:10].reshape(1, 5, 2, 1), query * lengths[:20])
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_half_precision() -> None:
    torch.manual_seed(0)
    support, query = torch.rand(2, 5, 2, 30).bfloat16(), torch.rand(2, 20, 30).bfloat16()
    scores = RFS().scores(support, query)
    assert scores.dtype == torch.bfloat16
    torch.testing.assert_close(
        scores.float(), RFS().scores(support.float(), query.float()), rtol=1e-2, atol=1e-2
    )
    with torch.autocast("cpu", torch.bfloat16):
        inside = RFS().scores(support.float(), query.float())
    assert torch.equal(inside, RFS().scores(support.float(), query.float()))


def test_loss_without_a_teacher_is_the_cross_entropy() -> None:
    method = built()
    assert method.classify is not None
    method.classify.load_state_dict(
        {"weight": torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), "bias": torch.zeros(3)}
    )
    items = torch.tensor([[2.0, 1.0], [0.0, 0.0]])
    loss = method.loss(Batch(items=items, classes=torch.tensor([0, 2])))
    # Logits 2, 1, 0 of class 0, and 0, 0, 0 of class 2.
    expected = (np.log(np.exp(2) + np.e + 1) - 2 + np.log(3)) / 2
    assert loss.item() == pytest.approx(expected)


def test_loss_with_a_teacher_worked_by_hand() -> None:
    method = built(n_base=2, alpha=0.3, beta=2.0, temperature=4.0)
    assert method.classify is not None
    method.classify.load_state_dict({"weight": 4 * torch.eye(2), "bias": torch.zeros(2)})
    batch = Batch(
        items=torch.tensor([[1.0, 0.0], [0.0, 0.0]]),
        classes=torch.tensor([0, 1]),
        teacher_logits=torch.tensor([[4 * np.log(3.0), 0.0], [0.0, 4 * np.log(4.0)]]),
    )
    # At temperature 4 the teacher gives 3/4, 1/4 and 1/5, 4/5; the student e/(e + 1), 1/(e + 1) and
    # 1/2, 1/2.
    student = np.array([[np.e, 1], [1, 1]]) / np.array([[np.e + 1], [2]])
    teacher = np.array([[3 / 4, 1 / 4], [1 / 5, 4 / 5]])
    divergence = (teacher * np.log(teacher / student)).sum() / 2
    cross_entropy = (np.log(1 + np.exp(-4)) + np.log(2)) / 2
    expected = 0.3 * cross_entropy + 2 * 16 * divergence
    assert method.loss(batch).item() == pytest.approx(expected, rel=1e-5)


def test_a_student_like_its_teacher_has_only_the_cross_entropy() -> None:
    torch.manual_seed(0)
    method, items = built(n_base=7, dim=5), torch.randn(10, 5)
    classes = torch.arange(10) % 7
    logits = method.class_logits(items)
    alone = method.loss(Batch(items=items, classes=classes))
    both = method.loss(Batch(items=items, classes=classes, teacher_logits=logits.detach()))
    torch.testing.assert_close(both, 0.5 * alone)


def test_without_base_classes_it_scores_but_cannot_teach() -> None:
    method = built(n_base=0)
    assert method.scores(torch.rand(1, 2, 1, 2), torch.rand(1, 3, 2)).shape == (1, 3, 2)
    assert not list(method.parameters())
    with pytest.raises(OptionError, match="no classifier of the base classes"):
        method.class_logits(torch.rand(1, 2))


@pytest.mark.parametrize("method", [RFS, Logistic])
@pytest.mark.parametrize(("name", "value"), [("c", 0.0), ("tol", -1.0), ("c", float("nan"))])
def test_options_of_the_regression_are_checked(method: Any, name: str, value: float) -> None:
    with pytest.raises(OptionError, match=f"{name} must be above 0, got {value}"):
        method(**{name: value})


@pytest.mark.parametrize(("name", "value"), [("alpha", -1.0), ("beta", -1.0), ("temperature", 0.0)])
def test_options_of_the_distillation_are_checked(name: str, value: float) -> None:
    with pytest.raises(OptionError, match=f"{name} must be .* got {value}"):
        RFS(**{name: value})
