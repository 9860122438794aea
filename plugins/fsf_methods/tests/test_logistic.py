"""Logistic regression of many tasks, compared with scikit-learn's of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn import functional

from fsf_methods.transfer import RFS, Logistic, _logreg
from fsf_methods.transfer._logreg import logistic_regression
from fsframework.interfaces import Batch
from plugins.fsf_methods.tests.toys import built


def items(
    *shape: int, seed: int = 0, spread: float = 1.0, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Return ``(tasks, way, n, D)``: for each way ``n`` items around its own centre."""
    generator = torch.Generator().manual_seed(seed)
    tasks, way, _, dim = shape
    centres = torch.randn(tasks, way, 1, dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return (0.5 * centres + spread * noise).relu().to(dtype)


def theirs(support: Tensor, **options: Any) -> LogisticRegression:
    """Return scikit-learn's regression of one task's support ``(way, shot, D)``."""
    labels = np.repeat(np.arange(len(support)), support.shape[1])
    model = LogisticRegression(**{"max_iter": 100_000, **options})
    return model.fit(support.flatten(0, 1).numpy(), labels)


def gradient(support: Tensor, weights: Tensor, biases: Tensor, c: float) -> Tensor:
    """Return the objective's gradient ``(tasks, way, D + 1)``, by autograd."""
    weights, biases = weights.clone().requires_grad_(), biases.clone().requires_grad_()
    tasks, way, shot, _ = support.shape
    logits = support.flatten(1, 2) @ weights.mT + biases[:, None]
    labels = torch.arange(way).repeat_interleave(shot).repeat(tasks)
    losses = functional.cross_entropy(logits.flatten(0, 1), labels, reduction="sum") / (way * shot)
    value = losses + weights.square().sum() / (2 * c * way * shot)
    of_weights, of_biases = torch.autograd.grad(value, (weights, biases))
    return torch.cat([of_weights, of_biases[..., None]], dim=2)


@pytest.mark.parametrize("c", [1.0, 0.2])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(
    ("way", "shot", "dim"), [(5, 1, 300), (5, 5, 300), (3, 8, 10), (20, 2, 40)]
)
def test_follows_scikit_learns_iterations_to_their_end(
    way: int, shot: int, dim: int, normalize: bool, c: float
) -> None:
    support = items(4, way, shot, dim)
    weights, biases = logistic_regression(support, normalize=normalize, c=c)
    if normalize:
        support = functional.normalize(support, dim=-1)
    # Both stop before the minimum: equal numbers mean equal iterations.
    for task in range(4):
        model = theirs(support[task], C=c)
        size = np.abs(model.coef_).max()
        assert np.abs(weights[task].numpy() - model.coef_).max() < 1e-5 * size
        assert np.abs(biases[task].numpy() - model.intercept_).max() < 1e-5 * size
    at_end = gradient(support, weights, biases, c).abs().amax(dim=(1, 2))
    assert (at_end <= 1.001e-4).all()
    assert (at_end > 1e-8).all()


HARD = {
    "one shot": items(2, 5, 1, 30),
    "two ways": items(2, 2, 3, 30),
    "twenty ways": items(2, 20, 1, 30),
    "fewer dimensions than items": items(2, 3, 10, 2),
    "the same item twice in a way": items(2, 4, 1, 20).expand(-1, -1, 3, -1),
    "the same item in all ways": items(2, 1, 3, 20).expand(-1, 4, -1, -1),
    "zeros": items(2, 3, 2, 10) * torch.tensor([0.0, 1.0], dtype=torch.float64)[:, None],
    "nothing but zeros": torch.zeros(2, 3, 2, 10, dtype=torch.float64),
    "long": 100 * items(2, 5, 5, 30),
    "very long": 1e4 * items(2, 5, 5, 30),
    "short": 1e-3 * items(2, 5, 5, 30),
    "far from the origin": items(2, 5, 5, 30) + 5,
}


@pytest.mark.parametrize("name", HARD)
def test_reaches_the_minimum_and_its_labels(name: str) -> None:
    support = HARD[name]
    found = logistic_regression(support, tol=1e-6)
    assert gradient(support, *found, 1.0).abs().max() <= 1.001e-6
    # Two ways have one weight vector there.
    c = 0.5 if support.shape[1] == 2 else 1.0
    weights, biases = logistic_regression(support, c=c, tol=1e-7)
    query = items(2, 50, 1, support.shape[3], seed=1)[:, :, 0] * support.abs().mean()
    for task in range(2):
        model = theirs(support[task], tol=1e-7)
        expected = torch.from_numpy(model.decision_function(query[task].numpy()))
        if expected.ndim == 1:
            expected = torch.stack([-expected, expected], dim=1) / 2
        scores = query[task] @ weights[task].mT + biases[task]
        best = expected.topk(2, dim=1).values
        tied = best[:, 0] - best[:, 1] < 1e-3 * (best.abs().max() + 1e-9)
        assert (tied | (scores.argmax(dim=1) == expected.argmax(dim=1))).all()
        if "zeros" not in name and "all ways" not in name:
            assert tied.double().mean() < 0.1


def test_hard_and_easy_tasks_end_together_as_separately() -> None:
    parts = [torch.zeros(1, 5, 3, 20), items(3, 5, 3, 20), 50 * items(2, 5, 3, 20, seed=1)]
    support = torch.cat([part.double() for part in parts])
    together = logistic_regression(support)
    alone = [
        torch.cat(part) for part in zip(*map(logistic_regression, support.split(1)), strict=True)
    ]
    torch.testing.assert_close(list(together), alone, rtol=1e-4, atol=1e-9)


def test_iterations_are_bounded() -> None:
    support = 100 * items(2, 5, 5, 30)
    one, two = (logistic_regression(support, max_iter=n)[0] for n in (1, 2))
    assert one.isfinite().all()
    # The first step along the gradient has length 1, or the search starts there.
    assert (one != 0).any()
    assert (one != two).any()
    assert (logistic_regression(support, max_iter=0)[0] == 0).all()


def test_single_precision_is_enough_for_normalised_items() -> None:
    support = items(4, 5, 5, 200)
    exact = logistic_regression(support, normalize=True, tol=1e-7)
    single = logistic_regression(support.float(), normalize=True, tol=1e-7)
    for found, expected in zip(single, exact, strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("normalize", [False, True])
def test_weights_as_coefficients_give_the_same_as_coefficients_of_items(normalize, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    support = torch.rand(4, 3, 5, 6, generator=generator, dtype=torch.float64)
    support[1:] += torch.eye(3, 6, dtype=torch.float64)[:, None]  # others end earlier
    direct = logistic_regression(support, normalize=normalize)
    monkeypatch.setattr(_logreg, "_MANY", 100)
    by_items = logistic_regression(support, normalize=normalize)
    for found, expected in zip(direct, by_items, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)


def decided(support: Tensor, query: Tensor) -> Tensor:
    """Return the decision function of one task: support ``(way, shot, D)``, query ``(n, D)``."""
    return torch.from_numpy(theirs(support.double()).decision_function(query.double().numpy()))


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
            expected = decided(change(support[task]), change(query[task]))
            spread = expected.max() - expected.min()
            assert (scores[task] - expected).abs().max() < 1e-4 * spread


def test_two_ways() -> None:
    torch.manual_seed(0)
    support, query = torch.rand(1, 2, 4, 50), torch.rand(1, 20, 50)
    expected = decided(support[0], query[0])
    scores = Logistic(tol=1e-6).scores(support, query)[0]
    apart = scores[:, 1] - scores[:, 0]
    torch.testing.assert_close(apart.double(), expected, rtol=0.02, atol=0.002)
    # RFS has two weight vectors, which is one with twice the c, so this difference is not small.
    softmax = RFS(normalize=False).scores(support, query)[0]
    assert (softmax[:, 1] - softmax[:, 0]).abs().mean() > 1.2 * expected.abs().mean()


def rfs(n_base: int = 3, dim: int = 2, **options: Any) -> RFS:
    return built(RFS, dim, n_base=n_base, **options)


def test_the_loss_of_rfs_with_a_teacher_worked_by_hand() -> None:
    method = rfs(n_base=2, alpha=0.3, beta=2.0, temperature=4.0)
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
