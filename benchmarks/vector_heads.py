"""Milliseconds per task of the heads on vectors, many tasks at once and one by one.

Run ``python benchmarks/vector_heads.py``; it takes about four minutes. Features are vectors of 1600
numbers, as Conv-64F gives them for images of 84 x 84 pixels. DSN consumes images; it is given
vectors in their shape and no network, so that its head is measured, and so is MTL in evaluation.
MTL and FGFL are trained on images of 32 x 32 pixels through Conv-64F. Neg-Cosine and the linear and
cosine classifiers are compared with gradient descent on their weights; SKD with scikit-learn.
``_heads.py`` explains the columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from _heads import SHOT, WAY, Case, Flat, run, scikit_learn, support_labels
from torch import Tensor
from torch.nn import functional

from fsf_methods.gradient import MTL
from fsf_methods.metric import Versa
from fsf_methods.sets import DSN, FEAT, FGFL
from fsf_methods.transfer import KNN, SKD, Cosine, Linear, NegCosine

IMAGE = (3, 32, 32)
VECTOR = (1600,)
MOMENTUM, DAMPENING = 0.9, 0.9
STEPS = 700
"""Of 100 passes over 25 support images, 4 in a step."""


def plain_versa(method: Versa, support: Tensor, query: Tensor) -> Tensor:
    """Infer the classifier of one task."""
    means = support.mean(dim=1)
    return query @ method.weight_mean(means).T + method.bias_mean(means)[:, 0]


def plain_mtl(method: MTL, support: Tensor, query: Tensor) -> Tensor:
    """Differentiate the loss of one task's head at every step."""
    vectors, labels = support.flatten(0, 1), support_labels()
    weight, bias = method.classify.weight, method.classify.bias
    with torch.enable_grad():
        for _ in range(method.test_steps):
            loss = functional.cross_entropy(functional.linear(vectors, weight, bias), labels)
            found = torch.autograd.grad(loss, (weight, bias))
            weight, bias = (
                (w - method.inner_lr * g).detach().requires_grad_()
                for w, g in zip((weight, bias), found, strict=True)
            )
    return functional.linear(query, weight, bias)


def plain_feat(method: FEAT, support: Tensor, query: Tensor) -> Tensor:
    """Subtract every adapted prototype from every query."""
    prototypes = method.attention(support.mean(dim=1)[None])[0]
    return -(query[:, None] - prototypes).square().sum(dim=2) / method.temperature


def plain_fgfl(method: FGFL, support: Tensor, query: Tensor) -> Tensor:
    """Transform one task, and subtract every prototype from every query."""
    adapted = method.attention(torch.cat([support.flatten(0, 1), query])[None])[0]
    own, queries = adapted[: WAY * SHOT].unflatten(0, (WAY, SHOT)), adapted[WAY * SHOT :]

    def compared(prototypes: Tensor) -> Tensor:
        return -(queries[:, None] - prototypes).square().sum(dim=2) / method.temperature

    shares = compared(own.mean(dim=1)).softmax(dim=1)
    sums = own.sum(dim=1) + shares.T @ queries
    return compared(sums / (SHOT + shares.sum(dim=0)[:, None]))


def plain_dsn(method: DSN, support: Tensor, query: Tensor) -> Tensor:
    """Decompose the vectors of each class, and project every query."""
    vectors, query = support[:, :, 0].double(), query[:, 0].double()
    means = vectors.mean(dim=1)
    found = torch.linalg.svd((vectors - means[:, None]).mT, full_matrices=False)[0]
    bases = found[:, :, : SHOT - 1]
    apart = query - means[:, None]
    left = apart - apart @ bases @ bases.mT
    distances = left.square().sum(dim=2).T / query.shape[1]
    return -(distances * method.scale).float()


def descended(
    weights: list[Tensor],
    loss: Callable[[list[Tensor]], Tensor],
    decay: float,
    rate: float,
    steps: int = STEPS,
) -> list[Tensor]:
    """Return weights after steps of PyTorch's SGD with momentum on a loss of theirs."""
    with torch.enable_grad():
        weights = [w.clone().requires_grad_() for w in weights]
        optimiser = torch.optim.SGD(
            weights, lr=rate, momentum=MOMENTUM, dampening=DAMPENING, weight_decay=decay
        )
        for _ in range(steps):
            optimiser.zero_grad()
            loss(weights).backward()
            optimiser.step()
    return [w.detach() for w in weights]


def plain_linear(method: Linear, support: Tensor, query: Tensor) -> Tensor:
    """Fit a linear layer to one task."""
    vectors, labels = support.flatten(0, 1), support_labels()
    start = [torch.zeros(WAY, vectors.shape[1]), torch.zeros(WAY)]
    weights = descended(
        start,
        lambda w: functional.cross_entropy(functional.linear(vectors, *w), labels),
        method.weight_decay,
        method.lr,
    )
    return functional.linear(query, *weights)


def plain_cosine(method: Cosine | NegCosine, support: Tensor, query: Tensor) -> Tensor:
    """Fit a layer of cosines to one task."""
    scale = method.scale if isinstance(method, Cosine) else method.inner_scale
    units, of_query = (functional.normalize(x, dim=-1) for x in (support, query))
    labels = support_labels()
    start = functional.normalize(units.mean(dim=1), dim=1) / math.sqrt(3)
    units = units.flatten(0, 1)
    [found] = descended(
        [start],
        lambda w: functional.cross_entropy(scale * units @ functional.normalize(*w).T, labels),
        method.weight_decay,
        method.lr,
    )
    return scale * of_query @ functional.normalize(found).T


def plain_knn(method: KNN, support: Tensor, query: Tensor) -> Tensor:
    """Count the neighbours of every query."""
    units, of_query = (functional.normalize(x.flatten(0, -2)) for x in (support, query))
    closeness = (1 + of_query @ units.T) / 2
    values, indices = closeness.topk(method.k, dim=1)
    votes = torch.zeros(len(query), WAY).scatter_add_(1, indices // SHOT, torch.ones_like(values))
    near = torch.zeros(len(query), WAY).scatter_add_(1, indices // SHOT, values)
    return votes + near / votes.clamp(min=1) / 2


CASES = (
    Case("Versa", Versa, VECTOR, 64, plain_versa),
    Case("MTL", MTL, IMAGE, 32, plain_mtl, trained=2),
    Case("FEAT", FEAT, VECTOR, 64, plain_feat),
    Case("DSN", DSN, (64, 5, 5), 16, plain_dsn, backbone=Flat),
    Case("FGFL", FGFL, IMAGE, 16, plain_fgfl, trained=2),
    Case("SKD", SKD, IMAGE, 64, scikit_learn, trained=0),
    Case("Neg-Cosine", NegCosine, VECTOR, 64, plain_cosine, plain_tasks=1, trained=0),
    Case("linear", Linear, VECTOR, 64, plain_linear, plain_tasks=1, trained=0),
    Case("cosine", Cosine, VECTOR, 64, plain_cosine, plain_tasks=1, trained=0),
    Case("k-NN", KNN, VECTOR, 64, plain_knn, trained=0),
)

if __name__ == "__main__":
    run(CASES, __doc__)
