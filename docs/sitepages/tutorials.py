"""The tutorials, from scripts with cells (``# %%``) of Markdown and Python."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["pages"]

FOLDER = Path(__file__).resolve().parents[1] / "tutorials"
_CELL = re.compile(r"^# %%", re.MULTILINE)


def pages() -> dict[str, str]:
    """Return a page for each script of ``docs/tutorials``."""
    return {f"tutorials/{path.stem}.md": page(path) for path in FOLDER.glob("*.py")}


def page(path: Path) -> str:
    """Return a script as Markdown: comments of Markdown cells as text, code in fences."""
    parts = []
    for cell in _CELL.split(path.read_text(encoding="utf-8"))[1:]:
        kind, _, body = cell.partition("\n")
        if "[markdown]" in kind:
            lines = (line.removeprefix("#").removeprefix(" ") for line in body.splitlines())
            parts.append("\n".join(lines).strip())
        elif body.strip():
            parts.append(f"```python\n{body.strip()}\n```")
    return "\n\n".join([*parts, f"{{download}}`The script <{path.name}>`", ""])
