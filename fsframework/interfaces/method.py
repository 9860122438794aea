"""The contract of few-shot methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsframework.errors import OptionError
from fsframework.interfaces.backbone import Backbone
from fsframework.interfaces.component import Configurable

__all__ = ["Batch", "FewShotMethod"]


@dataclass(frozen=True)
class Batch:
    """What a training step shows a method; items are what the method ``consumes``.

    A step on episodes fills the first five fields, one on batches the last two, one on both all.

    Args:
        support: ``(tasks, way, shot, *item)``.
        query: ``(tasks, n, *item)``.
        query_labels: int64 ``(tasks, n)``, the way of each query, 0..way-1.
        support_classes: int64 ``(tasks, way, shot)``, index of the base class.
        query_classes: int64 ``(tasks, n)``, index of the base class.
        items: ``(n, *item)``, images drawn without regard to episodes.
        classes: int64 ``(n,)``, index of the base class of ``items``.
        teacher_logits: float ``(n, n_base_classes)``, what the teacher of a stage that distils
            says of ``items``.
    """

    support: Tensor | None = None
    query: Tensor | None = None
    query_labels: Tensor | None = None
    support_classes: Tensor | None = None
    query_classes: Tensor | None = None
    items: Tensor | None = None
    classes: Tensor | None = None
    teacher_logits: Tensor | None = None


class FewShotMethod(Configurable, nn.Module, ABC):
    """Support and queries in, scores out; many tasks at once.

    A method of ten lines: give ``scores``. It never sees a query's label outside ``loss``, and
    never computes an accuracy.

    >>> import torch
    >>> class Nearest(FewShotMethod):
    ...     '''Give a query to the class whose mean is nearest.'''
    ...     def scores(self, support, query):
    ...         return -torch.cdist(query, support.mean(dim=2))
    >>> Nearest().scores(torch.zeros(4, 5, 1, 8), torch.zeros(4, 75, 8)).shape
    torch.Size([4, 75, 5])
    """

    consumes: ClassVar[Literal["vectors", "maps", "images"]] = "vectors"
    """An item is a vector ``(D,)``, a map ``(C, h, w)`` or an image ``(3, H, W)``. Vectors and
    maps are computed once an image and cached; only ``images`` methods see pixels a task."""

    learns_from: ClassVar[Literal["episodes", "batches", "both", "nothing"]] = "episodes"
    """What a training step shows ``loss``."""

    weightless: bool = False
    """Whether it has no weights of its own once it is built; on a backbone that keeps its weights
    nothing is then left to train, and no training split is asked for. An option may set it for an
    instance."""

    transductive: bool = False
    """Whether one query's score may depend on the other queries; an option may set it for an
    instance."""

    n_way: int | None = None
    """Number of ways the weights are made for, by a method that learns weights a way (the head of
    MAML); such a method refuses other tasks, and its scores may depend on the order of the ways.
    ``None`` for any number. An option ``n_way`` follows the tasks unless it is given."""

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create what depends on the items' shape or the base classes; called once, before use.

        Args:
            item_shape: shape of one item as ``embed`` gets it.
            n_base_classes: classes of the training split; 0 where nothing is trained.
            backbone: what makes the items. A method that ``consumes`` images keeps it
                (``self.backbone = backbone``) and runs it itself; others leave it alone.
        """

    def embed(self, items: Tensor) -> Tensor:
        """Map items ``(n, *item)`` to ``(n, *embedded)``: the part of the work that an image's
        task does not change, done once an image and cached. The default changes nothing."""
        return items

    @abstractmethod
    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Score every query for every way; higher is likelier.

        Args:
            support: float ``(tasks, way, shot, *embedded)``.
            query: float ``(tasks, n, *embedded)``.

        Returns:
            float ``(tasks, n, way)``, finite. Tasks do not influence each other; the order of
            the shots does not matter; permuting the ways permutes the scores, unless the method
            has an ``n_way``.

        Raises:
            OptionError: the method is made for another number of ways.
        """

    def class_logits(self, items: Tensor) -> Tensor:
        """Score items ``(n, *item)``, not embedded, for the base classes: what a teacher says.

        Returns:
            float ``(n, n_base_classes)``.

        Raises:
            OptionError: the method has no classifier of base classes, as here.
        """
        del items
        raise OptionError(
            f"{type(self).__name__} has no classifier of the base classes, so it cannot teach "
            "(training.distill)"
        )

    def loss(self, batch: Batch) -> Tensor:
        """Return the scalar a training step minimises; here cross-entropy of the queries' scores.

        Items arrive as the backbone made them, before ``embed``. In mixed precision this runs
        under ``torch.autocast`` with the weights in float32: linear algebra that has no half
        precision must ask for float32 itself.
        """
        support, query = self.embed_episode(batch)
        assert batch.query_labels is not None
        logits = self.scores(support, query)
        return functional.cross_entropy(logits.flatten(0, 1), batch.query_labels.flatten())

    def embed_episode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Embed a batch's support and queries in one call, as BatchNorm should see them.

        Returns:
            ``(tasks, way, shot, *embedded)`` and ``(tasks, n, *embedded)``.
        """
        support, query = batch.support, batch.query
        if support is None or query is None:
            raise OptionError(
                f"{type(self).__name__} learns from episodes, which this step has not"
            )
        way_shot = support.shape[:3].numel()
        flat = torch.cat([support.flatten(0, 2), query.flatten(0, 1)])
        embedded = self.embed(flat)
        item = embedded.shape[1:]
        return (
            embedded[:way_shot].reshape(*support.shape[:3], *item),
            embedded[way_shot:].reshape(*query.shape[:2], *item),
        )
