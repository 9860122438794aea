"""`fsf data`: data sets; its commands come with other packages."""

from __future__ import annotations

from fsframework.cli.options import group

__all__ = ["data"]


@group()
def data() -> None:
    """Add, list, check, decode and embed data sets."""
