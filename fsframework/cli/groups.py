"""Groups of commands that list the commands of every installed distribution, importing none."""

from __future__ import annotations

import copy
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from fsframework._calls import Called, calling, is_raised_by
from fsframework.components.package_files import top_level
from fsframework.components.registry import InstalledCommand, Registry
from fsframework.errors import PluginError, close_matches

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["SECTIONS", "PluginGroup", "RootGroup"]

SECTIONS = (
    "Measure",
    "Results",
    "Data and tasks",
    "Methods and models",
    "Plugins and set-up",
)
"""Sections of ``fsf --help``, in this order; those that other packages add come after them."""

_REGISTRY = "fsframework.registry"
"""Key of the registry in a context's ``meta``."""

_BROKEN = "Broken (see fsf plugins list --kind command)"


class _Deferred(click.Command):
    """A stand-in for a plugin's command in a group of any class; imports it when it is called."""

    def __init__(self, name: str, summary: str, load: Callable[[], click.Command | None]) -> None:
        super().__init__(name, short_help=summary)
        self._load = load

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        command = self._load()
        if command is None:
            return super().make_context(info_name, args, parent, **extra)
        return command.make_context(info_name, args, parent, **extra)


class PluginGroup(click.Group):
    """A group that also has the commands that other packages place below its path.

    Help and completion show these by their summaries; a command is imported when it is called.
    """

    path: tuple[str, ...] | None = None
    """The words after ``fsf`` that lead here; ``None`` until the group is reached through them."""

    def installed_commands(self, ctx: click.Context) -> dict[str, list[InstalledCommand]]:
        """Return what plugins add below this group, by the next word of the path.

        A word has several entries if it is itself a group with commands below it, or if two
        distributions claim it.
        """
        found: dict[str, list[InstalledCommand]] = defaultdict(list)
        if self.path is not None:
            depth = len(self.path)
            for one in self.plugins(ctx).commands():
                if len(one.command.path) > depth and one.command.path[:depth] == self.path:
                    found[one.command.path[depth]].append(one)
        return found

    @staticmethod
    def plugins(ctx: click.Context) -> Registry:
        """Return the registry that all groups of one call share, so distributions are read once."""
        registry: Registry = ctx.meta.setdefault(_REGISTRY, Registry())
        return registry

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the group's own commands and those of plugins, sorted."""
        return sorted({*self.own_commands(ctx), *self.installed_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; a plugin's is imported.

        Raises:
            PluginError: the command is broken, unless the shell is completing.
        """
        command = super().get_command(ctx, cmd_name)
        if command is None:
            try:
                command = self._of_plugin(ctx, cmd_name)
            except PluginError:
                if not ctx.resilient_parsing:
                    raise
        return None if command is None else self._with_plugins_below(ctx, command, cmd_name)

    def _of_plugin(self, ctx: click.Context, name: str) -> click.Command | None:
        below = self.installed_commands(ctx).get(name, [])
        path = (*(self.path or ()), name)
        for one in below:
            if one.command.path == path:
                return self.plugins(ctx).load_command(one.plugin.name)
        return PluginGroup(name, help=_summary_of_group(below)) if below else None

    def _with_plugins_below(
        self, ctx: click.Context, command: click.Command, name: str
    ) -> click.Command:
        """Give a group its path and the commands that plugins add to it."""
        if not isinstance(command, click.Group) or self.path is None:
            return command
        group = command if isinstance(command, PluginGroup) else PluginGroup(name)
        group.path = (*self.path, name)
        if group is command:
            return command
        deferred = {
            below: _Deferred(below, summary, functools.partial(group.get_command, ctx, below))
            for below, (_, summary) in group.plugin_commands(ctx).items()
        }
        if deferred:
            command = copy.copy(command)
            command.commands = {**deferred, **command.commands}
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command to run; the error for an unknown one suggests similar names."""
        name, command = args[0], self.get_command(ctx, args[0])
        if command is None and not ctx.resilient_parsing and not name.startswith("-"):
            hint = close_matches(name, self.list_commands(ctx))
            raise click.UsageError(f"unknown command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Invoke a command; what no command may raise, ``SystemExit`` for one, names the command.

        Raises:
            PluginError: it did, and the cause is in the code of its package.
        """
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BaseException as error:
            path = (*(self.path or ()), ctx.invoked_subcommand or "")
            for one in self.plugins(ctx).commands():
                package = top_level(one.plugin.target)
                if one.command.path == path and is_raised_by(error, package):
                    called = Called("command", " ".join(path), package, one.plugin.check)
                    with calling(called, "the call"):
                        raise
            raise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Print the help if the group is called without arguments; this is not an error."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every command with its whole summary, section by section."""
        sections = [(title, rows) for title, rows in self.sections(ctx) if rows]
        width = max((len(name) for _, rows in sections for name, _ in rows), default=0)
        for title, rows in sections:
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in rows])

    def sections(self, ctx: click.Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Yield the title of each section of the help, and name and summary of its commands."""
        own, plugins = self.own_commands(ctx), self.plugin_commands(ctx)
        sound = {name: summary for name, (_, summary) in plugins.items() if summary}
        yield "Commands", sorted({**own, **sound}.items())
        yield _BROKEN, self._broken(ctx)

    def own_commands(self, ctx: click.Context) -> dict[str, str]:
        """Return the summaries of the commands that the group has without plugins."""
        names = click.Group.list_commands(self, ctx)
        return {
            name: command.get_short_help_str(limit=10_000)
            for name in names
            if not (command := self.commands[name]).hidden
        }

    def plugin_commands(self, ctx: click.Context) -> dict[str, tuple[str, str]]:
        """Return section and summary of each plugin command; both are empty for a broken one."""
        own = self.own_commands(ctx)
        found = {}
        for name, below in self.installed_commands(ctx).items():
            if name in own:
                continue
            depth = len(self.path or ()) + 1
            here = [one for one in below if len(one.command.path) == depth]
            sound = [one for one in here or below if one.plugin.status == "ok"]
            if not sound or len(here) > 1:
                found[name] = ("", "")
            elif here:
                found[name] = (sound[0].command.group, sound[0].command.summary)
            else:
                found[name] = (sound[0].command.group, _summary_of_group(sound))
        return found

    def _broken(self, ctx: click.Context) -> list[tuple[str, str]]:
        broken = [name for name, (_, summary) in self.plugin_commands(ctx).items() if not summary]
        below = self.installed_commands(ctx)
        return [(name, below[name][0].plugin.status) for name in sorted(broken)]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names of commands with their summaries, importing no plugin."""
        from click.shell_completion import CompletionItem

        rows = [row for _, section in self.sections(ctx) for row in section]
        found = [
            CompletionItem(name, help=summary)
            for name, summary in sorted(rows)
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)


class RootGroup(PluginGroup):
    """The group ``fsf`` itself: all its commands come from entry points."""

    path = ()

    def sections(self, ctx: click.Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Yield the sections that commands name: ``SECTIONS`` in order, then others by title."""
        by_section: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for name, (section, summary) in self.plugin_commands(ctx).items():
            if summary:
                by_section[section].append((name, summary))
        others = sorted(set(by_section) - set(SECTIONS))
        for title in (*SECTIONS, *others):
            yield title, sorted(by_section[title])
        yield _BROKEN, self._broken(ctx)


def _summary_of_group(below: Iterable[InstalledCommand]) -> str:
    """Return a summary for a group that no package describes: the names of its commands."""
    names = sorted({" ".join(one.command.path[1:]) for one in below})
    return f"Has the {'command' if len(names) == 1 else 'commands'} {', '.join(names)}."
