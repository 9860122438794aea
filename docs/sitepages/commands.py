"""The reference of the command line, made from its commands."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import click

from fsframework.cli.groups import SECTIONS, InstalledEntry
from fsframework.cli.main import cli
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
    for title, options in _sections(command):
        records = [option.get_help_record(context) for option in options]
        rows = [(f"`{one[0]}`", escaped(" ".join(one[1].split()))) for one in records if one]
        if rows:
            yield table((title, "meaning"), rows)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            below = below.load() if isinstance(below, InstalledEntry) else below
            inner = click.Context(below, context, info_name=name)
            yield f"{'#' * level} {inner.command_path}\n"
            yield from _told(below, inner, level + 1)


def _sections(command: click.Command) -> Iterator[tuple[str, Sequence[click.Parameter]]]:
    """Yield the options in the sections of the help, without that of ``--help`` itself."""
    grouped = [(group.title, group.options) for group in getattr(command, "option_groups", [])]
    inside = [option for _, options in grouped for option in options]
    others = [p for p in command.params if isinstance(p, click.Option) and p not in inside]
    for title, options in (*grouped, ("Options", others)):
        yield title, [one for one in options if "--help" not in one.opts]


def _help(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; those that keep their lines are examples."""
    for block in inspect.cleandoc(text).split("\n\n"):
        lines = block.removeprefix("\b\n").splitlines()
        if not lines[-1].startswith("  "):
            yield re.sub(r"(?<![\w-])(--[a-z][\w-]*)", r"`\1`", escaped(" ".join(lines))) + "\n"
            continue
        if not lines[0].startswith(" "):
            yield f"{escaped(lines.pop(0))}\n"
        yield "```text\n" + inspect.cleandoc("\n".join(lines)) + "\n```\n"
