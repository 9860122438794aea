"""Balanced groups of class and words."""

from __future__ import annotations

from torch import Tensor

from fsf_methods.robust._groups import (
    MOST_WORDS,
    WordGroups,
    balanced_weights,
    check_words,
    need_labels,
    redrawn,
    words_of_items,
    words_of_queries,
)
from fsframework.interfaces import Backbone, Batch, FewShotMethod, MethodWrapper, OptionError

__all__ = ["Balanced"]


class Balanced(MethodWrapper):
    """Train another method on images whose words say less about their class.

    Source: Idrissi, Arjovsky, Pezeshki and Lopez-Paz 2022, "Simple data balancing achieves
    competitive worst-group-accuracy" (CLeaR), section 3: sampling with equal probability from every
    group of class and attribute (RWG). Evaluation is that of the base.

    A group is a class and the number of words tied to this class that an image has; with one tied
    word per class, whether the image has it. Words are tied to a class by the shares counted so
    far. An image has the weight 1 / (G n), with n the images of its group so far and G the groups
    of its class that have any. The images of a step are drawn again among themselves in proportion
    to these weights: of a batch any for any, of an episode only within their way, support images
    and queries apart.

    Deviations: the source balances one attribute that is known to be spurious, over the whole
    training set, where here the words are found and the images of each step stand in for one
    another; in an episode, ways keep their numbers of images. Take large batches where a group is
    rare.

    Args:
        base: the method that is trained, from labels and without views.
        n_words: tied words per class, at least 1.
        most_words: words that the training images have at most. More are refused.

    Raises:
        OptionError: an option is outside its range, or the base does not learn from labels.
    """

    needs_words = True

    def __init__(
        self, *, base: FewShotMethod, n_words: int = 1, most_words: int = MOST_WORDS
    ) -> None:
        super().__init__(base=base)
        need_labels(base)
        check_words(n_words, most_words)
        self.n_words = n_words
        self.most_words = most_words

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Build the base, and count no image yet."""
        super().build(item_shape, n_base_classes, backbone)
        self.groups = WordGroups(n_base_classes, self.n_words, self.most_words)

    def loss(self, batch: Batch) -> Tensor:
        """Return the base's loss on a step whose images are drawn again.

        Raises:
            OptionError: the images have no words, or more than ``most_words``.
        """
        items = support = query = None
        if batch.items is not None:
            assert batch.classes is not None
            items = self._weights(batch.classes, words_of_items(batch, self))
        if batch.support is not None:
            if batch.support_words is None:
                raise OptionError("Balanced needs the words of the training images")
            assert batch.support_classes is not None
            assert batch.query_classes is not None
            support = self._weights(batch.support_classes, batch.support_words)
            query = self._weights(batch.query_classes, words_of_queries(batch, self))
        return self.base.loss(redrawn(batch, items=items, support=support, query=query))

    def _weights(self, classes: Tensor, words: Tensor) -> Tensor:
        return balanced_weights(self.groups, classes, words, count=self.training)
