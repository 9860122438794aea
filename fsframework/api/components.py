"""Components by name, class or instance, for packages of commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsframework.components.catalogue import ADDED_VERSION, Added, added_folder, read_added
from fsframework.components.conversion import describe_type, parameters
from fsframework.components.objects import component_of
from fsframework.components.options import Given, plain_tree
from fsframework.components.registry import Plugin, Registry
from fsframework.components.resolution import Component, canonical

__all__ = [
    "ADDED_VERSION",
    "Added",
    "Component",
    "Given",
    "Plugin",
    "Registry",
    "added_folder",
    "canonical",
    "component",
    "describe_type",
    "parameters",
    "plain_tree",
    "read_added",
]


def component(
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
        PluginError: the plugin is unknown or cannot be loaded.
        OptionError: an option is unknown or not allowed.
    """
    if options:
        tree = dict(request) if isinstance(request, Mapping) else {"name": request}
        request = {**tree, **options}
    return component_of(registry, kind, request)
