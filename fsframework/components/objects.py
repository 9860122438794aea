"""Components from classes and instances of a script or a notebook, besides those from names."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any

from fsframework.components.kinds import kind_of
from fsframework.components.options import Given
from fsframework.components.registry import Loaded, Plugin, Registry, kebab
from fsframework.components.resolution import Component, parameters
from fsframework.errors import OptionError, PluginError

__all__ = ["component_of", "named", "plugin_of"]


def named(registry: Registry, kind: str, request: Any) -> Any:
    """Return a request in which classes and instances are replaced by names.

    A class of no installed plugin is registered, as is a module of PyTorch given for a backbone;
    options are read from an instance. In a tree the class or instance is under ``name``; the trees
    of nested components are searched too.

    Raises:
        PluginError: the class is not of the kind.
        OptionError: an instance does not store an option, or the tree gives it further options.
    """
    if isinstance(request, Given):
        return _named_value(registry, kind, request)
    if not isinstance(request, Mapping):
        return _named_value(registry, kind, Given(request, "call"))
    tree = dict(request)
    name = tree.pop("name", None)
    options = {key: _nested(registry, value) for key, value in tree.items()}
    if name is None:
        return options
    given = _named_value(registry, kind, name if isinstance(name, Given) else Given(name, "call"))
    if isinstance(given, Mapping) and options:
        raise OptionError(
            f"{kind}: an instance has its options already; give the class with the options "
            f"{', '.join(options)}, or the instance without"
        )
    return given if isinstance(given, Mapping) else {"name": given, **options}


def _nested(registry: Registry, value: Any) -> Any:
    """Replace components in the options of a component."""
    bare = value.value if isinstance(value, Given) else value
    if isinstance(bare, Mapping) and "name" in bare:
        bare_name = bare["name"]
        held = bare_name.value if isinstance(bare_name, Given) else bare_name
        kind = kind_of(held if isinstance(held, type) else type(held))
        return bare if kind is None else named(registry, kind, bare)
    if isinstance(bare, (list, tuple)) and any(_kind(one) for one in bare):
        return [_nested(registry, one) for one in bare]
    kind = _kind(bare)
    return value if kind is None else named(registry, kind, value)


def _kind(value: Any) -> str | None:
    return kind_of(value if isinstance(value, type) else type(value))


def _named_value(registry: Registry, kind: str, given: Given) -> Any:
    value = given.value
    if value is None or isinstance(value, str):
        return given
    cls = value if isinstance(value, type) else type(value)
    found = kind_of(cls)
    if kind == "backbone" and found is None and _is_module(value):
        from fsframework.components.modules import backbone_of

        return Given(registry.register(backbone_of(value)).name, given.origin)
    if found != kind:
        what = f"the class {cls.__name__}" if isinstance(value, type) else repr(value)
        raise PluginError(
            f"{kind} must be a name, a {kind} class or an instance of one, not {what}"
        )
    plugin = plugin_of(registry, kind, cls)
    if isinstance(value, type):
        return Given(plugin.name, given.origin)
    component = component_of(registry, kind, value)
    return {
        "name": Given(plugin.name, given.origin),
        **{key: _as_given(option, given.origin) for key, option in component.options.items()},
    }


def _is_module(value: Any) -> bool:
    """Return whether a value is a module of PyTorch, which is not imported for this."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def _as_given(value: Any, origin: str) -> Any:
    if isinstance(value, Component):
        options = {key: _as_given(option, origin) for key, option in value.options.items()}
        return {"name": Given(value.name, origin), **options}
    if isinstance(value, tuple) and any(isinstance(one, Component) for one in value):
        return [_as_given(one, origin) for one in value]
    return Given(value, origin)


def plugin_of(registry: Registry, kind: str, cls: type[Any]) -> Plugin:
    """Return the installed plugin of a class, or register the class as one.

    Raises:
        PluginError: the class is abstract.
    """
    top = cls.__module__.partition(".")[0]
    for plugin in registry.plugins(kind):
        module, _, attribute = plugin.target.partition(":")
        if module.partition(".")[0] == top and _is(cls, module, attribute):
            return plugin
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise PluginError(f"{kind} {cls.__name__} is abstract: it lacks {missing}")
    name = vars(cls).get("name")
    name = name if isinstance(name, str) else kebab(cls.__name__)
    target = f"{cls.__module__}:{cls.__qualname__}"
    return registry.register(Loaded(Plugin(kind, name, target, "a script", "-"), cls))


def _is(cls: type[Any], module: str, attribute: str) -> bool:
    # If the class is a plugin's, the module that its entry point names is loaded.
    return getattr(sys.modules.get(module), attribute, None) is cls


def component_of(registry: Registry, kind: str, instance: Any) -> Component:
    """Return an instance as a component, its options read from it.

    Raises:
        OptionError: an option is not stored under its own name.
    """
    cls = type(instance)
    options: dict[str, Any] = {}
    for name in parameters(cls):
        stored = cls.stored_as.get(name, name)
        if not hasattr(instance, stored):
            raise OptionError(
                f"{kind} {cls.__name__} does not store its option {name!r} as self.{stored}, so "
                "the option cannot be recorded"
            )
        options[name] = _option(registry, getattr(instance, stored))
    plugin = plugin_of(registry, kind, cls)
    origins = dict.fromkeys(("name", *options), "call")
    return Component(Loaded(plugin, cls), options, origins)


def _option(registry: Registry, value: Any) -> Any:
    kind = kind_of(type(value))
    if kind is not None:
        return component_of(registry, kind, value)
    if isinstance(value, (tuple, list)):
        return tuple(_option(registry, one) for one in value)
    return value
