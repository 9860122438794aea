"""Checks of options."""

from __future__ import annotations

from fsframework.interfaces import OptionError

__all__ = ["check_above", "check_at_least", "check_one_of"]


def check_above(least: float, **options: float) -> None:
    """Refuse options that are not above ``least``.

    Raises:
        OptionError: an option is refused.
    """
    for name, value in options.items():
        if not value > least:
            raise OptionError(f"{name} must be above {least}, got {value}")


def check_at_least(least: float, **options: float) -> None:
    """Refuse options that are not at least ``least``.

    Raises:
        OptionError: an option is refused.
    """
    for name, value in options.items():
        if not value >= least:
            raise OptionError(f"{name} must be at least {least}, got {value}")


def check_one_of(known: tuple[str, ...], **options: str) -> None:
    """Refuse options that are not among ``known``.

    Raises:
        OptionError: an option is refused.
    """
    for name, value in options.items():
        if value not in known:
            raise OptionError(f"{name} must be one of {', '.join(known)}, got {value!r}")
