"""Components from classes and instances of a script or a notebook, besides those from names."""

from __future__ import annotations

import dataclasses
import os
import reprlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fsframework.components.conversion import parameters
from fsframework.components.installed import Plugin
from fsframework.components.kinds import kind_of
from fsframework.components.options import Given, layer, value_of
from fsframework.components.registry import Registry
from fsframework.components.resolution import Component, resolve_component
from fsframework.errors import OptionError, PluginError

__all__ = ["component_of", "is_known", "named"]


def component_of(
    registry: Registry, kind: str, request: Any, options: Mapping[str, Any] | None = None
) -> Component:
    """Return a component with its options; ``create`` makes its instance.

    Args:
        registry: of the session that it belongs to.
        kind: of plugin, such as ``dataset``.
        request: a name, a mapping of a name and options, a class or an instance; options are plain
            values, or ``Given`` where the record should say where they come from.
        options: in addition to those in ``request``.

    Raises:
        PluginError: the plugin is unknown or cannot be loaded, or the class is not of the kind.
        OptionError: an option is unknown or not allowed, or an instance does not store one.
    """
    if options:
        tree = dict(request) if isinstance(request, Mapping) else {"name": request}
        request = {**tree, **options}
    return resolve_component(registry, kind, named(registry, kind, request))


def named(registry: Registry, kind: str, request: Any) -> Any:
    """Return a request in which classes and instances are replaced by names.

    A class of no installed plugin is registered, as is a module of PyTorch given for a backbone;
    options are read from an instance. In a tree the class or instance is under ``name``; the trees
    of nested components are searched too.

    Raises:
        PluginError: the class is not of the kind, or abstract.
        OptionError: an instance does not store an option, or the tree gives it further options.
    """
    given = request if isinstance(request, Given) else Given(request, "call")
    value = given.value
    if isinstance(value, Mapping):
        origin = given.origin if isinstance(request, Given) else "given"
        tree = layer(value, origin, trusted=given.trusted)
        options = {key: _nested(registry, one) for key, one in tree.items() if key != "name"}
        if value.get("name") is None:
            return options
        chosen = named(registry, kind, tree["name"])
        if not isinstance(chosen, Mapping):
            return {"name": chosen, **options}
        if options:
            raise OptionError(
                f"{kind}: an instance has its options already; give the class with the options "
                f"{', '.join(options)}, or the instance without"
            )
        return chosen
    if isinstance(value, Path):  # which names a file, also where it has no folder
        return dataclasses.replace(given, value=os.path.join(value.parent, value.name))  # noqa: PTH118
    if value is None or isinstance(value, str):
        return given
    if kind == "backbone" and _is_module(value):
        from fsframework.components.modules import backbone_of

        value = backbone_of(value)
    cls = value if isinstance(value, type) else type(value)
    if kind_of(cls) != kind:
        what = f"the class {cls.__name__}" if value is cls else reprlib.repr(value)
        module = ", a torch.nn.Module" if kind == "backbone" else ""
        raise PluginError(
            f"{kind} must be a name{module}, a {kind} class or an instance of one, not {what}"
        )
    name = _plugin_of(registry, kind, cls).name
    if value is cls:
        return Given(name, given.origin)
    options = _options_of(registry, kind, value, given.origin)
    return {"name": Given(name, given.origin, value), **options}


def is_known(registry: Registry, kind: str, name: str) -> bool:
    """Return whether a name is a plugin's, or that of a module which this process has in use."""
    modules = sys.modules.get("fsframework.components.modules")
    if kind == "backbone" and modules is not None and name not in registry.names(kind):
        cls = modules.backbone_called(name)
        return cls is not None and registry.register(kind, cls).name == name
    return name in registry.names(kind)


def _is_module(value: Any) -> bool:
    """Return whether a value is a mere module of PyTorch, which is not imported for this."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module) and kind_of(value) is None


def _nested(registry: Registry, value: Any) -> Any:
    """Replace components in the options of a component."""
    bare = value.value if isinstance(value, Given) else value
    if (kind := kind_of(value_of(bare))) is not None:
        return named(registry, kind, value)
    if isinstance(bare, Mapping):
        return {key: _nested(registry, one) for key, one in bare.items()}
    if isinstance(bare, (list, tuple)) and any(kind_of(value_of(one)) for one in bare):
        return [_nested(registry, one) for one in bare]
    return value


def _options_of(registry: Registry, kind: str, instance: Any, origin: str) -> dict[str, Any]:
    """Return the options of an instance, read from it."""
    cls = type(instance)
    options = {}
    for name in parameters(cls):
        stored = cls.stored_as.get(name, name)
        if not hasattr(instance, stored):
            raise OptionError(
                f"{kind} {cls.__name__} does not store its option {name!r} as self.{stored}, so "
                "the option cannot be recorded"
            )
        options[name] = _nested(registry, Given(getattr(instance, stored), origin))
    return options


def _plugin_of(registry: Registry, kind: str, cls: type[Any]) -> Plugin:
    """Return the installed plugin of a class, or register the class as one."""
    for plugin in registry.plugins(kind):
        module, _, attribute = plugin.target.partition(":")
        # If the class is a plugin's, the module that its entry point names is loaded.
        if getattr(sys.modules.get(module), attribute, None) is cls:
            return plugin
    return registry.register(kind, cls)
