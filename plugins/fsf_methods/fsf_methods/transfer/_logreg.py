"""Logistic regression of many tasks in parallel."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fsf_methods.transfer._line_search import Floats, search

__all__ = ["logistic_regression"]

_PAIRS = 10
_LEAST_PROGRESS = 64 * np.finfo(np.float64).eps
_MANY = 2
"""Items per dimension beyond which ``W`` itself takes the place of its coefficients."""
_GLANCE = 256
"""Dimensions of the items searched first for an entry of the gradient above ``tol``."""


def logistic_regression(
    support: Tensor,
    *,
    normalize: bool = False,
    c: float = 1.0,
    tol: float = 1e-4,
    max_iter: int = 1000,
) -> tuple[Tensor, Tensor]:
    """Fit a multinomial logistic regression to the support of each task.

    With ``m = way * shot`` items ``x`` of ways ``y``, it minimises the mean over the items of
    ``-log softmax(W x + b)[y]`` plus ``|W|^2 / (2 c m)``, the objective of scikit-learn's
    ``LogisticRegression(C=c)``. It also follows the iterations of its solver ``lbfgs``: L-BFGS with
    ten pairs (Nocedal and Wright 2006, algorithm 7.4) from 0, a first trial step of length 1, and
    the line search of Moré and Thuente, until no entry of the gradient exceeds ``tol``. At
    scikit-learn's own 1e-4 this stops before the minimum, where up to two labels in a hundred may
    differ, so equal labels need equal iterations.

    ``W`` is always a combination of the items, so everything is computed from its coefficients, in
    float64, and the items' inner products. The length of the items affects only two matrix products
    and, for the largest entry of the gradient, one per iteration. Where there are many more items
    than dimensions, ``W`` itself is shorter than its coefficients and takes their place. Scalars
    per task are NumPy's, whose small operations are faster than PyTorch's.

    Args:
        support: float32 or float64 ``(tasks, way, shot, D)``. The inner products use its type;
            unless the items are normalised, use float64 for items much longer than 1.
        normalize: scale items to length 1.
        c: weight of the items' losses against the penalty, above 0.
        tol: largest entry of the gradient to stop at, above 0.
        max_iter: maximum number of iterations.

    Returns:
        ``W (tasks, way, D)`` and ``b (tasks, way)``, in the type of the support.
    """
    tasks, way, shot, dim = support.shape
    with (
        torch.no_grad(),
        torch.autocast(support.device.type, enabled=False),
        # Results that are not finite are not used.
        np.errstate(all="ignore"),
    ):
        items = support.flatten(1, 2)
        kind = _DirectSolver if way * shot > _MANY * dim else _Solver
        solver = kind(items, way, normalize, 1 / (c * way * shot), tol)
        # It keeps all tasks when the solver drops those that have ended.
        whole, point = copy.copy(solver), torch.zeros_like(solver.point)
        # Once half of the active tasks have ended, the others continue without them.
        in_work = torch.arange(tasks, device=support.device)
        for _ in range(max_iter):
            if not solver.going.any():
                break
            if 2 * solver.going.sum() <= len(solver.going):
                point[in_work] = solver.point
                in_work = in_work[torch.from_numpy(solver.going).to(support.device)]
                solver.drop_ended()
            solver.iterate()
        point[in_work] = solver.point
        weights = whole.to_weights(point[..., :-1]).to(support.dtype)
        return weights, point[..., -1].to(support.dtype)


class _Solver:
    """L-BFGS on tasks in parallel.

    A vector in the space of ``(W, b)`` is represented by coefficients ``(tasks, way, m + 1)``:
    those of the items in ``W`` and, last, ``b``. Its image, of the same shape, holds the inner
    products of ``W`` with the items and, last, ``b``; so the inner product of two vectors is the
    sum over the coefficients of one times the image of the other.
    """

    def __init__(
        self, items: Tensor, way: int, normalize: bool, penalty: float, tol: float
    ) -> None:
        tasks, m, _ = items.shape
        self.items, self.penalty, self.tol = items, penalty, tol
        size = 1 + self._prepare(normalize)
        ways = torch.arange(way, device=items.device)[:, None]
        self.targets = (ways == ways.repeat_interleave(m // way)).double()

        self.point = self.targets.new_zeros(tasks, way, size)
        self.logits = self.targets.new_zeros(tasks, way, m)
        self.errors = (1 / way - self.targets).expand(tasks, -1, -1)
        # The objective; its penalty; and the targets' mean logit.
        self.value = np.full(tasks, np.log(way))
        self.penalised, self.aim = np.zeros(tasks), np.zeros(tasks)
        # The gradient and its image; then space for pairs: a step and the gradient's change.
        self.vectors = self.targets.new_empty(tasks, 1 + 2 * _PAIRS, way, size)
        self.images = torch.empty_like(self.vectors)
        self.vectors[:, 0] = self._gradient()
        self.images[:, 0] = self._image(self.vectors[:, 0])
        self.n_iterations = 0
        self.going = np.ones(tasks, dtype=bool)
        self.inner = self._look()

    def _prepare(self, normalize: bool) -> int:
        """Compute what the items give once, and return the number of coefficients of a vector."""
        inner = (self.items @ self.items.mT).double()
        tasks, m = inner.shape[:2]
        # The factors of the items, (tasks, 1, m); the items themselves do not change.
        self.scale = torch.ones_like(inner[:, :1])
        if normalize:
            squares = inner.diagonal(dim1=1, dim2=2)[:, None]
            self.scale = squares.clamp(min=torch.finfo(self.items.dtype).tiny).rsqrt()
        self.gram = inner.new_zeros(tasks, m + 1, m + 1)
        self.gram[:, :m, :m] = inner * self.scale * self.scale.mT
        self.gram[:, m, m] = 1
        return m

    def _image(self, vectors: Tensor) -> Tensor:
        """Return the images of vectors ``(tasks, way, m + 1)``."""
        return vectors @ self.gram

    def _along(self, image: Tensor) -> Tensor:
        """Return the logits ``(tasks, way, m)`` of a vector with this image."""
        return image[..., :-1] + image[..., -1:]

    def _pulled(self, errors: Tensor) -> Tensor:
        """Return the coefficients of the sum of items, weighted by errors ``(tasks, way, m)``."""
        return errors

    def to_weights(self, coefficients: Tensor) -> Tensor:
        """Return ``W`` of coefficients ``(tasks, way, m)``."""
        return (coefficients * self.scale).to(self.items.dtype) @ self.items

    def drop_ended(self) -> None:
        """Keep only the active tasks."""
        chosen = torch.from_numpy(self.going).to(self.point.device)
        self._choose(chosen)
        self.point, self.logits = self.point[chosen], self.logits[chosen]
        self.vectors, self.images = self.vectors[chosen], self.images[chosen]
        self.value, self.inner = self.value[self.going], self.inner[self.going]
        self.penalised, self.aim = self.penalised[self.going], self.aim[self.going]
        self.going = self.going[self.going]

    def _choose(self, tasks: Tensor) -> None:
        """Keep what ``_prepare`` computed for some of the tasks."""
        self.items, self.scale = self.items[tasks], self.scale[tasks]
        self.gram = self.gram[tasks]

    def iterate(self) -> None:
        """Take a step in each active task."""
        mix = _direction(self.inner, self._pairs())
        slope = (mix * self.inner[:, 0]).sum(axis=1)
        first = np.ones_like(slope) if self.n_iterations else 1 / np.sqrt(-slope)
        on_device = torch.from_numpy(mix).to(self.point.device)[:, None]
        direction = (on_device @ self._used(self.vectors)).view_as(self.point)
        image = (on_device @ self._used(self.images)).view_as(self.point)
        along = self._along(image)
        # Along the direction, the penalty and the targets' logits are polynomials.
        pulls = torch.stack([self.point, direction])[..., :-1] * image[..., :-1]
        pull, curve = self.penalty * _numbers(pulls.sum(dim=(2, 3)))
        m = along.shape[2]
        turn = _numbers((along * self.targets).sum(dim=(1, 2))) / m

        def phi(step: Floats) -> tuple[Floats, Floats]:
            self.tried = torch.addcmul(self.logits, self._wide(step), along)
            sums, self.errors = self._losses(self.tried)
            penalised = self.penalised + step * (pull + 0.5 * step * curve)
            slope = _numbers((self.errors * along).sum(dim=(1, 2))) / m + pull + step * curve
            return sums - self.aim - step * turn + penalised, slope

        step, value, found = search(phi, self.value, slope, first, self.going & (slope < 0))
        size = np.maximum(np.maximum(np.abs(value), np.abs(self.value)), 1)
        progress = (self.value - value) / size > _LEAST_PROGRESS
        self.value, self.logits = value, self.tried
        self.penalised = self.penalised + step * (pull + 0.5 * step * curve)
        self.aim = self.aim + step * turn
        wide = self._wide(step)
        moved = wide * direction
        self.point = torch.where(wide > 0, self.point + moved, self.point)
        gradient = self._gradient()
        gradient_image = self._image(gradient)
        place = 1 + 2 * (self.n_iterations % _PAIRS)
        self.n_iterations += 1
        self.vectors[:, place], self.images[:, place] = moved, wide * image
        torch.sub(gradient, self.vectors[:, 0], out=self.vectors[:, place + 1])
        torch.sub(gradient_image, self.images[:, 0], out=self.images[:, place + 1])
        self.vectors[:, 0], self.images[:, 0] = gradient, gradient_image
        self.going = self.going & found & progress
        self.inner = self._look()

    def _pairs(self) -> list[int]:
        """Return the places of pairs, oldest first."""
        known = range(max(0, self.n_iterations - _PAIRS), self.n_iterations)
        return [1 + 2 * (iteration % _PAIRS) for iteration in known]

    def _used(self, places: Tensor) -> Tensor:
        """Return ``(tasks, n, all entries)``: the places in use."""
        return places[:, : 1 + 2 * min(self.n_iterations, _PAIRS)].flatten(2)

    def _look(self) -> Floats:
        """Update which tasks are active; return the vectors' inner products ``(tasks, n, n)``."""
        inner = _numbers(self._used(self.vectors) @ self._used(self.images).mT)
        length = np.sqrt(inner[:, 0, 0])
        way, dim = len(self.targets), self.items.shape[2]
        # The largest entry is at least length / sqrt(n_entries) and at most length; if that does
        # not decide, some of the entries may show one above tol.
        self.going = self.going & (length > self.tol)
        unclear = self.going & (length <= self.tol * (way * (dim + 1)) ** 0.5)
        if dim > 2 * _GLANCE and unclear.any():
            unclear = unclear & (self._largest(slice(None), _GLANCE) <= self.tol)
        if unclear.any():
            self.going = self.going & ~unclear
            if 2 * unclear.sum() < len(unclear):
                chosen = torch.from_numpy(unclear).to(self.point.device)
                self.going[unclear] = self._largest(chosen, dim) > self.tol
            else:
                # Selecting items costs as much as multiplying them.
                self.going |= unclear & (self._largest(slice(None), dim) > self.tol)
        return inner

    def _largest(self, chosen: slice | Tensor, dim: int) -> Floats:
        """Return the size of the largest entry of the gradients of the chosen tasks.

        Only the first ``dim`` dimensions of the items are used.
        """
        gradient = self.vectors[chosen, 0]
        coefficients = (gradient[..., :-1] * self.scale[chosen]).to(self.items.dtype)
        of_weights = coefficients @ self.items[chosen, :, :dim]
        largest = of_weights.flatten(1).abs_().amax(dim=1).double()
        return _numbers(torch.maximum(largest, gradient[..., -1].abs().amax(dim=1)))

    def _gradient(self) -> Tensor:
        m = self.errors.shape[2]
        gradient = self.penalty * self.point
        gradient[..., :-1].add_(self._pulled(self.errors), alpha=1 / m)
        gradient[..., -1] = self.errors.sum(dim=2) / m
        return gradient

    def _losses(self, logits: Tensor) -> tuple[Floats, Tensor]:
        """Return the mean over items of log sum exp ``(tasks,)``, and the residuals.

        The residuals are the ways' probabilities minus the targets, ``(tasks, way, m)``.
        """
        top = logits.amax(dim=1, keepdim=True)
        exponentials = (logits - top).exp_()
        total = exponentials.sum(dim=1, keepdim=True)
        sums = _numbers(total.log().add_(top).mean(dim=(1, 2)))
        return sums, exponentials.div_(total).sub_(self.targets)

    def _wide(self, numbers: Floats) -> Tensor:
        """Return one number per task as ``(tasks, 1, 1)``."""
        return torch.from_numpy(numbers).to(self.point.device)[:, None, None]


class _DirectSolver(_Solver):
    """The same with ``W`` itself for coefficients; a vector is its own image.

    Vectors are ``(tasks, way, D + 1)``.
    """

    def _prepare(self, normalize: bool) -> int:
        self.items = self.items.double()
        if normalize:
            self.items = functional.normalize(self.items, dim=2)
        return self.items.shape[2]

    def _image(self, vectors: Tensor) -> Tensor:
        return vectors

    def _along(self, image: Tensor) -> Tensor:
        return image[..., :-1] @ self.items.mT + image[..., -1:]

    def _pulled(self, errors: Tensor) -> Tensor:
        return errors @ self.items

    def to_weights(self, coefficients: Tensor) -> Tensor:
        return coefficients

    def _choose(self, tasks: Tensor) -> None:
        self.items = self.items[tasks]

    def _largest(self, chosen: slice | Tensor, dim: int) -> Floats:
        del dim
        return _numbers(self.vectors[chosen, 0].abs().flatten(1).amax(dim=1))


def _numbers(tensor: Tensor) -> Floats:
    numbers: Floats = tensor.double().cpu().numpy()
    return numbers


def _direction(inner: Floats, pairs: list[int]) -> Floats:
    """Return the quasi-Newton direction by the two-loop recursion, as a combination of vectors.

    Args:
        inner: ``(tasks, n, n)``, the inner products of vectors: the gradient, and at each of
            ``pairs``, oldest first, a step followed by the gradient's change.

    Returns:
        ``(tasks, n)``, weights of the vectors.
    """
    mix = np.zeros(inner.shape[:2])
    mix[:, 0] = -1
    alphas = {}
    for step in reversed(pairs):
        alphas[step] = _ratio((mix * inner[:, step]).sum(axis=1), inner[:, step, step + 1])
        mix[:, step + 1] -= alphas[step]
    if pairs:
        step = pairs[-1]
        mix *= _ratio(inner[:, step, step + 1], inner[:, step + 1, step + 1])[:, None]
    for step in pairs:
        beta = _ratio((mix * inner[:, step + 1]).sum(axis=1), inner[:, step, step + 1])
        mix[:, step] += alphas[step] - beta
    return mix


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Divide, but return 0 where a task has ended or a pair carries no information."""
    return np.where(denominator > 0, numerator / denominator, 0.0)
