"""`fsf plugins`: what is installed, which options it has, whether it keeps its contract."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.completion import any_plugin_name
from fsframework.cli.options import group, json_option, plugin_option, registry_with
from fsframework.components.kinds import KINDS
from fsframework.errors import OptionError, PluginError
from fsframework.interfaces.component import Configurable

if TYPE_CHECKING:
    from fsframework.components.registry import Loaded, Plugin, Registry

__all__ = ["plugins"]

_PLACE = {"selector": "detector.selector"}
"""Option prefix of a kind that only appears as a part of another."""

_kind = click.option("--kind", type=click.Choice(sorted(KINDS)), help="Only plugins of this kind.")


@group()
def plugins() -> None:
    """List, show and check plugins.

    \b
    Examples:
      fsf plugins list --kind method
      fsf plugins show renet
      fsf plugins check protonet
      fsf plugins check mine --plugin ./mine.py
    """


@plugins.command("list")
@_kind
@click.option("--load", is_flag=True, help="Import every plugin, to show which are broken.")
@plugin_option
@json_option
def list_plugins(
    kind: str | None, load: bool, plugin_files: tuple[Path, ...], as_json: bool
) -> None:
    """List every plugin with its distribution, version and status, importing none."""
    registry = registry_with(plugin_files)
    found = [_loaded_status(registry, p) if load else p for p in registry.plugins(kind)]
    if as_json:
        import json

        print(json.dumps([dataclasses.asdict(p) for p in found], indent=2))
        return
    fields = ("kind", "name", "distribution", "version", "status", "target")
    rows = [tuple(getattr(p, field) for field in fields) for p in found]
    # A plain table: importing rich would take longer than reading the metadata.
    widths = [max(map(len, column)) for column in zip(fields, *rows, strict=True)]
    for row in (fields, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _loaded_status(registry: Registry, plugin: Plugin) -> Plugin:
    if plugin.status != "ok":
        return plugin
    try:
        if plugin.kind == "command":
            registry.load_command(plugin.name)
        else:
            registry.load(plugin.kind, plugin.name)
    except PluginError as error:
        return dataclasses.replace(plugin, status=f"broken: {' '.join(str(error).split())}")
    return plugin


@plugins.command("show")
@click.argument("name", shell_complete=any_plugin_name)
@_kind
@plugin_option
@json_option
def show_plugin(name: str, kind: str | None, plugin_files: tuple[Path, ...], as_json: bool) -> None:
    """Show what a plugin does, its facts and its options."""
    from fsframework.cli import render
    from fsframework.components.resolution import describe_type, parameters

    registry = registry_with(plugin_files)
    plugin = _find(registry, name, kind)
    if plugin.kind == "command":
        _show_command(registry, plugin, as_json)
        return
    loaded = registry.load(plugin.kind, plugin.name)
    options = [
        {
            "option": f"{_PLACE.get(loaded.plugin.kind, loaded.plugin.kind)}.{key}",
            "type": describe_type(annotation),
            "default": None if default is inspect.Parameter.empty else _json(default),
            "required": default is inspect.Parameter.empty,
        }
        for key, (annotation, default) in parameters(loaded.cls).items()
    ]
    facts = _facts(loaded)
    document = inspect.getdoc(loaded.cls) or ""
    if as_json:
        described = {**dataclasses.asdict(loaded.plugin), "doc": document}
        render.print_json({**described, "facts": facts, "options": options})
        return
    click.echo(loaded.plugin.described())
    click.echo()
    click.echo(document.replace("``", "`"))
    if facts:
        click.echo()
        render.print_table(("fact", "value"), [(k, str(v)) for k, v in facts.items()])
    click.echo()
    if not options:
        click.echo("takes no options")
        return
    rows = [
        (str(o["option"]), str(o["type"]), "(required)" if o["required"] else str(o["default"]))
        for o in options
    ]
    render.print_table(("option for -o", "type", "default"), rows)


def _show_command(registry: Registry, plugin: Plugin, as_json: bool) -> None:
    """Show how a command is called, its section in the help, and its options."""
    from fsframework.cli import render

    command = registry.load_command(plugin.name)
    described = registry.describe_command(plugin.name)
    facts = {
        "call": f"fsf {' '.join(described.path)}",
        "summary": described.summary,
        "group": described.group,
    }
    context = click.Context(command, info_name=str(facts["call"]))
    records = [p.get_help_record(context) for p in command.params if isinstance(p, click.Option)]
    options = [{"option": name, "help": text} for name, text in filter(None, records)]
    document = inspect.cleandoc(command.help or "").replace("\b\n", "")
    if as_json:
        entry = {**dataclasses.asdict(plugin), "doc": document}
        render.print_json({**entry, "facts": facts, "options": options})
        return
    click.echo(f"{plugin.described()}\n\n{document}\n")
    render.print_table(("fact", "value"), list(facts.items()))
    click.echo()
    if not options:
        click.echo("takes no options")
        return
    render.print_table(("option", "help"), [(o["option"], o["help"]) for o in options])


def _json(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _facts(loaded: Loaded) -> dict[str, Any]:
    """Return the class variables that the plugin's interface declares, with their values.

    Those of every kind of component are shown only where the class sets them.
    """
    interfaces = [
        c for c in loaded.cls.__mro__ if c.__module__.startswith("fsframework.interfaces")
    ]
    facts = {
        name: getattr(loaded.cls, name)
        for interface in interfaces
        for name, annotation in inspect.get_annotations(interface).items()
        if "ClassVar" in str(annotation)
    }
    usual = vars(Configurable)
    return {n: _json(v) for n, v in facts.items() if n not in usual or v != usual[n]}


def _find(registry: Registry, name: str, kind: str | None) -> Plugin:
    """Find a plugin by name, and by kind where several kinds have the name."""
    if kind is not None:
        return registry.find(kind, name)
    kinds = sorted({p.kind for p in registry.plugins() if p.name == name})
    if len(kinds) > 1:
        raise PluginError(f"{name!r} is a {' and a '.join(kinds)}; choose one with --kind")
    if not kinds:
        from fsframework.errors import close_matches

        names = sorted({p.name for p in registry.plugins()})
        raise PluginError(
            f"unknown plugin {name!r}{close_matches(name, names)}; known: {', '.join(names)}"
        )
    return registry.find(kinds[0], name)


@plugins.command("check")
@click.argument("name", shell_complete=any_plugin_name)
@_kind
@click.option(
    "-o",
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the plugin, e.g. -o path=./images; repeatable.",
)
@plugin_option
@json_option
def check_plugin(
    name: str,
    kind: str | None,
    options: tuple[str, ...],
    plugin_files: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Check that a plugin keeps the contract of its kind; exit code 1 if it does not."""
    from fsframework.cli import render
    from fsframework.testing import check_component

    registry = registry_with(plugin_files)
    plugin = _find(registry, name.partition(":")[0], kind)
    make = _maker(registry, plugin, name, options)
    results = check_component(make, plugin.kind)
    failed = [r for r in results if r.outcome == "failed"]
    if as_json:
        render.print_json([dataclasses.asdict(r) for r in results])
    else:
        for result in results:
            message = f": {result.message}" if result.message else ""
            click.echo(f"{result.outcome:<8}{result.name}{message}")
        skipped = sum(r.outcome == "skipped" for r in results)
        passed = len(results) - len(failed) - skipped
        click.echo(
            f"{plugin.kind} {name}: {passed} passed, {len(failed)} failed, {skipped} skipped"
        )
    if failed:
        click.get_current_context().exit(1)


def _maker(
    registry: Registry, plugin: Plugin, name: str, options: tuple[str, ...]
) -> Callable[[], Any]:
    """Return a factory of the component to check, from ``NAME[:ARG]`` and options KEY=VALUE."""
    from fsframework.components.resolution import Given, resolve_component, set_dotted
    from fsframework.testing import installed_command

    if plugin.kind == "command":
        if options:
            raise OptionError(f"-o {options[0]}: a command is checked without options")
        registry.load_command(plugin.name)
        return installed_command(plugin.name)
    tree: dict[str, Any] = {"name": Given(name, "command line")}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise OptionError(f"-o {option}: must be KEY=VALUE")
        set_dotted(tree, key.removeprefix(f"{plugin.kind}."), Given(value, "command line"))
    return resolve_component(registry, plugin.kind, tree).create
