"""`fsf data`: data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fsframework.cli._options import (
    json_option,
    plugin_option,
    registry_with,
    set_options,
    shared,
    tree_of,
)
from fsframework.errors import PluginError

__all__ = ["data"]


@click.group()
def data() -> None:
    """List data sets and check your own.

    \b
    Examples:
      fsf data list
      fsf data check --dataset folder:./images
      fsf data check --dataset csv:images.csv --attributes words.csv
    """


@data.command("list")
@plugin_option
@json_option
def list_data(plugin_files: tuple[Path, ...], as_json: bool) -> None:
    """List the kinds of data sets that can be named, with how to name each."""
    import inspect

    from fsframework.cli import _render

    registry = registry_with(plugin_files)
    found = []
    for plugin in registry.plugins("dataset"):
        try:
            cls = registry.load("dataset", plugin.name).cls
        except PluginError as error:
            found.append(
                {
                    "name": plugin.name,
                    "summary": f"broken: {error}",
                    "distribution": plugin.distribution,
                    "version": plugin.version,
                }
            )
            continue
        argument = cls.argument
        found.append(
            {
                "name": plugin.name if argument is None else f"{plugin.name}:{argument.upper()}",
                "summary": (inspect.getdoc(cls) or "").partition("\n")[0].replace("``", ""),
                "distribution": plugin.distribution,
                "version": plugin.version,
            }
        )
    if as_json:
        _render.print_json(found)
        return
    rows = [(d["name"], d["summary"]) for d in found]
    _render.print_table(("data set", "what it is"), rows)


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
    from fsframework.cli import _render
    from fsframework.pipeline.checks import check_dataset
    from fsframework.pipeline.experiment import resolve_experiment

    registry = registry_with(plugin_files)
    experiment = resolve_experiment(registry, tree_of(context, config, options, {}))
    report = check_dataset(
        experiment.dataset.create(),
        experiment.settings.attributes,
        _render.reporter(),
        open_images=not skip_images,
    )
    if as_json:
        _render.print_json(report.to_json())
    else:
        columns = ("split", "classes", "images", "smallest class", "largest class")
        _render.print_table(
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
