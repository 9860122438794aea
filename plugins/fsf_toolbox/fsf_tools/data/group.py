"""`fsf data`: the group of the commands on data sets."""

from __future__ import annotations

from fsframework.cli.options import group

__all__ = ["data"]


@group()
def data() -> None:
    """Add, list, check, decode and embed data sets."""
