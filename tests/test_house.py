"""The rules of the house that tools can check: lint, format, layers, names."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST_LINES = 80


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        ("lint-imports",),
    ],
    ids=" ".join,
)
def test_the_tool_finds_nothing(command: tuple[str, ...]) -> None:
    tool = Path(sys.executable).parent / command[0]
    done = subprocess.run(
        [tool, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_function_is_longer_than_a_screen() -> None:
    """Without its docstring. Ruff limits the number of arguments."""
    long = []
    for path in (ROOT / "fsframework").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                told = len((ast.get_docstring(node, clean=False) or "").splitlines())
                if node.end_lineno - node.lineno + 1 - told > MOST_LINES:
                    long.append(f"{path}:{node.lineno} {node.name}")
    assert long == []


def _ours(module: str | None) -> bool:
    return bool(module) and module.startswith(("fsframework", "fsf_"))


@pytest.mark.parametrize("path", sorted(ROOT.glob("benchmarks/*.py")), ids=lambda path: path.stem)
def test_a_script_names_only_what_there_is(path: Path) -> None:
    """Scripts take hours, so that no test runs them: what they import of ours must exist."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    modules = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and _ours(node.module):
            for name in node.names:
                assert hasattr(__import__(node.module, fromlist=[name.name]), name.name), name.name
        elif isinstance(node, ast.Import):
            modules |= {n.asname or n.name: n.name for n in node.names if _ours(n.name)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            assert module is None or hasattr(importlib.import_module(module), node.attr), node.attr
