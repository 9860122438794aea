"""Learning from a teacher's class scores."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

__all__ = ["divergence"]


def divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return the Kullback-Leibler divergence of the student's probabilities from the teacher's.

    Both are at ``temperature``, and the mean over items is multiplied by its square, which keeps
    the size of the gradient (Hinton et al. 2015).

    Args:
        student: logits ``(n, classes)``; ``teacher`` likewise.
    """
    found = functional.kl_div(
        (student.float() / temperature).log_softmax(dim=1),
        (teacher.float() / temperature).log_softmax(dim=1),
        reduction="batchmean",
        log_target=True,
    )
    return temperature**2 * found
