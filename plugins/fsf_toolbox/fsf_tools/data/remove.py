"""`fsf data remove`: remove the name of a data set."""

from __future__ import annotations

from pathlib import Path

import click

from fsframework.cli.options import added_names, command, shared

__all__ = ["remove"]


@command("remove")
@click.argument("name", metavar="NAME", shell_complete=added_names)
@shared("data-dir")
def remove(name: str, data_dir: Path | None) -> None:
    """Remove the name of an added data set; its files stay.

    \b
    Example:
      fsf data remove birds
    """
    from fsf_tools.data.adding import remove_dataset

    gone = remove_dataset(name, data_dir=data_dir)
    click.echo(f"{name} is removed; its files in {gone.place} stay")
