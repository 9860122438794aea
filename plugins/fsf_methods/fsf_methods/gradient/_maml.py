"""Model-agnostic meta-learning."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fsf_methods._shared import vector_size
from fsf_methods.gradient._adapt import TaskNetwork, scored
from fsf_methods.gradient._head import Head, HeadKind, check_head, check_ways
from fsframework.interfaces import (
    Backbone,
    FewShotMethod,
    check_above,
    check_at_least,
    check_one_of,
)

__all__ = ["MAML"]


class MAML(FewShotMethod):
    """Learn weights from which a few gradient steps on the support solve a task.

    Source: Finn, Abbeel and Levine 2017, "Model-Agnostic Meta-Learning for Fast Adaptation of Deep
    Networks", algorithm 2: gradient descent on the cross-entropy of the support adapts backbone and
    linear head; the loss is that of the queries under the adapted weights, differentiated through
    the steps.

    As in the authors' code, BatchNorm always uses the statistics of its batch: the support's in the
    inner steps and the queries' when these are scored, so a query's scores depend on the other
    queries. In training all images update the running statistics; with several tasks per update
    these become the mean over the tasks.

    Args:
        n_way: ways of the tasks, at least 2, that a learned head has weights for; it refuses
            others. A shared head accepts any number, and its ``n_way`` becomes ``None``.
        head: ``learned`` starts every way from its own weights, as in the paper; ``shared`` starts
            all from one vector, so the order of the ways does not matter. Source of the second: Ye
            and Chao 2022, "How to Train Your MAML to Excel in Few-Shot Classification", section 5.
        inner_lr: learning rate of the inner steps, above 0; the paper uses 0.01 for miniImageNet
            and 0.4 for Omniglot.
        train_steps: inner steps in training, at least 1; the paper uses 5 for miniImageNet.
        test_steps: inner steps in evaluation, at least 1; the paper uses 10 for miniImageNet.
        first_order: treat the inner gradients as constants in training, the approximation of the
            paper's section 5.2, with less than half of the work.
        batch_norm: in evaluation, ``batch`` normalises with the statistics of the batch and is
            transductive; ``running`` uses the running statistics and scores each query
            independently.

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "images"

    def __init__(
        self,
        *,
        n_way: int | None = 5,
        head: HeadKind = "learned",
        inner_lr: float = 0.05,
        train_steps: int = 5,
        test_steps: int = 10,
        first_order: bool = False,
        batch_norm: Literal["batch", "running"] = "batch",
    ) -> None:
        super().__init__()
        check_head(head, n_way)
        check_above(0, inner_lr=inner_lr)
        check_at_least(1, train_steps=train_steps, test_steps=test_steps)
        check_one_of(("batch", "running"), batch_norm=batch_norm)
        self.n_way = n_way if head == "learned" else None
        self.head = head
        self.inner_lr = inner_lr
        self.train_steps = train_steps
        self.test_steps = test_steps
        self.first_order = first_order
        self.batch_norm = batch_norm
        self.transductive = batch_norm == "batch"

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Store the backbone, and create the head for images ``(3, H, W)``."""
        del n_base_classes
        self.backbone = backbone
        self.classify = Head(vector_size(backbone, item_shape), self.n_way)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the logits of the adapted networks, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, 3, H, W)``.
            query: float ``(tasks, n, 3, H, W)``.

        Raises:
            OptionError: the head is learned for another number of ways.
        """
        check_ways(self.n_way, support)
        return scored(self._scored, support, query, training=self.training)

    def _scored(self, support: Tensor, query: Tensor) -> tuple[TaskNetwork, Tensor]:
        """Adapt to all given tasks in parallel."""
        second_order = self.training and not self.first_order and torch.is_grad_enabled()
        with torch.enable_grad():
            network = TaskNetwork(
                self.backbone,
                self.classify,
                *support.shape[:2],
                batch_statistics=self.batch_norm == "batch",
            )
            weights = network.fitted(
                support,
                backbone_lr=self.inner_lr,
                head_lr=self.inner_lr,
                steps=self.train_steps if self.training else self.test_steps,
                second_order=second_order,
            )
        return network, network.logits(weights, query)
