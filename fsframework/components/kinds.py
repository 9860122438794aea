"""The kinds of plugins: those of the core, and how a package adds its own.

A package adds a kind with an entry point of the group ``fsframework.kinds``, whose name is that of
the kind and whose target is the interface::

    [project.entry-points."fsframework.kinds"]
    section = "fsf_reports.interfaces:Section"

Everything else follows: its plugins are entry points of the group ``fsf_reports.sections``, and the
checks of its contract are the ``suite`` of the module ``fsf_reports.testing.section``.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fsframework._calls import top_level
from fsframework.interfaces.command import Command
from fsframework.interfaces.component import Configurable

__all__ = ["GROUP_OF_KINDS", "KINDS", "Kind", "interface_of", "kind_of"]

GROUP_OF_KINDS = "fsframework.kinds"


@dataclass(frozen=True, order=True)
class Kind:
    """A kind of plugin.

    Args:
        name: in messages and for ``--kind``.
        target: ``module:class`` of its interface; imported only when it is needed.
    """

    name: str
    target: str

    @property
    def group(self) -> str:
        """Entry-point group of its plugins."""
        return f"{top_level(self.target)}.{self.name}s"

    def load(self) -> type[Any]:
        """Import and return the interface."""
        cls: type[Any] = pkgutil.resolve_name(self.target)
        return cls


_INTERFACES = {
    "backbone": "backbone:Backbone",
    "command": "command:Command",
    "dataset": "dataset:Dataset",
    "detector": "detector:AttributeDetector",
    "launcher": "launcher:Launcher",
    "method": "method:FewShotMethod",
    "sampler": "sampler:TaskSampler",
    "selector": "selector:WordSelector",
    "statistic": "statistic:Statistic",
    "view": "views:ViewMaker",
}

KINDS: Mapping[str, Kind] = MappingProxyType(
    {name: Kind(name, f"fsframework.interfaces.{at}") for name, at in _INTERFACES.items()}
)
"""The kinds of the core. All but commands are subclasses of an interface, with options."""


def kind_of(component: object) -> str | None:
    """Return the kind of a component or of a class, ``None`` for anything else.

    >>> from fsframework.interfaces import Statistic
    >>> kind_of(Statistic), kind_of(int)
    ('statistic', None)
    """
    cls = component if isinstance(component, type) else type(component)
    if issubclass(cls, Command):
        return "command"
    return (issubclass(cls, Configurable) and cls._kind) or None


def interface_of(cls: type) -> type:
    """Return the innermost base that has a kind; its subclasses are plugins."""
    return next(base for base in reversed(cls.__mro__) if kind_of(base))
