"""Small layers beside the convolutions of a backbone, with weights of their own in every task."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional

from fsframework.interfaces import (
    Backbone,
    FewShotMethod,
    OptionError,
    check_at_least,
    check_one_of,
)

__all__ = ["Adadelta", "AdaptedMethod", "Adapters", "Weights", "class_cosines"]

Weights = dict[str, Tensor]
"""By name; of one task, inside a ``vmap`` over tasks."""

Kind = Literal["residual", "serial"]
Form = Literal["matrix", "vector"]

ALIGNMENT = "beta"
"""Name of the matrix that maps the vectors of the adapted backbone."""

_SMALL = 1e-4
_SCALE = 10.0


class Adapters:
    """Adapters of every 3 x 3 convolution of a backbone but its first.

    Args:
        backbone: keeps its weights.
        kind: ``residual`` adds to a convolution's output a 1 x 1 convolution of its input, with
            the same stride; ``serial`` applies a 1 x 1 convolution with a bias to the output.
        form: whether that convolution is a ``matrix``, or where input and output have the same
            shape a ``vector``, a factor per channel.

    Raises:
        OptionError: the backbone has no such convolution.
    """

    def __init__(self, backbone: Backbone, kind: Kind, form: Form) -> None:
        self.backbone, self.kind = backbone, kind
        found = [(n, m) for n, m in backbone.named_modules() if isinstance(m, nn.Conv2d)]
        self.convolutions = {
            name: module for name, module in found[1:] if module.kernel_size == (3, 3)
        }
        if not self.convolutions:
            raise OptionError(
                "adapters need a backbone with 3 x 3 convolutions after its first convolution, but "
                f"{type(backbone).__name__} has none"
            )
        self._vectors = {
            name: form == "vector"
            and (kind == "serial" or (c.in_channels == c.out_channels and set(c.stride) == {1}))
            for name, c in self.convolutions.items()
        }

    def start(self, like: Tensor) -> Weights:
        """Return the weights that (nearly) leave the backbone unchanged.

        Residual adapters start at 1e-4 times the identity, serial ones at the identity.
        """
        weights: Weights = {}
        size = 1.0 if self.kind == "serial" else _SMALL
        for name, module in self.convolutions.items():
            width = module.out_channels
            before = width if self.kind == "serial" else module.in_channels
            if self._vectors[name]:
                weights[f"{name}.alpha"] = like.new_full((width,), size)
            else:
                weights[f"{name}.alpha"] = size * torch.eye(
                    width, before, dtype=like.dtype, device=like.device
                )
            if self.kind == "serial":
                weights[f"{name}.bias"] = like.new_zeros(width)
        return weights

    def encode(self, weights: Weights, images: Tensor) -> Tensor:
        """Map images ``(n, 3, H, W)`` to vectors ``(n, D)`` of the adapted backbone."""
        with ExitStack() as hooks:
            for name, module in self.convolutions.items():
                adapt = partial(self._adapted, weights, name)
                hooks.callback(module.register_forward_hook(adapt).remove)
            return self.backbone.encode(images)

    def _adapted(
        self, weights: Weights, name: str, module: Any, inputs: tuple[Tensor, ...], output: Tensor
    ) -> Tensor:
        alpha = weights[f"{name}.alpha"]
        if self.kind == "serial":
            return _mixed(alpha, output) + weights[f"{name}.bias"][:, None, None]
        down, across = module.stride
        return output + _mixed(alpha, inputs[0][..., ::down, ::across])


def _mixed(alpha: Tensor, maps: Tensor) -> Tensor:
    """Map the channels of ``(n, C, h, w)`` by a matrix, or scale them by a vector."""
    if alpha.ndim == 1:
        return maps * alpha[:, None, None]
    # As a matrix product, which vmap batches over tasks better than a convolution.
    mixed: Tensor = (alpha @ maps.flatten(2)).unflatten(2, maps.shape[2:])
    return mixed


class Adadelta:
    """The optimiser of Zeiler 2012, as PyTorch's with its defaults, on weights by name.

    Args:
        rates: learning rate of each weight.
    """

    def __init__(self, rates: dict[str, float]) -> None:
        self.rates = rates
        self._squares: Weights = {}
        self._steps: Weights = {}

    def step(self, weights: Weights, gradients: Weights) -> Weights:
        """Return the weights after one step."""
        decay, eps = 0.9, 1e-6
        moved = {}
        for name, gradient in gradients.items():
            zero = torch.zeros_like(gradient)
            square = decay * self._squares.get(name, zero) + (1 - decay) * gradient.square()
            earlier = self._steps.get(name, zero)
            change = (earlier + eps).sqrt() / (square + eps).sqrt() * gradient
            self._squares[name] = square
            self._steps[name] = decay * earlier + (1 - decay) * change.square()
            moved[name] = weights[name] - self.rates[name] * change
        return moved


class AdaptedMethod(FewShotMethod):
    """A method that fits adapters of the backbone to the support of each task.

    A subclass defines how one task is scored; tasks run in parallel.

    Args:
        adapter: kind of the adapters; ``form`` is theirs.
        alignment: whether a square matrix, which starts as the identity, maps the vectors.
        steps: steps of Adadelta, at least 0.
        lr: learning rate of the adapters, at least 0; ``alignment_lr`` of the matrix.
        tasks_at_once: tasks adapted in parallel, at least 1; ``None`` for 8, or 1 on CPUs.

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "images"
    learns_from = "nothing"
    weightless = True

    def __init__(
        self,
        *,
        adapter: Kind = "residual",
        form: Form = "matrix",
        alignment: bool = True,
        steps: int = 40,
        lr: float = 0.5,
        alignment_lr: float = 1.0,
        tasks_at_once: int | None = None,
    ) -> None:
        super().__init__()
        check_one_of(("residual", "serial"), adapter=adapter)
        check_one_of(("matrix", "vector"), form=form)
        check_at_least(0, steps=steps, lr=lr, alignment_lr=alignment_lr)
        if tasks_at_once is not None:
            check_at_least(1, tasks_at_once=tasks_at_once)
        self.adapter = adapter
        self.form = form
        self.alignment = alignment
        self.steps = steps
        self.lr = lr
        self.alignment_lr = alignment_lr
        self.tasks_at_once = tasks_at_once

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Store the backbone and find its convolutions.

        Raises:
            OptionError: it has none to adapt.
        """
        del item_shape, n_base_classes
        self.backbone = backbone
        Adapters(backbone, self.adapter, self.form)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return 10 times the cosines to prototypes, float ``(tasks, n, way)``, no gradients.

        Args:
            support: float ``(tasks, way, shot, 3, H, W)``.
            query: float ``(tasks, n, 3, H, W)``.
        """
        adapters = Adapters(self.backbone, self.adapter, self.form)
        adapt_and_score = vmap(partial(self.scores_of_task, adapters))
        n = self.tasks_at_once or (1 if support.device.type == "cpu" else 8)
        # BatchNorms do not support mixed precision under vmap.
        with torch.no_grad(), torch.autocast(support.device.type, enabled=False):
            parts = [
                adapt_and_score(support[first : first + n], query[first : first + n])
                for first in range(0, len(support), n)
            ]
        return torch.cat(parts)

    def scores_of_task(self, adapters: Adapters, support: Tensor, query: Tensor) -> Tensor:
        """Score queries ``(n, 3, H, W)`` of one task, support ``(way, shot, 3, H, W)``."""
        raise NotImplementedError

    def start(self, adapters: Adapters, images: Tensor) -> Weights:
        """Return the weights before any step, for images ``(n, 3, H, W)``."""
        weights = adapters.start(images)
        if self.alignment:
            width = adapters.encode(weights, images[:1]).shape[1]
            weights[ALIGNMENT] = torch.eye(width, dtype=images.dtype, device=images.device)
        return weights

    def optimiser(self, weights: Weights) -> Adadelta:
        """Return an optimiser with the learning rate of each weight."""
        return Adadelta(
            {name: self.alignment_lr if name == ALIGNMENT else self.lr for name in weights}
        )


def vectors_of(adapters: Adapters) -> Callable[[Weights, Tensor], Tensor]:
    """Return the map of weights and images ``(n, 3, H, W)`` to aligned vectors ``(n, D)``."""

    def vectors(weights: Weights, images: Tensor) -> Tensor:
        found = adapters.encode(weights, images)
        return found @ weights[ALIGNMENT].mT if ALIGNMENT in weights else found

    return vectors


def class_cosines(vectors: Tensor, prototypes: Tensor) -> Tensor:
    """Return 10 times the cosines of vectors ``(n, D)`` and prototypes ``(way, D)``."""
    unit = functional.normalize(prototypes, dim=-1)
    return _SCALE * functional.normalize(vectors, dim=-1) @ unit.mT
