"""`fsf data`: data sets; its commands come with other packages."""

from __future__ import annotations

from pathlib import Path

import click

from fsframework.cli.options import group, shared

__all__ = ["data"]


@group()
def data() -> None:
    """Add, list, check, decode and embed data sets."""


@data.command("work", hidden=True)
@click.argument("key")
@shared("cache-dir")
def work(key: str, cache_dir: Path | None) -> None:
    """Compute shards of images until none is free; launchers start this."""
    from fsframework.api.sharing import work_on_shards

    work_on_shards(key, cache_dir)
