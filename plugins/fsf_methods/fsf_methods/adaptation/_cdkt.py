"""Conditional deep kernel transfer."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.adaptation._logistic_softmax import (
    MeanField,
    drawn_probabilities,
    expected_log_sigmoid,
    log_probabilities,
)
from fsframework.interfaces import (
    Backbone,
    Batch,
    FewShotMethod,
    OptionError,
    check_above,
    check_at_least,
    check_one_of,
)

__all__ = ["CDKT"]


class CDKT(FewShotMethod):
    """Fit a Gaussian process per class to the support, through a learned kernel of the vectors.

    Source: Ke, Cao, Ling and Zhou 2023, "Revisiting Logistic-softmax Likelihood in Bayesian
    Meta-Learning for Few-Shot Classification" (NeurIPS), sections 3 and 4, and the authors' code.
    Latent functions ``f_c ~ GP(m, k)`` of vectors scaled to length 1 give the probabilities
    ``sigmoid(f_c / tau) / sum_c' sigmoid(f_c' / tau)``. Steps of mean-field inference in a model
    with auxiliary variables, all in closed form, fit a Gaussian ``q(f_c)`` to a task's support:

    - ``g = sqrt(mu^2 + diag Sigma) / tau``
    - ``gamma = exp(psi(alpha) - mu / 2 tau) / (2 C cosh(g / 2))``
    - ``alpha = 1 + sum_c gamma``
    - ``Sigma = (K^-1 + diag(omega) / tau^2)^-1``
    - ``mu = Sigma ((y - gamma) / 2 tau + K^-1 m)``
    - ``omega = (gamma + y) tanh(g / 2) / 2 g``

    A query has the expectation of its probabilities under the predictive Gaussians, and ``scores``
    are their logarithms. The backbone and the kernel learn from whole episodes (``ml``, by the
    evidence lower bound after ``train_steps`` steps on support and queries) or from the queries
    given the support (``pl``, by their predictive log-likelihood).

    Two deviations make all results deterministic and independent of other tasks and queries.
    Inference starts from ``mu = 0``, ``Sigma = I / 100``, ``alpha = 7.5`` and ``omega = 1/2``, the
    means of the authors' random starts; theirs takes ``mu`` and ``Sigma`` of the previous training
    step, whatever its task. And the expectation is an integral, by quadrature, where theirs
    averages samples; ``n_samples`` restores those.

    Args:
        kernel: ``linear``, the cosine of two vectors, or ``rbf``, ``exp(-|z - z'|^2 / 2 l^2)``;
            times a learned scale.
        kernels: one for all ways (``shared``), or one ``per-way``, as in the code, which fixes the
            number and the order of the ways.
        n_way: ways of the tasks, at least 2, for kernels per way; otherwise it becomes ``None``.
        objective: ``ml`` or ``pl``.
        temperature: ``tau``, above 0.
        mean: ``m``, the mean of the prior.
        train_steps: steps of inference in training, at least 1; ``test_steps`` in evaluation.
        form: ``paper``, or ``code``, whose differences are: its lower bound counts the expectation
            of the auxiliary ``lambda`` once instead of once per class, leaves out constants and two
            terms that cancel only when inference has converged; ``pl`` is the cross-entropy of
            ``E log sigmoid(f_c / tau)`` as logits, over support and queries; and the predictive
            mean is ``K_* K^-1 mu``, without the prior mean.
        n_samples: draws from the joint predictive distribution of a task's queries, at least 1,
            which makes the method transductive; 1,000 or 10,000 in the code. ``None`` integrates.
            It needs kernels per way.

    Raises:
        OptionError: an option is outside its range.
    """

    argument: ClassVar[str | None] = "objective"

    def __init__(  # noqa: PLR0913 - its parameters are the options
        self,
        *,
        kernel: Literal["linear", "rbf"] = "linear",
        kernels: Literal["shared", "per-way"] = "shared",
        n_way: int | None = 5,
        objective: Literal["ml", "pl"] = "ml",
        temperature: float = 1.0,
        mean: float = 0.0,
        train_steps: int = 2,
        test_steps: int = 30,
        form: Literal["paper", "code"] = "paper",
        n_samples: int | None = None,
    ) -> None:
        super().__init__()
        check_one_of(("linear", "rbf"), kernel=kernel)
        check_one_of(("shared", "per-way"), kernels=kernels)
        check_one_of(("ml", "pl"), objective=objective)
        check_one_of(("paper", "code"), form=form)
        check_above(0, temperature=temperature)
        check_at_least(1, train_steps=train_steps, test_steps=test_steps)
        if kernels == "per-way" and (n_way is None or n_way < 2):
            raise OptionError(f"n_way must be at least 2 for kernels per way, got {n_way}")
        if n_samples is not None:
            check_at_least(1, n_samples=n_samples)
            if kernels != "per-way":
                raise OptionError("n_samples needs kernels = 'per-way', got 'shared'")
        self.kernel = kernel
        self.kernels = kernels
        self.n_way = n_way if kernels == "per-way" else None
        self.objective = objective
        self.temperature = temperature
        self.mean = mean
        self.train_steps = train_steps
        self.test_steps = test_steps
        self.form = form
        self.n_samples = n_samples
        self.transductive = n_samples is not None

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the kernels' parameters, each the softplus of a weight that starts at 0."""
        self.raw_outputscale = nn.Parameter(torch.zeros(self.n_way or 1))
        if self.kernel == "rbf":
            self.raw_lengthscale = nn.Parameter(torch.zeros(self.n_way or 1))

    def embed(self, items: Tensor) -> Tensor:
        """Scale vectors ``(n, D)`` to length 1."""
        return functional.normalize(items, dim=-1)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return log-probabilities, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``, of length 1.
            query: float ``(tasks, n, D)``, of length 1.

        Raises:
            OptionError: the kernels are for another number of ways.
        """
        self._check_ways(support)
        with torch.autocast(query.device.type, enabled=False):
            support, query = self._precise(support), self._precise(query)
            posterior = self._posterior(support)
            items = support.flatten(1, 2)
            cross = self.covariance(query, items)
            mean = posterior.predictive_mean(cross, with_prior=self.form == "paper")
            if self.n_samples is None:
                variance = posterior.predictive_variance(cross, self._variance(query))
                return log_probabilities(mean, variance, self.temperature).mT
            covariance = posterior.predictive_covariance(cross, self.covariance(query, query))
            # The same samples for each query, from its own variance: the mean over joint samples
            # is the same, and no score depends on the places of the others.
            alone = covariance.diagonal(dim1=-2, dim2=-1).diag_embed()
            noise = _noise(mean, self.n_samples).expand(-1, -1, mean.shape[2])
            drawn = drawn_probabilities(mean, alone, noise, self.temperature)
            return drawn.clamp(min=torch.finfo(drawn.dtype).tiny).log().mT

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean over tasks of the negative lower bound, or of the queries' loss.

        Raises:
            OptionError: the kernels are for another number of ways.
        """
        support, query = self.embed_episode(batch)
        labels = batch.query_labels
        assert labels is not None
        self._check_ways(support)
        with torch.autocast(query.device.type, enabled=False):
            support, query = self._precise(support), self._precise(query)
            if self.objective == "pl":
                return self._predictive_loss(support, query, labels)
            items = torch.cat([support.flatten(1, 2), query], dim=1)
            targets = torch.cat([_targets(support), _one_hot(labels, support)], dim=2)
            fitted = self._fitted(items, targets, self.train_steps)
            return -fitted.lower_bound(complete=self.form == "paper").mean()

    def covariance(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the kernels of items ``(tasks, n, D)`` and ``(tasks, m, D)``.

        Returns:
            float ``(tasks, way, n, m)``, or ``(tasks, 1, n, m)`` for one kernel of all ways.
        """
        products = left @ right.mT
        scale = functional.softplus(self.raw_outputscale)[:, None, None]
        if self.kernel == "linear":
            return scale * products[:, None]
        lengths = left.square().sum(dim=2)[..., None] + right.square().sum(dim=2)[:, None]
        distances = (lengths - 2 * products).clamp(min=0)[:, None]
        width = functional.softplus(self.raw_lengthscale)[:, None, None]
        return scale * torch.exp(-distances / (2 * width.square()))

    def _variance(self, items: Tensor) -> Tensor:
        """Return the prior variances of items ``(tasks, n, D)``, ``(tasks, way or 1, n)``."""
        scale = functional.softplus(self.raw_outputscale)[:, None]
        if self.kernel == "linear":
            return scale * items.square().sum(dim=2)[:, None]
        return scale.expand(len(items), -1, items.shape[1])

    def _posterior(self, support: Tensor) -> MeanField:
        steps = self.train_steps if self.training else self.test_steps
        return self._fitted(support.flatten(1, 2), _targets(support), steps)

    def _fitted(self, items: Tensor, targets: Tensor, steps: int) -> MeanField:
        """Return the posterior of items ``(tasks, m, D)`` with targets ``(tasks, way, m)``."""
        field = MeanField(
            self.covariance(items, items), targets, temperature=self.temperature, mean=self.mean
        )
        for _ in range(steps):
            field.step()
        return field

    def _predictive_loss(self, support: Tensor, query: Tensor, labels: Tensor) -> Tensor:
        if self.form == "paper":
            posterior = self._posterior(support)
            cross = self.covariance(query, support.flatten(1, 2))
            mean = posterior.predictive_mean(cross, with_prior=True)
            variance = posterior.predictive_variance(cross, self._variance(query))
            scores = log_probabilities(mean, variance, self.temperature).mT
        else:
            way, shot = support.shape[1:3]
            own = torch.arange(way, device=labels.device).repeat_interleave(shot)
            labels = torch.cat([own.expand(len(labels), -1), labels], dim=1)
            items = support.flatten(1, 2)
            query = torch.cat([items, query], dim=1)
            posterior = self._posterior(support)
            cross = self.covariance(query, items)
            mean = posterior.predictive_mean(cross, with_prior=False)
            variance = posterior.predictive_variance(cross, self._variance(query))
            scores = expected_log_sigmoid(mean, variance, self.temperature).mT
        return functional.cross_entropy(scores.flatten(0, 1), labels.flatten())

    def _check_ways(self, support: Tensor) -> None:
        way = support.shape[1]
        if self.n_way not in (None, way):
            raise OptionError(
                f"the kernels are for n_way = {self.n_way} ways, but the tasks have {way}; set "
                "n_way to that number, or share the kernel"
            )

    def _precise(self, items: Tensor) -> Tensor:
        return items if items.dtype == torch.float64 else items.float()


def _noise(like: Tensor, n_samples: int) -> Tensor:
    """Return the same standard normal numbers in every call, ``(way, samples, 1)``."""
    way, device = like.shape[1], like.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(0)
        return torch.randn(way, n_samples, 1, dtype=like.dtype, device=device)


def _targets(support: Tensor) -> Tensor:
    """Return 1 where an item of ``(tasks, way, shot, D)`` is of a way, ``(tasks, way, m)``."""
    way, shot = support.shape[1:3]
    ways = torch.eye(way, dtype=support.dtype, device=support.device)
    return ways.repeat_interleave(shot, dim=1).expand(len(support), -1, -1)


def _one_hot(labels: Tensor, support: Tensor) -> Tensor:
    """Return labels ``(tasks, n)`` as ``(tasks, way, n)``."""
    ways = torch.arange(support.shape[1], device=labels.device)[:, None]
    return (labels[:, None] == ways).to(support.dtype)
