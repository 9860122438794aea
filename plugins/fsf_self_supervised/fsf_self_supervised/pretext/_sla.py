"""Labels augmented by what was done to the image."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from fsf_self_supervised.pretext._wrapper import OnViews, images_of, item_of, with_items
from fsframework.interfaces import (
    Backbone,
    Batch,
    FewShotMethod,
    OptionError,
    ViewMaker,
    check_above,
    check_one_of,
)

__all__ = ["SLA", "aggregated", "distillation", "joint_labels"]


class SLA(OnViews):
    """Let another method distinguish every class under every transformation of its images.

    Source: Lee, Hwang and Shin 2020, "Self-supervised Label Augmentation via Input Transformations"
    (ICML), sections 2 (joint labels, aggregation, self-distillation) and 3 (few-shot learning).
    Each image becomes its m views, for ``views=rotation`` by 0, 90, 180 and 270 degrees, and each
    class m joint classes, one per view. The base is trained on joint classes: those of the base
    classes on batches, and on an episode of N ways one of N * m ways, in which ProtoNet has a
    prototype for each class and view. The score of a class is the mean over views v of the base's
    score of the query's view v for the joint class (class, v), before the softmax.

    In evaluation an image costs as many passes of the backbone as it has views, once per image, and
    a task as much as one of N * m ways with m times the queries.

    With ``self_distillation`` a second base, with weights of its own, learns to do without views:
    the loss is that of the joint classes, plus that of the second base on the images themselves,
    plus T^2 KL(P_aggregated || P_single), with the temperature T and no gradient of the aggregated
    scores. ``inference=single`` then scores with it, at the cost of the base alone. Without
    distillation, ``single`` shows the base the images themselves.

    Args:
        base: the method that distinguishes joint classes.
        views: makes the same views of an image each time, one by each transformation.
        self_distillation: train the second base.
        temperature: T, above 0.
        inference: scores from all views of an image, ``aggregated``, or from the image itself,
            ``single``.

    Raises:
        OptionError: an option is outside its range, the base learns from neither episodes nor
            batches, or it is made for a number of ways that no number of joint classes is; with
            self-distillation also, the base is trained on images or made for a number of ways.
    """

    def __init__(
        self,
        *,
        base: FewShotMethod,
        views: ViewMaker,
        self_distillation: bool = False,
        temperature: float = 1.0,
        inference: Literal["aggregated", "single"] = "aggregated",
    ) -> None:
        super().__init__(base=base, views=views)
        check_above(0, temperature=temperature)
        check_one_of(("aggregated", "single"), inference=inference)
        self.self_distillation = self_distillation
        self.temperature = temperature
        self.inference = inference
        self.weightless = base.weightless
        if base.n_way is not None:
            self.n_way = self._ways(base.n_way)
        if self_distillation:
            if self.base_sees_images:
                raise OptionError(
                    "base must be trained on vectors or maps for self_distillation, but "
                    f"{self.name_of(base)} is trained on images"
                )
            self.single = copy.deepcopy(base)

    @property
    def bases(self) -> Sequence[FewShotMethod]:
        """The base, and the one that learns to do without views."""
        return (self.base, self.single) if self.self_distillation else (self.base,)

    def _ways(self, joint: int) -> int:
        m = self.views.n_views
        if self.inference == "single" or self.self_distillation or joint % m or joint < 2 * m:
            raise OptionError(
                f"base must take any number of ways, or be made for {m} times as many as the tasks "
                f"have and scored aggregated, but {self.name_of(self.base)} is made for {joint} "
                "(its option n_way)"
            )
        return joint // m

    def build_base(
        self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone
    ) -> None:
        """Build the base for joint classes, and the second base for the base classes."""
        super().build_base(item_shape, self.views.n_views * n_base_classes, backbone)
        if self.self_distillation:
            shape = item_of(self.base.consumes, backbone, item_shape)
            self.single.build(shape, n_base_classes, backbone)

    def embed(self, items: Tensor) -> Tensor:
        """Embed images ``(n, 3, H, W)`` as their views ``(n, m, *embedded)``, or themselves."""
        if self.inference == "single":
            return self._scorer.embed(self.encoded(items))
        views = self.viewed(items)
        embedded = self.base.embed(self.encoded(views.flatten(0, 1)))
        return embedded.reshape(*views.shape[:2], *embedded.shape[1:])

    @property
    def _scorer(self) -> FewShotMethod:
        return self.single if self.self_distillation else self.base

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return scores of the classes, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, m, *embedded)``; without ``m`` for single inference.
            query: float ``(tasks, n, m, *embedded)``.
        """
        if self.inference == "single":
            return self._scorer.scores(support, query)
        return self._aggregated(support, query)

    def _aggregated(self, support: Tensor, query: Tensor) -> Tensor:
        joint = self.base.scores(joint_support(support), query.flatten(1, 2))
        return aggregated(joint.unflatten(1, query.shape[1:3]))

    def class_logits(self, items: Tensor) -> Tensor:
        """Score images ``(n, 3, H, W)`` for the base classes by all of their views."""
        if self.inference == "single":
            return self._single_logits(items)
        views = self.viewed(items)
        logits = self.base.class_logits(self.encoded(views.flatten(0, 1)))
        return aggregated(logits.unflatten(0, views.shape[:2]))

    def _single_logits(self, items: Tensor) -> Tensor:
        logits = self._scorer.class_logits(self.encoded(items))
        if self.self_distillation:
            return logits
        # The joint classes of the first view, which is the image itself.
        return logits[:, :: self.views.n_views]

    def loss(self, batch: Batch) -> Tensor:
        """Return the base's loss of the joint classes, and that of self-distillation.

        Raises:
            OptionError: a teacher of the base classes is given.
        """
        if batch.teacher_logits is not None:
            raise OptionError(
                "SLA has no loss of a teacher's logits; omit training.distill, or use the option "
                "self_distillation"
            )
        views = self.views_in(batch)
        if not self.self_distillation:
            return self.base_loss(joint_batch(batch, views))
        images, m = images_of(batch), views.shape[1]
        items = self.encoded(torch.cat([views.flatten(0, 1), images]))
        of_views, of_images = items[: -len(images)].unflatten(0, (-1, m)), items[-len(images) :]
        joint, plain = joint_batch(batch, of_views), with_items(batch, of_images)
        together = self._joint_scores(joint, m)
        alone = _scores_of(self.single, plain)
        distilled = distillation(together.detach(), alone, self.temperature)
        return self.base.loss(joint) + self.single.loss(plain) + distilled

    def _joint_scores(self, joint: Batch, m: int) -> Tensor:
        """Return aggregated scores of a joint batch, float ``(n, classes)``."""
        with torch.no_grad():
            scores = _scores_of(self.base, joint)
        return aggregated(scores.unflatten(0, (-1, m)))


def _scores_of(method: FewShotMethod, batch: Batch) -> Tensor:
    """Return scores of a batch's queries, or of its ``items`` if it has none, ``(n, classes)``."""
    if batch.query is not None:
        return method.scores(*method.embed_episode(batch)).flatten(0, 1)
    assert batch.items is not None
    return method.class_logits(batch.items)


def joint_batch(batch: Batch, views: Tensor) -> Batch:
    """Return a batch of views, each view of a class a class of its own.

    Args:
        batch: of images.
        views: of all its images, ``(n, m, *item)``, in the order of ``images_of``.
    """
    m, shown = views.shape[1], with_items(batch, views)

    def labels(given: Tensor | None, start: int) -> Tensor | None:
        return None if given is None else joint_labels(given, m).flatten(start)

    of_support = batch.support_classes
    return dataclasses.replace(
        batch,
        support=None if shown.support is None else joint_support(shown.support),
        query=None if shown.query is None else shown.query.flatten(1, 2),
        query_labels=labels(batch.query_labels, 1),
        support_classes=None if of_support is None else joint_support(joint_labels(of_support, m)),
        query_classes=labels(batch.query_classes, 1),
        items=None if shown.items is None else shown.items.flatten(0, 1),
        classes=labels(batch.classes, 0),
        views=None,
        applied=None,
        small_views=None,
    )


def joint_support(support: Tensor) -> Tensor:
    """Map ``(tasks, way, shot, m, ...)`` to joint ways ``(tasks, way * m, shot, ...)``."""
    return support.transpose(2, 3).flatten(1, 2)


def joint_labels(labels: Tensor, m: int) -> Tensor:
    """Map labels ``(...)`` to joint labels ``(..., m)``, label * m + view.

    >>> joint_labels(torch.tensor([0, 2]), 3).tolist()
    [[0, 1, 2], [6, 7, 8]]
    """
    return labels[..., None] * m + torch.arange(m, device=labels.device)


def aggregated(scores: Tensor) -> Tensor:
    """Map joint scores ``(..., m, classes * m)`` of m views to scores ``(..., classes)``.

    The score of a class is the mean over views v of the score of view v for (class, v).

    >>> aggregated(torch.tensor([[1.0, 5.0, 2.0, 6.0], [7.0, 3.0, 8.0, 4.0]]))
    tensor([2., 3.])
    """
    m = scores.shape[-2]
    by_view = scores.reshape(*scores.shape[:-1], -1, m)
    return by_view.diagonal(dim1=-3, dim2=-1).mean(dim=-1)


def distillation(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """Return T^2 KL(softmax(teacher / T) || softmax(student / T)), the mean over rows.

    Args:
        teacher: scores ``(n, classes)``.
        student: scores ``(n, classes)``.
        temperature: T.
    """
    target = (teacher / temperature).log_softmax(dim=-1)
    found = (student / temperature).log_softmax(dim=-1)
    divergence = functional.kl_div(found, target, reduction="batchmean", log_target=True)
    return temperature**2 * divergence
