"""Just train twice."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from fsf_methods.robust._groups import need_labels, redrawn
from fsf_methods.robust._heads import has_class_logits
from fsframework.interfaces import (
    Batch,
    FewShotMethod,
    MethodWrapper,
    OptionError,
    check_at_least,
)

__all__ = ["JTT"]


class JTT(MethodWrapper):
    """Train another method twice, the second time with more weight on the errors of the first.

    Source: Liu, Haghgoo, Chen, Raghunathan, Koh, Sagawa, Liang and Finn 2021, "Just Train Twice:
    Improving Group Robustness without Training Group Information" (ICML), algorithm 1. It needs no
    words.

    The two trainings are two stages: the first is short, and the second has ``distill``, so that
    the first model is its teacher and it starts from new weights::

        [[training.stages]]
        epochs = 5
        [[training.stages]]
        distill = true

    In a stage with a teacher, an image that the teacher gives to another class weighs
    ``lambda_up``. The images of a batch are drawn again among themselves in proportion to these
    weights, so that any base keeps its own loss, which does not see the teacher.

    Deviations: the source finds the errors once, on images without augmentation, and repeats them
    in the training set; here the teacher sees an image as the step shows it.

    Args:
        base: the method that is trained, by a classifier of the base classes on batches.
        lambda_up: weight of an error, at least 1; the source searches 20 to 100 for its images.

    Raises:
        OptionError: an option is outside its range, or the base has no classifier of the base
            classes, learns from no batches, or learns from views.
    """

    def __init__(self, *, base: FewShotMethod, lambda_up: float = 20.0) -> None:
        super().__init__(base=base)
        if base.learns_from == "episodes" or not has_class_logits(base):
            raise OptionError(
                "base must learn from batches by a classifier of the base classes, as baseline "
                f"does, but {type(base).__name__} does not"
            )
        need_labels(base)
        check_at_least(1, lambda_up=lambda_up)
        self.lambda_up = lambda_up

    def loss(self, batch: Batch) -> Tensor:
        """Return the base's loss, with a teacher on images drawn by its errors."""
        if batch.teacher_logits is None:
            return self.base.loss(batch)
        assert batch.classes is not None
        wrong = batch.teacher_logits.argmax(dim=1) != batch.classes
        weights = torch.where(wrong, self.lambda_up, 1.0).to(batch.teacher_logits.dtype)
        shown = redrawn(batch, items=weights)
        return self.base.loss(dataclasses.replace(shown, teacher_logits=None))
