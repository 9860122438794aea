"""The declarations of every kind of component."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

__all__ = ["Configurable"]


class Configurable:
    """The base of every interface: declarations of a class about its name and its options.

    The options of a component are the parameters of its constructor.
    """

    name: ClassVar[str | None] = None
    """The name of a component in a file given with ``--plugin``, lower-case kebab; ``None`` for
    the name of the class in kebab case. An installed component is named by its entry point."""

    argument: ClassVar[str | None] = None
    """The option that ``NAME:VALUE`` sets, as in ``folder:PATH``; ``None`` for none."""

    reads: ClassVar[tuple[str, ...]] = ()
    """Options that may name a file or folder whose content is part of the component's identity."""

    usual_components: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """For each option that is a component, the plugin used where the option is given options but no
    name, as in ``detector.selector.compounds=joined``."""
