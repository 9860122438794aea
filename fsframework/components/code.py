"""Digests of the code of a class, so that edited code never passes for the old."""

from __future__ import annotations

import functools
import types
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fsframework._digest import digest_of
from fsframework.components.sources import module_file, sources_digest

__all__ = ["code_digest"]

Part = str | bytes

_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_LEFT_OUT = frozenset(
    {
        *("__dict__", "__weakref__", "__doc__", "__firstlineno__", "__static_attributes__"),
        *("__abstractmethods__", "_abc_impl", "__parameters__", "__annotations__"),
    }
)
"""Entries of a class that do not affect its behaviour, or that repeat its bases."""


def code_digest(cls: type[Any]) -> str:
    """Digest the code of a class: its module and what that imports, or the class itself.

    A class of a package or a script is digested by the modules that it consists of, see
    ``sources_digest``. One typed into a notebook or a shell has no file: it is digested with its
    methods, its bases and everything that they refer to there. What cannot be digested makes the
    digest unique, so that nothing computed with it is reused.
    """
    if module_file(cls.__module__) is None:
        return digest_of(*_parts(cls, {}))
    return sources_digest(cls)


def _parts(value: Any, seen: dict[int, int]) -> Iterator[Part]:
    """Yield the parts of a value, each object once."""
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}"
        return
    if id(value) in seen:
        yield f"seen {seen[id(value)]}"
        return
    seen[id(value)] = len(seen)
    for types_, walk in _WALKS:
        if isinstance(value, types_):
            yield from walk(value, seen)
            return
    yield from _other(value)


def _sequence(value: Any, seen: dict[int, int]) -> Iterator[Part]:
    yield f"{type(value).__name__} {len(value)}"
    for one in value:
        yield from _parts(one, seen)


def _set(value: Any, seen: dict[int, int]) -> Iterator[Part]:
    yield f"{type(value).__name__} {len(value)}"
    yield from sorted(digest_of(*_parts(one, dict(seen))) for one in value)


def _mapping(value: Mapping[Any, Any], seen: dict[int, int]) -> Iterator[Part]:
    yield f"mapping {len(value)}"
    for item in value.items():
        for one in item:
            yield from _parts(one, seen)


def _wrapped(value: Any, seen: dict[int, int]) -> Iterator[Part]:
    yield type(value).__name__
    for name in ("__func__", "func", "fget", "fset", "fdel"):
        if hasattr(value, name):
            yield from _parts(getattr(value, name), seen)


def _other(value: Any) -> Iterator[Part]:
    if isinstance(value, types.ModuleType):
        yield f"module {value.__name__} {getattr(value, '__version__', '')}"
    elif hasattr(value, "tobytes") and hasattr(value, "dtype"):
        yield f"array {value.dtype} {value.shape}"
        yield bytes(value.tobytes())
    elif getattr(value, "__module__", None) and getattr(value, "__qualname__", None):
        yield f"named {value.__module__}.{value.__qualname__}"
    else:
        yield uuid.uuid4().hex


def _class(cls: type[Any], seen: dict[int, int]) -> Iterator[Part]:
    yield f"class {cls.__module__}.{cls.__qualname__}"
    if module_file(cls.__module__):
        return
    for base in cls.__bases__:
        yield from _parts(base, seen)
    for name, value in sorted(vars(cls).items()):
        if name not in _LEFT_OUT:
            yield name
            yield from _parts(value, seen)


def _function(function: Any, seen: dict[int, int]) -> Iterator[Part]:
    yield f"function {function.__module__}.{function.__qualname__}"
    if module_file(function.__module__):
        return
    yield from _parts(function.__code__, seen)
    yield from _parts(function.__defaults__, seen)
    yield from _parts(function.__kwdefaults__, seen)
    for cell in function.__closure__ or ():
        yield from _parts(cell.cell_contents, seen)
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__:
            yield name
            yield from _parts(function.__globals__[name], seen)


def _code(code: types.CodeType, seen: dict[int, int]) -> Iterator[Part]:
    yield code.co_code
    yield " ".join((*code.co_names, *code.co_varnames, *code.co_freevars))
    for constant in code.co_consts:
        yield from _parts(constant, seen)


_WALKS: tuple[tuple[Any, Callable[[Any, dict[int, int]], Iterator[Part]]], ...] = (
    ((tuple, list), _sequence),
    ((set, frozenset), _set),
    (Mapping, _mapping),
    ((staticmethod, classmethod, property, functools.cached_property), _wrapped),
    (types.FunctionType, _function),
    (types.CodeType, _code),
    (type, _class),
)
"""How the parts of a value are found, by its type."""


def _names(code: types.CodeType) -> set[str]:
    """Return the global names that a function and those within it refer to."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found
