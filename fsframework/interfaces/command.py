"""The contract of commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

__all__ = ["Command"]


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command of ``fsf`` as its distribution describes it, without importing the command.

    The command itself is a ``click.Command``, made with ``command`` or ``group`` of
    ``fsframework.cli.options`` or with click itself. An entry point of the group
    ``fsframework.commands`` names it; a table of the same name in ``commands.toml``, next to the
    ``__init__.py`` of the target's top-level package, describes it::

        [show-words]
        summary = "Show the words that hurt most."
        group = "Results"
        path = "runs words"              # left out: the name of the entry point
        contract = 1                     # left out: 1

    Args:
        name: name of the entry point, lower-case kebab.
        target: ``module:attribute`` of the click command.
        path: the words after ``fsf`` that call it.
        summary: one sentence, shown next to the command in help.
        group: heading of the section of ``fsf --help`` that shows it, or the group that its path
            begins with.
        contract: number of the contract of commands that it is written for.
    """

    _changes: ClassVar[Mapping[str, str]] = MappingProxyType({})

    name: str
    target: str
    path: tuple[str, ...]
    summary: str
    group: str
    contract: int = 1
