"""`fsf answers`: what endpoints have answered and is kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fsframework.cli.options import command, group, shared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsf_vlm._kept import Kept

__all__ = ["answers", "list_answers", "remove"]


@group()
def answers() -> None:
    """List and remove the kept answers of endpoints.

    Whatever a model behind an endpoint answers is kept, so that no request is paid for twice.
    `fsf cache clean` leaves these answers alone.
    """


@command("list")
@click.argument("url", required=False)
@click.argument("model", required=False)
@shared("cache-dir", "json")
def list_answers(url: str | None, model: str | None, cache_dir: Path | None, as_json: bool) -> None:
    """List the kept answers: endpoint, model, number, tokens, size.

    URL is the address of an endpoint and MODEL the name of a model there, by default all.

    \b
    Examples:
      fsf answers list
      fsf answers list http://localhost:8000/v1 --json
    """
    from fsf_vlm._kept import kept_answers
    from fsframework.cli import render

    found = kept_answers(url, model, cache_dir=cache_dir)
    if as_json:
        render.print_json([one.to_json() for one in found])
    elif not found:
        click.echo("no answers are kept")
    else:
        _print(found)


@command("remove")
@click.argument("url", required=False)
@click.argument("model", required=False)
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared("cache-dir", "dry-run")
def remove(
    url: str | None, model: str | None, yes: bool, cache_dir: Path | None, dry_run: bool
) -> None:
    """Remove kept answers; what they answered will be asked, and paid for, again.

    URL is the address of an endpoint and MODEL the name of a model there, by default all.

    \b
    Examples:
      fsf answers remove http://localhost:8000/v1 tiny
      fsf answers remove --dry-run
    """
    from fsf_vlm._kept import kept_answers, remove_answers

    found = kept_answers(url, model, cache_dir=cache_dir)
    if not found:
        click.echo("nothing to remove")
        return
    _print(found)
    if dry_run:
        click.echo("\ndry run: this would be removed; nothing is removed")
        return
    if not yes:
        click.confirm("\nRemove these answers?", abort=True)
    remove_answers(found)
    click.echo(f"removed {sum(one.answers for one in found):,} answers")


def _print(found: Sequence[Kept]) -> None:
    from fsframework.cli import render
    from fsframework.values import size_text

    heads = ("endpoint", "model", "answers", "prompt tokens", "answer tokens", "size")
    rows = [
        (
            one.url,
            one.model,
            f"{one.answers:,}",
            f"{one.prompt_tokens:,}",
            f"{one.completion_tokens:,}",
            size_text(one.bytes),
        )
        for one in found
    ]
    render.print_table(heads, rows)
    for one in found:
        if one.damaged:
            click.echo(f"{one.folder}: {one.damaged:,} damaged lines, which are asked again")
