"""`fsf data add`: give a data set a name that every command knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fsf_tools.data._printing import class_counts, print_problems, run_command
from fsframework.cli.options import command, key_values, plugin_names, shared

if TYPE_CHECKING:
    from fsf_tools.data.adding import AddedDataset
    from fsframework.api.data import SplitCounts

__all__ = ["add"]


@command("add")
@click.argument("name", metavar="NAME", shell_complete=plugin_names("dataset"))
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
@click.option("--as", "alias", metavar="NAME", help="Name to give it.  [default: its own name]")
@click.option(
    "-o",
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of the data set (see fsf plugins show NAME --kind dataset); repeatable.",
)
@shared("data-dir", "plugin", "json")
def add(
    name: str,
    path: Path,
    alias: str | None,
    options: tuple[str, ...],
    data_dir: Path | None,
    plugin_files: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Register the location of a data set under a name.

    NAME is a data set of fsf data list that takes a path, or FILE.toml, your own
    declaration. PATH is its folder or .zip file, in any layout that the data set
    supports. Nothing is copied or changed. Classes and images are counted and compared
    with the published numbers. Incomplete data can be used; every run on them notes
    it.

    \b
    Examples:
      fsf data add cifar-fs ~/data/cifar-100-python
      fsf data add folder ./images --as birds
      fsf data add folder ./cue --as cue -o 'pattern=-(?P<texture>[a-z]+)\\d+'
      fsf data add csv ./images.csv --as mine
    """
    from fsf_tools.data.adding import add_dataset
    from fsframework.cli import render

    given = {key.removeprefix("dataset."): value for key, value in key_values(options).items()}
    report = add_dataset(
        name, path, name=alias, options=given, data_dir=data_dir, plugins=plugin_files
    )
    words = "words" in report.entry.columns
    usage = run_command(report.name, words=words, plugins=plugin_files)
    if as_json:
        render.print_json({**report.to_json(), "usage": usage})
        return
    _print(report, usage)


def _print(report: AddedDataset, usage: str) -> None:
    from fsframework.cli import render

    if report.replaced is not None:
        click.echo(f"{report.name} was added before, from {report.replaced.place}: replaced")
    about = report.about
    title = f" ({about.title})" if about is not None and about.title != report.name else ""
    click.echo(f"{report.name}{title}: found in {report.entry.place}")
    if report.layout:
        click.echo(f"layout: {report.layout}")
    click.echo()
    columns, rows = _split_table(report.splits)
    render.print_table(columns, rows)
    click.echo()
    published = any(split.published for split in report.splits)
    print_problems(report.entry.problems, about, published="complete" if published else None)
    if about is not None:
        click.echo(f"licence: {about.licence}")
        click.echo(f"cite: {about.citation}")
    click.echo(f"use it: {usage}")
    click.echo(f"check for broken images: fsf data check --dataset {report.name}")


def _split_table(splits: tuple[SplitCounts, ...]) -> tuple[list[str], list[list[str]]]:
    columns = ["split", "classes", "images"]
    published = any(split.published for split in splits)
    rows = []
    for split in splits:
        row = [split.name, f"{split.classes:,}", f"{split.images:,}"]
        if published:
            row += [
                class_counts(*split.published) if split.published else "nothing of this split",
                "" if split.as_published else "differs",
            ]
        rows.append(row)
    return [*columns, *(["published", ""] if published else [])], rows
