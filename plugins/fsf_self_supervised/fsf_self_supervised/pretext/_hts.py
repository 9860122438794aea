"""A tree of views whose root is the feature of an image."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_self_supervised.pretext._wrapper import (
    OnViews,
    check_fixed,
    images_of,
    item_of,
    with_items,
)
from fsframework.interfaces import (
    Backbone,
    Batch,
    FewShotMethod,
    OptionError,
    ViewMaker,
    check_at_least,
)

__all__ = ["HTS", "TreeLSTM"]


class HTS(OnViews):
    """Show another method images that have gathered what is useful from their views.

    Source: Zhang, Huang, Li and Wang 2022, "Tree Structure-Aware Few-Shot Image Classification via
    Hierarchical Aggregation" (ECCV): a tree is constructed, and its nodes are aggregated by gates.
    An image is the root, and its views are the children, the image itself among them for
    ``views=rotation``. Each maker of ``deeper`` adds a level: the views of all views above. A
    child-sum TreeLSTM passes from the leaves to the root, in training and in evaluation alike, and
    the hidden state of the root is the vector that the base gets. The loss is the base's own plus
    ``beta`` times the cross-entropy of each level's transformations, predicted from the hidden
    states of the views by a linear classifier per level.

    This is the paper's setting of self-supervised learning; that of data augmentation, in which
    views have classes, is left out. All images of the tree pass the backbone together. With two
    levels, the authors' code builds another tree, in which the views of a view hang on the first
    view only; here they hang on their own, as in the paper.

    In evaluation an image costs one pass of the backbone for itself and one per view, once per
    image; tasks cost as much as those of the base.

    Args:
        base: the method that gets the vectors.
        views: makes the same views of an image each time, one by each transformation.
        deeper: makers of the further levels.
        beta: weight of the levels' losses, at least 0.

    Raises:
        OptionError: an option is outside its range, the base learns from neither episodes nor
            batches, or it is not trained on vectors.
    """

    def __init__(
        self,
        *,
        base: FewShotMethod,
        views: ViewMaker,
        deeper: tuple[ViewMaker, ...] = (),
        beta: float = 0.1,
    ) -> None:
        super().__init__(base=base, views=views)
        for maker in deeper:
            check_fixed(deeper=maker)
        check_at_least(0, beta=beta)
        if self.base_sees_images or base.consumes != "vectors":
            raise OptionError(
                "base must be trained on vectors, as the nodes of a tree are, but "
                f"{self.name_of(base)} is not"
            )
        self.deeper = tuple(deeper)
        self.beta = beta

    @property
    def makers(self) -> tuple[ViewMaker, ...]:
        """The maker of each level, from the root."""
        return self.views, *self.deeper

    def build_base(
        self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone
    ) -> None:
        """Build the base, the TreeLSTM and a classifier per level."""
        super().build_base(item_shape, n_base_classes, backbone)
        (width,) = item_of("vectors", backbone, item_shape)
        self.tree = TreeLSTM(width)
        self.classifiers = nn.ModuleList(nn.Linear(width, maker.n_kinds) for maker in self.makers)

    def nodes(self, images: Tensor, views: Tensor) -> list[Tensor]:
        """Return the hidden states of the tree of each image, by level from the root.

        Args:
            images: normalised, ``(n, 3, H, W)``.
            views: of these, ``(n, v, 3, H, W)``.

        Returns:
            float ``(n, D)``, ``(n, v, D)``, ``(n * v, v', D)`` for levels of v and v' views.
        """
        levels = [images, views.flatten(0, 1)]
        for maker in self.deeper:
            levels.append(self.made(maker, levels[-1]).images.flatten(0, 1))
        children = [maker.n_views for maker in self.makers]
        hidden: list[Tensor] = self.tree(self._vectors(levels), children)
        return hidden

    def _vectors(self, levels: list[Tensor]) -> list[Tensor]:
        """Encode the images of all levels together where they are of one size."""
        if len({level.shape[1:] for level in levels}) > 1:
            return [self.encoded(level) for level in levels]
        return list(self.encoded(torch.cat(levels)).split([len(level) for level in levels]))

    def _roots(self, images: Tensor) -> Tensor:
        return self.nodes(images, self.viewed(images))[0]

    def embed(self, items: Tensor) -> Tensor:
        """Embed images ``(n, 3, H, W)`` as the base does the root of each tree."""
        return self.base.embed(self._roots(items))

    def class_logits(self, items: Tensor) -> Tensor:
        """Return the base's logits of the roots for the base classes."""
        return self.base.class_logits(self._roots(items))

    def loss(self, batch: Batch) -> Tensor:
        """Return the base's loss of the roots plus ``beta`` times that of the levels."""
        root, *levels = self.nodes(images_of(batch), self.views_in(batch))
        loss = self.base.loss(with_items(batch, root))
        for classify, hidden in zip(self.classifiers, levels, strict=True):
            loss = loss + self.beta * level_loss(classify, hidden)
        return loss


def level_loss(classify: nn.Module, hidden: Tensor) -> Tensor:
    """Return the cross-entropy of the number of each view.

    Args:
        classify: maps hidden states to logits.
        hidden: of views, ``(n, v, D)``.
    """
    n, v, _ = hidden.shape
    numbers = torch.arange(v, device=hidden.device).repeat(n)
    return functional.cross_entropy(classify(hidden.flatten(0, 1)), numbers)


class TreeLSTM(nn.Module):
    """The child-sum TreeLSTM of Tai, Socher and Manning 2015, for trees of equal shape.

    With x the vector of a node, h_k and c_k hidden state and cell of its children k:
    i, o = sigmoid(W x + U sum h_k + b), u = tanh(W x + U sum h_k + b), each with W, U and b of its
    own; f_k = sigmoid(W x + U h_k + b); c = i u + sum f_k c_k; h = o tanh(c). A leaf has no
    children.

    Args:
        width: of vectors and hidden states.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.W_iou = nn.Linear(width, 3 * width)
        self.U_iou = nn.Linear(width, 3 * width, bias=False)
        self.W_f = nn.Linear(width, width)
        self.U_f = nn.Linear(width, width, bias=False)

    def forward(self, levels: list[Tensor], children: list[int]) -> list[Tensor]:
        """Map vectors by level, from the roots, to hidden states by level.

        Args:
            levels: ``(n, D)``, ``(n * v, D)``, ..., the children of a node after each other.
            children: v of each level but the last.

        Returns:
            ``(n, D)``, ``(n, v, D)``, ``(n * v, v', D)``, ...
        """
        hidden, cell = self._cell(self.W_iou(levels[-1]), None)
        found = []
        for x, v in zip(reversed(levels[:-1]), reversed(children), strict=True):
            hidden, below = hidden.unflatten(0, (-1, v)), cell.unflatten(0, (-1, v))
            found.append(hidden)
            gates = self.W_iou(x) + self.U_iou(hidden.sum(dim=1))
            forget = (self.W_f(x)[:, None] + self.U_f(hidden)).sigmoid()
            hidden, cell = self._cell(gates, (forget * below).sum(dim=1))
        return [hidden, *reversed(found)]

    @staticmethod
    def _cell(gates: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return hidden state and cell from the gates ``(n, 3 D)`` and what children leave."""
        i, o, u = gates.chunk(3, dim=-1)
        cell = i.sigmoid() * u.tanh()
        cell = cell if kept is None else cell + kept
        return o.sigmoid() * cell.tanh(), cell
