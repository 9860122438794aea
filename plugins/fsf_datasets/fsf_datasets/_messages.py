"""How the messages of this package name things."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["first_few", "quoted"]


def first_few(texts: Sequence[str], most: int = 3, joint: str = ", ") -> str:
    """Return the first texts and how many are left.

    >>> first_few(["row 2", "row 3", "row 7", "row 9"])
    'row 2, row 3, row 7 and 1 more'
    """
    left = len(texts) - most
    return joint.join(texts[:most]) + (f" and {left} more" if left > 0 else "")


def quoted(names: Sequence[str]) -> str:
    """Return the first names in quotes and how many are left.

    >>> quoted(["cat", "dog"])
    "'cat', 'dog'"
    """
    return first_few([repr(name) for name in names])
