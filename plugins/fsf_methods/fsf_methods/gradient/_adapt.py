"""Networks whose weights differ between tasks, and the inner loop that adapts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from fsf_methods.gradient._head import Head, linear, movable
from fsf_methods.gradient._operations import TaskOperations
from fsframework.interfaces import Backbone

__all__ = ["TaskNetwork", "Weights", "scored"]

Weights = dict[str, Tensor]
"""Parameters by name, each ``(tasks, *shape)``."""

_HEAD_WEIGHT, _HEAD_BIAS = "head.weight", "head.bias"
_NUMBERS_AT_ONCE = {"cpu": 3 << 18}
"""Numbers in the images that are adapted to in parallel. One task of 100 images of 28 x 28 pixels
keeps two cores busy; more in parallel only overflow the caches."""


def scored(
    score: Callable[[Tensor, Tensor], tuple[TaskNetwork, Tensor]],
    support: Tensor,
    query: Tensor,
    *,
    training: bool,
) -> Tensor:
    """Return the results of ``score``, called with as many tasks as the device handles fastest.

    Args:
        score: maps support and query of some tasks to their network and scores,
            ``(tasks, n, way)``.
        support: float ``(tasks, way, shot, 3, H, W)``.
        query: float ``(tasks, n, 3, H, W)``.
        training: whether to store the running statistics in the backbone.
    """
    tasks = len(support)
    most = _NUMBERS_AT_ONCE.get(support.device.type)
    size = tasks
    if most is not None:
        size = min(max(1, most // (support[0].numel() + query[0].numel())), tasks)
    parts = [
        score(own, queries)
        for own, queries in zip(support.split(size), query.split(size), strict=True)
    ]
    if training:
        TaskNetwork.keep_statistics([network for network, _ in parts])
    return torch.cat([scores for _, scores in parts])


class TaskNetwork:
    """A backbone and a linear head whose weights differ between tasks, run on all in parallel.

    ``start`` holds the weights before any step, the same in every task. BatchNorm works in batch
    mode on the images of one task, or in evaluation mode with the running statistics. In training
    every call also updates running statistics, one copy per task, which ``keep_statistics`` stores
    in the backbone. Create it where gradients are enabled.

    Args:
        backbone: its own weights, buffers and flags do not change until ``keep_statistics``.
        head: where the heads start.
        tasks: number of tasks.
        way: number of ways.
        batch_statistics: whether BatchNorm normalises with the statistics of the batch even if
            the backbone is in evaluation mode.
    """

    def __init__(
        self, backbone: Backbone, head: Head, tasks: int, way: int, *, batch_statistics: bool
    ) -> None:
        self._body = _Body(backbone)
        self._tasks = tasks
        self._batch_statistics = batch_statistics
        self._names = [name for name, _ in self._body.named_parameters()]
        self.start: Weights = {
            name: movable(p).expand(tasks, *p.shape) for name, p in self._body.named_parameters()
        }
        self.start[_HEAD_WEIGHT], self.start[_HEAD_BIAS] = head.start(tasks, way)
        # Counters are shared by all tasks.
        self._buffers = {
            name: b.expand(tasks, *b.shape) if b.is_floating_point() else b
            for name, b in self._body.named_buffers()
        }

    def fitted(
        self,
        support: Tensor,
        *,
        backbone_lr: float,
        head_lr: float,
        steps: int,
        second_order: bool,
    ) -> Weights:
        """Return the weights after steps of gradient descent on the support's cross-entropy.

        Args:
            support: float ``(tasks, way, shot, 3, H, W)``.
            backbone_lr: learning rate of the backbone's weights; 0 keeps them unchanged.
            head_lr: learning rate of the head's weights.
            steps: number of steps.
            second_order: whether the gradients of the steps are differentiated too; else they are
                treated as constants (the first-order approximation).
        """
        _, way, shot = support.shape[:3]
        images = support.flatten(1, 2)
        labels = torch.arange(way, device=support.device).repeat_interleave(shot)
        rates = dict.fromkeys(self._names, backbone_lr)
        rates |= {_HEAD_WEIGHT: head_lr, _HEAD_BIAS: head_lr}
        moving = [name for name, rate in rates.items() if rate]
        weights = dict(self.start)
        for _ in range(steps):
            logits = self.logits(weights, images)
            # The sum over tasks: the gradient for a task's weights is then that of its own loss.
            loss = functional.cross_entropy(
                logits.flatten(0, 1), labels.repeat(self._tasks), reduction="sum"
            ) / len(labels)
            gradients = torch.autograd.grad(
                loss, [weights[n] for n in moving], create_graph=second_order, allow_unused=True
            )
            for name, gradient in zip(moving, gradients, strict=True):
                if gradient is not None:
                    weights[name] = weights[name] - rates[name] * gradient
        return weights

    def logits(self, weights: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """Map images ``(tasks, n, 3, H, W)`` to logits ``(tasks, n, way)``."""
        return linear(self.vectors(weights, images), weights[_HEAD_WEIGHT], weights[_HEAD_BIAS])

    def vectors(self, weights: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """Map images ``(tasks, n, 3, H, W)`` to vectors ``(tasks, n, D)``."""
        # Copies, since BatchNorm writes into them while an earlier call's are still needed for
        # its gradient.
        buffers = {name: b.clone() for name, b in self._buffers.items()}
        state = {**{name: weights[name] for name in self._names}, **buffers}
        many = self._tasks > 1
        with self._modes(), TaskOperations(vmapped=many):
            if many:
                dims = {name: 0 if t.is_floating_point() else None for name, t in state.items()}
                run = torch.vmap(self._run, (dims, 0), randomness="different")
                vectors: Tensor = run(state, images)
            else:
                one = {n: t[0] if t.is_floating_point() else t for n, t in state.items()}
                vectors = self._run(one, images[0])[None]
        if self._body.training:
            self._buffers = buffers
        return vectors

    @staticmethod
    def keep_statistics(networks: Sequence[TaskNetwork]) -> None:
        """Store the mean of all tasks' running statistics in the backbone, which all share."""
        with torch.no_grad():
            for name, own in networks[0]._body.named_buffers():
                if own.is_floating_point():
                    found = torch.cat([network._buffers[name] for network in networks])
                    own.copy_(found.mean(dim=0))
                else:
                    own.copy_(networks[0]._buffers[name])

    def _run(self, state: dict[str, Tensor], images: Tensor) -> Tensor:
        vectors: Tensor = functional_call(self._body, state, (images,))
        return vectors

    @contextmanager
    def _modes(self) -> Iterator[None]:
        """Set BatchNorm to batch mode within the block, if requested."""
        chosen = [
            m
            for m in self._body.modules()
            if self._batch_statistics and isinstance(m, _BatchNorm) and not m.training
        ]
        for module in chosen:
            module.training = True
        try:
            yield
        finally:
            for module in chosen:
                module.training = False


class _Body(nn.Module):
    """A backbone with its pooling, as one function of images."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone
        self.training = backbone.training

    def forward(self, images: Tensor) -> Tensor:
        vectors: Tensor = self.backbone.encode(images)
        return vectors
