"""Denoised task adaptation."""

from __future__ import annotations

import math
import random

import torch
from torch import Tensor
from torch.func import grad
from torch.nn import functional

from fsf_methods.adaptation._adapters import (
    AdaptedMethod,
    Adapters,
    Form,
    Kind,
    Weights,
    class_cosines,
    vectors_of,
)
from fsframework.interfaces import OptionError, check_above, check_at_least

__all__ = ["DETA"]

_SHARPNESS = 0.5
_EPS = 1e-5
_PROJECTOR = "projector"
_ASPECTS = (3 / 4, 4 / 3)


class DETA(AdaptedMethod):
    """Fit adapters to the support of each task, trusting its images and regions unequally.

    Source: Zhang, Gao, Luo, Shen and Song 2023, "DETA: Denoised Task Adaptation for Few-Shot
    Learning" (ICCV), section 3, and the authors' code; on the adapters of ``TSA``, the paper's
    TSA + DETA. In each step every support image is also seen as ``n_patches`` random crops. With
    ``a`` the mean cosine of a patch to those of other images of its class and ``b`` to those of
    other classes, its weight is the softmax of ``2 a`` over the patches of the class divided by
    that of ``2 b``. An image's weight is the mean of its patches', averaged over the steps with
    ``momentum``. The loss is that of two terms:

    - prototypes are class means of ``image weight * vector``, and each patch is classified with
      ``patch weight * 10 * cosine`` as logits;
    - a supervised contrastive loss of projected patches, weighted by ``balance``, multiplies each
      similarity (minus the largest of its row, as in the code) by the weights of both patches.

    Queries have 10 times the cosine to the prototypes with the last weights. Weights of patches and
    images are constants to the gradient. For deterministic scores that do not depend on the order
    of ways and shots, the crops of a step are the same for every image, drawn once for all tasks;
    and the projector, a linear layer that the authors draw at random, starts as the identity.

    Args:
        adapter: ``residual``, in parallel to the convolution, or ``serial``, after it.
        form: a ``matrix`` mixes channels, a ``vector`` scales them; where a residual adapter
            changes the shape it is always a matrix.
        alignment: whether a square matrix maps the vector.
        steps: steps of Adadelta, at least 0.
        lr: learning rate of adapters and projector, at least 0.
        alignment_lr: learning rate of the matrix, at least 0.
        n_patches: crops per image and step, at least 1.
        least_area: smallest share of an image's area that a crop covers, above 0 and at most 1.
        balance: weight of the contrastive loss, at least 0.
        momentum: weight of an image's earlier weight, in [0, 1].
        temperature: of the contrastive loss, above 0.
        tasks_at_once: tasks adapted in parallel, at least 1, which bounds the memory. ``None`` for
            8, or 1 on CPUs.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(  # noqa: PLR0913 - its parameters are the options
        self,
        *,
        adapter: Kind = "residual",
        form: Form = "matrix",
        alignment: bool = True,
        steps: int = 40,
        lr: float = 0.5,
        alignment_lr: float = 1.0,
        n_patches: int = 10,
        least_area: float = 0.14,
        balance: float = 0.1,
        momentum: float = 0.7,
        temperature: float = 0.07,
        tasks_at_once: int | None = None,
    ) -> None:
        super().__init__(
            adapter=adapter,
            form=form,
            alignment=alignment,
            steps=steps,
            lr=lr,
            alignment_lr=alignment_lr,
            tasks_at_once=tasks_at_once,
        )
        check_at_least(1, n_patches=n_patches)
        check_at_least(0, balance=balance, momentum=momentum)
        check_above(0, temperature=temperature, least_area=least_area)
        if momentum > 1:
            raise OptionError(f"momentum must be at most 1, got {momentum}")
        if least_area > 1:
            raise OptionError(f"least_area must be at most 1, got {least_area}")
        self.n_patches = n_patches
        self.least_area = least_area
        self.balance = balance
        self.momentum = momentum
        self.temperature = temperature

    def scores_of_task(self, adapters: Adapters, support: Tensor, query: Tensor) -> Tensor:
        """Score queries ``(n, 3, H, W)`` of one task, support ``(way, shot, 3, H, W)``."""
        shape = support.shape[:2]
        images, vectors = support.flatten(0, 1), vectors_of(adapters)
        weights = self.start(adapters, images)
        width = vectors(weights, images[:1]).shape[1]
        weights[_PROJECTOR] = torch.eye(width, dtype=images.dtype, device=images.device)

        def loss(weights: Weights, crops: Tensor, earlier: Tensor | None) -> tuple[Tensor, Tensor]:
            both = vectors(weights, torch.cat([images, crops]))
            of_images = both[: len(images)].unflatten(0, shape)
            patches = both[len(images) :].unflatten(0, (*shape, -1))
            return self.denoised_loss(weights[_PROJECTOR], of_images, patches, earlier)

        optimiser, rng = self.optimiser(weights), random.Random(0)
        trust: Tensor | None = None
        for _ in range(self.steps):
            crops = self._cropped(images, rng)
            gradients, trust = grad(loss, has_aux=True)(weights, crops, trust)
            weights = optimiser.step(weights, gradients)
        found = vectors(weights, images).unflatten(0, shape)
        return class_cosines(vectors(weights, query), prototypes(found, trust))

    def denoised_loss(
        self, projector: Tensor, images: Tensor, patches: Tensor, earlier: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of a step and the images' weights ``(way, shot)``.

        Args:
            projector: ``(E, D)``.
            images: vectors ``(way, shot, D)``.
            patches: their patches' ``(way, shot, n_patches, D)``.
            earlier: weights of the images before the step; ``None`` in the first one.
        """
        trust = patch_weights(patches.detach())
        of_images = trust.mean(dim=2)
        if earlier is not None:
            of_images = self.momentum * earlier + (1 - self.momentum) * of_images
        scores = patch_scores(patches, trust, prototypes(images, of_images))
        labels = torch.arange(len(images), device=images.device)
        labels = labels.repeat_interleave(patches.shape[1:3].numel())
        by_class = functional.cross_entropy(scores, labels)
        clusters = clustering_loss(patches @ projector.mT, trust, self.temperature)
        return self.balance * clusters + by_class, of_images

    def _cropped(self, images: Tensor, rng: random.Random) -> Tensor:
        """Return random crops of images ``(n, 3, H, W)``, ``(n * n_patches, 3, H, W)``."""
        crops = []
        for _ in range(self.n_patches):
            area = rng.uniform(self.least_area, 1)
            aspect = math.exp(rng.uniform(*map(math.log, _ASPECTS)))
            shares = min(1.0, math.sqrt(area * aspect)), min(1.0, math.sqrt(area / aspect))
            rows, columns = (
                _resampling(length, rng.uniform(0, 1 - share), share, images)
                for length, share in zip(images.shape[2:], shares, strict=True)
            )
            crops.append(rows @ images @ columns.mT)
        return torch.stack(crops, dim=1).flatten(0, 1)


def _resampling(length: int, start: float, share: float, like: Tensor) -> Tensor:
    """Return the matrix ``(length, length)`` that enlarges a part of a line, bilinearly."""
    places = torch.arange(length, dtype=like.dtype, device=like.device)
    wanted = (start * length + (places + 0.5) * share - 0.5).clamp(0, length - 1)
    return (1 - (wanted[:, None] - places).abs()).clamp(min=0)


def patch_weights(patches: Tensor) -> Tensor:
    """Return the weights of patches ``(way, shot, n_patches, D)``, ``(way, shot, n_patches)``."""
    way, shot, n = patches.shape[:3]
    units = functional.normalize(patches.flatten(0, 2), dim=1)
    cosines = (units @ units.mT).reshape(way, shot * n, way, shot * n)
    ways = torch.eye(way, dtype=cosines.dtype, device=cosines.device)[:, None, :, None]
    of_class = (cosines * ways).sum(dim=2)
    own = torch.eye(shot, dtype=cosines.dtype, device=cosines.device)
    own = own.repeat_interleave(n, dim=0).repeat_interleave(n, dim=1)
    within = (of_class * (1 - own)).sum(dim=2) / (n * (shot - 1) + _EPS)
    others = (cosines * (1 - ways)).sum(dim=(2, 3)) / (n * shot * (way - 1) + _EPS)
    trusted, noisy = ((x / _SHARPNESS).softmax(dim=1) for x in (within, others))
    return (trusted / noisy).reshape(way, shot, n)


def prototypes(vectors: Tensor, trust: Tensor | None) -> Tensor:
    """Return the means of vectors ``(way, shot, D)`` times weights ``(way, shot)``."""
    return (vectors if trust is None else vectors * trust[..., None]).mean(dim=1)


def patch_scores(patches: Tensor, trust: Tensor, class_prototypes: Tensor) -> Tensor:
    """Return logits of patches ``(way, shot, n_patches, D)``, one row each, ``(N, way)``."""
    return trust.flatten()[:, None] * class_cosines(patches.flatten(0, 2), class_prototypes)


def clustering_loss(projected: Tensor, trust: Tensor, temperature: float) -> Tensor:
    """Return the supervised contrastive loss of patches ``(way, shot, n_patches, E)``.

    Args:
        trust: their weights ``(way, shot, n_patches)``.
        temperature: divides the cosines.
    """
    way = len(projected)
    units = functional.normalize(projected.flatten(0, 2), dim=1)
    logits = units @ units.mT / temperature
    logits = logits - logits.detach().amax(dim=1, keepdim=True)
    logits = logits * trust.flatten()[:, None] * trust.flatten()
    n = len(units)
    own = torch.eye(n, dtype=logits.dtype, device=logits.device)
    ways = torch.eye(way, dtype=logits.dtype, device=logits.device)
    friends = ways.repeat_interleave(n // way, 0).repeat_interleave(n // way, 1) - own
    log_odds = logits - (logits.exp() * (1 - own)).sum(dim=1, keepdim=True).log()
    return -((log_odds * friends).sum(dim=1) / friends.sum(dim=1).clamp(min=1)).mean()
