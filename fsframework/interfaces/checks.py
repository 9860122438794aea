"""Checks of options that many components need; each refusal is one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fsframework.errors import OptionError

__all__ = ["check_above", "check_at_least", "check_below_one", "check_one_of"]


def check_above(least: float, /, **options: float) -> None:
    """Refuse options that are not above ``least``; NaN is refused too.

    Raises:
        OptionError: an option is refused.

    >>> check_above(0, lr=0.1, scale=0.0)
    Traceback (most recent call last):
    fsframework.errors.OptionError: scale must be above 0, got 0.0
    """
    _demand(options, lambda value: value > least, f"above {least:g}")


def check_at_least(least: float, /, **options: float) -> None:
    """Refuse options that are not at least ``least``; NaN is refused too.

    Raises:
        OptionError: an option is refused.

    >>> check_at_least(1, steps=0)
    Traceback (most recent call last):
    fsframework.errors.OptionError: steps must be at least 1, got 0
    """
    _demand(options, lambda value: value >= least, f"at least {least:g}")


def check_below_one(**options: float) -> None:
    """Refuse options that are not in [0, 1), such as shares that are dropped.

    Raises:
        OptionError: an option is refused.

    >>> check_below_one(dropout=1.0)
    Traceback (most recent call last):
    fsframework.errors.OptionError: dropout must be in [0, 1), got 1.0
    """
    _demand(options, lambda value: 0 <= value < 1, "in [0, 1)")


def check_one_of(known: Sequence[str], /, **options: str) -> None:
    """Refuse options that are not among ``known``.

    Raises:
        OptionError: an option is refused.

    >>> check_one_of(("sum", "mean"), fusion="max")
    Traceback (most recent call last):
    fsframework.errors.OptionError: fusion must be one of sum, mean, got 'max'
    """
    _demand(options, lambda value: value in known, f"one of {', '.join(known)}")


def _demand(options: Mapping[str, Any], allows: Callable[[Any], bool], rule: str) -> None:
    for name, value in options.items():
        if not allows(value):
            raise OptionError(f"{name} must be {rule}, got {value!r}")
