"""What the methods of this package need of the method within them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from fsframework.interfaces import FewShotMethod, OptionError

__all__ = ["kept_buffers", "need_episodes", "need_learning", "need_no_views"]


def need_learning(base: FewShotMethod) -> None:
    """Check that a base learns.

    Raises:
        OptionError: it does not.
    """
    if base.learns_from == "nothing":
        raise OptionError(f"base must be a method that learns, but {_name(base)} does not")


def need_episodes(base: FewShotMethod) -> None:
    """Check that a base learns, and not from batches only.

    Raises:
        OptionError: it does not.
    """
    need_learning(base)
    if base.learns_from == "batches":
        raise OptionError(f"base must learn from episodes, but {_name(base)} learns from batches")


def need_no_views(base: FewShotMethod) -> None:
    """Check that a base has no views of the images, which would not be changed.

    Raises:
        OptionError: it has.
    """
    if base.views is not None:
        raise OptionError(f"base must not learn from views of the images, but {_name(base)} does")


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
