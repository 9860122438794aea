"""Docstrings and tables as Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

__all__ = ["Docstring", "escaped", "read_docstring", "table", "toctree"]

_SECTION = re.compile(r"^([A-Z]\w+):$")
_ENTRY = re.compile(r"^    ([\w.*-]+): (.*)$")


@dataclass
class Docstring:
    """The parts of a docstring, as Markdown.

    Args:
        summary: its first line.
        body: the paragraphs after it.
        sections: entries by the title of a section and the name of an entry, such as ``Args``.
    """

    summary: str
    body: str = ""
    sections: dict[str, dict[str, str]] = field(default_factory=dict)

    def listed(self, title: str) -> str:
        """Return a section as a list with its title; empty if there is none."""
        entries = self.sections.get(title, {}).items()
        lines = "\n".join(f"- `{name}`: {text}" for name, text in entries)
        return f"{title}:\n\n{lines}" if lines else ""


def read_docstring(text: str) -> Docstring:
    """Take a docstring apart; double backticks become single ones."""
    summary, _, rest = inspect.cleandoc(text).replace("``", "`").partition("\n\n")
    found = Docstring(escaped(" ".join(summary.split())))
    body: list[str] = []
    title, name = "", ""
    for line in rest.splitlines():
        if section := _SECTION.match(line):
            title, name = section[1], ""
            found.sections[title] = {}
        elif title and (entry := _ENTRY.match(line)):
            name = entry[1]
            found.sections[title][name] = escaped(entry[2])
        elif title and line.startswith("    "):
            if name:
                found.sections[title][name] += " " + escaped(line.strip())
        elif line or not title:
            title = ""
            body.append(line)
    found.body = _blocks(body)
    return found


def _blocks(lines: Sequence[str]) -> str:
    """Return paragraphs, with examples and indented text in fences."""
    parts = []
    for block in "\n".join(lines).split("\n\n"):
        if block.startswith(">>> "):
            parts.append(f"```pycon\n{block}\n```")
        elif block.startswith("    "):
            parts.append(f"```text\n{inspect.cleandoc(block)}\n```")
        else:
            text = re.sub(r"^(Source|Caveats|Licence): ", r"**\1.** ", escaped(block))
            parts.append(text[:-1] if text.endswith("::") else text)
    return "\n\n".join(parts)


def escaped(text: str) -> str:
    """Return text whose signs have no meaning in Markdown, outside of backticks.

    >>> escaped("a < b, `x < y`")
    'a &lt; b, `x < y`'
    """
    parts = text.split("`")
    signs = {"<": "&lt;", "*": r"\*", "[": r"\[", "]": r"\]"}
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"[<*\[\]]", lambda sign: signs[sign[0]], parts[i])
    return "`".join(parts)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [list(heads), ["---"] * len(heads), *rows]
    cells = (["" if c is None else str(c).replace("|", r"\|") for c in line] for line in lines)
    return "\n".join("| " + " | ".join(line) + " |" for line in cells) + "\n"


def toctree(names: Iterable[str], *, hidden: bool = True) -> str:
    """Return a list of the pages below a page."""
    shown = ":hidden:\n" if hidden else ""
    return "\n".join(["```{toctree}", f":maxdepth: 1\n{shown}", *names, "```\n"])
