"""What the methods of this package share: weights that differ from task to task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from fsframework.interfaces import Backbone, OptionError

__all__ = [
    "TaskBackbone",
    "Weights",
    "check_at_least",
    "descend",
    "movable",
    "support_labels",
    "vector_size",
]

Weights = dict[str, Tensor]
"""Parameters by name, each ``(tasks, *shape)``."""


class TaskBackbone:
    """A backbone whose weights differ from task to task, run on all tasks at once.

    Its weights start as those of the backbone. BatchNorm works in batch mode on the images of one
    task, or in evaluation mode with the running statistics. In training, batch mode also updates
    running statistics, a copy a task, which ``keep_statistics`` gives the backbone.

    To be made where gradients are enabled.

    Args:
        backbone: its own weights, buffers and flags stay as they are.
        tasks: number of tasks.
        batch_statistics: whether BatchNorm normalises with the statistics of the batch although
            the backbone is in evaluation mode.
    """

    def __init__(self, backbone: Backbone, tasks: int, *, batch_statistics: bool) -> None:
        self._vectors = _Vectors(backbone)
        self._tasks = tasks
        self._batch_statistics = batch_statistics
        self.weights: Weights = {
            name: movable(p).expand(tasks, *p.shape)
            for name, p in self._vectors.named_parameters()
        }
        self._buffers = {
            name: b.expand(tasks, *b.shape) for name, b in self._vectors.named_buffers()
        }

    def vectors(self, weights: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """Map images ``(tasks, n, 3, H, W)`` to vectors ``(tasks, n, D)``.

        Args:
            weights: of every task, under the names of ``self.weights``; others are left alone.
        """
        # Copies, since BatchNorm writes into them while an earlier call's are still needed for
        # its gradient.
        buffers = {name: b.clone() for name, b in self._buffers.items()}
        state = {**{name: weights[name] for name in self.weights}, **buffers}
        with self._modes():
            if self._tasks == 1:
                one = {name: tensor[0] for name, tensor in state.items()}
                vectors = self._run(one, images[0])[None]
            else:
                vectors = torch.vmap(self._run, randomness="different")(state, images)
        if self._vectors.training:
            self._buffers = buffers
        return vectors

    def keep_statistics(self) -> None:
        """Give the backbone the running statistics, the mean of those of the tasks."""
        with torch.no_grad():
            for name, own in self._vectors.named_buffers():
                found = self._buffers[name]
                # Counters went up equally in all tasks.
                own.copy_(found.mean(dim=0) if own.is_floating_point() else found[0])

    def _run(self, state: dict[str, Tensor], images: Tensor) -> Tensor:
        vectors: Tensor = functional_call(self._vectors, state, (images,))
        return vectors

    @contextmanager
    def _modes(self) -> Iterator[None]:
        """Set BatchNorm to batch mode within the block, if that is asked for."""
        chosen = [
            m
            for m in self._vectors.modules()
            if self._batch_statistics and isinstance(m, _BatchNorm) and not m.training
        ]
        for module in chosen:
            module.training = True
        try:
            yield
        finally:
            for module in chosen:
                module.training = False


class _Vectors(nn.Module):
    """A backbone with its pooling, as one function of images."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone
        self.training = backbone.training

    def forward(self, images: Tensor) -> Tensor:
        vectors: Tensor = self.backbone.vectors(self.backbone(images))
        return vectors


def movable(parameter: Tensor) -> Tensor:
    """Return a parameter that has gradients: a frozen one too is adapted to a task."""
    return parameter if parameter.requires_grad else parameter.detach().requires_grad_()


def descend(
    weights: Mapping[str, Tensor],
    loss: Tensor,
    rates: Mapping[str, float] | float,
    *,
    second_order: bool,
) -> Weights:
    """Take one step of gradient descent in every task.

    Args:
        weights: of every task.
        loss: scalar, the sum of the tasks' losses, so that each task has its own gradient.
        rates: learning rate of all weights, or by name; a weight without one stays as it is.
        second_order: whether the step's own gradient depends on the weights' curvature; else the
            step counts as a constant (the first-order approximation).
    """
    moving = [n for n in weights if isinstance(rates, float) or n in rates]
    gradients = torch.autograd.grad(
        loss, [weights[n] for n in moving], create_graph=second_order, allow_unused=True
    )
    stepped = dict(weights)
    for name, gradient in zip(moving, gradients, strict=True):
        if gradient is not None:
            rate = rates if isinstance(rates, float) else rates[name]
            stepped[name] = weights[name] - rate * gradient
    return stepped


def support_labels(support: Tensor) -> Tensor:
    """Return the ways int64 ``(tasks, way * shot)`` of support ``(tasks, way, shot, ...)``."""
    tasks, way, shot = support.shape[:3]
    ways = torch.arange(way, device=support.device)
    return ways.repeat_interleave(shot).expand(tasks, -1)


def vector_size(backbone: Backbone, image_shape: tuple[int, ...]) -> int:
    """Return the length of the vectors that a backbone makes of images of a shape."""
    own = next(backbone.parameters(), torch.zeros(()))
    training = backbone.training
    backbone.eval()
    with torch.no_grad():
        vectors = backbone.vectors(backbone(own.new_zeros(1, *image_shape)))
    backbone.train(training)
    return vectors.shape[1]


def check_at_least(least: float, **options: float) -> None:
    """Refuse options that are not at least ``least``.

    Raises:
        OptionError: one is not.
    """
    for name, value in options.items():
        if not value >= least:
            raise OptionError(f"{name} must be at least {least}, got {value}")
