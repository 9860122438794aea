"""`fsf data`: data sets."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.completion import added_names, dataset_names
from fsframework.cli.options import (
    group,
    json_option,
    plugin_option,
    registry_with,
    set_options,
    shared,
    tree_of,
)
from fsframework.cli.pack import pack
from fsframework.errors import OptionError, close_matches

if TYPE_CHECKING:
    from fsframework.components.catalogue import Added
    from fsframework.components.registry import Registry
    from fsframework.interfaces.dataset import About
    from fsframework.pipeline.added import AddedReport, DataRow, SplitCounts

__all__ = ["data"]

_MOST_PROBLEMS = 20
_WIDE = 120
"""Columns of a terminal on which the list also shows where data lie."""

_data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    envvar="FSF_DATA",
    show_envvar=True,
    help="Where the list of what was added is kept; other commands find it by the environment "
    "variable.  [default: ~/.local/share/fsframework]",
)


@group()
def data() -> None:
    """Add data sets, list them and check your own.

    \b
    Examples:
      fsf data list
      fsf data add folder ./images --as birds
      fsf data show birds
      fsf data check --dataset folder:./images
      fsf data pack --dataset folder:./images
    """


data.add_command(pack)


@data.command("add")
@click.argument("name", metavar="NAME", shell_complete=dataset_names)
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
@click.option("--as", "alias", metavar="NAME", help="Call it so.  [default: its own name]")
@click.option(
    "-o",
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set an option of the data set (see fsf plugins show NAME --kind dataset); repeatable.",
)
@_data_dir_option
@plugin_option
@json_option
def add(
    name: str,
    path: Path,
    alias: str | None,
    options: tuple[str, ...],
    data_dir: Path | None,
    plugin_files: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Tell where a data set lies; its name then stands for it.

    NAME is a data set of fsf data list that takes a path, or FILE.toml, a declaration
    of your own. PATH is the folder or .zip file where you have it, in any layout that
    the data set knows; nothing is copied or changed. Classes and images are counted
    and compared with those published. Data that lack some of them can be used; every
    run on them says so.

    \b
    Examples:
      fsf data add cifar-fs ~/data/cifar-100-python
      fsf data add folder ./images --as birds
      fsf data add folder ./cue --as cue -o 'pattern=-(?P<texture>[a-z]+)\\d+'
      fsf data add csv ./images.csv --as mine
    """
    from fsframework.cli import render
    from fsframework.pipeline.added import add_dataset

    registry = registry_with(plugin_files)
    report = add_dataset(
        registry, name, path, alias=alias, options=_given(options), folder=data_dir
    )
    if as_json:
        render.print_json(report.to_json())
        return
    _print_added(report)


def _given(options: tuple[str, ...]) -> dict[str, Any]:
    """Return options ``KEY=VALUE`` as a tree; ``dataset.KEY=VALUE`` will do too."""
    from fsframework.components.resolution import Given

    found: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise OptionError(f"-o {option}: must be KEY=VALUE, e.g. -o split=splits.json")
        found[key.strip().removeprefix("dataset.")] = Given(value, "command line")
    return found


def _print_added(report: AddedReport) -> None:
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
    fine = "complete: its counts are those published"
    if not published:
        fine = "nothing is published to compare with"
    _print_problems(report.entry.problems, about, fine)
    if about is not None:
        click.echo(f"licence: {about.licence}")
        click.echo(f"cite: {about.citation}")
    click.echo(f"use it: {report.usage}")
    click.echo(f"to look for broken images: fsf data check --dataset {report.name}")


def _split_table(splits: tuple[SplitCounts, ...]) -> tuple[list[str], list[list[str]]]:
    columns = ["split", "classes", "images"]
    published = any(split.published for split in splits)
    rows = []
    for split in splits:
        row = [split.name, f"{split.classes:,}", f"{split.images:,}"]
        if published:
            row += [
                _counts(*split.published) if split.published else "nothing of this split",
                "" if split.as_published else "differs",
            ]
        rows.append(row)
    return [*columns, *(["published", ""] if published else [])], rows


def _counts(classes: int, images: int) -> str:
    """Return numbers in words; images that are not published are 0."""
    told = f"{classes:,} {'class' if classes == 1 else 'classes'}"
    return f"{told}, {images:,} {'image' if images == 1 else 'images'}" if images else told


def _print_problems(problems: tuple[str, ...], about: About | None, none: str) -> None:
    for problem in problems[:_MOST_PROBLEMS]:
        click.echo(f"problem: {problem}")
    if len(problems) > _MOST_PROBLEMS:
        click.echo(f"and {len(problems) - _MOST_PROBLEMS} more problems (fsf data check names all)")
    if problems:
        note = "" if about is None else "; every run on it carries a note of this"
        click.echo(f"it can be used as it is{note}")
    elif about is not None:
        click.echo(none)


@data.command("remove")
@click.argument("name", metavar="NAME", shell_complete=added_names)
@_data_dir_option
def remove(name: str, data_dir: Path | None) -> None:
    """Forget a data set that was added; its files stay untouched."""
    from fsframework.pipeline.added import remove_dataset

    gone = remove_dataset(name, data_dir)
    click.echo(f"{name} is forgotten; its files in {gone.place} are untouched")


@data.command("list")
@_data_dir_option
@plugin_option
@json_option
def list_data(data_dir: Path | None, plugin_files: tuple[Path, ...], as_json: bool) -> None:
    """List data sets: what each is, its licence, whether added.

    Classes and images are those found when it was added, else those published.
    """
    from fsframework.cli import render
    from fsframework.pipeline.added import data_rows

    rows = data_rows(registry_with(plugin_files), data_dir)
    if as_json:
        render.print_json([row.to_json() for row in rows])
        return
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    kinds = [row for row in rows if row.about is None and row.state == "not added"]
    table = []
    for row in rows:
        if row in kinds:
            continue
        classes, images = row.totals or (None, None)
        table.append(
            (
                row.name,
                row.summary if row.state != "broken" else f"broken: {row.summary}",
                "" if classes is None else f"{classes:>7,}",
                f"{images:>10,}" if images else "",
                "" if row.about is None else row.about.licence,
                row.state_text if room >= _WIDE else row.short_state,
            )
        )
    columns = ("data set", "what it is", "classes", "images", "licence", "state")
    # Names mostly say what it is; licences broken within words could not be read.
    render.print_table(columns, table, spare=("what it is",))
    if kinds:
        click.echo("\nyour own data:\n")
        render.print_table(("name", "what it is"), [(row.usage, row.summary) for row in kinds])
    click.echo()
    click.echo(
        "to add one: fsf data add NAME PATH; all there is to know of one: fsf data show NAME"
    )


@data.command("show")
@click.argument("name", metavar="NAME", shell_complete=dataset_names)
@_data_dir_option
@plugin_option
@json_option
def show(name: str, data_dir: Path | None, plugin_files: tuple[Path, ...], as_json: bool) -> None:
    """Show all there is to know of a data set.

    Where to get it, in which layouts it may lie, how to cite it, and what was added.
    """
    from fsframework.cli import render
    from fsframework.pipeline.added import data_rows

    registry = registry_with(plugin_files)
    rows = {row.name: row for row in data_rows(registry, data_dir)}
    if name not in rows:
        raise OptionError(
            f"unknown data set {name!r}{close_matches(name, rows)}; see fsf data list"
        )
    row = rows[name]
    if as_json:
        render.print_json(row.to_json())
        return
    click.echo(f"{name}: {row.summary}")
    click.echo(f"state: {row.state_text}")
    if row.about is not None:
        _print_about(row.about, row.entry)
    _print_state(row, _usage(registry, row))


def _usage(registry: Registry, row: DataRow) -> str:
    from fsframework.pipeline.added import usage

    name = row.usage if row.entry is None else row.name
    words = row.state == "nothing to add" if row.entry is None else "words" in row.entry.columns
    return usage(registry, name, words=words)


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
        told = "used by default" if entry is None or used == next(iter(about.splits)) else "used"
        parts = list(dict.fromkeys(part for counts in about.splits.values() for part in counts))
        table = [
            (
                name,
                *(_counts(*counts[part]) if part in counts else "" for part in parts),
                told if name == used else "",
            )
            for name, counts in about.splits.items()
        ]
        render.print_table(("published split", *parts, ""), table)
        click.echo("another one: -o split=NAME with fsf data add")
    elif about.counts:
        click.echo()
        rows = [(s, f"{c:,}", f"{n:,}" if n else "") for s, (c, n) in about.counts.items()]
        render.print_table(("split", "classes", "images"), rows)
    for layout, picture in about.layouts.items():
        click.echo(f"\nlayout: {layout}")
        click.echo("\n".join(f"  {line}" for line in picture.strip("\n").splitlines()))


def _print_state(row: DataRow, usage: str) -> None:
    from fsframework.cli import render

    click.echo()
    if row.entry is None:
        if row.state == "not added":
            argument = row.usage.rpartition(":")[2]
            called = "" if row.about is not None else " --as NAME"
            click.echo(f"add it: fsf data add {row.name} {argument}{called}")
        if row.state != "broken":
            click.echo(f"use it: {usage}")
        return
    when = row.entry.when.partition("T")[0]
    options = [(key, str(value)) for key, value in row.entry.options.items()]
    click.echo(f"added {when}, read as {row.entry.plugin}")
    render.print_table(("option", "value"), options)
    click.echo()
    counts = [(s, f"{c:,}", f"{n:,}") for s, (c, n) in row.entry.counts.items()]
    render.print_table(("split", "classes found", "images found"), counts)
    click.echo()
    fine = "complete when it was added"
    if row.published is None:
        fine = "nothing is published to compare with"
    _print_problems(row.entry.problems, row.about, fine)
    click.echo(f"use it: {usage}")


@data.command("check")
@shared("dataset", "attributes")
@click.option("--skip-images", is_flag=True, help="Do not open the images.")
@set_options
@json_option
@click.pass_context
def check(
    context: click.Context,
    /,
    skip_images: bool,
    config: Path | None,
    options: tuple[str, ...],
    plugin_files: tuple[Path, ...],
    as_json: bool,
    **_: Any,
) -> None:
    """Count a data set, find what is wrong with it, say which tasks it allows.

    Looks for unreadable images, empty classes, duplicate keys and classes in two
    splits. Exit code 1 if anything is wrong.
    """
    from fsframework.cli import render
    from fsframework.pipeline.checks import check_dataset
    from fsframework.pipeline.experiment.configuration import resolve_experiment

    registry = registry_with(plugin_files)
    experiment = resolve_experiment(registry, tree_of(context, config, options, {}))
    report = check_dataset(
        experiment.dataset.create(),
        experiment.settings.attributes,
        usual_reporter(),
        open_images=not skip_images,
    )
    if as_json:
        render.print_json(report.to_json())
    else:
        columns = ("split", "classes", "images", "smallest class", "largest class")
        render.print_table(
            columns,
            [
                (s.name, f"{s.classes:,}", f"{s.images:,}", s.smallest, s.largest)
                for s in report.splits
            ],
        )
        click.echo()
        for line in report.possible:
            click.echo(line)
        for problem in report.problems:
            click.echo(f"problem: {problem}")
        if not report.problems:
            click.echo("no problem found")
    if report.problems:
        context.exit(1)
