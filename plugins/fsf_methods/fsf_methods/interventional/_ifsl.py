"""Interventional few-shot learning."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterable
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsframework.interfaces import (
    Backbone,
    Batch,
    FewShotMethod,
    MethodWrapper,
    OptionError,
    check_at_least,
    check_one_of,
)

__all__ = ["IFSL"]

Adjustment = Literal["feature", "class", "combined"]
_ADJUSTMENTS = ("feature", "class", "combined")


class IFSL(MethodWrapper):
    """Let another method classify as if what pretraining knows did not confound image and class.

    Source: Yue, Zhang, Sun and Hua 2020, "Interventional Few-Shot Learning" (NeurIPS), section 3.2:
    the pretrained knowledge is a confounder of a feature and its class. Backdoor adjustment
    stratifies it: ``P(Y | do(X = x)) = sum_d P(Y | x, d) P(d)``. The ``base`` method is what
    estimates ``P(Y | ...)``; any that consumes vectors or images works, unless it is trained on the
    images of the backbone (``ata``) or changes its layers (``ft``): wrap IFSL in these instead.

    With ``x`` the vector of an image, ``x_i`` the i-th of ``n`` equal parts of it (strata of the
    pretrained features), ``mu_a`` the mean vector of the base class ``a`` of ``m``, and
    ``P(a | x)`` the pretrained classifier of the base classes, ``adjustment`` is one of

    - ``feature``: ``1/n sum_i P(Y | x_i)``;
    - ``class``: ``P(Y | x + d)``, where ``+`` concatenates and ``d = 1/m sum_a P(a | x) mu_a``;
    - ``combined``: ``1/n sum_i P(Y | x_i + d_i)`` with ``d_i = 1/m sum_a P(a | x_i) mu_a,i``.

    As in the authors' code, ``mu_a`` is the mean of the vectors of class ``a`` scaled to length 1;
    ``x`` is scaled to length 1, the mean of all ``mu_a`` is subtracted, ``x`` is scaled to length 1
    again, and so is each part. ``d`` is not scaled. The paper's index set of large entries, which
    the code does not use either, is left out. The paper and the code differ in three points; the
    paper's form is the default of ``average``, ``divide`` and ``posterior``.

    Each part has a copy of the base with weights of its own. A base that consumes images receives
    a part as an image of one location, through a backbone that scales and shifts each number and
    starts as the identity: this and its head is what MAML adapts and MTL learns. Yue et al. adapt
    only the head of MAML, to fixed features; that is ``anil`` as the base.

    A step on batches trains the classifier of the base classes, and the backbone unless it is
    frozen, and collects the class means. A step on episodes trains the bases by the mean of their
    own losses on the parts; for a cross-entropy that is the negative log-likelihood of the averaged
    log-probabilities. A step on both does both, and trains bases that learn from batches on these.
    As in the paper, train the backbone first and freeze it for the bases, so that the means are
    those of its final vectors; a stage with ``method = "baseline"`` may come before, too::

        [[training.stages]]
        learns_from = "batches"
        [[training.stages]]
        freeze = ["backbone"]

    Args:
        base: the method that scores the parts.
        adjustment: by strata of the ``feature``, by base ``class``, or ``combined``.
        n_splits: parts of a vector, at least 1, which must divide its length; the ``class``
            adjustment does not cut.
        average: of the parts' ``probabilities``, as in the paper, or ``log-probabilities``, as in
            the code.
        divide: whether ``d`` has the factor ``1/m`` of the paper, which the code leaves out.
        posterior: whether ``P(a | .)`` is that of the ``part``, the vector with zeros elsewhere, as
            in the paper, or of the ``whole`` vector, as in the code.
        context: ``d`` is made of class ``means``, or it is the ``probabilities`` of the base
            classes themselves, an option of the code for the ``class`` adjustment.
        window: images per base class, at least 1, that its mean vector weighs most: each image
            multiplies the weight of earlier ones by ``1 - 1 / window``, so that vectors of a
            backbone that has changed since are forgotten. The code averages over all images after
            pretraining.

    Raises:
        OptionError: an option is outside its range, or the base consumes maps or is trained on the
            backbone's images.
    """

    consumes = "vectors"
    learns_from = "both"
    uses_labels = True
    weightless = False

    sums: Tensor
    counts: Tensor

    def __init__(  # noqa: PLR0913 - its parameters are the options
        self,
        *,
        base: FewShotMethod,
        adjustment: Adjustment = "combined",
        n_splits: int = 8,
        average: Literal["probabilities", "log-probabilities"] = "probabilities",
        divide: bool = True,
        posterior: Literal["part", "whole"] = "part",
        context: Literal["means", "probabilities"] = "means",
        window: int = 100,
    ) -> None:
        super().__init__(base=copy.deepcopy(base))
        check_one_of(_ADJUSTMENTS, adjustment=adjustment)
        check_one_of(("probabilities", "log-probabilities"), average=average)
        check_one_of(("part", "whole"), posterior=posterior)
        check_one_of(("means", "probabilities"), context=context)
        check_at_least(1, n_splits=n_splits, window=window)
        if context == "probabilities" and adjustment != "class":
            raise OptionError(
                f"context 'probabilities' needs adjustment 'class', got {adjustment!r}"
            )
        if base.consumes == "maps":
            raise OptionError(
                f"base must consume vectors or images, but {type(base).__name__} consumes maps"
            )
        if base.trains_on_images or base.views is not None:
            raise OptionError(
                "base must be trained on parts of vectors, but "
                f"{type(base).__name__} is trained on images"
            )
        self.adjustment = adjustment
        self.n_splits = n_splits
        self.n_parts = 1 if adjustment == "class" else n_splits
        self.average = average
        self.divide = divide
        self.posterior = posterior
        self.context = context
        self.window = window
        # Of the parts after the first one, which has ``base``.
        self.others = nn.ModuleList(copy.deepcopy(base) for _ in range(self.n_parts - 1))

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the classifier and the means of the base classes, and build the bases.

        Raises:
            OptionError: there are no base classes, the vectors cannot be cut into equal parts, or
                the base cannot be built for a part of a vector.
        """
        del backbone
        (size,) = item_shape
        if n_base_classes < 1:
            raise OptionError("IFSL needs base classes, but nothing is trained")
        if size % self.n_parts:
            raise OptionError(
                f"n_splits must divide the length of the vectors, {size}, got {self.n_parts}"
            )
        self.classify = nn.Linear(size, n_base_classes)
        self.register_buffer("sums", torch.zeros(n_base_classes, size))
        self.register_buffer("counts", torch.zeros(n_base_classes))
        length = size // self.n_parts
        if self.adjustment != "feature":
            length += n_base_classes if self.context == "probabilities" else length
        for base in self.bases:
            shape = (length, 1, 1) if base.consumes == "images" else (length,)
            try:
                base.build(shape, n_base_classes, _ScaleAndShift(length))
            except OptionError as error:
                raise OptionError(
                    f"base {type(base).__name__} does not fit a part of a vector: {error}"
                ) from error

    @property
    def bases(self) -> list[FewShotMethod]:
        """The base of each part."""
        return [self.base, *cast("Iterable[FewShotMethod]", self.others)]

    @property
    def class_means(self) -> Tensor:
        """The mean vector of each base class, float ``(n_base_classes, D)``; 0 before any image."""
        tiny = torch.finfo(self.counts.dtype).tiny
        return self.sums / self.counts.clamp(min=tiny)[:, None]

    def class_logits(self, items: Tensor) -> Tensor:
        """Score vectors ``(n, D)`` for the base classes, float ``(n, n_base_classes)``."""
        logits: Tensor = self.classify(items)
        return logits

    def parts(self, items: Tensor) -> Tensor:
        """Return what the bases see of vectors ``(*, D)``, float ``(*, parts, length)``."""
        means = self.class_means
        x = functional.normalize(items, dim=-1) - means.mean(dim=0)
        x = functional.normalize(x, dim=-1)
        x = functional.normalize(x.unflatten(-1, (self.n_parts, -1)), dim=-1)
        if self.adjustment == "feature":
            return x
        context = self._context(items, means)
        return torch.cat([x, context.to(x.dtype)], dim=-1)

    def _context(self, items: Tensor, means: Tensor) -> Tensor:
        """Return the expected base class of each part of vectors, ``(*, parts, length)``."""
        if self.posterior == "part":
            cut = items.unflatten(-1, (self.n_parts, -1))
            weight = self.classify.weight.unflatten(1, (self.n_parts, -1))
            logits = torch.einsum("...pd,apd->...pa", cut, weight) + self.classify.bias
        else:
            logits = self.class_logits(items)[..., None, :].expand(
                *items.shape[:-1], self.n_parts, -1
            )
        probabilities = logits.softmax(dim=-1)
        if self.context == "probabilities":
            return probabilities
        cut_means = means.unflatten(1, (self.n_parts, -1))
        expected = torch.einsum("...pa,apd->...pd", probabilities, cut_means.to(logits.dtype))
        return expected / len(means) if self.divide else expected

    def embed(self, items: Tensor) -> Tensor:
        """Map vectors ``(n, D)`` to the bases' embedded parts ``(n, parts, *embedded)``."""
        parts = self.parts(items)
        embedded = [base.embed(_as_item(base, parts[:, i])) for i, base in enumerate(self.bases)]
        return torch.stack(embedded, dim=1)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return log-probabilities averaged over the parts, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, parts, *embedded)``.
            query: float ``(tasks, n, parts, *embedded)``.

        Raises:
            OptionError: the base is for another number of ways.
        """
        if self.base.weightless:
            # Bases without weights are all the same, so parts can be further tasks.
            tasks = support.movedim(3, 0).flatten(0, 1), query.movedim(2, 0).flatten(0, 1)
            scores = self.base.scores(*tasks).unflatten(0, (self.n_parts, -1))
        else:
            scores = torch.stack(
                [b.scores(support[:, :, :, i], query[:, :, i]) for i, b in enumerate(self.bases)]
            )
        each = scores.log_softmax(dim=-1)
        if self.average == "log-probabilities":
            return each.mean(dim=0)
        return each.logsumexp(dim=0) - math.log(self.n_parts)

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy of the base classes on batches plus the bases' mean loss.

        In training mode it also adds the batch's vectors to the class means.

        Raises:
            OptionError: the step has neither images nor what the base learns from.
        """
        losses = []
        if batch.items is not None and batch.classes is not None:
            if self.training:
                self._collect(batch.items.detach(), batch.classes)
            logits = self.class_logits(batch.items)
            losses.append(functional.cross_entropy(logits, batch.classes))
        if self._base_learns(batch):
            of_parts = [
                base.loss(part) for base, part in zip(self.bases, self._batches(batch), strict=True)
            ]
            losses.append(torch.stack(of_parts).mean())
        if not losses:
            raise OptionError(
                f"IFSL learns from batches, and its base {type(self.base).__name__} from "
                f"{self.base.learns_from}, but this step has neither"
            )
        return torch.stack(losses).sum()

    def _base_learns(self, batch: Batch) -> bool:
        """Return whether a batch has what the bases learn from."""
        has_episodes, has_items = batch.support is not None, batch.items is not None
        known = {
            "episodes": has_episodes,
            "batches": has_items,
            "both": has_episodes and has_items,
        }
        return known.get(self.base.learns_from, False)

    def _batches(self, batch: Batch) -> list[Batch]:
        """Return the batch of each part, with what the bases consume as items."""
        given = {"support": batch.support, "query": batch.query, "items": batch.items}
        parts = {k: self.parts(v) for k, v in given.items() if v is not None}
        return [
            dataclasses.replace(
                batch, **{k: _as_item(self.base, v[..., i, :]) for k, v in parts.items()}
            )
            for i in range(self.n_parts)
        ]

    @torch.no_grad()
    def _collect(self, items: Tensor, classes: Tensor) -> None:
        """Add vectors ``(n, D)`` of base classes ``(n,)`` to the class means."""
        units = functional.normalize(items.to(self.sums.dtype), dim=-1)
        seen = torch.zeros_like(self.counts).index_add(0, classes, torch.ones_like(units[:, 0]))
        kept = (1 - 1 / self.window) ** seen
        self.sums.mul_(kept[:, None]).index_add_(0, classes, units)
        self.counts.mul_(kept).add_(seen)


class _ScaleAndShift(Backbone):
    """Images of one location to vectors, with a learned scale and shift per number."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Conv2d(width, width, 1, groups=width)
        nn.init.ones_(self.scale.weight)
        nn.init.zeros_(self.scale.bias)  # type: ignore[arg-type]  # there is one

    def forward(self, images: Tensor) -> Tensor:
        """Map images ``(n, D, 1, 1)`` to maps of the same shape."""
        maps: Tensor = self.scale(images)
        return maps

    def vectors(self, maps: Tensor) -> Tensor:
        """Return ``(n, D)``."""
        return maps.flatten(1)


def _as_item(base: FewShotMethod, part: Tensor) -> Tensor:
    """Return parts ``(*, length)`` as a base consumes them."""
    return part[..., None, None] if base.consumes == "images" else part
