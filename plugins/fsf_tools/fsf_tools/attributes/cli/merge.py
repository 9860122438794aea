"""`fsf attributes merge`: merge tables of parts of the images."""

from __future__ import annotations

from pathlib import Path

import click

from fsframework.cli.options import check_output, command, shared

__all__ = ["merge"]

_FILE = click.Path(path_type=Path)


@command()
@click.argument("output", type=_FILE)
@click.argument("parts", metavar="PART...", nargs=-1, required=True, type=_FILE)
@shared("force")
def merge(output: Path, parts: tuple[Path, ...], force: bool) -> None:
    """Merge tables of different images, such as shards.

    All tables must have been made the same way. An image may be in two tables only
    if its words are the same.

    \b
    Example:
      fsf attributes merge words.parquet part1.parquet part2.parquet
    """
    from fsf_tools.attributes.merging import merged
    from fsframework.api.words import attributes

    check_output(output, ".parquet", force=force)
    table = merged([(str(part), attributes(part)) for part in parts])
    table.save(output)
    click.echo(f"{output}: {len(table):,} images, {len(table.words):,} words")
    if "shard" in table.provenance:
        click.echo(f"note: some shards are missing; the table has {table.provenance['shard']}")
