"""The reference of the command line, made from its commands."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from fsframework.cli.groups import SECTIONS, InstalledEntry
from fsframework.cli.main import cli
from fsframework.cli.options import GroupedCommand
from sitepages.markdown import escaped, table, toctree

__all__ = ["pages"]

HEAD = """# Commands

`fsf COMMAND --help` shows the same in a terminal. `--verbose`, anywhere, adds a traceback to an
error; `--version` prints the version. The exit code is 0 for success, 1 where a check
finds a fault, and 2 for a wrong option or input.
"""


def pages() -> dict[str, str]:
    """Return a page for each command of ``fsf``, and the list of them."""
    root = click.Context(cli, info_name="fsf")
    found, listed = {}, defaultdict(list)
    for name in cli.list_commands(root):
        entry = cli.get_command(root, name)
        assert isinstance(entry, InstalledEntry)
        listed[entry.group].append((f"[`fsf {name}`]({name}.md)", entry.short_help))
        found[f"reference/commands/{name}.md"] = f"# fsf {name}\n\n" + "\n".join(
            _told(entry.load(), click.Context(entry, root, info_name=name), 2)
        )
    lines = [HEAD]
    for section in [*SECTIONS, *(other for other in listed if other not in SECTIONS)]:
        if section in listed:
            lines += [f"## {section}\n", table(("command", "what it does"), listed[section])]
    names = [page.removeprefix("reference/commands/") for page in found]
    found["reference/commands/index.md"] = "\n".join([*lines, toctree(names)])
    return found


def _told(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    """Yield the help of a command, and of those below it, as Markdown."""
    context = click.Context(command, context.parent, info_name=context.info_name)
    yield from _help(command.help or command.short_help or "")
    usage = f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    yield f"```text\n{usage}\n```\n"
    options = GroupedCommand if isinstance(command, GroupedCommand) else click.Command
    recorder = _Recorder()
    options.format_options(command, context, recorder)
    for title, rows in recorder.sections.items():
        told = [(f"`{name}`", _text(text)) for name, text in rows]
        yield table((title, "meaning"), told)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            below = below.load() if isinstance(below, InstalledEntry) else below
            inner = click.Context(below, context, info_name=name)
            yield f"{'#' * level} {inner.command_path}\n"
            yield from _told(below, inner, level + 1)


class _Recorder(click.HelpFormatter):
    """Keeps the sections of a help, without the option ``--help``, instead of writing them."""

    def __init__(self) -> None:
        super().__init__()
        self.sections: dict[str, list[tuple[str, str]]] = {}
        self._title = ""

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Note the title of a section."""
        self._title = name
        yield

    def write_dl(self, rows: Sequence[tuple[str, str]], *_: Any, **__: Any) -> None:
        """Keep the rows of a section."""
        if found := [row for row in rows if "--help" not in row[0]]:
            self.sections.setdefault(self._title, []).extend((a.strip(), b) for a, b in found)


def _text(text: str) -> str:
    """Return plain text as Markdown, with the options in it as code."""
    return re.sub(r"(?<![\w-])(--[a-z][\w-]*)", r"`\1`", escaped(" ".join(text.split())))


def _help(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; those that keep their lines are examples."""
    for block in inspect.cleandoc(text).split("\n\n"):
        lines = block.removeprefix("\b\n").splitlines()
        if not lines[-1].startswith("  "):
            yield _text(" ".join(lines)) + "\n"
            continue
        if not lines[0].startswith(" "):
            yield f"{escaped(lines.pop(0))}\n"
        yield "```text\n" + inspect.cleandoc("\n".join(lines)) + "\n```\n"
