"""Logistic regression on the features of a task, and the method that trains for it."""

from __future__ import annotations

from torch import Tensor

from fsf_methods.transfer._base_classes import BaseClassifier
from fsf_methods.transfer._distill import divergence
from fsf_methods.transfer._regression import READS_VALUES, check_regression, regression_logits
from fsframework.interfaces import Batch, FewShotMethod, check_above, check_at_least

__all__ = ["RFS", "Logistic"]


class Logistic(FewShotMethod):
    """Fit a logistic regression to the support of each task.

    Source: the adapter "LR" of Lafargue et al. 2024, "Oops, I Sampled it Again", which is
    scikit-learn's ``LogisticRegression(max_iter=1000)``; their code also scales the vectors to
    length 1 (``normalize``). For two ways scikit-learn fits a single weight vector; its minimum is
    that of two vectors with half the ``c``, which is used here.

    Args:
        normalize: divide vectors by their length.
        c: weight of the support's losses against the penalty ``|W|^2 / 2``, above 0.
        tol: the solver stops when no entry of the gradient exceeds it, above 0. At scikit-learn's
            1e-4 this is before the minimum, see ``logistic_regression``; 1e-8 is practically at it.

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "vectors"
    learns_from = "nothing"
    weightless = True
    reads_values = READS_VALUES

    def __init__(self, *, normalize: bool = False, c: float = 1.0, tol: float = 1e-4) -> None:
        super().__init__()
        check_regression(c, tol)
        self.normalize = normalize
        self.c = c
        self.tol = tol

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return logits, float ``(tasks, n, way)``, without gradients.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        c = self.c / 2 if support.shape[1] == 2 else self.c
        return regression_logits(support, query, self.normalize, c, self.tol)


class RFS(BaseClassifier):
    """Train on all base classes together, then fit a logistic regression per task.

    Source: Tian, Wang, Krishnan, Tenenbaum and Isola 2020, "Rethinking Few-Shot Image
    Classification: a Good Embedding Is All You Need?" (ECCV), sections 3.2 (training), 3.3
    (distillation) and the authors' code: the regression is scikit-learn's with its defaults, on
    vectors of length 1, but multinomial also for two ways. In a stage that distils, the loss is
    ``alpha`` times the cross-entropy plus ``beta`` times the Kullback-Leibler divergence of the
    student's probabilities from the teacher's, both at ``temperature``, times the square of the
    ``temperature`` (which keeps the size of its gradient, as in Hinton et al. 2015); in other
    stages it is only the cross-entropy.

    Args:
        alpha: weight of the cross-entropy with a teacher, at least 0.
        beta: weight of the divergence from a teacher, at least 0.
        temperature: divides the logits of teacher and student, above 0.
        normalize: divide vectors by their length before the regression.
        c: weight of the support's losses against the penalty ``|W|^2 / 2``, above 0.
        tol: the regression's solver stops when no entry of the gradient exceeds it, above 0. At
            scikit-learn's 1e-4 this is before the minimum, see ``logistic_regression``.

    Raises:
        OptionError: an option is outside its range.
    """

    reads_values = READS_VALUES

    def __init__(
        self,
        *,
        alpha: float = 0.5,
        beta: float = 0.5,
        temperature: float = 4.0,
        normalize: bool = True,
        c: float = 1.0,
        tol: float = 1e-4,
    ) -> None:
        super().__init__()
        check_at_least(0, alpha=alpha, beta=beta)
        check_above(0, temperature=temperature)
        check_regression(c, tol)
        self.alpha = alpha
        self.beta = beta
        self.temperature = temperature
        self.normalize = normalize
        self.c = c
        self.tol = tol

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return logits, float ``(tasks, n, way)``, without gradients.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        return regression_logits(support, query, self.normalize, self.c, self.tol)

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy of the base classes; with a teacher, the two weighted losses."""
        of_classes, logits = self.class_loss(batch)
        if batch.teacher_logits is None:
            return of_classes
        taught = divergence(logits, batch.teacher_logits, self.temperature)
        return self.alpha * of_classes + self.beta * taught
