"""Gaussian processes with the logistic-softmax likelihood, many tasks at once.

Covariances are never inverted: with ``B = I + S K S`` and ``S = diag(omega)^(1/2) / tau``, as for
classification by one Gaussian process (Rasmussen and Williams 2006, section 3.4.3), all that is
needed follows from the Cholesky factor of ``B``, whose eigenvalues are at least 1. So kernels of
more images than the vectors have numbers cause no trouble.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["MeanField", "drawn_probabilities", "expected_log_sigmoid", "log_probabilities"]

_START_VARIANCE, _START_ALPHA, _START_OMEGA = 0.01, 7.5, 0.5
_LEAST_OMEGA = 1e-6
_JITTER = 1e-6
_NODES = 20
_LOG_TIMES = np.linspace(-12.0, 8.0, 21)
"""Logarithms of the nodes of an integral over positive numbers; see ``log_probabilities``."""


class MeanField:
    """The posterior of latent functions at the items of a task, for many tasks.

    ``step`` repeats the updates in the docstring of ``CDKT``. The other methods describe the state
    after the last step, of which there must be one.

    Args:
        covariance: ``K``, float ``(tasks, way or 1, m, m)``.
        targets: float ``(tasks, way, m)``, 1 for an item's own way, else 0.
        temperature: ``tau``.
        mean: of the prior.
    """

    def __init__(
        self, covariance: Tensor, targets: Tensor, *, temperature: float, mean: float
    ) -> None:
        self.targets, self.temperature, self.prior = targets, temperature, mean
        tasks, way, m = targets.shape
        self.covariance = covariance.expand(tasks, way, m, m)
        self.mu = torch.zeros_like(targets)
        self.variance = torch.full_like(targets, _START_VARIANCE)
        self.alpha = targets.new_full((tasks, m), _START_ALPHA)
        self.omega = torch.full_like(targets, _START_OMEGA)

    def step(self) -> None:
        """Update every factor of the posterior once."""
        way, tau = self.targets.shape[1], self.temperature
        self.second_moment = self.mu.square() + self.variance
        # The gradient of the root is infinite at 0, where it starts.
        self.g = self.second_moment.clamp(min=1e-12).sqrt() / tau
        exponent = torch.digamma(self.alpha)[:, None] - self.mu / (2 * tau)
        self.gamma = (exponent - _log_cosh(self.g / 2)).exp() / (2 * way)
        self.alpha = 1 + self.gamma.sum(dim=1)
        self.root = self.omega.sqrt() / tau
        unit = torch.eye(self.covariance.shape[-1], dtype=self.mu.dtype, device=self.mu.device)
        b = unit + self.root[..., None] * self.covariance * self.root[..., None, :]
        self.factor = torch.linalg.cholesky_ex(b).L
        pull = (self.targets - self.gamma) / (2 * tau)
        # K^-1 (mu - m)
        self.weights = pull - self._middle(_times(self.covariance, pull) + self.prior)
        self.mu = _times(self.covariance, self.weights) + self.prior
        diagonal = self.covariance.diagonal(dim1=-2, dim2=-1)
        self.variance = self._reduced(self.covariance, diagonal)
        self.omega = ((self.gamma + self.targets) * torch.tanh(self.g / 2) / (2 * self.g)).clamp(
            min=_LEAST_OMEGA
        )

    def predictive_mean(self, cross: Tensor, *, with_prior: bool) -> Tensor:
        """Return the means at queries, ``(tasks, way, n)``.

        Args:
            cross: kernel of queries and items, ``(tasks, way or 1, n, m)``.
            with_prior: whether to condition the prior with its mean, or to leave that out.
        """
        if with_prior or self.prior == 0:
            return _times(cross, self.weights) + self.prior
        # As in the authors' code, so that a singular kernel can be solved.
        unit = torch.eye(self.covariance.shape[-1], dtype=self.mu.dtype, device=self.mu.device)
        regular = self.covariance + _JITTER * unit
        solved = torch.linalg.solve_ex(regular, torch.ones_like(self.mu)[..., None])[0]
        return _times(cross, self.weights + self.prior * solved[..., 0])

    def predictive_variance(self, cross: Tensor, own: Tensor) -> Tensor:
        """Return the variances at queries, ``(tasks, way, n)``.

        Args:
            cross: kernel of queries and items, ``(tasks, way or 1, n, m)``.
            own: kernel of each query with itself, ``(tasks, way or 1, n)``.
        """
        return self._reduced(cross, own)

    def predictive_covariance(self, cross: Tensor, own: Tensor) -> Tensor:
        """Return the covariances of queries, ``(tasks, way, n, n)``.

        Args:
            cross: kernel of queries and items, ``(tasks, way or 1, n, m)``.
            own: kernel of the queries, ``(tasks, way or 1, n, n)``.
        """
        half = self._half(cross)
        return own - half.mT @ half

    def lower_bound(self, *, complete: bool) -> Tensor:
        """Return the evidence lower bound of each task, ``(tasks,)``.

        Args:
            complete: whether to include what the authors' code leaves out.
        """
        y, gamma, alpha, tau = self.targets, self.gamma, self.alpha, self.temperature
        way = y.shape[1]
        total = ((y - gamma) * self.mu / (2 * tau)).sum(dim=(1, 2))
        total = total - ((y + gamma) * (math.log(2) + _log_cosh(self.g / 2))).sum(dim=(1, 2))
        # Poisson and gamma variables.
        expected_log = torch.digamma(alpha) - math.log(way)
        entropy = torch.lgamma(alpha) + (1 - alpha) * torch.digamma(alpha) + alpha
        log_gamma = gamma.clamp(min=torch.finfo(gamma.dtype).tiny).log()
        total = total + (gamma * (expected_log[:, None] + 1 - log_gamma)).sum(dim=(1, 2))
        total = total + (entropy - alpha / way).sum(dim=1)
        total = total - self._divergence()
        if complete:
            # Of the latest factors; g is that of the step's start.
            moment = (self.mu.square() + self.variance) / tau**2
            total = total + 0.5 * (self.omega * (self.g.square() - moment)).sum(dim=(1, 2))
            total = total - ((1 - 1 / way) * alpha + math.log(way)).sum(dim=1)
            total = total + 0.5 * self.mu[0].numel()
        return total

    def _divergence(self) -> Tensor:
        """Return ``KL(q(f) || p(f))`` of each task, but for the constant ``-way * m / 2``."""
        log_det = 2 * self.factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
        unit = torch.eye(self.factor.shape[-1], dtype=self.mu.dtype, device=self.mu.device)
        inverse = torch.linalg.solve_triangular(self.factor, unit, upper=False)
        trace = inverse.square().sum(dim=(-2, -1))
        distance = ((self.mu - self.prior) * self.weights).sum(dim=-1)
        total: Tensor = 0.5 * (log_det + trace + distance).sum(dim=1)
        return total

    def _half(self, cross: Tensor) -> Tensor:
        """Return ``L^-1 S K_*^T`` for ``cross (tasks, way or 1, n, m)``: ``(tasks, way, m, n)``."""
        half: Tensor = torch.linalg.solve_triangular(
            self.factor, self.root[..., None] * cross.mT, upper=False
        )
        return half

    def _reduced(self, cross: Tensor, own: Tensor) -> Tensor:
        return (own - self._half(cross).square().sum(dim=-2)).clamp(min=0)

    def _middle(self, vectors: Tensor) -> Tensor:
        """Return ``S B^-1 S`` times vectors ``(tasks, way, m)``."""
        scaled = (self.root * vectors)[..., None]
        return self.root * torch.cholesky_solve(scaled, self.factor)[..., 0]


def log_probabilities(mean: Tensor, variance: Tensor, temperature: float) -> Tensor:
    """Return log ``E[sigmoid(f_c / tau) / sum_c' sigmoid(f_c' / tau)]`` for Gaussian ``f``.

    With ``1 / s = int_0^inf exp(-t s) dt`` the expectation is an integral over ``t`` of products
    over classes of expectations of one class each. The latter are by Gauss-Hermite quadrature, the
    former by the trapezoidal rule in ``log t``, which converges exponentially; its nodes are
    relative to the sum at the means. The result does not depend on the order of the classes.

    Args:
        mean: float ``(tasks, way, n)``.
        variance: float ``(tasks, way, n)``.
        temperature: ``tau``.

    Returns:
        float ``(tasks, way, n)``.
    """
    nodes, weights = _hermite(mean)
    sigmoids = _at_nodes(mean, variance, temperature, nodes).sigmoid()
    centre = torch.sigmoid(mean.detach() / temperature).sum(dim=1, keepdim=True)[..., None]
    tiny = torch.finfo(mean.dtype).tiny
    total = torch.zeros_like(mean)
    for log_time in _LOG_TIMES:
        time = math.exp(log_time)
        decayed = torch.exp(-time / centre * sigmoids) * weights
        plain = decayed.sum(dim=-1).clamp(min=tiny)
        own = (decayed * sigmoids).sum(dim=-1)
        total = total + time * plain.log().sum(dim=1, keepdim=True).exp() * own / plain
    total = total.clamp(min=tiny)
    return total.log() - total.sum(dim=1, keepdim=True).log()


def expected_log_sigmoid(mean: Tensor, variance: Tensor, temperature: float) -> Tensor:
    """Return ``E[log sigmoid(f / tau)]`` for Gaussian ``f``; all ``(tasks, way, n)``."""
    nodes, weights = _hermite(mean)
    return (functional.logsigmoid(_at_nodes(mean, variance, temperature, nodes)) * weights).sum(-1)


def drawn_probabilities(
    mean: Tensor, covariance: Tensor, noise: Tensor, temperature: float
) -> Tensor:
    """Return the mean over joint samples of the queries' probabilities, ``(tasks, way, n)``.

    Args:
        mean: float ``(tasks, way, n)``.
        covariance: float ``(tasks, way, n, n)``.
        noise: standard normal numbers, ``(way, samples, n)``, used for every task.
        temperature: ``tau``.
    """
    n = mean.shape[2]
    unit = torch.eye(n, dtype=mean.dtype, device=mean.device)
    # Rounding may leave a covariance of equal queries with an eigenvalue below 0.
    factor = torch.linalg.cholesky_ex(covariance + 10 * torch.finfo(mean.dtype).eps * n * unit).L
    samples = torch.sigmoid((mean[:, :, None] + noise @ factor.mT) / temperature)
    return (samples / samples.sum(dim=1, keepdim=True)).mean(dim=2)


def _hermite(like: Tensor) -> tuple[Tensor, Tensor]:
    """Return nodes and weights for the expectation under a standard normal distribution."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    return _constant(nodes, like), _constant(weights / weights.sum(), like)


def _constant(values: np.ndarray[tuple[int], np.dtype[np.float64]], like: Tensor) -> Tensor:
    """Return numbers as a tensor, filled on its device."""
    return torch.stack([like.new_full((), float(value)) for value in values])


def _at_nodes(mean: Tensor, variance: Tensor, temperature: float, nodes: Tensor) -> Tensor:
    """Return the arguments of the sigmoid at the nodes of each Gaussian, ``(*, nodes)``."""
    deviation = variance.clamp(min=1e-12).sqrt()
    return (mean[..., None] + deviation[..., None] * nodes) / temperature


def _times(matrix: Tensor, vectors: Tensor) -> Tensor:
    return (matrix @ vectors[..., None])[..., 0]


def _log_cosh(x: Tensor) -> Tensor:
    return x.abs() + functional.softplus(-2 * x.abs()) - math.log(2)
