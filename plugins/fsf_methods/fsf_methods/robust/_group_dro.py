"""Group distributionally robust optimisation."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fsf_methods.cross_domain._bases import kept_buffers
from fsf_methods.robust._groups import (
    MOST_WORDS,
    WordGroups,
    check_words,
    need_labels,
    redrawn,
    words_of_items,
    words_of_queries,
)
from fsf_methods.robust._heads import has_class_logits
from fsframework.interfaces import (
    Backbone,
    Batch,
    FewShotMethod,
    MethodWrapper,
    OptionError,
    check_above,
    check_at_least,
)

__all__ = ["GroupDRO"]


class GroupDRO(MethodWrapper):
    """Train another method for the group of class and words that it is worst at.

    Source: Sagawa, Koh, Hashimoto and Liang 2020, "Distributionally Robust Neural Networks for
    Group Shifts" (ICLR), algorithm 1: each group g has a weight q_g, a step multiplies it by
    exp(eta * loss_g) and normalises all, and the weights of the network follow the gradient of the
    sum of q_g * loss_g. ``adjustment`` is C of section 3.3: C / sqrt(n_g) is added to loss_g where
    the weights q are updated. Evaluation is that of the base.

    Groups are those of ``balanced``. All images of a step update q at once, by the mean loss of
    each group; groups without images keep theirs, before normalisation. loss_g is the cross-entropy
    of the base's classifier of base classes for batches, and of its scores of the queries for
    episodes.

    Deviations: so that any base keeps its own loss, images weigh by being drawn again among those
    of the step, in proportion to q_g over the share of the group in all images so far; in episodes
    queries are drawn within their way, so ways keep their weight. n_g counts the images of all
    steps so far.

    Args:
        base: the method that is trained, from labels and without views; one that learns from
            batches has a classifier of the base classes.
        eta: step size of the weights of groups, above 0.
        adjustment: C, at least 0.
        n_words: tied words per class, at least 1.
        most_words: words that the training images have at most. More are refused.

    Raises:
        OptionError: an option is outside its range, or the base does not learn as above.
    """

    needs_words = True
    q: Tensor

    def __init__(
        self,
        *,
        base: FewShotMethod,
        eta: float = 0.01,
        adjustment: float = 0.0,
        n_words: int = 1,
        most_words: int = MOST_WORDS,
    ) -> None:
        super().__init__(base=base)
        need_labels(base)
        if base.learns_from == "batches" and not has_class_logits(base):
            raise OptionError(
                "base must have a classifier of the base classes, as baseline has, or learn from "
                f"episodes, but {type(base).__name__} does not"
            )
        check_above(0, eta=eta)
        check_at_least(0, adjustment=adjustment)
        check_words(n_words, most_words)
        self.eta = eta
        self.adjustment = adjustment
        self.n_words = n_words
        self.most_words = most_words

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Build the base; all groups weigh the same."""
        super().build(item_shape, n_base_classes, backbone)
        self.groups = WordGroups(n_base_classes, self.n_words, self.most_words)
        n_groups = len(self.groups.members)
        self.register_buffer("q", torch.full((n_groups,), 1 / max(n_groups, 1)))

    def loss(self, batch: Batch) -> Tensor:
        """Update the weights of groups, and return the base's loss on images drawn by them.

        Raises:
            OptionError: the images have no words, or more than ``most_words``.
        """
        items = query = None
        seen = []
        if batch.items is not None:
            assert batch.classes is not None
            items = self._groups(batch.classes, words_of_items(batch, self))
            if has_class_logits(self.base):
                seen.append((items, batch.classes, self._logits(batch)))
        if batch.query is not None:
            assert batch.query_classes is not None
            assert batch.query_labels is not None
            query = self._groups(batch.query_classes, words_of_queries(batch, self))
            scores = self._scores(batch)
            seen.append((query.flatten(), batch.query_labels.flatten(), scores.flatten(0, 1)))
        if self.training:
            self._update(seen)
        return self.base.loss(
            redrawn(batch, items=self._weights(items), query=self._weights(query))
        )

    def _groups(self, classes: Tensor, words: Tensor) -> Tensor:
        """Count images ``(*shape)`` with words ``(*shape, w)``; return their groups."""
        flat = classes.flatten()
        shown = words.reshape(flat.shape[0], words.shape[-1])
        if self.training:
            self.groups.observe(flat, shown)
        return self.groups.of(flat, shown).reshape(classes.shape)

    def _weights(self, groups: Tensor | None) -> Tensor | None:
        if groups is None:
            return None
        share = self.groups.share()
        tiny = torch.finfo(self.q.dtype).tiny
        return (self.q / share.clamp(min=tiny))[groups].clamp(min=tiny)

    @torch.no_grad()
    def _logits(self, batch: Batch) -> Tensor:
        assert batch.items is not None
        with kept_buffers(self.base):
            return self.class_logits(batch.items)

    @torch.no_grad()
    def _scores(self, batch: Batch) -> Tensor:
        with kept_buffers(self.base):
            return self.scores(*self.base.embed_episode(batch))

    @torch.no_grad()
    def _update(self, seen: list[tuple[Tensor, Tensor, Tensor]]) -> None:
        """Update q by groups ``(n,)``, labels ``(n,)`` and logits ``(n, classes)``."""
        sums, counts = torch.zeros_like(self.q), torch.zeros_like(self.q)
        for groups, labels, logits in seen:
            losses = functional.cross_entropy(logits.to(sums.dtype), labels, reduction="none")
            sums.index_add_(0, groups, losses)
            counts.index_add_(0, groups, torch.ones_like(losses))
        adjusted = sums / counts.clamp(min=1)
        adjusted = adjusted + self.adjustment * self.groups.members.clamp(min=1).rsqrt()
        grown = self.q.log() + self.eta * adjusted * (counts > 0)
        self.q.copy_(grown.softmax(dim=0))
