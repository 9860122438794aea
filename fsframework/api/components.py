"""Components by name, class or instance, for packages of commands."""

from __future__ import annotations

from fsframework.components.catalogue import ADDED_VERSION, Added, added_folder, read_added
from fsframework.components.conversion import describe_type, parameters
from fsframework.components.installed import Plugin
from fsframework.components.kinds import kind_of
from fsframework.components.objects import component_of as component
from fsframework.components.options import Given, layer
from fsframework.components.registry import Registry
from fsframework.components.resolution import Component, canonical, plain, resolve_component

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
    "kind_of",
    "layer",
    "parameters",
    "plain",
    "read_added",
    "resolve_component",
]
