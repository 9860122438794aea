"""Meta-transfer learning."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fsf_methods._shared import vector_size
from fsf_methods.gradient._head import Head, HeadKind, adapted_scores, check_head, check_ways
from fsframework.interfaces import (
    Backbone,
    Batch,
    FewShotMethod,
    OptionError,
    check_above,
    check_at_least,
)

__all__ = ["MTL"]


class MTL(FewShotMethod):
    """Scale and shift the convolutions of a pretrained backbone, and adapt a head to each task.

    Source: Sun, Liu, Chua and Schiele 2019, "Meta-Transfer Learning for Few-Shot Learning" (CVPR),
    section 4, and the authors' code. The stages are the paper's: first the backbone is trained on
    all base classes together (``training.method=baseline`` in the first stage), then frozen
    (``training.freeze=backbone`` in the second) while episodes train its scales and shifts and the
    start of the head. A scale is one number per kernel of a convolution, multiplied with its
    weights, a shift one number per filter, added to its bias; they start at 1 and 0. In a task only
    the linear head moves, by gradient descent on the support's cross-entropy.

    Scales and shifts are the same in all tasks, so every image is embedded once. A convolution
    without bias has no shift, as in the authors' code. A frozen backbone's BatchNorms use their
    running statistics, where the authors' code keeps those of the batch in training. Like that of
    ``maml``, the head has weights per way, unless it is shared.

    The paper's hard-task meta-batches (section 4.3) draw, after some tasks, further ones from the
    class of each with the lowest accuracy. A training step shows a method the episodes that were
    drawn for it, and it cannot ask for others. ``hard_tasks`` therefore makes its hard tasks of the
    images at hand: one of every ``n_way`` tasks of the step, whose ways are the hardest classes of
    these tasks, no class twice, with their own support and queries; the loss of these is added to
    that of the step. As this is not quite the paper's form, needs ``training.tasks_per_step`` of at
    least ``n_way``, and is not in the authors' code, it is off by default.

    Args:
        n_way: ways of the tasks, at least 2, that a learned head has weights for; it refuses
            others. A shared head accepts any number, and its ``n_way`` becomes ``None``.
        head: ``learned`` starts every way from its own weights, as in the paper; ``shared`` starts
            all from one vector, so the order of the ways does not matter.
        inner_lr: learning rate of the inner steps, above 0; the authors use 0.01.
        train_steps: inner steps in training, at least 1; the authors use 50.
        test_steps: inner steps in evaluation, at least 1; the authors use 100.
        first_order: treat the inner gradients as constants in training, as the authors' code does.
        hard_tasks: also train on tasks made of the hardest classes of the step's tasks.

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "images"

    def __init__(
        self,
        *,
        n_way: int | None = 5,
        head: HeadKind = "learned",
        inner_lr: float = 0.01,
        train_steps: int = 50,
        test_steps: int = 100,
        first_order: bool = True,
        hard_tasks: bool = False,
    ) -> None:
        super().__init__()
        check_head(head, n_way)
        check_above(0, inner_lr=inner_lr)
        check_at_least(1, train_steps=train_steps, test_steps=test_steps)
        self.n_way = n_way if head == "learned" else None
        self.head = head
        self.inner_lr = inner_lr
        self.train_steps = train_steps
        self.test_steps = test_steps
        self.first_order = first_order
        self.hard_tasks = hard_tasks

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Store the backbone, and create scales, shifts and the head for images ``(3, H, W)``.

        Raises:
            OptionError: the backbone has no convolution.
        """
        del n_base_classes
        self.backbone = backbone
        found = [(n, m) for n, m in backbone.named_modules() if isinstance(m, nn.Conv2d)]
        if not found:
            raise OptionError(
                f"MTL scales and shifts convolutions, but {type(backbone).__name__} has none"
            )
        # Names of modules contain dots, names of parameters must not.
        self._names = [name for name, _ in found]
        self.scales = nn.ParameterList(
            nn.Parameter(c.weight.new_ones(*c.weight.shape[:2], 1, 1)) for _, c in found
        )
        self._shifted = [name for name, conv in found if conv.bias is not None]
        self.shifts = nn.ParameterList(
            nn.Parameter(torch.zeros_like(c.bias)) for _, c in found if c.bias is not None
        )
        self.classify = Head(vector_size(backbone, item_shape), self.n_way)

    def embed(self, items: Tensor) -> Tensor:
        """Map images ``(n, 3, H, W)`` to vectors ``(n, D)`` by the scaled and shifted backbone."""
        weights = dict(self.backbone.named_parameters())
        changed = {
            f"{name}.weight": weights[f"{name}.weight"] * scale
            for name, scale in zip(self._names, self.scales, strict=True)
        }
        for name, shift in zip(self._shifted, self.shifts, strict=True):
            changed[f"{name}.bias"] = weights[f"{name}.bias"] + shift
        vectors: Tensor = functional_call(
            _Vectors(self.backbone), {f"backbone.{n}": w for n, w in changed.items()}, (items,)
        )
        return vectors

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the logits of the adapted heads, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.

        Raises:
            OptionError: the head is learned for another number of ways.
        """
        check_ways(self.n_way, support)
        return adapted_scores(
            self.classify,
            support,
            query,
            rate=self.inner_lr,
            steps=self.train_steps if self.training else self.test_steps,
            second_order=not self.first_order,
        )

    def loss(self, batch: Batch) -> Tensor:
        """Return the queries' cross-entropy, with ``hard_tasks`` plus that of the hard tasks.

        Raises:
            OptionError: hard tasks need more tasks than the step has.
        """
        if not self.hard_tasks:
            return super().loss(batch)
        assert batch.query_labels is not None
        assert batch.support_classes is not None
        support, query = self.embed_episode(batch)
        labels = batch.query_labels
        logits = self.scores(support, query)
        accuracy = _accuracies(logits.detach(), labels)
        hardest = _hardest(accuracy, batch.support_classes[:, :, 0])
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return loss + self._loss_of_hard_tasks(support, query, labels, hardest)

    def _loss_of_hard_tasks(
        self, support: Tensor, query: Tensor, labels: Tensor, hardest: Tensor
    ) -> Tensor:
        """Return the mean loss of tasks whose ways are the ``hardest (hard tasks, way)``."""
        count, way = hardest.shape

        def grouped(of_tasks: Tensor) -> Tensor:
            first: Tensor = of_tasks[: count * way]
            return first.reshape(count, way, *first.shape[1:])

        tasks, sources = torch.meshgrid(
            torch.arange(count, device=query.device),
            torch.arange(way, device=query.device),
            indexing="ij",
        )
        own = grouped(support)[tasks, sources, hardest]
        # All queries of the sources are scored, as shapes must not depend on values, but only those
        # of the hardest ways count.
        counted = grouped(labels) == hardest[:, :, None]
        logits = self.scores(own, grouped(query).flatten(1, 2))
        answers = sources[:, :, None].expand_as(counted)
        losses = functional.cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="none")
        mean: Tensor = (losses * counted.flatten()).sum() / counted.sum().clamp(min=1)
        return mean


def _accuracies(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the accuracy of each way, ``(tasks, way)``; infinite for one without queries."""
    members = functional.one_hot(labels, logits.shape[2]).to(logits.dtype)
    right = (logits.argmax(dim=2) == labels).to(logits.dtype)
    counts = members.sum(dim=1)
    accuracy = (members * right[:, :, None]).sum(dim=1) / counts
    return torch.where(counts > 0, accuracy, float("inf"))


def _hardest(accuracy: Tensor, classes: Tensor) -> Tensor:
    """Choose the hardest way of each task, so that each ``way`` tasks give different classes.

    Args:
        accuracy: float ``(tasks, way)``.
        classes: int64 ``(tasks, way)``, the base class of each way.

    Returns:
        int64 ``(tasks // way, way)``, the chosen way of each source task.

    Raises:
        OptionError: there are fewer tasks than ways.
    """
    n_tasks, way = accuracy.shape
    count = n_tasks // way
    if not count:
        raise OptionError(
            f"hard_tasks needs at least as many tasks per step as a task has ways, {way}, got "
            f"{n_tasks} (training.tasks_per_step)"
        )
    accuracy, classes = (x[: count * way].unflatten(0, (count, way)) for x in (accuracy, classes))
    taken, chosen = classes[:, 0, :0], []
    for source in range(way):
        again = (classes[:, source, :, None] == taken[:, None]).any(dim=2)
        # At least one way is left; one without queries comes last among those that are.
        rank = accuracy[:, source].clamp(max=2) + 4 * again
        picked = rank.argmin(dim=1, keepdim=True)
        taken = torch.cat([taken, classes[:, source].gather(1, picked)], dim=1)
        chosen.append(picked)
    return torch.cat(chosen, dim=1)


class _Vectors(nn.Module):
    """A backbone with its pooling, as one function of images."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone
        self.training = backbone.training

    def forward(self, images: Tensor) -> Tensor:
        vectors: Tensor = self.backbone.encode(images)
        return vectors
