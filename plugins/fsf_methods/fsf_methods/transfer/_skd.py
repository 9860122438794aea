"""Self-supervised knowledge distillation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods._shared import vector_size
from fsf_methods.transfer._distill import divergence
from fsf_methods.transfer._regression import READS_VALUES, check_regression, regression_logits
from fsframework.interfaces import (
    Backbone,
    Batch,
    FewShotMethod,
    check_above,
    check_at_least,
)

__all__ = ["SKD"]

_TURNS = 4


class SKD(FewShotMethod):
    """Train on base classes and rotations, then distil; fit a logistic regression per task.

    Source: Rajasegaran, Khan, Hayat, Khan and Shah 2020, "Self-supervised Knowledge Distillation
    for Few-shot Learning", sections 3.1 (generation 0) and 3.2 (generation 1), and the authors'
    code. Generation 0 adds to a batch all its images turned by 90, 180 and 270 degrees
    counter-clockwise; its loss is ``gamma`` times the cross-entropy of the base classes of all of
    them plus ``alpha`` times that of the rotations, which a linear classifier reads from the class
    scores. As in the code, the latter is a binary cross-entropy per rotation, averaged.

    In a stage that distils (generation 1), the loss is ``distill_gamma`` times the Kullback-Leibler
    divergence of the student's probabilities from the teacher's, at ``temperature``, for the images
    as they are, plus ``distill_alpha`` times the mean Euclidean distance between the class scores
    of an image and of the same image turned.

    The tasks' classifier is that of Tian et al. 2020 (``rfs``): scikit-learn's logistic regression
    on vectors of length 1.

    The defaults are those of the authors' commands: ``alpha`` 2, ``distill_alpha`` 0.1 for CIFAR-FS
    (0.2 for FC100), ``temperature`` 2, a divergence of weight 1. Their student starts with the
    teacher's weights; here it starts afresh, unless ``training.init_from`` says otherwise.

    It consumes images since it turns them; in tasks it sees each image once, unturned.

    Args:
        gamma: weight of the class loss, at least 0.
        alpha: weight of the rotation loss, at least 0.
        distill_gamma: weight of the divergence from a teacher, at least 0.
        distill_alpha: weight of the distance between an image and its rotations, at least 0.
        temperature: divides the logits of teacher and student, above 0; LibFewShot has 4.
        normalize: divide vectors by their length before the regression.
        c: weight of the support's losses against the penalty ``|W|^2 / 2``, above 0.
        tol: the regression's solver stops when no entry of the gradient exceeds it, above 0. At
            scikit-learn's 1e-4 this is before the minimum, see ``logistic_regression``.

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "images"
    learns_from = "batches"
    reads_values = READS_VALUES

    def __init__(  # noqa: PLR0913
        self,
        *,
        gamma: float = 1.0,
        alpha: float = 2.0,
        distill_gamma: float = 1.0,
        distill_alpha: float = 0.1,
        temperature: float = 2.0,
        normalize: bool = True,
        c: float = 1.0,
        tol: float = 1e-4,
    ) -> None:
        super().__init__()
        check_at_least(
            0, gamma=gamma, alpha=alpha, distill_gamma=distill_gamma, distill_alpha=distill_alpha
        )
        check_above(0, temperature=temperature)
        check_regression(c, tol)
        self.gamma = gamma
        self.alpha = alpha
        self.distill_gamma = distill_gamma
        self.distill_alpha = distill_alpha
        self.temperature = temperature
        self.normalize = normalize
        self.c = c
        self.tol = tol

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Store the backbone, and create the two classifiers, only with base classes."""
        self.backbone = backbone
        self.classify: nn.Linear | None = None
        self.classify_rotation: nn.Linear | None = None
        if n_base_classes:
            self.classify = nn.Linear(vector_size(backbone, item_shape), n_base_classes)
            self.classify_rotation = nn.Linear(n_base_classes, _TURNS)

    def embed(self, items: Tensor) -> Tensor:
        """Map images ``(n, 3, H, W)`` to vectors ``(n, D)``."""
        return self.backbone.encode(items)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return logits, float ``(tasks, n, way)``, without gradients.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        return regression_logits(support, query, self.normalize, self.c, self.tol)

    def class_logits(self, items: Tensor) -> Tensor:
        """Score images ``(n, 3, H, W)`` for the base classes, float ``(n, n_base_classes)``."""
        if self.classify is None:
            return super().class_logits(items)
        logits: Tensor = self.classify(self.embed(items))
        return logits

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of generation 0; with a teacher, that of generation 1."""
        assert self.classify_rotation is not None, "built without base classes, there is no loss"
        assert batch.items is not None
        assert batch.classes is not None
        turned = torch.cat([batch.items.rot90(k, dims=(2, 3)) for k in range(_TURNS)])
        logits = self.class_logits(turned)
        if batch.teacher_logits is not None:
            return self._distilled(logits, batch.teacher_logits)
        turns = torch.arange(_TURNS, device=logits.device).repeat_interleave(len(batch.items))
        truth = functional.one_hot(turns, _TURNS).to(logits.dtype)
        of_turns = functional.binary_cross_entropy_with_logits(
            self.classify_rotation(logits), truth
        )
        of_classes = functional.cross_entropy(logits, batch.classes.repeat(_TURNS))
        return self.gamma * of_classes + self.alpha * of_turns

    def _distilled(self, logits: Tensor, teacher: Tensor) -> Tensor:
        upright, *turned = torch.split(logits.float(), len(teacher))
        distances = [torch.linalg.vector_norm(other - upright, dim=1) for other in turned]
        taught = divergence(upright, teacher, self.temperature)
        return self.distill_gamma * taught + self.distill_alpha * torch.stack(distances).mean()
