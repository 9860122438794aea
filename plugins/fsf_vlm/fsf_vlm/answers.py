"""`fsf answers`: what endpoints have answered."""

from __future__ import annotations

from fsframework.cli.options import group

__all__ = ["answers"]


@group()
def answers() -> None:
    """Show and remove the answers of endpoints that are kept."""
