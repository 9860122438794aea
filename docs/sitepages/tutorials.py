"""The tutorials, from scripts with cells (``# %%``) of Markdown, Python and commands.

``python docs/make_tutorials.py [NAME...]`` runs them and keeps what they show.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import json
import re
import shlex
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["FOLDER", "NEEDED", "Cell", "cells", "outputs", "pages", "shown"]

FOLDER = Path(__file__).resolve().parents[1] / "tutorials"
_SHARED = FOLDER.parents[2] / "shared" / "data"
NEEDED = {"domains": {"pacs.zip": _SHARED / "pacs_112.zip"}}
"""Files that a tutorial expects in the current folder; no package may carry them."""


class Cell(NamedTuple):
    """A cell of a script.

    Args:
        kind: ``markdown``, ``python`` or ``sh``.
        text: without the marks of comments.
    """

    kind: str
    text: str

    @property
    def key(self) -> str:
        """A digest of the cell, by which its output is kept."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]


def cells(path: Path) -> list[Cell]:
    """Return the cells of a script in the percent format of jupytext."""
    found = []
    for part in re.split(r"^# %%", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        plain = "\n".join(re.sub("^# ?", "", line) for line in body.splitlines()).strip()
        if "[markdown]" in head:
            found.append(Cell("markdown", plain))
        elif "bash" in head:
            found.append(Cell("sh", plain))
        else:
            found.append(Cell("python", body.strip()))
    return found


def pages() -> dict[str, str]:
    """Return a page for each script of ``docs/tutorials``."""
    return {f"tutorials/{path.stem}.md": page(path) for path in sorted(FOLDER.glob("*.py"))}


def page(path: Path) -> str:
    """Return a script as Markdown, with what its cells print."""
    parts, printed = [], shown(path)
    for cell in cells(path):
        if cell.kind == "markdown":
            parts.append(cell.text)
            continue
        parts.append(f"```{cell.kind}\n{cell.text}\n```")
        if output := printed.get(cell.key):
            parts.append(f"```text\n{output}\n```")
    return "\n\n".join([*parts, f"{{download}}`The script <{path.name}>` of this page.", ""])


def shown(path: Path) -> dict[str, str]:
    """Return what the cells of a script print, by their keys."""
    kept = FOLDER / "shown" / f"{path.stem}.json"
    found: dict[str, str] = json.loads(kept.read_text(encoding="utf-8"))
    return found


def outputs(path: Path, replaced: tuple[tuple[str, str], ...] = ()) -> Iterator[tuple[Cell, str]]:
    """Run a script in the current folder; yield each cell of code and what it prints.

    Args:
        path: of the script.
        replaced: patterns and what stands for them, such as fewer tasks.
    """
    module = types.ModuleType(path.stem.replace("-", "_"))
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # as for a script: its classes are digested with it
    try:
        for cell in cells(path):
            if cell.kind != "markdown":
                text = cell.text
                for pattern, new in replaced:
                    text = re.sub(pattern, new, text)
                with contextlib.redirect_stdout(io.StringIO()) as told:
                    (_call if cell.kind == "sh" else _execute)(text, module)
                yield cell, _wrapped(told.getvalue())
    finally:
        del sys.modules[module.__name__]


def _wrapped(told: str) -> str:
    """Return what was printed, sentences in lines that fit on a page, paths from here."""
    lines = told.replace(f"{Path.cwd()}/", "").strip("\n").splitlines()
    found = (line if "  " in line.strip() else textwrap.fill(line, 84) for line in lines)
    return "\n".join(line.rstrip() for line in found)


def _call(text: str, module: types.ModuleType) -> None:
    """Run the commands of a cell in this process."""
    from fsframework.cli.main import cli

    del module
    for line in text.replace("\\\n", " ").splitlines():
        name, *words = shlex.split(line, comments=True)
        assert name == "fsf", line
        cli.main(words, prog_name="fsf", standalone_mode=False)


def _execute(text: str, module: types.ModuleType) -> None:
    """Run a cell of Python; print the value of its last line, as a notebook does."""
    body = ast.parse(text).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), module.__name__, "exec"), vars(module))
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), module.__name__, "eval"), vars(module))
        if value is not None and not isinstance(value, Path):  # the page shows the figure
            print(value)
