"""`fsf plugins`: what is installed, its options, whether it keeps its contract, and new ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from fsframework.api.components import Registry
from fsframework.cli.options import group, key_values, plugin_names, shared

__all__ = ["plugins"]

_KINDS = click.Choice(sorted(Registry().kinds))
_kind = click.option("--kind", type=_KINDS, help="Only plugins of this kind.")
_name = click.argument("name", shell_complete=plugin_names())
_COLUMNS = ("kind", "name", "distribution", "version", "status", "target")


@group()
def plugins() -> None:
    """List, show and check plugins, and begin new ones.

    \b
    Examples:
      fsf plugins new method my-net
      fsf plugins list --kind method
      fsf plugins show renet
      fsf plugins check protonet
      fsf plugins check mine --plugin ./mine.py
      fsf plugins check mine --plugin ./mine.py --pool toy.csv
      fsf plugins check --distribution my-plugins
    """


@plugins.command("list")
@_kind
@click.option("--load", is_flag=True, help="Import every plugin, to show which are broken.")
@shared("plugin", "json")
def list_plugins(
    kind: str | None, load: bool, plugin_files: tuple[Path, ...], as_json: bool
) -> None:
    """List every plugin with its distribution, version and status, importing none."""
    from fsf_tools.installed import installed_plugins
    from fsframework.cli import render

    found = installed_plugins(kind, files=plugin_files, load=load)
    rows = [dataclasses.asdict(plugin) for plugin in found]
    if as_json:
        render.print_json(rows)
    else:
        render.print_table(_COLUMNS, [[row[column] for column in _COLUMNS] for row in rows])


@plugins.command("show")
@_name
@_kind
@shared("plugin", "json")
def show_plugin(name: str, kind: str | None, plugin_files: tuple[Path, ...], as_json: bool) -> None:
    """Show what a plugin does, its facts and its options."""
    from fsf_tools.installed import describe_plugin
    from fsframework.cli import render

    found = describe_plugin(name, kind, files=plugin_files)
    if as_json:
        render.print_json(found)
        return
    origin = found["target"]
    if found["version"] != "-":
        origin += f", from {found['distribution']} {found['version']}"
    click.echo(f"{found['kind']} {found['name']!r} ({origin})\n")
    click.echo(found["doc"].replace("``", "`"))
    if found["facts"]:
        click.echo()
        render.print_table(("fact", "value"), [(k, str(v)) for k, v in found["facts"].items()])
    click.echo()
    if found["options"]:
        rows = [[str(value) for value in option.values()] for option in found["options"]]
        render.print_table(list(found["options"][0]), rows)
    else:
        click.echo("takes no options")


@plugins.command("check")
@click.argument("name", required=False, shell_complete=plugin_names())
@_kind
@click.option("--all", "every", is_flag=True, help="Check all plugins that need no option.")
@click.option("--distribution", metavar="NAME", help="Check those of one distribution.")
@click.option(
    "--pool",
    metavar="DATASET|FILE.csv",
    help="Check a sampler or detector on these images, not on toys; a table has the columns path, "
    "label and others, such as words, and its images are not opened.",
)
@shared("option", "plugin", "json")
def check_plugin(name: str | None, every: bool, as_json: bool, **given: Any) -> None:
    """Check that a plugin keeps the contract of its kind; exit code 1 if it does not.

    If plugins of several kinds have the name, such as the method and the view
    simclr, all of them are checked. Of many plugins, only what fails is shown.
    What fails is shown last, with the rule, the smallest example that breaks it,
    and code that repeats the failure.
    """
    from fsf_tools.installed import check_plugins
    from fsframework.cli import render
    from fsframework.testing import counted

    options, files = key_values(given.pop("options")), given.pop("plugin_files")
    several = every or given["distribution"] is not None
    if several == (name is not None) or (several and (options or given["pool"])):
        raise click.UsageError(
            "give a NAME, with any options and a pool, or --all or --distribution"
        )
    rows = []
    for plugin, results in check_plugins(name, **given, options=options, files=files):
        rows += [{"kind": plugin.kind, "plugin": plugin.name, **vars(one)} for one in results]
        if not as_json:
            chosen = [one for one in results if not (several and one.passed)]
            shown = map(str, sorted(chosen, key=lambda one: not one.passed))
            click.echo("\n".join([*shown, f"{plugin.kind} {plugin.name}: {counted(results)}"]))
    if as_json:
        render.print_json(rows)
    if "failed" in {row["outcome"] for row in rows}:
        click.get_current_context().exit(1)


@plugins.command("new")
@click.argument("kind", type=_KINDS, metavar="KIND")
@click.argument("name")
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    default=".",
    help="Where to write it.",
)
@click.option("--script", is_flag=True, help="Write one file, for --plugin, not a package.")
def write_plugin(kind: str, name: str, folder: Path, script: bool) -> None:
    """Write a small plugin that works, to change into your own.

    It is a package with tests and a workflow for continuous integration: it can
    be installed, and passes its checks, ruff and mypy --strict. KIND is one of
    those of fsf plugins check --kind.
    """
    from fsf_tools.new_plugin import new_plugin

    path, steps = new_plugin(kind, name, folder, script=script)
    click.echo("\n".join([f"wrote {path}; next:", *(f"  {step}" for step in steps)]))
