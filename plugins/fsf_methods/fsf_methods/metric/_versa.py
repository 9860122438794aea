"""Amortised inference of a classifier's weights."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods._shared import full_precision
from fsframework.interfaces import (
    Backbone,
    Batch,
    FewShotMethod,
    OptionError,
    check_at_least,
    check_below_one,
)

__all__ = ["Versa"]


class Versa(FewShotMethod):
    """Infer the distribution of a linear classifier's weights from the support by networks.

    Source: Gordon, Bronskill, Bauer, Nowozin and Turner 2019, "Meta-Learning Probabilistic
    Inference for Prediction" (ICLR), sections 3 and 4, and the authors' code. Features pass a
    linear layer, BatchNorm and a rectifier, as in LibFewShot; the authors' code has no such layers
    for classification. From the mean of a class's features, and from nothing else, four networks of
    three layers infer mean and logarithm of the variance of the class's weight vector and bias (the
    paper's context-independent inference). The logits of a query are then normally distributed; the
    loss draws them ``n_samples`` times and is minus the logarithm of the mean likelihood of the
    query's class over the samples (equation 4).

    Deviations: ``scores`` are the logits of the mean weights, without samples, so that they are
    repeatable and independent of the order of the ways. ``scores_from`` scores as the paper does,
    from given noise, by the mean of the samples' probabilities. The authors' code, and LibFewShot
    after it, averages the exponentials of the sampled *logits* instead (``average="logits"``),
    which are not normalised within a sample. Samples are drawn of the logits, as in the authors'
    code, not of the weights, which has the same distribution per logit (Kingma, Salimans and
    Welling 2015).

    Args:
        dim: length of the features that the classifier sees, at least 1.
        n_samples: samples per query in training, at least 1; the paper uses 10.
        sample: whether training samples at all; without, the loss is that of the mean weights.
        average: what ``scores_from`` averages over samples: ``probabilities``, the paper's, or
            ``logits``, those of the authors' code and LibFewShot.
        dropout: share of the features dropped in training, in [0, 1).

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self,
        *,
        dim: int = 256,
        n_samples: int = 10,
        sample: bool = True,
        average: Literal["probabilities", "logits"] = "probabilities",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_at_least(1, dim=dim, n_samples=n_samples)
        if average not in ("probabilities", "logits"):
            raise OptionError(f"average must be 'probabilities' or 'logits', got {average!r}")
        check_below_one(dropout=dropout)
        self.dim = dim
        self.n_samples = n_samples
        self.sample = sample
        self.average = average
        self.dropout = dropout

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the layers for vectors ``(D,)``."""
        self.enter = nn.Linear(item_shape[0], self.dim)
        self.norm = nn.BatchNorm1d(self.dim)
        self.weight_mean = _network(self.dim, self.dim)
        self.weight_logvar = _network(self.dim, self.dim)
        self.bias_mean = _network(self.dim, 1)
        self.bias_logvar = _network(self.dim, 1)

    def embed(self, items: Tensor) -> Tensor:
        """Map vectors ``(n, D)`` to features ``(n, dim)``."""
        features = functional.relu(self.norm(self.enter(items)))
        return functional.dropout(features, self.dropout, training=self.training)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the logits of the mean weights, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, dim)``.
            query: float ``(tasks, n, dim)``.
        """
        means = support.mean(dim=2)
        bias = self.bias_mean(means)[..., 0]
        return torch.baddbmm(bias[:, None], query, self.weight_mean(means).mT)

    def scores_from(self, support: Tensor, query: Tensor, noise: Tensor) -> Tensor:
        """Return the logarithm of the mean over samples, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, dim)``.
            query: float ``(tasks, n, dim)``.
            noise: standard normal ``(samples, tasks, n, way)``.
        """
        logits = self._sampled(support, query, noise)
        if self.average == "probabilities":
            logits = logits.log_softmax(dim=-1)
        return logits.logsumexp(dim=0) - math.log(len(noise))

    def loss(self, batch: Batch) -> Tensor:
        """Return minus the mean logarithm of the queries' mean likelihood over samples."""
        if not self.sample:
            return super().loss(batch)
        support, query = self.embed_episode(batch)
        noise = torch.randn(self.n_samples, *query.shape[:2], support.shape[1], device=query.device)
        assert batch.query_labels is not None
        return self.loss_from(support, query, batch.query_labels, noise)

    def loss_from(self, support: Tensor, query: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
        """Return the loss of embedded queries with given noise.

        Args:
            support: float ``(tasks, way, shot, dim)``.
            query: float ``(tasks, n, dim)``.
            labels: int64 ``(tasks, n)``.
            noise: standard normal ``(samples, tasks, n, way)``.
        """
        likelihoods = self._sampled(support, query, noise).log_softmax(dim=-1)
        of_own = likelihoods.take_along_dim(labels[None, :, :, None], dim=-1)[..., 0]
        return (math.log(len(noise)) - of_own.logsumexp(dim=0)).mean()

    def _sampled(self, support: Tensor, query: Tensor, noise: Tensor) -> Tensor:
        """Return sampled logits, ``(samples, tasks, n, way)``."""
        means = support.mean(dim=2)
        logits = full_precision(self.scores(support, query))
        logvar, bias_logvar = self.weight_logvar(means), self.bias_logvar(means)[..., 0]
        with torch.autocast(query.device.type, enabled=False):
            variance = full_precision(query).square() @ full_precision(logvar).exp().mT
            variance = variance + full_precision(bias_logvar).exp()[:, None]
            return logits + variance.sqrt() * noise


def _network(dim: int, out: int) -> nn.Sequential:
    """Return three linear layers with exponential linear units between them."""
    return nn.Sequential(
        nn.Linear(dim, dim), nn.ELU(), nn.Linear(dim, dim), nn.ELU(), nn.Linear(dim, out)
    )
