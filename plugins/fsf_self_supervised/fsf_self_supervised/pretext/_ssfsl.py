"""Rotations or puzzles beside another method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional

from fsf_self_supervised.pretext._wrapper import Wrapper, check_kinds, views_of
from fsframework.interfaces import (
    Backbone,
    Batch,
    FewShotMethod,
    ViewMaker,
    check_at_least,
    check_below_one,
)

__all__ = ["SSFSL", "PretextHead", "SSFSLJigsaw"]

_HIDDEN = {False: 128, True: 4096}
"""The authors' width for views on their own, and for all views of an image together."""


class SSFSL(Wrapper):
    """Train another method and, beside it, to recognise how views of its images were made.

    Source: Su, Maji and Hariharan 2020, "When Does Self-supervision Improve Few-Shot Learning?"
    (ECCV), section 3: the loss is (1 - lambda) times the base's own plus lambda times the
    cross-entropy of a pretext task on all images of the step, support and queries alike. With
    ``views=rotation`` the task is the angle of each of the four rotations of an image; with
    ``views=jigsaw`` it is which of 35 permutations the nine patches of an image are in. In
    evaluation nothing is changed, and features are computed once per image.

    The head is that of the authors' code: for each view a layer as wide as the backbone's maps have
    channels, on their mean over locations, and a layer of ``hidden`` numbers, both with ReLU and
    dropout, then the classifier; the views of a puzzle are concatenated after the first layer.
    Views pass the backbone together, apart from the images of the base, so BatchNorm normalises the
    two apart.

    Both tasks at once are one within the other, as ``ssfsl:ssfsl-jigsaw:protonet``. The authors'
    code trains with one of them; with ``lbda=0.25`` outside and ``lbda=0.3333`` inside, the base
    weighs a half and each task a quarter.

    Args:
        base: the method that is trained.
        views: makes the views, of which there are at least two kinds.
        lbda: the weight lambda of the pretext task, at least 0 and below 1.
        hidden: width of the head's second layer; ``None`` for the authors' 128, or 4,096 where one
            transformation makes all views of an image, as in a puzzle.
        dropout: share of the head's numbers that are dropped in training, at least 0 and below 1.

    Raises:
        OptionError: an option is outside its range, the base learns from neither episodes nor
            batches, or the views are of one kind only.
    """

    usual_components: ClassVar[Mapping[str, str]] = {"views": "rotation"}

    def __init__(
        self,
        *,
        base: FewShotMethod,
        views: ViewMaker,
        lbda: float = 0.5,
        hidden: int | None = None,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(base=base)
        check_below_one(lbda=lbda, dropout=dropout)
        if hidden is not None:
            check_at_least(1, hidden=hidden)
        check_kinds(views)
        self.views = views
        self.lbda = lbda
        self.hidden = hidden
        self.dropout = dropout

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Build the base and the head of the pretext task."""
        super().build(item_shape, n_base_classes, backbone)
        together = self.views.together
        self.head = PretextHead(
            self.channels,
            self.views.n_views if together else 1,
            self.hidden or _HIDDEN[together],
            self.views.n_kinds,
            self.dropout,
        )

    def loss(self, batch: Batch) -> Tensor:
        """Return (1 - lambda) times the base's loss plus lambda times that of the pretext task."""
        return (1 - self.lbda) * self.base_loss(batch) + self.lbda * self.pretext_loss(batch)

    def pretext_loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy of the transformations that made a batch's views."""
        views, applied = views_of(batch, self)
        vectors = self.pooled(views.flatten(0, 1)).unflatten(0, applied.shape)
        if self.views.together:
            return functional.cross_entropy(self.head(vectors), applied[:, 0])
        logits = self.head(vectors.flatten(0, 1)[:, None])
        return functional.cross_entropy(logits, applied.flatten())


class SSFSLJigsaw(SSFSL):
    """Train another method and, beside it, to recognise the order of its images' patches.

    This is ``SSFSL`` with ``views=jigsaw``.
    """

    usual_components: ClassVar[Mapping[str, str]] = {"views": "jigsaw"}


class PretextHead(nn.Module):
    """Classifies some vectors of an image together.

    Args:
        width: of a vector.
        n_vectors: vectors of an image.
        hidden: width of the second layer.
        n_kinds: classes.
        dropout: share of numbers dropped after each of the first two layers.
    """

    def __init__(
        self, width: int, n_vectors: int, hidden: int, n_kinds: int, dropout: float
    ) -> None:
        super().__init__()
        self.each = nn.Linear(width, width)
        self.joint = nn.Linear(n_vectors * width, hidden)
        self.classify = nn.Linear(hidden, n_kinds)
        self.dropout = nn.Dropout(dropout)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map vectors ``(n, n_vectors, width)`` to logits ``(n, n_kinds)``."""
        each = self.dropout(self.each(vectors).relu())
        joint = self.dropout(self.joint(each.flatten(1)).relu())
        logits: Tensor = self.classify(joint)
        return logits
