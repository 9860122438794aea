"""Types of the scripts' options."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection

__all__ = ["one_of", "positive"]


def positive(text: str) -> int:
    """Read a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def one_of(known: Collection[str]) -> Callable[[str], str]:
    """Return a type that accepts only known names."""

    def name(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"must be one of {', '.join(known)}, not {text!r}")
        return text

    return name
