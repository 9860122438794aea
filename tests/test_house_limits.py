"""Limits of the house on functions: how long they are and how many values they take."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_LINES = 80
MOST_PARAMETERS = 7

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions() -> Iterator[tuple[Path, Function]]:
    for path in sorted((ROOT / "fsframework").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, Function):
                yield path.relative_to(ROOT), node


def lines_of(function: Function) -> int:
    """Lines from ``def`` to the end of the body, without the docstring."""
    assert function.end_lineno is not None
    whole = function.end_lineno - function.lineno + 1
    first = function.body[0]
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        assert first.end_lineno is not None
        whole -= first.end_lineno - first.lineno + 1
    return whole


def parameters_of(function: Function) -> int:
    """Number of parameters without ``self`` or ``cls``, ``*args`` and ``**kwargs``."""
    given = function.args
    names = [p.arg for p in (*given.posonlyargs, *given.args)]
    bound = bool(names) and names[0] in ("self", "cls")
    return len(names) - bound + len(given.kwonlyargs)


def is_command(function: Function) -> bool:
    """Whether a decorator makes the function a command or a group of commands."""
    called = (d.func for d in function.decorator_list if isinstance(d, ast.Call))
    names = (f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "") for f in called)
    return any(name in ("command", "group") for name in names)


def is_public_call(path: Path, function: Function) -> bool:
    """Whether it is a call of the public API, which has an option for each argument."""
    return path.parts[:2] == ("fsframework", "api") and not function.name.startswith("_")


def test_no_function_is_longer_than_a_screen() -> None:
    long = {
        f"{path}:{f.lineno} {f.name}": lines_of(f)
        for path, f in functions()
        if lines_of(f) > MOST_LINES
    }
    assert long == {}


def test_no_function_takes_too_many_values() -> None:
    greedy = {
        f"{path}:{f.lineno} {f.name}": parameters_of(f)
        for path, f in functions()
        if parameters_of(f) > MOST_PARAMETERS and not is_command(f) and not is_public_call(path, f)
    }
    assert greedy == {}


def test_the_limits_are_measured_as_they_are_meant() -> None:
    source = '''
@group.command("make")
def make(a, b, c, d, e, f, g, h):
    """One line.

    And more.
    """
    return a


class Held:
    def method(self, a, *rest, b=1, **more):
        return a
'''
    found = [n for n in ast.walk(ast.parse(source)) if isinstance(n, Function)]
    make, method = sorted(found, key=lambda f: f.lineno)
    assert (lines_of(make), parameters_of(make), is_command(make)) == (2, 8, True)
    assert (lines_of(method), parameters_of(method), is_command(method)) == (2, 2, False)
