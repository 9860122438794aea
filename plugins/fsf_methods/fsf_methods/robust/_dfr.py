"""Deep feature reweighting."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fsf_methods.robust._groups import (
    MOST_WORDS,
    WordGroups,
    balanced_weights,
    check_words,
    redrawn,
    words_of_items,
)
from fsf_methods.robust._linear import OnMappedVectors
from fsframework.interfaces import Backbone, Batch, FewShotMethod

__all__ = ["DFR"]


class DFR(OnMappedVectors):
    """Refit a last linear layer on vectors of a fixed backbone, with balanced groups.

    Source: Kirichenko, Izmailov and Wilson 2023, "Last Layer Re-Training is Sufficient for
    Robustness to Spurious Correlations" (ICLR), section 4: features are those of ordinary training,
    and only the last layer is trained again, on data in which the groups of class and attribute are
    balanced.

    The last layer of a few-shot method has no classes in common with the tasks. Here it is a linear
    map of the vectors that starts as the identity, x + A x with A = 0, below a linear classifier of
    the base classes (the base's own, if it learns from batches with one). Both are trained on
    balanced batches; the base then scores the mapped vectors, and a base that learns from episodes
    is trained on them. Weight decay pulls the map to the identity. Groups and weights are those of
    ``balanced``. The first stage trains the backbone, and the second keeps it::

        [[training.stages]]
        method = "baseline"
        [[training.stages]]
        freeze = ["backbone"]

    Deviations: the data are those of the first stage (the source's DFR on training data), as
    episodes need whole classes; gradient steps with weight decay replace the mean of ten logistic
    regressions with an L1 penalty; vectors are not standardised.

    Args:
        base: the method that scores the mapped vectors. It consumes vectors.
        n_words: tied words per class, at least 1.
        most_words: words that the training images have at most. More are refused.

    Raises:
        OptionError: an option is outside its range, or the base consumes other items than vectors
            or is trained on images.
    """

    def __init__(
        self, *, base: FewShotMethod, n_words: int = 1, most_words: int = MOST_WORDS
    ) -> None:
        super().__init__(base=base)
        check_words(n_words, most_words)
        self.n_words = n_words
        self.most_words = most_words

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the map, and build the base."""
        super().build(item_shape, n_base_classes, backbone)
        self.change = nn.Parameter(torch.zeros(item_shape[0], item_shape[0]))
        self.groups = WordGroups(n_base_classes, self.n_words, self.most_words)

    def mapped(self, items: Tensor) -> Tensor:
        """Map vectors ``(..., D)`` to ``x + A x``."""
        return items + items @ self.change.mT

    def loss(self, batch: Batch) -> Tensor:
        """Return the losses of the classifier and of the base, on images drawn again.

        Raises:
            OptionError: the images have no words, or more than ``most_words``.
        """
        if batch.items is not None:
            assert batch.classes is not None
            words = words_of_items(batch, self)
            weights = balanced_weights(self.groups, batch.classes, words, count=self.training)
            batch = redrawn(batch, items=weights)
        items = None if batch.items is None else self.mapped(batch.items)
        return self.summed([self.head_loss(batch, items), self.base_loss(batch, mapped=True)])
