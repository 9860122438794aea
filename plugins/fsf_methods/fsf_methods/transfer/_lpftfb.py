"""Linear probing and fine-tuning with Firth's bias reduction."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from fsf_methods.transfer._base_classes import BaseClassifier
from fsf_methods.transfer._classifiers import Cosines, score_cosine, score_linear
from fsf_methods.transfer._fit import Fitting, Weights
from fsframework.interfaces import OptionError, check_at_least

__all__ = ["LPFTFB"]

_SCALE = 2.0


class LPFTFB(Fitting, BaseClassifier):
    """Fit a classifier per task with a penalty against the bias of few examples.

    Source: Wang, Yue, Ye, He, Li and Li 2023, "Revisit Finetuning Strategy for Few-shot Learning to
    Transfer the Embeddings" (ICLR), and the authors' code; the penalty is that of Ghaffari,
    Saleh, Forsyth and Wang 2022, "On the Importance of Firth Bias Reduction in Few-Shot
    Classification" (ICLR): ``firth_c`` times minus the mean, over images and classes, of the
    logarithm of the class's probability, which pulls towards equal probabilities. The classifier is
    fitted to the support's pretrained vectors by SGD with momentum 0.9 and dampening 0.9. Before,
    all base classes train the backbone together.

    This is the paper's linear probing with bias reduction, on vectors that are computed once. For
    the fine-tuning of the backbone after it, which needs the images of each task, use ``finetune``
    with ``probe_steps`` and ``firth_c``. The probing, its 300 epochs and the penalty are those of
    the authors' code. The paper's inverse penalty (i-FBR), which regularises the backbone in the
    fine-tuning, is not there: its formula was not at hand. A negative ``firth_c`` would be no
    substitute, as the loss would have no lower bound.

    Two deviations make scores deterministic and independent of the order of shots and ways: a step
    uses the whole support, where the authors draw 4 images without replacement, with as many steps
    as in their 300 epochs; and the classifier starts at 0 (``dist``: as the classes' means), where
    theirs is random. ``scores_from`` scores as they do.

    Args:
        head: ``softmax``, a linear classifier, or ``dist``, 2 times the cosines, times a learned
            length per class.
        firth_c: weight of the penalty, at least 0; 0 leaves it out.
        steps: steps, at least 1; ``None`` for those of 300 epochs of 4 images per step: 2100 for 25
            support images.
        lr: learning rate, above 0.
        weight_decay: weight decay, at least 0.

    Raises:
        OptionError: an option is outside its range.
    """

    epochs = 300

    def __init__(
        self,
        *,
        head: Literal["softmax", "dist"] = "softmax",
        firth_c: float = 1.0,
        steps: int | None = None,
        lr: float = 0.01,
        weight_decay: float = 0.001,
    ) -> None:
        super().__init__()
        if head not in ("softmax", "dist"):
            raise OptionError(f"head must be 'softmax' or 'dist', got {head!r}")
        check_at_least(0, firth_c=firth_c)
        self.head = head
        self.firth_c = firth_c
        self.set_fit(steps, lr, weight_decay)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return logits, float ``(tasks, n, way)``, without gradients.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        return self._scores(support, query, None, None)

    def scores_from(
        self, start: Weights, support: Tensor, query: Tensor, batch_size: int | None = 4
    ) -> Tensor:
        """Return the logits of classifiers with given starts, float ``(tasks, n, way)``.

        Args:
            start: ``weight (tasks, way, D)`` and ``bias (tasks, way)``, or, with ``head="dist"``,
                ``directions (tasks, way, D)`` and ``lengths (tasks, way)``.
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
            batch_size: support images per step, in the given order; ``None`` for all.
        """
        return self._scores(support, query, start, batch_size)

    def _scores(
        self, support: Tensor, query: Tensor, start: Weights | None, batch_size: int | None
    ) -> Tensor:
        fit = self.fit(support, batch_size)
        if self.head == "softmax":
            return score_linear(support, query, fit, start, self.firth_c)
        kind = Cosines(_SCALE, firth=self.firth_c, learn_lengths=True)
        return score_cosine(support, query, fit, kind, start)
