"""Calls into plugins: whatever a plugin raises becomes one sentence that names it.

Interfaces guard the methods that a subclass overrides, so that no caller has to remember it.
"""

from __future__ import annotations

import errno
import functools
import inspect
import signal
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from fsframework.errors import DataError, FsfError, PluginError

__all__ = [
    "about",
    "calling",
    "guard",
    "interrupt",
    "is_out_of_memory",
    "malformed",
    "named",
    "remember",
    "text_of",
    "unguarded",
]

_MOST_TEXT = 500
_ITEM: ContextVar[str] = ContextVar("item", default="")
_known: WeakKeyDictionary[type, tuple[str, str, str]] = WeakKeyDictionary()
_state = {"interrupted": False, "unguarded": 0}


def remember(cls: type, kind: str, name: str, check: str) -> None:
    """Record how messages name a class, and how its plugin is checked (a command or a call)."""
    _known[cls] = (kind, name, check)


@contextmanager
def about(item: str) -> Iterator[None]:
    """Name the item that calls in a block are about, such as ``tasks 0 to 15``."""
    token = _ITEM.set(item)
    try:
        yield
    finally:
        _ITEM.reset(token)


@contextmanager
def unguarded() -> Iterator[None]:
    """Let plugins raise and return what they like, for conformance checks."""
    _state["unguarded"] += 1
    try:
        yield
    finally:
        _state["unguarded"] -= 1


def interrupt(number: int, frame: object) -> NoReturn:
    """Handle SIGINT; with it, an interruption by the user differs from one that a plugin raises."""
    del number, frame
    _state["interrupted"] = True
    raise KeyboardInterrupt


def _is_by_user() -> bool:
    return bool(_state["interrupted"]) or signal.getsignal(signal.SIGINT) is not interrupt


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory is too small, in which case a smaller batch may work."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    # Except on CUDA, only the message of PyTorch identifies it.
    texts = ("out of memory", "can't allocate memory", "ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(text in text_of(error) for text in texts)


def text_of(error: BaseException) -> str:
    """Return type and message of an exception on one line, even if its ``str`` raises.

    >>> text_of(KeyError("a")), text_of(SystemExit())
    ("KeyError: 'a'", 'SystemExit')
    """
    name = type(error).__name__
    try:
        text = " ".join(str(error).split())
    except BaseException:
        return f"{name} (its message cannot be shown)"
    return f"{name}: {text[:_MOST_TEXT]}" if text else name


def _place(error: BaseException, cls: type) -> str:
    """Return file and line where the plugin's own code last was, such as `` (a.py, line 3)``."""
    top, found = cls.__module__.partition(".")[0], ""
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_globals.get("__name__", "").partition(".")[0] == top:
            found = f" ({Path(frame.f_code.co_filename).name}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return found


def _known_as(cls: type) -> tuple[str, str, str]:
    return _known.get(cls) or (getattr(cls, "_kind", ""), cls.__name__, "")


def named(plugin: object) -> str:
    """Return kind and name of a component, or of a class, for a message: ``method 'protonet'``."""
    kind, name, _ = _known_as(plugin if isinstance(plugin, type) else type(plugin))
    return f"{kind} {name!r}".lstrip()


def _described(cls: type, method: str, event: str, error: BaseException | None = None) -> str:
    check = _known_as(cls)[2]
    item = f" of {_ITEM.get()}" if _ITEM.get() else ""
    place = "" if error is None else _place(error, cls)
    hint = f"; check it with {check}" if check else ""
    return f"{named(cls)}: {method}{item} {event}{place}{hint}"


def malformed(plugin: object, method: str, found: str, expected: str) -> PluginError:
    """Return the error for a result that breaks the contract.

    >>> print(malformed(Path(), "scores", "complex64", "float32"))
    'PosixPath': scores returned complex64; it must return float32
    """
    event = f"returned {found}; it must return {expected}"
    return PluginError(_described(type(plugin), method, event))


def _explained(cls: type, method: str, error: BaseException) -> FsfError | None:
    """Return the error for the user, or ``None`` if this one must be raised unchanged."""
    if isinstance(error, (FsfError, GeneratorExit)) or is_out_of_memory(error):
        return None
    if isinstance(error, KeyboardInterrupt) and _is_by_user():
        return None
    text = _described(cls, method, f"raised {text_of(error)}", error)
    if not isinstance(error, OSError):
        return PluginError(text)
    # What cannot be read is at fault, not the plugin.
    full = error.errno in (errno.ENOSPC, errno.EPIPE)
    return None if full else DataError(text, reason=text_of(error))


@contextmanager
def calling(cls: type, method: str) -> Iterator[None]:
    """Explain what a class of a plugin raises in a block.

    Raises:
        PluginError: it raised what no contract allows, ``SystemExit`` for one.
        DataError: it raised an ``OSError``.
    """
    try:
        yield
    except BaseException as error:
        explained = _explained(cls, method, error)
        if explained is None or _state["unguarded"]:
            raise
        raise explained from error


def guard(cls: type, contract: Mapping[str, Any]) -> None:
    """Explain what the methods and properties of a class raise, and check what they return.

    Args:
        contract: what the interface declares, by name; of a method the function, whose return
            annotation is what the result must be an instance of.
    """
    for name, declared in contract.items():
        owner = next((base for base in cls.__mro__ if name in vars(base)), object)
        if owner is not cls and hasattr(owner, "_contract"):
            continue  # an interface, or a component that is guarded itself
        found = vars(owner).get(name)
        if getattr(found, "__isabstractmethod__", False):
            continue
        if isinstance(found, types.FunctionType):
            setattr(cls, name, _guarded(name, found, declared))
        elif isinstance(found, property) and found.fget is not None:
            fget = _guarded(name, found.fget, None)
            setattr(cls, name, property(fget, found.fset, found.fdel, found.__doc__))
        elif isinstance(found, functools.cached_property):
            kept = functools.cached_property(_guarded(name, found.func, None))
            kept.__set_name__(cls, name)
            setattr(cls, name, kept)


def _guarded(name: str, function: Callable[..., Any], declared: Any) -> Callable[..., Any]:
    expected: list[tuple[type, ...]] = []

    @functools.wraps(function)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if _state["unguarded"]:
            return function(self, *args, **kwargs)
        try:
            result = function(self, *args, **kwargs)
        except BaseException as error:
            explained = _explained(type(self), name, error)
            if explained is None:
                raise
            raise explained from error
        if not expected:  # resolved once, when the annotated modules have been loaded
            expected.append(_types_of(declared))
        if expected[0] and not isinstance(result, expected[0]):
            wanted = " or ".join(one.__name__ for one in expected[0])
            raise malformed(self, name, f"a {type(result).__name__}", f"a {wanted}")
        if isinstance(result, Iterator):
            return _iterated(type(self), name, result)
        return result

    return call


def _iterated(cls: type, name: str, items: Iterator[Any]) -> Iterator[Any]:
    with calling(cls, name):
        yield from items


def _types_of(declared: Any) -> tuple[type, ...]:
    """Return the classes that a declared result may be of; none if any will do.

    >>> def many() -> list[int] | None: ...
    >>> _types_of(many)
    (<class 'list'>, <class 'tuple'>, <class 'NoneType'>)
    """
    if not inspect.isfunction(declared):
        return ()
    annotation = typing.get_type_hints(declared).get("return", Any)
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    found: list[type] = []
    for one in typing.get_args(annotation) if union else (annotation,):
        cls = typing.get_origin(one) or one
        if not isinstance(cls, type):
            return ()
        found += [list, tuple] if cls is list else [cls]
    return tuple(found)
