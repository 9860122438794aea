"""Why a check fails: the smallest example that fails, the line at fault, code that repeats it."""

from __future__ import annotations

import ast
import linecache
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from fsframework.components.kinds import kind_of
from fsframework.testing._example import asked, given_pool, smallest

__all__ = ["Failure", "failure_of", "place_in", "repeated", "shrunk"]

_PATIENCE = 10.0
"""Seconds in which a smaller example is looked for."""


@dataclass(frozen=True)
class Failure:
    """How a check fails.

    Args:
        error: what it raised.
        call: the last call of the component, in words.
        asked: the least and the usual number of what the check takes.
        sizes: the numbers in the example that failed.
    """

    error: BaseException
    call: str
    asked: Mapping[str, tuple[int, int]]
    sizes: Mapping[str, int] = field(default_factory=dict)

    def is_like(self, other: Failure) -> bool:
        """Return whether two failures are of one kind, apart from numbers."""
        return type(self.error) is type(other.error) and _gist(self.error) == _gist(other.error)


def _gist(error: BaseException) -> str:
    found = re.match(r"[^\d:(\[]*", str(error))
    return found[0] if found else ""


def failure_of(
    check: Callable[[], object], *, passes: tuple[type[BaseException], ...]
) -> Failure | None:
    """Run a check and return how it fails, if it does.

    Args:
        check: to run.
        passes: errors that are raised on, because the component did not cause them.
    """
    with asked() as taken:
        try:
            check()
        except passes:
            raise
        # A plugin may raise anything, including SystemExit; none of it may end the report.
        except (Exception, SystemExit) as error:
            return Failure(error, taken.call, taken.sizes)
    return None


def shrunk(
    check: Callable[[], object],
    failure: Failure,
    *,
    passes: tuple[type[BaseException], ...],
) -> Failure:
    """Return how a check fails in the smallest example that fails in the same way."""
    found = [failure]
    end = time.monotonic() + _PATIENCE

    def fails() -> bool:
        if time.monotonic() > end:
            return False
        try:
            other = failure_of(check, passes=passes)
        except passes:
            return False
        if other is None or not other.is_like(failure):
            return False
        found.append(other)
        return True

    sizes = smallest(fails, failure.asked)
    last = found[-1]
    return Failure(last.error, last.call, failure.asked, sizes)


def place_in(error: BaseException, cls: type) -> str:
    """Return the line of a class's own module that an exception passed last; empty without any."""
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        if frame.f_globals.get("__name__") == cls.__module__:
            file = frame.f_code.co_filename
            text = linecache.getline(file, line).strip()
            return f"{Path(file).name}, line {line}" + (f": {text}" if text else "")
    return ""


def repeated(check: str, home: str, component: object, sizes: Mapping[str, int]) -> str:
    """Return lines of Python that repeat a failure; empty where an option cannot be spelt.

    Args:
        check: its name.
        home: the module that has the checks of the kind.
        component: one that fails.
        sizes: of the example that fails.
    """
    names: dict[str, str] = {}
    try:
        made = _spelt(component, names)
    except LookupError:
        return ""
    make = made.removesuffix("()") if made.endswith("()") else f"lambda: {made}"
    call = f"suite[{check!r}]({make})".replace("'", '"', 2)
    given = [f"{name}={number}" for name, number in sizes.items()]
    given = (["pool=pool"] if given_pool() is not None else []) + given
    lines = [f"from {home} import suite"]
    lines += ["from fsframework.testing import example"] if given else []
    lines += [f"from {module} import {name}" for name, module in sorted(names.items())]
    if not given:
        return "\n".join([*lines, "", call])
    return "\n".join([*lines, "", f"with example({', '.join(given)}):", f"    {call}"])


def _spelt(value: Any, names: dict[str, str]) -> str:
    """Return an expression for a value, and add the classes in it and their modules to ``names``.

    Raises:
        LookupError: there is none.
    """
    if kind_of(value) is None or not hasattr(type(value), "stored_as"):
        text = repr(value)
        try:
            same = ast.literal_eval(text) == value
        except (ValueError, TypeError, SyntaxError):
            same = False
        if same is not True:
            raise LookupError(text)
        return text
    from fsframework.testing._suite import options_of

    cls = type(value)
    if "<locals>" in cls.__qualname__:
        raise LookupError(cls.__qualname__)
    names[cls.__qualname__.partition(".")[0]] = _as_imported(cls.__module__)
    given = []
    for name, parameter in options_of(cls).items():
        place = cls.stored_as.get(name, name)
        if not hasattr(value, place):
            raise LookupError(name)
        own = getattr(value, place)
        if not _is_default(own, parameter.default):
            given.append(f"{name}={_spelt(own, names)}")
    return f"{cls.__qualname__}({', '.join(given)})"


def _is_default(own: Any, default: Any) -> bool:
    return own is default or (type(own) is type(default) and repr(own) == repr(default))


def _as_imported(module: str) -> str:
    """Return the name that a module has for those who import it, in its folder if it is a file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    # PathFinder does not look into ``sys.modules``, where a file given with ``--plugin`` is.
    if file is None or PathFinder.find_spec(module.partition(".")[0]) is not None:
        return module
    return Path(file).stem
