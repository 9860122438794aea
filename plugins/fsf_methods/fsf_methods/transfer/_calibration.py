"""Calibration of a class's distribution by those of similar base classes."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from fsf_methods.transfer._base_classes import BaseClassifier
from fsf_methods.transfer._logreg import logistic_regression
from fsf_methods.transfer._regression import READS_VALUES, check_regression
from fsframework.interfaces import Backbone, Batch, OptionError

__all__ = ["DistributionCalibration"]

_NUMBERS_AT_ONCE = 1 << 24
"""Numbers of the items of a group of tasks, of 8 bytes each."""


class DistributionCalibration(BaseClassifier):
    """Draw further examples of a class from the statistics of similar base classes.

    Source: Yang, Liu and Xu 2021, "Free Lunch for Few-shot Learning: Distribution Calibration"
    (ICLR), section 3, and the authors' code. Features are brought to the power ``beta`` (Tukey's
    transformation). The Gaussian of a support image has the mean of the image and the means of the
    ``k`` nearest base classes, and the mean covariance of these classes with ``alpha`` added to
    every entry. A logistic regression, scikit-learn's with its defaults, is fitted to the support
    and to ``n_samples`` draws per class from the Gaussians of its images.

    While all base classes train the backbone together, the method remembers the last ``memory``
    vectors of each; means and covariances are theirs, whereas the authors compute them from all
    images after the training. The draws are the same in every task, and those for two images
    differ only in mean and base classes, so scores are repeatable and do not depend on the order of
    shots and ways. Negative features count as 0.

    Args:
        k: base classes per support image, at least 1.
        alpha: added to every entry of a covariance, at least 0.
        beta: the power, in (0, 1].
        n_samples: draws per class, at least 1; the paper uses 750. Time and memory of the
            regression grow with their number.
        memory: vectors remembered per base class, at least 2.
        c: weight of the losses against the penalty ``|W|^2 / 2``, above 0.
        tol: the solver stops when no entry of the gradient exceeds it, above 0.
        seed: of the draws.

    Raises:
        OptionError: an option is outside its range.
    """

    reads_values = READS_VALUES

    def __init__(  # noqa: PLR0913
        self,
        *,
        k: int = 2,
        alpha: float = 0.21,
        beta: float = 0.5,
        n_samples: int = 750,
        memory: int = 200,
        c: float = 1.0,
        tol: float = 1e-4,
        seed: int = 0,
    ) -> None:
        super().__init__()
        for name, value, least in (
            ("k", k, 1),
            ("alpha", alpha, 0),
            ("n_samples", n_samples, 1),
            ("memory", memory, 2),
            ("seed", seed, 0),
        ):
            if not value >= least:
                raise OptionError(f"{name} must be at least {least}, got {value}")
        if not 0 < beta <= 1:
            raise OptionError(f"beta must be in (0, 1], got {beta}")
        check_regression(c, tol)
        self.k = k
        self.alpha = alpha
        self.beta = beta
        self.n_samples = n_samples
        self.memory = memory
        self.c = c
        self.tol = tol
        self.seed = seed

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the classifier and the memory for vectors ``(D,)``."""
        super().build(item_shape, n_base_classes, backbone)
        self.remembered: Tensor
        self.seen: Tensor
        empty = torch.zeros(n_base_classes, self.memory, item_shape[0])
        self.register_buffer("remembered", empty)
        self.register_buffer("seen", torch.zeros(n_base_classes, dtype=torch.int64))

    def class_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return cross-entropy and logits of the base classes; in training, remember the batch."""
        if self.training:
            assert batch.items is not None
            assert batch.classes is not None
            self._remember(batch.items.detach(), batch.classes)
        return super().class_loss(batch)

    def _remember(self, vectors: Tensor, classes: Tensor) -> None:
        """Write vectors over the oldest ones of their classes."""
        own = functional.one_hot(classes, len(self.seen))
        earlier = (own.cumsum(dim=0) * own).sum(dim=1) - 1
        place = (self.seen[classes] + earlier) % self.memory
        self.remembered[classes, place] = vectors.to(self.remembered.dtype)
        self.seen += own.sum(dim=0)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return logits, float ``(tasks, n, way)``, without gradients.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        with torch.no_grad(), torch.autocast(support.device.type, enabled=False):
            way, shot = support.shape[1:3]
            per_image = max(1, self.n_samples // shot)
            items = way * shot * (per_image + 1)
            at_once = max(1, _NUMBERS_AT_ONCE // (items * support.shape[3]))
            draws = self._of_classes(self._draws(per_image).to(support.device))
            parts = [
                self.scores_from(own, queries, self._samples(own, *draws))
                for own, queries in zip(
                    torch.split(support, at_once), torch.split(query, at_once), strict=True
                )
            ]
            return torch.cat(parts)

    def scores_from(self, support: Tensor, query: Tensor, samples: Tensor) -> Tensor:
        """Return the logits of regressions on support and samples, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
            samples: float ``(tasks, way, shot, n_per_image, D)``.
        """
        with torch.no_grad(), torch.autocast(support.device.type, enabled=False):
            items = torch.cat([self._root(support), samples.flatten(2, 3)], dim=2).double()
            # For two ways scikit-learn fits one vector; two with half the weight are the same.
            c = self.c / 2 if support.shape[1] == 2 else self.c
            weights, biases = logistic_regression(items, c=c, tol=self.tol)
            logits = self._root(query).double() @ weights.mT + biases[:, None]
            return logits.to(query.dtype)

    def calibrated(self, support: Tensor) -> tuple[Tensor, Tensor]:
        """Return the Gaussians of support images: means ``(..., D)``, covariances ``(..., D, D)``.

        Args:
            support: float ``(..., D)``.
        """
        roots = self._root(support)
        means, spread = self._statistics()
        near = self._near(roots, means)
        covariances = torch.einsum("...c,cnd,cne->...de", near, spread, spread)
        covariances = covariances / near.sum(dim=-1).clamp(min=1)[..., None, None]
        return self._mean(roots, near, means), covariances + self.alpha

    def _of_classes(self, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Turn standard normal numbers into draws that all tasks share.

        Args:
            draws: ``(1 + n_base_classes, n_per_image, memory)``.

        Returns:
            draws from the Gaussians of the base classes without their means,
            ``(n_base_classes, n_per_image, D)``, and a number added to all dimensions,
            ``(n_per_image, 1)``.
        """
        _, spread = self._statistics()
        # A covariance with the same number everywhere moves all dimensions together.
        return draws[1:].to(spread) @ spread, math.sqrt(self.alpha) * draws[0, :, :1]

    def _samples(self, support: Tensor, own: Tensor, together: Tensor) -> Tensor:
        """Return draws ``(tasks, way, shot, n_per_image, D)`` from the images' Gaussians.

        Args:
            support: float ``(tasks, way, shot, D)``.
            own: ``(n_base_classes, n_per_image, D)``, draws of ``_of_classes``.
            together: ``(n_per_image, 1)``, the same.
        """
        roots = self._root(support)
        means, _ = self._statistics()
        near = self._near(roots, means)
        # The sum of independent draws, one per base class: its covariance is their mean.
        shares = near / near.sum(dim=-1, keepdim=True).clamp(min=1).sqrt()
        away = (shares.flatten(0, 2) @ own.to(roots).flatten(1)).view(
            *near.shape[:3], *own.shape[1:]
        )
        return self._mean(roots, near, means)[..., None, :] + away + together.to(roots)

    def _draws(self, per_image: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        shape = 1 + len(self.seen), per_image, self.memory
        return torch.randn(shape, generator=generator)

    def _root(self, vectors: Tensor) -> Tensor:
        vectors = vectors if vectors.dtype == torch.float64 else vectors.float()
        roots: Tensor = vectors.clamp(min=0).pow(self.beta)
        return roots

    def _statistics(self) -> tuple[Tensor, Tensor]:
        """Return the base classes' means ``(n, D)``, and deviations ``(n, memory, D)``.

        A covariance is the sum of the deviations' outer products; unused places are zeros.
        """
        places = torch.arange(self.memory, device=self.seen.device)
        used = (places < self.seen[:, None])[..., None]
        n = self.seen.clamp(max=self.memory)[:, None]
        means = self.remembered.sum(dim=1) / n.clamp(min=1)
        away = (self.remembered - means[:, None]) * used
        return means, away / (n - 1).clamp(min=1).sqrt()[..., None]

    def _near(self, roots: Tensor, means: Tensor) -> Tensor:
        """Return 1 for the nearest base classes that were seen, else 0: ``(..., n_base)``."""
        distances = torch.cdist(roots.reshape(-1, roots.shape[-1]), means.to(roots))
        distances = distances.masked_fill(self.seen == 0, torch.inf)
        nearest = distances.topk(min(self.k, len(means)), dim=1, largest=False).indices
        near = torch.zeros_like(distances).scatter(1, nearest, 1.0)
        return (near * (self.seen > 0)).view(*roots.shape[:-1], len(means))

    @staticmethod
    def _mean(roots: Tensor, near: Tensor, means: Tensor) -> Tensor:
        """Return the mean of an image and its base classes' means."""
        return (roots + near @ means.to(roots)) / (1 + near.sum(dim=-1, keepdim=True))
