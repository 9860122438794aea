"""`fsf data list` and `fsf data show`: what is known about data sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fsf_tools.data._printing import class_counts, print_problems, run_command
from fsframework.cli.options import command, plugin_names, shared
from fsframework.errors import OptionError, close_matches

if TYPE_CHECKING:
    from fsf_tools.data.catalogue import DatasetRow
    from fsframework.api.components import Added
    from fsframework.interfaces import About

__all__ = ["list_data", "show"]


@command("list")
@shared("data-dir", "plugin", "json")
def list_data(data_dir: Path | None, plugin_files: tuple[Path, ...], as_json: bool) -> None:
    """List data sets: what each is, its licence, whether it was added.

    Classes and images are those found when it was added, else those published.
    """
    from fsf_tools.data.catalogue import datasets
    from fsframework.cli import render

    rows = datasets(data_dir=data_dir, plugins=plugin_files)
    if as_json:
        render.print_json([row.to_json() for row in rows])
        return
    kinds = [row for row in rows if row.about is None and row.state == "not added"]
    table = []
    for row in rows:
        if row in kinds:
            continue
        classes, images = row.found or row.published or (None, None)
        table.append(
            (
                row.name,
                row.summary if row.state != "broken" else f"broken: {row.summary}",
                "" if classes is None else f"{classes:>7,}",
                f"{images:>10,}" if images else "",
                "" if row.about is None else row.about.licence,
                row.state_text(with_place=False),
                "" if row.entry is None else row.entry.place,
            )
        )
    columns = ("data set", "what it is", "classes", "images", "licence", "state", "place")
    # Names mostly say what it is; licences broken within words would be unreadable.
    render.print_table(columns, table, spare=("place", "what it is"))
    if kinds:
        click.echo("\nyour own data:\n")
        render.print_table(("name", "what it is"), [(row.named, row.summary) for row in kinds])
    click.echo()
    click.echo("to add one: fsf data add NAME PATH; for details: fsf data show NAME")


@command("show")
@click.argument("name", metavar="NAME", shell_complete=plugin_names("dataset"))
@shared("data-dir", "plugin", "json")
def show(name: str, data_dir: Path | None, plugin_files: tuple[Path, ...], as_json: bool) -> None:
    """Show everything about a data set.

    Where to get it, which layouts are read, how to cite it, and what was added.
    """
    from fsf_tools.data.catalogue import datasets
    from fsframework.cli import render

    rows = {row.name: row for row in datasets(data_dir=data_dir, plugins=plugin_files)}
    if name not in rows:
        raise OptionError(
            f"unknown data set {name!r}{close_matches(name, rows)}; see fsf data list"
        )
    row = rows[name]
    if as_json:
        render.print_json(row.to_json())
        return
    click.echo(f"{name}: {row.summary}")
    click.echo(f"state: {row.state_text()}")
    if (columns := row.columns) is not None:
        click.echo(f"metadata columns: {', '.join(columns) or 'none'}")
    if row.about is not None:
        _print_about(row.about, row.entry)
    _print_state(row, plugin_files)


def _print_about(about: About, entry: Added | None) -> None:
    from fsframework.cli import render

    if about.summary and about.summary != f"{about.title}.":
        click.echo(about.summary)
    for note in about.notes:
        click.echo(f"note: {note}")
    click.echo(f"licence: {about.licence}")
    click.echo(f"where to get it: {about.source}")
    click.echo(f"cite: {about.citation}")
    if about.images_from:
        click.echo(f"its images or classes are from: {', '.join(about.images_from)}")
    if len(about.splits) > 1:
        click.echo()
        used = next(iter(about.splits))
        if entry is not None:
            used = "" if entry.options.get("split_file") else entry.options.get("split") or used
        mark = "used by default" if entry is None or used == next(iter(about.splits)) else "used"
        parts = list(dict.fromkeys(part for counts in about.splits.values() for part in counts))
        table = [
            (
                name,
                *(class_counts(*counts[part]) if part in counts else "" for part in parts),
                mark if name == used else "",
            )
            for name, counts in about.splits.items()
        ]
        render.print_table(("published split", *parts, ""), table)
        click.echo("to use another: -o split=NAME with fsf data add")
    elif about.counts:
        click.echo()
        rows = [(s, f"{c:,}", f"{n:,}" if n else "") for s, (c, n) in about.counts.items()]
        render.print_table(("split", "classes", "images"), rows)
    for layout, picture in about.layouts.items():
        click.echo(f"\nlayout: {layout}")
        click.echo("\n".join(f"  {line}" for line in picture.strip("\n").splitlines()))


def _print_state(row: DatasetRow, plugins: tuple[Path, ...]) -> None:
    from fsframework.cli import render

    click.echo()
    entry = row.entry
    name = row.named if entry is None else row.name
    words = row.state == "nothing to add" if entry is None else "words" in entry.columns
    usage = run_command(name, words=words, plugins=plugins)
    if entry is None:
        if row.state == "not added":
            click.echo(f"add it: fsf data add {_to_add(row)}")
        if row.state != "broken":
            click.echo(f"use it: {usage}")
        return
    click.echo(f"added {entry.when.partition('T')[0]}, read as {entry.plugin}")
    options = [(key, str(value)) for key, value in entry.options.items()]
    render.print_table(("option", "value"), options)
    click.echo()
    counts = [(s, f"{c:,}", f"{n:,}") for s, (c, n) in entry.counts.items()]
    render.print_table(("split", "classes found", "images found"), counts)
    click.echo()
    complete = None if row.published is None else "complete when it was added"
    print_problems(entry.problems, row.about, published=complete)
    click.echo(f"use it: {usage}")


def _to_add(row: DatasetRow) -> str:
    """Return the words after ``fsf data add`` that add a data set."""
    if row.declared_by is not None:
        return "FILE.toml PATH"
    return f"{row.name} {row.argument or 'PATH'}{'' if row.about is not None else ' --as NAME'}"
