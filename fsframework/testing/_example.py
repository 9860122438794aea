"""The example that a check works on: the usual toys, smaller ones, or the author's own images."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fsframework.errors import OptionError
from fsframework.values import ImagePool

__all__ = [
    "Asked",
    "asked",
    "current",
    "example",
    "given_pool",
    "note_call",
    "shown",
    "size",
    "smallest",
]


@dataclass(frozen=True)
class Example:
    """What stands in for the usual toys.

    Args:
        pool: the author's own images.
        sizes: at most so many of something, by its name.
    """

    pool: ImagePool | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Asked:
    """What a check has taken.

    Args:
        sizes: the least and the usual number of something, by its name.
        call: the last call of the component, in words.
    """

    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    call: str = ""


class _Now:
    # No context variable: some checks call a component in a thread.
    example = Example()
    asked = Asked()


@contextmanager
def example(pool: ImagePool | None = None, **sizes: int) -> Iterator[None]:
    """Give checks a smaller example within the block, or other images than ``toy_pool``.

    Args:
        pool: images for the checks of samplers and detectors.
        **sizes: at most so many ``tasks``, ``ways``, ``shots``, ``queries`` or ``images``. Other
            names, and numbers that a check does not ask for, change nothing.

    Raises:
        OptionError: a size is below 1.

    >>> from fsframework.testing import toy_outcomes
    >>> with example(tasks=1, ways=2):
    ...     size("tasks", 64), size("ways", 5), size("queries", 15)
    (1, 2, 15)
    """
    for name, number in sizes.items():
        if number < 1:
            raise OptionError(f"{name} must be at least 1, not {number}")
    before = _Now.example
    _Now.example = Example(pool or before.pool, {**before.sizes, **sizes})
    try:
        yield
    finally:
        _Now.example = before


def current() -> Example:
    """Return the example that was set."""
    return _Now.example


def given_pool() -> ImagePool | None:
    """Return the author's own images, if there are any."""
    return _Now.example.pool


def size(name: str, usual: int, least: int = 1) -> int:
    """Return how many of something a check takes: the usual number, or fewer in a small example."""
    lowest, highest = _Now.asked.sizes.get(name, (least, usual))
    _Now.asked.sizes[name] = max(lowest, least), max(highest, usual)
    return min(usual, max(least, _Now.example.sizes.get(name, usual)))


def note_call(text: str) -> None:
    """Take down how the component is called next, which is told if its check fails."""
    _Now.asked.call = text


def shown(array: Any, most: int = 24) -> str:
    """Return a short array in full, of a longer one the shape.

    >>> import numpy as np
    >>> shown(np.array([[0, 1]])), shown(np.zeros((64, 5, 15)))
    ('[[0, 1]]', 'an array (64, 5, 15)')
    """
    shape = tuple(array.shape)
    return str(array.tolist()) if math.prod(shape) <= most else f"an array {shape}"


@contextmanager
def asked() -> Iterator[Asked]:
    """Yield what the checks of the block take."""
    before, _Now.asked = _Now.asked, Asked()
    try:
        yield _Now.asked
    finally:
        _Now.asked = before


def smallest(fails: Callable[[], bool], sizes: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Return the sizes of a small example that fails as the usual one does.

    Args:
        fails: whether the check fails in the same way again.
        sizes: the least and the usual number of something, by its name.
    """
    found = {name: usual for name, (_, usual) in sizes.items()}
    for name, (least, usual) in sizes.items():
        for number in _ascending(least, usual):
            with example(None, **{**found, name: number}):
                if fails():
                    found[name] = number
                    break
    return found


def _ascending(least: int, usual: int) -> Iterator[int]:
    """Yield numbers from the least to below the usual one, in steps that grow."""
    number = least
    while number < usual:
        yield number
        number += 1 + number // 4
