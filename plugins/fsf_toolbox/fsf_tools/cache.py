"""`fsf cache`: what is cached between runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fsframework.cli.options import group, shared
from fsframework.values import size_text

if TYPE_CHECKING:
    from fsf_tools.cached import CacheSize

__all__ = ["cache"]

_MOST_NAMED = 5


@group()
def cache() -> None:
    """Show and clean what is cached between runs.

    Decoded images, words, features, tasks, trained weights and outcomes are cached, so
    that no run computes them twice. They may be removed at any time: a run that
    needs them computes them again. Finished runs are stored elsewhere and stay.

    \b
    Examples:
      fsf cache size
      fsf cache clean --dry-run
      fsf cache clean --stage images --stage features
      fsf cache clean --older-than 30 --yes
    """


@cache.command("size")
@shared("cache-dir", "json")
def size(cache_dir: Path | None, as_json: bool) -> None:
    """Show how much each stage has cached, and where."""
    from fsf_tools.cached import cache_size
    from fsframework.cli import render

    found = cache_size(cache_dir)
    if as_json:
        render.print_json(found.to_json())
        return
    click.echo(f"{found.folder}\n")
    _print_size(found)


@cache.command("clean")
@click.option(
    "--stage",
    "stages",
    multiple=True,
    metavar="NAME",
    help="Remove only the items of this stage (see fsf cache size); repeatable.  [default: all]",
)
@click.option(
    "--older-than",
    type=float,
    default=0.0,
    metavar="DAYS",
    help="Remove only items last written more than DAYS days ago.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared("cache-dir", "dry-run")
def clean(
    stages: tuple[str, ...], older_than: float, dry_run: bool, yes: bool, cache_dir: Path | None
) -> None:
    """Remove what is cached between runs, except what a running process uses."""
    from fsf_tools.cached import STAGES, clean_cache

    chosen = stages or STAGES
    planned = clean_cache(chosen, older_than=older_than, dry_run=True, cache_dir=cache_dir).removed
    if not planned.items:
        click.echo(f"nothing to remove in {planned.folder}")
        return
    _print_size(planned)
    click.echo()
    if dry_run:
        click.echo(f"dry run: this would be removed from {planned.folder}; nothing is removed")
        return
    if not yes:
        click.confirm(f"Remove this from {planned.folder}?", abort=True)
    done = clean_cache(chosen, older_than=older_than, cache_dir=cache_dir)
    click.echo(f"removed {_counted(done.removed.items)}, {size_text(done.removed.bytes)}")
    for path in done.in_use[:_MOST_NAMED]:
        click.echo(f"skipped, in use by a running process: {path}")
    if len(done.in_use) > _MOST_NAMED:
        click.echo(f"skipped, in use by a running process: {len(done.in_use) - _MOST_NAMED} more")


def _print_size(found: CacheSize) -> None:
    from fsframework.cli import render

    rows = [(name, f"{n:,}", size_text(size)) for name, (n, size) in found.stages.items()]
    total = ("total", f"{found.items:,}", size_text(found.bytes))
    render.print_table(("stage", "items", "size"), [*rows, total])


def _counted(items: int) -> str:
    return f"{items:,} {'item' if items == 1 else 'items'}"
