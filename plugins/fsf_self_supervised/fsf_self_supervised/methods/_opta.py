"""Alignment of prototypes with the queries by optimal transport."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from fsframework.interfaces import (
    Backbone,
    FewShotMethod,
    OptionError,
    check_above,
    check_at_least,
)

__all__ = ["OpTA", "standardised", "transport_plan", "transported"]

_NOT_ZERO = 1e-8
_GLANCE = 4
"""Iterations between two looks at how many tasks go on."""


class OpTA(FewShotMethod):
    """Move the prototypes among the queries by optimal transport, then classify by them.

    Source: Poulakakis-Daktylidis and Jamali-Rad 2024, "BECLR: Batch Enhanced Contrastive Few-Shot
    Learning" (ICLR), section 4.2, and the authors' code. From each vector its own mean is
    subtracted, then it is divided by its own standard deviation. A pass moves the prototypes, at
    first the class means, to the queries: the cost is the squared distance over the task's largest
    one, the plan is that of Sinkhorn's algorithm for equal marginals, and a prototype becomes the
    mean of the queries weighted by its row of the plan. With more than one shot, ``ratio`` of the
    result and the rest of the class mean are added. The ``classifier`` learns from the prototypes,
    one per class. No label of a query is used.

    Nothing is trained. Each task stops by its own potentials, whatever other tasks do.

    Args:
        classifier: the method that classifies the queries; it consumes vectors and learns nothing.
        passes: transports in a row, at least 0; ``None`` as in the authors' code, five with one
            shot and one with more.
        ratio: share of the transported prototype with more than one shot, in [0, 1].
        epsilon: weight of the plan's entropy, above 0.
        max_iter: maximum number of Sinkhorn's iterations, at least 1.
        tol: the sum of the changes of the first potential below which they stop, above 0.

    Raises:
        OptionError: an option is outside its range, or the classifier learns.
    """

    consumes = "vectors"
    learns_from = "nothing"
    weightless = True
    transductive = True
    reads_values = "the transport of a task ends when its potentials hardly change"
    usual_components: ClassVar[Mapping[str, str]] = {"classifier": "logistic"}

    def __init__(
        self,
        *,
        classifier: FewShotMethod,
        passes: int | None = None,
        ratio: float = 0.7,
        epsilon: float = 0.05,
        max_iter: int = 1000,
        tol: float = 1e-4,
    ) -> None:
        super().__init__()
        if classifier.consumes != "vectors" or classifier.learns_from != "nothing":
            raise OptionError(
                "classifier must consume vectors and learn nothing, but "
                f"{type(classifier).__name__} consumes {classifier.consumes} and learns from "
                f"{classifier.learns_from}"
            )
        if passes is not None:
            check_at_least(0, passes=passes)
        check_above(0, epsilon=epsilon, tol=tol)
        check_at_least(1, max_iter=max_iter)
        if not 0 <= ratio <= 1:
            raise OptionError(f"ratio must be in [0, 1], got {ratio}")
        self.classifier = classifier
        self.passes = passes
        self.ratio = ratio
        self.epsilon = epsilon
        self.max_iter = max_iter
        self.tol = tol
        self.n_way = classifier.n_way

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Build the classifier."""
        self.classifier.build(item_shape, n_base_classes, backbone)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the classifier's scores, float ``(tasks, n, way)``, without gradients.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        with torch.no_grad(), torch.autocast(query.device.type, enabled=False):
            dtype = torch.promote_types(query.dtype, torch.float32)
            support, query = standardised(support.to(dtype)), standardised(query.to(dtype))
            return self.classifier.scores(self.prototypes(support, query)[:, :, None], query)

    def prototypes(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the prototypes among the queries, ``(tasks, way, D)``; vectors standardised."""
        means = support.mean(dim=2)
        shot = support.shape[2]
        moved = means
        passes = (5 if shot == 1 else 1) if self.passes is None else self.passes
        for _ in range(passes):
            moved = transported(moved, query, self.epsilon, self.max_iter, self.tol)
        return moved if shot == 1 else self.ratio * moved + (1 - self.ratio) * means


def standardised(vectors: Tensor) -> Tensor:
    """Bring each vector ``(..., D)`` to mean 0 and standard deviation 1 (n - 1)."""
    away = vectors - vectors.mean(dim=-1, keepdim=True)
    # From the length: Tensor.std goes through the numbers one by one.
    length = torch.linalg.vector_norm(away, dim=-1, keepdim=True)
    deviation = length / math.sqrt(max(1, vectors.shape[-1] - 1))
    return away / deviation.clamp(min=torch.finfo(away.dtype).tiny)


def transported(
    prototypes: Tensor, query: Tensor, epsilon: float, max_iter: int, tol: float
) -> Tensor:
    """Move prototypes ``(tasks, way, D)`` to where the plan takes them among the queries."""
    cost = relative_cost(prototypes, query)
    plan = transport_plan(cost, epsilon, max_iter, tol)
    moved: Tensor = (plan / plan.sum(dim=2, keepdim=True)) @ query
    return moved


def relative_cost(prototypes: Tensor, query: Tensor) -> Tensor:
    """Return squared distances over the largest of the task, ``(tasks, way, n)``."""
    norms = prototypes.square().sum(dim=2)[:, :, None] + query.square().sum(dim=2)[:, None]
    squares = torch.baddbmm(norms, prototypes, query.mT, beta=1, alpha=-2).clamp(min=0)
    return squares / squares.amax(dim=(1, 2), keepdim=True).clamp(min=torch.finfo(norms.dtype).tiny)


def transport_plan(cost: Tensor, epsilon: float, max_iter: int, tol: float) -> Tensor:
    """Return the plans of regularised transport between equal marginals by Sinkhorn's algorithm.

    It runs in the log domain, from potentials of 0. A task stops after the iteration in which the
    entries of its first potential changed by less than ``tol`` in all, and keeps its potentials
    while others go on.

    Args:
        cost: ``(tasks, a, b)``.
        epsilon: weight of the entropy, above 0.
        max_iter: maximum number of iterations.
        tol: where to stop.

    Returns:
        ``(tasks, a, b)``, with sums of about 1 / a per row and 1 / b per column.
    """
    scaled = -cost / epsilon
    _, a, b = cost.shape
    row, column = (math.log(1 / size + _NOT_ZERO) for size in (a, b))
    # Potentials over epsilon, so that the plan is exp(scaled + first + second).
    first, second = torch.zeros_like(scaled[:, :, :1]), torch.zeros_like(scaled[:, :1])
    plan = torch.empty_like(scaled)
    open_ = torch.arange(len(cost), device=cost.device)
    going = torch.ones_like(open_, dtype=torch.bool)
    for iteration in range(max_iter):
        new_first = row - (scaled + second).logsumexp(dim=2, keepdim=True)
        new_second = column - (scaled + new_first).logsumexp(dim=1, keepdim=True)
        change = epsilon * (new_first - first).abs().sum(dim=(1, 2))
        first = torch.where(going[:, None, None], new_first, first)
        second = torch.where(going[:, None, None], new_second, second)
        going = going & (change >= tol)
        if iteration % _GLANCE == _GLANCE - 1 or iteration == max_iter - 1:
            # The tasks that have stopped leave.
            ended = ~going if iteration < max_iter - 1 else torch.ones_like(going)
            plan[open_[ended]] = (scaled + first + second)[ended].exp()
            scaled, first, second, open_ = (t[~ended] for t in (scaled, first, second, open_))
            going = going[~ended]
            if not len(open_):
                break
    return plan
