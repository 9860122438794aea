"""Body only update in the inner loop."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from fsf_methods._shared import vector_size
from fsf_methods.gradient._adapt import TaskNetwork, scored
from fsf_methods.gradient._head import Head, check_head, check_ways
from fsframework.interfaces import (
    Backbone,
    FewShotMethod,
    check_above,
    check_at_least,
    check_one_of,
)

__all__ = ["BOIL"]


class BOIL(FewShotMethod):
    """Learn a backbone that gradient steps on the support adapt to a fixed head.

    Source: Oh, Yoo, Kim and Yun 2021, "BOIL: Towards Representation Change for Few-shot Learning",
    section 3: MAML whose inner steps adapt only the backbone. A shared head would give the backbone
    no gradient, so there is none. BatchNorm works as in ``MAML``.

    LibFewShot's code differs: its head uses the backbone's learning rate whatever ``classifier_lr``
    its configuration states, which is ``classifier_lr`` = ``extractor_lr`` here, and it tests as
    with ``testing`` = ``nil``.

    Args:
        n_way: ways of the tasks, at least 2, that the head has weights for; others are refused.
        extractor_lr: learning rate of the backbone in the inner steps, above 0.
        classifier_lr: learning rate of the head in the inner steps, at least 0; 0 in the paper.
        train_steps: inner steps in training, at least 1.
        test_steps: inner steps in evaluation, at least 1.
        testing: how queries are scored in evaluation: ``adapted`` by the head on the vectors of the
            adapted backbone, as in the paper; ``nil``, without an inner loop, by the cosine with
            the mean vectors of the ways, from the backbone as learned. Source of the second: Raghu
            et al. 2020, section 5.1.
        first_order: treat the inner gradients as constants in training.
        batch_norm: in evaluation, ``batch`` normalises with the statistics of the batch and is
            transductive; ``running`` uses the running statistics and scores each query
            independently.

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "images"

    def __init__(  # noqa: PLR0913 - its parameters are the options
        self,
        *,
        n_way: int = 5,
        extractor_lr: float = 0.5,
        classifier_lr: float = 0.0,
        train_steps: int = 1,
        test_steps: int = 1,
        testing: Literal["adapted", "nil"] = "adapted",
        first_order: bool = False,
        batch_norm: Literal["batch", "running"] = "batch",
    ) -> None:
        super().__init__()
        check_head("learned", n_way)
        check_above(0, extractor_lr=extractor_lr)
        check_at_least(0, classifier_lr=classifier_lr)
        check_at_least(1, train_steps=train_steps, test_steps=test_steps)
        check_one_of(("adapted", "nil"), testing=testing)
        check_one_of(("batch", "running"), batch_norm=batch_norm)
        self.n_way: int = n_way
        self.extractor_lr = extractor_lr
        self.classifier_lr = classifier_lr
        self.train_steps = train_steps
        self.test_steps = test_steps
        self.testing = testing
        self.first_order = first_order
        self.batch_norm = batch_norm
        self.transductive = batch_norm == "batch"

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Store the backbone, and create the head for images ``(3, H, W)``."""
        del n_base_classes
        self.backbone = backbone
        self.classify = Head(vector_size(backbone, item_shape), self.n_way)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the logits of the adapted networks, or cosines, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, 3, H, W)``.
            query: float ``(tasks, n, 3, H, W)``.

        Raises:
            OptionError: ``way`` is not ``n_way``.
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
            if self.testing == "nil" and not self.training:
                return network, _cosines(network, support, query)
            weights = network.fitted(
                support,
                backbone_lr=self.extractor_lr,
                head_lr=self.classifier_lr,
                steps=self.train_steps if self.training else self.test_steps,
                second_order=second_order,
            )
        return network, network.logits(weights, query)


def _cosines(network: TaskNetwork, support: Tensor, query: Tensor) -> Tensor:
    vectors = network.vectors(network.start, support.flatten(1, 2))
    means = vectors.unflatten(1, support.shape[1:3]).mean(dim=2)
    query = functional.normalize(network.vectors(network.start, query), dim=-1)
    return torch.bmm(query, functional.normalize(means, dim=-1).mT)
