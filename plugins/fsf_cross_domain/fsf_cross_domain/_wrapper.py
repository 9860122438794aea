"""A method that trains another one in its own way and evaluates it unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn

from fsframework.interfaces import Backbone, Batch, FewShotMethod, OptionError

__all__ = ["Wrapper", "kept_buffers"]


class Wrapper(FewShotMethod):
    """Declares what its base declares, and scores as its base does.

    Args:
        base: the method within it, which must learn.

    Raises:
        OptionError: the base learns nothing.
    """

    argument: ClassVar[str | None] = "base"

    def __init__(self, *, base: FewShotMethod) -> None:
        super().__init__()
        if base.learns_from == "nothing":
            raise OptionError(f"base must be a method that learns, but {_name(base)} does not")
        self.base = base
        self.consumes = base.consumes
        self.embeds_images = base.embeds_images
        self.trains_on_images = base.trains_on_images
        self.learns_from = base.learns_from
        self.views = base.views
        self.uses_labels = base.uses_labels
        self.weightless = base.weightless
        self.transductive = base.transductive
        self.reads_values = base.reads_values
        self.n_way = base.n_way

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Build the base."""
        self.base.build(item_shape, n_base_classes, backbone)

    def embed(self, items: Tensor) -> Tensor:
        """Embed items as the base does."""
        return self.base.embed(items)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the scores of the base, float ``(tasks, n, way)``."""
        return self.base.scores(support, query)

    def class_logits(self, items: Tensor) -> Tensor:
        """Return the logits of the base for the base classes."""
        return self.base.class_logits(items)

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of the base, and take what the base carries."""
        loss = self.base.loss(batch)
        self.carried, self.base.carried = self.base.carried, {}
        return loss

    def after_step(self, carried: Mapping[str, Tensor]) -> None:
        """Act as the base does after a step."""
        self.base.after_step(carried)

    def need_no_views(self) -> None:
        """Check that the base has no views of the images, which would not be changed.

        Raises:
            OptionError: it has.
        """
        if self.views is not None:
            raise OptionError(
                f"base must not learn from views of the images, but {_name(self.base)} does"
            )

    def need_episodes(self) -> None:
        """Check that the base learns from episodes.

        Raises:
            OptionError: it learns from batches.
        """
        if self.learns_from == "batches":
            raise OptionError(
                f"base must learn from episodes, but {_name(self.base)} learns from batches"
            )


@contextmanager
def kept_buffers(module: nn.Module) -> Iterator[None]:
    """Return all buffers to their values after the block, such as the statistics of BatchNorm."""
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


def _name(method: FewShotMethod) -> str:
    return type(method).__name__
