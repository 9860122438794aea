"""The contract of few-shot methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsframework.errors import OptionError
from fsframework.interfaces.backbone import Backbone
from fsframework.interfaces.component import Configurable
from fsframework.interfaces.views import ViewMaker

__all__ = ["Batch", "FewShotMethod", "Known"]


@dataclass(frozen=True)
class Batch:
    """The data of a training step.

    Items are what the method ``consumes``, or images where it ``trains_on_images``.

    A step on episodes fills the first five fields, one on batches ``items`` and ``classes``, one on
    both all of these; one on views only has views and, of a method that ``uses_labels``,
    ``classes``. A method with a maker of ``views`` also gets views of the images of the other
    steps, in this order: supports, queries, ``items``.

    Args:
        support: ``(tasks, way, shot, *item)``.
        query: ``(tasks, n, *item)``.
        query_labels: int64 ``(tasks, n)``, the way of each query, 0..way-1.
        support_classes: int64 ``(tasks, way, shot)``, index of the base class.
        query_classes: int64 ``(tasks, n)``, index of the base class.
        items: ``(n, *item)``, images drawn without regard to episodes.
        classes: int64 ``(n,)``, index of the base class of ``items``, or of the images of a step
            on views only; ``None`` for a method that does not use labels.
        views: normalised images ``(m, v, 3, h, w)``, v views of each of the m images of the step.
        applied: int64 ``(m, v)``, number of the transformation that made each view.
        small_views: normalised images ``(m, s, 3, h, w)``, further views of another size, if the
            maker makes such.
        teacher_logits: float ``(n, n_base_classes)``, the logits of the teacher for ``items`` in a
            stage that distils.
        teacher_vectors: float ``(m, v, E)``, what the teacher makes of each view in a stage on
            views that distils.
        words: bool ``(n, w)``, which of the w words of the training images each of ``items`` has,
            or each image of a step on views only; for a method that ``needs_words``, as the next
            two.
        support_words: bool ``(tasks, way, shot, w)``.
        query_words: bool ``(tasks, n, w)``.
    """

    support: Tensor | None = None
    query: Tensor | None = None
    query_labels: Tensor | None = None
    support_classes: Tensor | None = None
    query_classes: Tensor | None = None
    items: Tensor | None = None
    classes: Tensor | None = None
    views: Tensor | None = None
    applied: Tensor | None = None
    small_views: Tensor | None = None
    teacher_logits: Tensor | None = None
    teacher_vectors: Tensor | None = None
    words: Tensor | None = None
    support_words: Tensor | None = None
    query_words: Tensor | None = None


@dataclass(frozen=True)
class Known:
    """What a method asks to know of tasks besides their images; ``None`` for all else.

    Args:
        names: float ``(tasks, way, *E)``, what ``embed_names`` made of the name of each class.
        words: bool ``(tasks, way, shot, w)``, which of the pool's w words each support image has.
        word_vectors: float ``(w, *F)``, what ``embed_words`` made of these words.
    """

    names: Tensor | None = None
    words: Tensor | None = None
    word_vectors: Tensor | None = None


class FewShotMethod(Configurable, nn.Module, ABC, kind="method"):
    """Support and queries in, scores out; many tasks per call.

    Only ``scores`` is required. A method never sees a query's label outside ``loss`` and never
    computes an accuracy. One that needs the names of the classes, or the words of the support
    images, declares so and overrides ``scores_with``.

    >>> import torch
    >>> class Nearest(FewShotMethod):
    ...     '''Give a query to the class whose mean is nearest.'''
    ...     def scores(self, support, query):
    ...         return -torch.cdist(query, support.mean(dim=2))
    >>> Nearest().scores(torch.zeros(4, 5, 1, 8), torch.zeros(4, 75, 8)).shape
    torch.Size([4, 75, 5])

    >>> class Named(Nearest):
    ...     '''Give a query to the class whose mean, moved towards its name, is nearest.'''
    ...     needs_class_names = True
    ...     def scores_with(self, support, query, known):
    ...         return self.scores(support + known.names[:, :, None], query)
    >>> known = Known(names=torch.zeros(4, 5, 8))
    >>> Named().scores_with(torch.zeros(4, 5, 1, 8), torch.zeros(4, 75, 8), known).shape
    torch.Size([4, 75, 5])
    """

    consumes: Literal["vectors", "maps", "images"] = "vectors"
    """An item is a vector ``(D,)``, a map ``(C, h, w)`` or an image ``(3, H, W)``. Vectors and maps
    are computed once per image and cached, and so is what ``embed`` makes of images; only the
    ``scores`` of ``images`` methods without ``embed`` see pixels in every task. An option may set
    it for an instance, as the method within another one does."""

    learns_from: Literal["episodes", "batches", "both", "views", "nothing"] = "episodes"
    """What ``loss`` needs in a training step; an option may set it for an instance. ``views`` means
    only these, of a batch of images."""

    views: ViewMaker | None = None
    """What makes the views in each training step, usually an option; ``None`` where ``loss`` needs
    none. Views are images: a method that runs the backbone on them ``trains_on_images``."""

    uses_labels: bool = True
    """Whether ``loss`` looks at labels. The training split of a method that does not needs none;
    an option may set it for an instance."""

    carried: Mapping[str, Tensor] = MappingProxyType({})
    """What ``loss`` leaves for ``after_step``: tensors whose rows belong to images of the step."""

    trains_on_images: bool = False
    """Whether ``loss`` receives normalised images ``(3, H, W)`` although the method ``consumes``
    vectors or maps: it stores the backbone and makes these itself in training. In evaluation they
    are still computed once per image. An option may set it for an instance."""

    weightless: bool = False
    """Whether it has no weights of its own once it is built; on a backbone that keeps its weights
    there is then nothing to train, and no training split is needed. An option may set it for an
    instance."""

    transductive: bool = False
    """Whether one query's score may depend on the other queries; an option may set it for an
    instance."""

    reads_values: str = ""
    """Why ``scores`` must look at the values of its tensors, for which a GPU waits (a solver that
    stops when it has converged), in words; empty for methods that never do. Otherwise all tensors
    stay on the device of the inputs and no shape depends on values; ``embed`` never reads values,
    and ``loss`` only by ``scores``. An option may set it for an instance."""

    needs_class_names: bool = False
    """Whether ``scores_with`` needs the names of the classes. Only such methods get them. An option
    may set it for an instance."""

    needs_words: bool = False
    """Whether ``scores_with`` needs the words of the support images, and ``loss`` those of the
    images of a step; the run then needs words for them. An option may set it for an instance."""

    keeps_answers: bool = False
    """Whether it keeps what ``scores_with`` has asked of others. A run that was interrupted, or has
    an arm of another one, then asks for all scores again, so that ``usage`` counts all of them."""

    n_way: int | None = None
    """Number of ways of a method that learns weights per way (the head of MAML); such a method
    refuses other tasks, and its scores may depend on the order of the ways. ``None`` for any
    number. An option ``n_way`` follows the tasks unless it is given."""

    _reader: tuple[Backbone, ...] = ()

    def read_with(self, backbone: Backbone) -> None:
        """Remember whose text tower embeds names and words; called once, before ``build``."""
        self._reader = (backbone,)  # in a tuple, so that PyTorch does not count its weights here

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create what depends on the items' shape or the base classes; called once, before use.

        Args:
            item_shape: shape of one item as ``embed`` receives it.
            n_base_classes: classes of the training split; 0 where nothing is trained.
            backbone: makes the items. A method that ``consumes`` images or ``trains_on_images``
                stores it (``self.backbone = backbone``) and runs it itself. Others do not store
                it; they may hook into its layers, as long as nothing changes while they are in
                evaluation mode.
        """

    @property
    def embeds(self) -> bool:
        """Whether ``embed`` is its own, and its results are computed once per image."""
        return type(self).embed is not FewShotMethod.embed

    def embed(self, items: Tensor) -> Tensor:
        """Map items ``(n, *item)`` to ``(n, *embedded)``; by default the identity.

        This is the part of the work that does not depend on the task; it is done once per image
        and cached.
        """
        return items

    @property
    def needs_text(self) -> bool:
        """Whether it needs a backbone that reads text; others are refused before any work.

        By default, if it needs class names and does not embed them itself. What embeds words by the
        text tower, or names after it has filled them into templates, says ``needs_text = True``.
        """
        return self.needs_class_names and type(self).embed_names is FewShotMethod.embed_names

    def embed_names(self, names: Sequence[str]) -> Tensor:
        """Map the names of n classes to ``(n, *E)``; by default by the backbone's text tower.

        Called once per evaluation, without gradients, with the names of all classes of the pool.

        Raises:
            OptionError: the backbone reads no text.
        """
        if not self._reader:
            raise OptionError(f"{type(self).__name__} has not been given a backbone to read with")
        return self._reader[0].text_features(names)

    def embed_words(self, words: Sequence[str]) -> Tensor:
        """Map the w words of a pool to ``(w, *F)``; by default to ``(w, 0)``.

        Called once per evaluation, without gradients. The default needs no text tower: it is for
        methods that only ask which image has which word.
        """
        return torch.empty(len(words), 0)

    @abstractmethod
    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Score every query for every way; higher is more likely.

        Args:
            support: float ``(tasks, way, shot, *embedded)``.
            query: float ``(tasks, n, *embedded)``.

        Returns:
            float ``(tasks, n, way)``, finite. Tasks do not influence each other; the order of
            the shots does not matter; permuting the ways permutes the scores, unless the method
            has an ``n_way``.

        Raises:
            OptionError: the method is for another number of ways.
        """

    def scores_with(self, support: Tensor, query: Tensor, known: Known) -> Tensor:
        """Score as ``scores`` does, with what the method asks to know; by default without it.

        Permuting the ways with their names and words permutes the scores.

        Args:
            support: float ``(tasks, way, shot, *embedded)``.
            query: float ``(tasks, n, *embedded)``.
            known: names and words of the same tasks, on the same device.

        Returns:
            float ``(tasks, n, way)``, as of ``scores``.
        """
        del known
        return self.scores(support, query)

    @property
    def usage(self) -> Mapping[str, float]:
        """What it has used so far beyond time, such as requests or tokens; a run records it.

        Usual keys are ``requests``, ``prompt_tokens``, ``completion_tokens`` and ``cost`` in USD.
        """
        return {}

    @property
    def remarks(self) -> Sequence[str]:
        """Sentences that a reader of its scores so far must know; a run notes them."""
        return ()

    def class_logits(self, items: Tensor) -> Tensor:
        """Score items ``(n, *item)``, not embedded, for the base classes, as a teacher does.

        Returns:
            float ``(n, n_base_classes)``.

        Raises:
            OptionError: the method has no classifier of base classes, which is the default.
        """
        del items
        raise OptionError(
            f"{type(self).__name__} has no classifier of the base classes, so it cannot teach "
            "(training.distill)"
        )

    def view_vectors(self, views: Tensor) -> Tensor:
        """Map normalised views ``(n, 3, h, w)`` to what a student predicts of them, as a teacher.

        Returns:
            float ``(n, E)``.

        Raises:
            OptionError: the method has no such vectors, which is the default.
        """
        del views
        raise OptionError(
            f"{type(self).__name__} has no vectors of views, so it cannot teach (training.distill)"
        )

    def loss(self, batch: Batch) -> Tensor:
        """Return the scalar that a training step minimises; by default the queries' cross-entropy.

        Items come from the backbone, before ``embed``, or are images where the method
        ``trains_on_images``. In mixed precision this runs under
        ``torch.autocast`` with the weights in float32; linear algebra without half precision must
        request float32 itself.
        """
        support, query = self.embed_episode(batch)
        assert batch.query_labels is not None
        logits = self.scores(support, query)
        return functional.cross_entropy(logits.flatten(0, 1), batch.query_labels.flatten())

    def after_step(self, carried: Mapping[str, Tensor]) -> None:
        """Act after an update of the weights, as on a momentum copy or a queue; by default nothing.

        Called once per step without gradients. What it changes must be part of ``state_dict()``, as
        parameters without gradients or buffers, so that it is saved and resumed.

        Args:
            carried: what ``loss`` left in ``self.carried``, detached.
        """

    def embed_episode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Embed a batch's support and queries in one call, so that BatchNorm sees both.

        Returns:
            ``(tasks, way, shot, *embedded)`` and ``(tasks, n, *embedded)``.
        """
        support, query = batch.support, batch.query
        if support is None or query is None:
            raise OptionError(f"{type(self).__name__} learns from episodes, but this step has none")
        way_shot = support.shape[:3].numel()
        flat = torch.cat([support.flatten(0, 2), query.flatten(0, 1)])
        embedded = self.embed(flat)
        item = embedded.shape[1:]
        return (
            embedded[:way_shot].reshape(*support.shape[:3], *item),
            embedded[way_shot:].reshape(*query.shape[:2], *item),
        )
