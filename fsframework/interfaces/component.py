"""The declarations of every kind of component."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

__all__ = ["Configurable"]


class Configurable:
    """The base of every interface: declarations of a class about its name and its options.

    The options of a component are the parameters of its constructor. Whatever a component raises
    reaches its caller as an error that names the component, its method and the item; see
    ``fsframework.errors.PluginError``.
    """

    name: ClassVar[str | None] = None
    """The name of a component in a file given with ``--plugin``, lower-case kebab; ``None`` for
    the name of the class in kebab case. An installed component is named by its entry point."""

    contract: ClassVar[int] = 1
    """The number of the contract of its kind that a class is written for. It is a property of the
    class, not of what is installed: one that does not set it is of contract 1."""

    argument: ClassVar[str | None] = None
    """The option that ``NAME:VALUE`` sets, as in ``folder:PATH``; ``None`` for none."""

    reads: ClassVar[tuple[str, ...]] = ()
    """Options that may name a file or folder whose content is part of the component's identity."""

    external: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Options that open a connection, read a variable of the environment, run a command or write
    outside the folders of a run: what each does, as in ``{"url": "images are sent to it"}``. A
    value that a file or a record gives for such an option is refused unless the user allows it."""

    usual_components: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """For options that are components, the plugin used where the option is given options but no
    name, as in ``detector.selector.compounds=joined``, or is not given and has no default."""

    stored_as: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """The attributes that store options whose own names mean something else in the interface, as
    ``labels`` does in a data set; every other option is stored under its own name."""

    _kind: ClassVar[str] = ""

    _changes: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __init_subclass__(
        cls, kind: str = "", changes: Mapping[str, str] | None = None, **rest: Any
    ) -> None:
        """Take down the kind of an interface, and the number of its contract.

        Args:
            changes: what each contract after the first has changed, in one clause, by the minor
                version of the interface's package that brought it, oldest first:
                ``{"0.2": "draw takes a generator"}`` for contract 2.
        """
        super().__init_subclass__(**rest)
        cls._kind = kind or cls._kind
        cls._changes = changes or cls._changes
