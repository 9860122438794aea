"""Groups of commands that list the commands of every installed distribution, importing none."""

from __future__ import annotations

import copy
import functools
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import click

from fsframework._calls import Called, contained, is_raised_by, top_level
from fsframework.components.installed import InstalledCommand
from fsframework.components.registry import Registry
from fsframework.errors import PluginError, close_matches, install_hint

__all__ = ["SECTIONS", "InstalledEntry", "ListingGroup", "RootGroup"]

SECTIONS = ("Measure", "Results", "Data and tasks", "Methods and models", "Plugins and set-up")
"""Sections of ``fsf --help``, in this order; those that other packages add come after them."""

_BROKEN = "Broken (see fsf plugins list --kind command)"
_INSTALLED = "fsframework.installed"
"""Key of the installed commands in a context's ``meta``: distributions are read once per call."""


class ListingGroup(click.Group):
    """A group whose help shows the whole summary of each command, section by section."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command to run; the error for an unknown one suggests similar names."""
        name = args[0]
        unknown = self.get_command(ctx, name) is None and not name.startswith("-")
        if unknown and not ctx.resilient_parsing:
            hint = close_matches(name, self.list_commands(ctx))
            if not hint and not ctx.parent:
                hint = f"; packages bring more: {install_hint('fsframework[all]')}"
            raise click.UsageError(f"unknown command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every command with its summary, section by section; broken ones come last."""
        sections: dict[str, list[click.Command]] = defaultdict(list)
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                broken = isinstance(command, InstalledEntry) and not command.group
                sections[_BROKEN if broken else self.section_of(command)].append(command)
        width = max((len(str(c.name)) for found in sections.values() for c in found), default=0)
        others = sorted({*sections} - {*SECTIONS, _BROKEN})
        for title in (*SECTIONS, *others, _BROKEN):
            if title in sections:
                with formatter.section(title):
                    whole = [(c, c.get_short_help_str(limit=10_000)) for c in sections[title]]
                    formatter.write_dl([(str(c.name).ljust(width), text) for c, text in whole])

    def section_of(self, command: click.Command) -> str:
        """Return the section of the help that a sound command is listed in."""
        del command
        return "Commands"


class InstalledEntry(click.Command):
    """A command of a distribution before it is imported, which happens when it is called.

    Args:
        registry: that imports it.
        path: the words after ``fsf`` that lead to it.
        below: the commands of distributions at this path and below it. Several have this very path
            if distributions clash; none has if the path is only the beginning of others'.
    """

    def __init__(
        self, registry: Registry, path: tuple[str, ...], below: Sequence[InstalledCommand]
    ) -> None:
        self._registry, self._path = registry, path
        self._here = [one for one in below if one.command.path == path]
        sound = [one for one in self._here or below if one.plugin.status == "ok"]
        if not sound or len(self._here) > 1:
            self.group, summary = "", below[0].plugin.status
        elif self._here:
            self.group, summary = sound[0].command.group, sound[0].command.summary
        else:
            self.group, summary = sound[0].command.group, _summary_of_group(sound)
        super().__init__(path[-1], short_help=summary)

    def load(self) -> click.Command:
        """Import the command; a group also gets the commands that distributions place below it.

        Raises:
            PluginError: the command is broken.
        """
        command: click.Command = ListingGroup(self.name, help=self.short_help)
        if self._here:
            command = self._registry.load_command(self._here[0].plugin.name)
        command = copy.copy(command)
        if isinstance(command, click.Group):
            below = installed_below(self._registry, self._path)
            command.commands = {**below, **command.commands}
        if self._here:
            plugin = self._here[0].plugin
            package = top_level(plugin.target)
            called = Called("command", " ".join(self._path), package, plugin.check)
            invoke = functools.partial(_invoke, called, command.invoke)
            command.invoke = invoke  # type: ignore[method-assign]
        return command

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Import the command and return its context; completion skips a broken one."""
        try:
            command = self.load()
        except PluginError:
            if parent is None or not parent.resilient_parsing:
                raise
            return super().make_context(info_name, args, parent, **extra)
        return command.make_context(info_name, args, parent, **extra)


def _invoke(called: Called, invoke: Callable[[click.Context], Any], context: click.Context) -> Any:
    """Invoke a command; what no command may raise, ``SystemExit`` for one, names the command.

    Raises:
        PluginError: it did, and the cause is in the code of its package.
    """
    try:
        return invoke(context)
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except BaseException as error:
        if not is_raised_by(error, called.package):
            raise
        with contained(called, "the call"):
            raise


class RootGroup(ListingGroup):
    """The group ``fsf`` itself: all its commands come from entry points."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the first words of all installed commands, sorted."""
        return sorted(self._installed(ctx))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command that is imported when it is called."""
        return self._installed(ctx).get(cmd_name)

    def section_of(self, command: click.Command) -> str:
        """Return the section that the description of a command names."""
        assert isinstance(command, InstalledEntry)
        return command.group

    @staticmethod
    def _installed(ctx: click.Context) -> dict[str, InstalledEntry]:
        if _INSTALLED not in ctx.meta:
            ctx.meta[_INSTALLED] = installed_below(Registry(), ())
        found: dict[str, InstalledEntry] = ctx.meta[_INSTALLED]
        return found


def installed_below(registry: Registry, path: tuple[str, ...]) -> dict[str, InstalledEntry]:
    """Return the commands of distributions below a path, by the next word of theirs."""
    found: dict[str, list[InstalledCommand]] = defaultdict(list)
    for one in registry.commands:
        if len(one.command.path) > len(path) and one.command.path[: len(path)] == path:
            found[one.command.path[len(path)]].append(one)
    return {name: InstalledEntry(registry, (*path, name), below) for name, below in found.items()}


def _summary_of_group(below: Sequence[InstalledCommand]) -> str:
    """Return a summary for a group that no package describes: the names of its commands."""
    names = sorted({" ".join(one.command.path[1:]) for one in below})
    return f"Has the {'command' if len(names) == 1 else 'commands'} {', '.join(names)}."
