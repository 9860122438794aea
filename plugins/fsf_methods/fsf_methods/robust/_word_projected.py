"""Vectors without the directions of words that were found in images."""

from __future__ import annotations

import torch
from torch import Tensor

from fsf_methods.robust._groups import MOST_WORDS, padded, words_of_items
from fsf_methods.robust._linear import OnMappedVectors
from fsf_methods.robust._projection import without
from fsframework.interfaces import Backbone, Batch, FewShotMethod, check_above, check_at_least

__all__ = ["WordProjected"]


class WordProjected(OnMappedVectors):
    """Remove from vectors the directions in which words move the training images of a class.

    Source: Chuang, Jampani, Li, Torralba and Jegelka 2023, "Debiasing Vision-Language Models via
    Biased Prompts" (arXiv 2302.00070), which removes the directions of text; here the directions
    come from images, so that any backbone will do.

    d_w, the direction of a word, is the mean over classes of the difference between the vectors
    with and without the word, a class weighing n_w (n - n_w) / n for n_w of n images: the slope of
    a least-squares fit with an intercept per class, so that what classes differ in is kept. With
    v_w the variance of the word within classes, A has the rows sqrt(v_w) d_w, and a vector is
    mapped to x - A' (A A' + r I)^-1 A x: it is shrunk where words explain more variance than r,
    which is ``ridge`` times the mean variance of a number within classes. As ``ridge`` goes to 0,
    this is the orthogonal projection. Words that the images have in common, or that move nothing,
    change nothing.

    The vectors must not change while they are collected: a first stage trains the backbone, and the
    second keeps it, and collects in each step on batches. A base that learns does so on vectors as
    they are::

        [[training.stages]]
        method = "baseline"
        [[training.stages]]
        freeze = ["backbone"]

    Args:
        base: the method that scores the vectors. It consumes vectors.
        ridge: above 0.
        window: images, at least 1, that weigh most: each image multiplies the weight of earlier
            ones by ``1 - 1 / window``, so that those of a backbone that has changed are forgotten.
        most_words: words that the training images have at most. More are refused.

    Raises:
        OptionError: an option is outside its range, or the base consumes other items than vectors
            or is trained on images.
    """

    moved: Tensor
    sums: Tensor
    having: Tensor
    seen: Tensor
    squares: Tensor

    def __init__(
        self,
        *,
        base: FewShotMethod,
        ridge: float = 0.1,
        window: int = 50_000,
        most_words: int = MOST_WORDS,
    ) -> None:
        super().__init__(base=base)
        check_above(0, ridge=ridge)
        check_at_least(1, window=window, most_words=most_words)
        self.ridge = ridge
        self.window = window
        self.most_words = most_words

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Build the base, with sums of no image yet."""
        super().build(item_shape, n_base_classes, backbone)
        (size,), most = item_shape, self.most_words
        self.register_buffer("moved", torch.zeros(most, size))
        self.register_buffer("sums", torch.zeros(n_base_classes, size))
        self.register_buffer("having", torch.zeros(n_base_classes, most))
        self.register_buffer("seen", torch.zeros(n_base_classes))
        self.register_buffer("squares", torch.zeros(()))

    def loss(self, batch: Batch) -> Tensor:
        """Return the losses of the classifier and of the base; in training, collect the images.

        Raises:
            OptionError: the images have no words, or more than ``most_words``.
        """
        if batch.items is not None and self.training:
            assert batch.classes is not None
            self._collect(batch.items.detach(), batch.classes, words_of_items(batch, self))
        return self.summed(
            [self.head_loss(batch, batch.items), self.base_loss(batch, mapped=False)]
        )

    @torch.no_grad()
    def _collect(self, items: Tensor, classes: Tensor, words: Tensor) -> None:
        items, words = items.to(self.sums.dtype), padded(words, self.having)
        kept = (1 - 1 / self.window) ** len(items)
        for total in (self.moved, self.sums, self.having, self.seen, self.squares):
            total.mul_(kept)
        self.moved.add_(words.mT @ items)
        self.sums.index_add_(0, classes, items)
        self.having.index_add_(0, classes, words)
        self.seen.index_add_(0, classes, torch.ones_like(items[:, 0]))
        self.squares.add_(items.square().sum())

    def directions(self) -> tuple[Tensor, Tensor]:
        """Return A, float ``(most_words, D)``, and the mean variance of a number within classes."""
        seen = self.seen.clamp(min=torch.finfo(self.seen.dtype).tiny)
        total = seen.sum()
        means = self.sums / seen[:, None]
        spread = (self.having * (1 - self.having / seen[:, None])).sum(dim=0)
        # sqrt(v) d is the covariance of word and vector over the word's standard deviation.
        joint = self.moved - self.having.mT @ means
        rows = joint / (spread.clamp(min=0.5) * total).sqrt()[:, None]
        within = (self.squares - (means * self.sums).sum()) / (total * means.shape[1])
        return rows * (spread >= 0.5)[:, None], within.clamp(min=0)

    def mapped(self, items: Tensor) -> Tensor:
        """Map vectors ``(..., D)`` to vectors in which words matter less."""
        rows, within = self.directions()
        tiny = torch.finfo(within.dtype).tiny
        return without(items, rows, self.ridge * within + tiny)
