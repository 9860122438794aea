"""Plugins: what is installed, what each does, and whether it keeps its contract."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsframework.api.components import Plugin, Registry, component, describe_type, parameters
from fsframework.errors import OptionError, PluginError, close_matches
from fsframework.interfaces.component import Configurable

if TYPE_CHECKING:
    from fsframework.testing import CheckResult, Make
    from fsframework.values import ImagePool

__all__ = ["check_plugins", "describe_plugin", "installed_plugins"]


def installed_plugins(
    kind: str | None = None, *, files: Sequence[str | Path] = (), load: bool = False
) -> list[Plugin]:
    """Return every plugin with its distribution, version and status, sorted.

    Args:
        kind: only those of this kind.
        files: Python files whose plugin classes are listed too.
        load: import every plugin, so that the status shows which are broken; else none is imported.
    """
    registry = Registry(files)
    found = registry.plugins(kind)
    return [_with_status(registry, plugin) for plugin in found] if load else found


def _with_status(registry: Registry, plugin: Plugin) -> Plugin:
    if plugin.status == "ok":
        try:
            _load(registry, plugin)
        except PluginError as error:
            return dataclasses.replace(plugin, status=f"broken: {' '.join(str(error).split())}")
    return plugin


def _load(registry: Registry, plugin: Plugin) -> Any:
    if plugin.kind == "command":
        return registry.load_command(plugin.name)
    return registry.class_of(plugin)


def describe_plugin(
    name: str, kind: str | None = None, *, files: Sequence[str | Path] = ()
) -> dict[str, Any]:
    """Return where a plugin comes from, what it does, its facts and its options.

    Args:
        name: of the plugin.
        kind: needed only if plugins of several kinds have the name.
        files: Python files whose plugin classes are known too.

    Returns:
        JSON values: those of ``Plugin``; ``doc``, its docstring or the help of a command;
        ``facts``, what it declares by its interface's attributes, or how a command is called;
        ``options``, a row for each: its name, type and default, or its help for a command.

    Raises:
        PluginError: the name is unknown or ambiguous, or the plugin is broken.
    """
    registry = Registry(files)
    [plugin] = _find(registry, name, kind)
    loaded = _load(registry, plugin)
    if plugin.kind == "command":
        return {**dataclasses.asdict(plugin), **_command_told(registry, plugin, loaded)}
    # A selector only appears as a part of a detector.
    place = "detector.selector" if plugin.kind == "selector" else plugin.kind
    return {
        **dataclasses.asdict(plugin),
        "doc": inspect.getdoc(loaded) or "",
        "facts": _facts(loaded),
        "options": _options(loaded, place),
    }


def _options(cls: type[Any], place: str) -> list[dict[str, Any]]:
    return [
        {
            "option": f"{place}.{key}",
            "type": describe_type(annotation),
            "required": default is inspect.Parameter.empty,
            "default": None if default is inspect.Parameter.empty else _json(default),
        }
        for key, (annotation, default) in parameters(cls).items()
    ]


def _command_told(registry: Registry, plugin: Plugin, command: Any) -> dict[str, Any]:
    import click

    described = registry.describe_command(plugin.name)
    call = f"fsf {' '.join(described.path)}"
    context = click.Context(command, info_name=call)
    records = [p.get_help_record(context) for p in command.params if isinstance(p, click.Option)]
    return {
        "doc": inspect.cleandoc(command.help or "").replace("\b\n", ""),
        "facts": {"call": call, "summary": described.summary, "group": described.group},
        "options": [{"option": name, "help": text} for name, text in filter(None, records)],
    }


def _facts(cls: type[Any]) -> dict[str, Any]:
    """Return the declarations of a class that its interfaces know, with their values.

    An option may change some of them for an instance. What is empty, or is computed for an
    instance, is left out. Those of every kind of component, and those that a wrapper has from its
    base, are returned only where the class sets them.
    """
    interfaces = [c for c in cls.__mro__ if ".interfaces" in c.__module__]
    facts = {
        name: getattr(cls, name)
        for interface in interfaces
        for name in inspect.get_annotations(interface)
        if name in vars(interface) and not name.startswith("_")
    }
    from fsframework.interfaces import MethodWrapper  # late: it needs PyTorch

    usual, wraps = vars(Configurable), issubclass(cls, MethodWrapper)
    own = {name for c in cls.__mro__ if c not in interfaces for name in vars(c)}
    return {
        name: _json(value)
        for name, value in facts.items()
        if not isinstance(value, property)
        and (value or isinstance(value, (int, float)))
        and (value != usual[name] if name in usual else name in own or not wraps)
    }


def _json(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


def check_plugins(
    name: str | None = None,
    kind: str | None = None,
    *,
    distribution: str | None = None,
    options: Mapping[str, Any] | None = None,
    files: Sequence[str | Path] = (),
    pool: str | None = None,
) -> Iterator[tuple[Plugin, list[CheckResult]]]:
    """Check that plugins keep the contracts of their kinds.

    Args:
        name: of the plugin, with its argument if it takes one (``folder:./images``); by default all
            are checked that need no option and no data, and of the others it is said why not. If
            plugins of several kinds have the name, all of them are checked.
        kind: only plugins of this kind.
        distribution: only plugins of this distribution.
        options: of the named plugin; those of a component within it have dotted names.
        files: Python files whose plugin classes are known too.
        pool: images to check a sampler or detector on: a data set, such as ``folder:./toy``, or a
            CSV file with the columns ``path``, ``label`` and others; no image is opened.

    Yields:
        A plugin with a result per check.

    Raises:
        PluginError: the name or distribution is unknown, or the name ambiguous although options are
            given, or the named plugin is broken.
        OptionError: an option is wrong, or given for a command; or a pool is given for a kind that
            is checked without.
        DataError: the pool cannot be read.
    """
    from fsframework.testing import check_component, if_possible

    registry = Registry(files)
    if name is None:
        found = [p for p in registry.plugins(kind) if distribution in (None, p.distribution)]
        if not found:
            raise PluginError(f"no plugin is of the distribution {distribution!r}")
        makes = [(p, if_possible(partial(_make, registry, p, p.name, {}))) for p in found]
    else:
        # Options belong to one plugin.
        found = (_find if options else _find_all)(registry, name.partition(":")[0], kind)
        # All are made before the first is checked, so that a wrong option is told at once.
        makes = [(p, _make(registry, p, name, options or {})) for p in found]
    if pool is None:
        images, opened = None, ""
    else:
        images, opened = _pool_of(pool)
    for plugin, make in makes:
        results = check_component(make, plugin.kind, pool=images)
        yield plugin, [_with_pool(result, opened) for result in results]


def _pool_of(source: str) -> tuple[ImagePool, str]:
    """Return the images of a data set or of a table, and lines of Python that return them."""
    from fsframework.api.data import pool

    table = source.endswith(".csv") and ":" not in source
    data = f"csv:{source}" if table else source
    lines = f'import fsframework as fsf\n\npool = fsf.pool({json.dumps(data)}, split="all")\n'
    return pool(data, split="all"), lines


def _with_pool(result: CheckResult, opened: str) -> CheckResult:
    if not result.code or not opened:
        return result
    imports, _, call = result.code.partition("\n\n")
    first, _, pool = opened.partition("\n\n")
    return dataclasses.replace(result, code=f"{first}\n{imports}\n\n{pool}{call}")


def _make(registry: Registry, plugin: Plugin, name: str, options: Mapping[str, Any]) -> Make:
    """Return what makes the component to check, of a plugin that is given with its argument."""
    from fsframework.api.experiments import given_tree
    from fsframework.testing import installed_command

    if plugin.kind == "command":
        if options:
            raise OptionError(f"{next(iter(options))}: a command is checked without options")
        registry.load_command(plugin.name)
        return installed_command(plugin.name)
    kind = plugin.kind
    own = {f"{kind}.{key.removeprefix(f'{kind}.')}": value for key, value in options.items()}
    return component(registry, kind, given_tree({f"{kind}.name": name, **own}, "call")[kind]).create


def _find(registry: Registry, name: str, kind: str | None) -> list[Plugin]:
    """Find the one plugin of a name, and of a kind where several kinds have the name."""
    found = _find_all(registry, name, kind)
    if len(found) > 1:
        kinds = " and a ".join(plugin.kind for plugin in found)
        raise PluginError(f"{name!r} is a {kinds}; choose one with --kind")
    return found


def _find_all(registry: Registry, name: str, kind: str | None) -> list[Plugin]:
    """Find the plugins of a name, sorted by kind: at least one."""
    if kind is not None:
        return [registry.find(kind, name)]
    kinds = {plugin.kind for plugin in registry.plugins() if plugin.name == name}
    if not kinds:
        names = registry.names()
        hint = close_matches(name, names)
        raise PluginError(f"unknown plugin {name!r}{hint}; known: {', '.join(names)}")
    return [registry.find(one, name) for one in sorted(kinds)]
