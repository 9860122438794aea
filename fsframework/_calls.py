"""Calls into plugins: whatever a plugin raises becomes one sentence that names it.

Interfaces guard the methods that a subclass overrides, so that no caller has to remember it.
"""

from __future__ import annotations

import errno
import functools
import inspect
import signal
import traceback
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from fsframework.errors import DataError, FsfError, PluginError

__all__ = [
    "Called",
    "about",
    "calling",
    "guard",
    "interrupt",
    "is_interruption",
    "is_out_of_memory",
    "is_raised_by",
    "malformed",
    "named",
    "remember",
    "text_of",
    "unguarded",
    "without_guard",
]

_MOST_TEXT = 500
_GUARDED = "_guarded_function"


@dataclass(frozen=True)
class Called:
    """A plugin as messages name it.

    Args:
        kind: of the plugin; ``name`` its name.
        package: its top-level module, in whose code a fault is located.
        check: how the plugin is checked: a command or a call.
    """

    kind: str
    name: str
    package: str
    check: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}".lstrip()


_ITEM: ContextVar[str] = ContextVar("item", default="")
_known: WeakKeyDictionary[type, Called] = WeakKeyDictionary()
_state = {"interrupted": False, "unguarded": 0}


def remember(cls: type, kind: str, name: str, check: str) -> None:
    """Record how messages name a class, and how its plugin is checked (a command or a call)."""
    _known[cls] = Called(kind, name, _package(cls.__module__), check)


def named(plugin: object) -> Called:
    """Return how messages name a component or a class, such as ``method 'protonet'``."""
    cls = plugin if isinstance(plugin, type) else type(plugin)
    usual = Called(getattr(cls, "_kind", ""), cls.__name__, _package(cls.__module__))
    return _known.get(cls, usual)


def _package(module: str) -> str:
    return module.partition(".")[0]


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


def is_interruption(error: BaseException) -> bool:
    """Return whether an exception is an interruption by the user, and not one by a plugin.

    Where ``interrupt`` does not handle SIGINT, as in a notebook, every ``KeyboardInterrupt`` is.
    """
    told = bool(_state["interrupted"]) or signal.getsignal(signal.SIGINT) is not interrupt
    return isinstance(error, KeyboardInterrupt) and told


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


def _frames(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield the package of each frame that an exception passed, outermost first, and the place."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = frame.f_globals.get("__name__", "")
        yield _package(name), f" ({Path(frame.f_code.co_filename).name}, line {line})"


def is_raised_by(error: BaseException, package: str) -> bool:
    """Return whether an exception was raised by or through a package, and not by this one."""
    ours = _package(__name__)
    passed = [name for name, _ in _frames(error) if name in (package, ours)]
    return bool(passed) and passed[-1] != ours


def _described(called: Called, method: str, event: str, error: BaseException | None = None) -> str:
    item = f" of {_ITEM.get()}" if _ITEM.get() else ""
    places = [] if error is None else [p for name, p in _frames(error) if name == called.package]
    hint = f"; check it with {called.check}" if called.check else ""
    return f"{called}: {method}{item} {event}{places[-1] if places else ''}{hint}"


def malformed(plugin: object, method: str, found: str, expected: str) -> PluginError:
    """Return the error for a result that breaks the contract.

    >>> print(malformed(Path(), "scores", "complex64", "float32"))
    'PosixPath': scores returned complex64; it must return float32
    """
    event = f"returned {found}; it must return {expected}"
    return PluginError(_described(named(plugin), method, event))


def _explained(called: Called, method: str, error: BaseException) -> Exception | None:
    """Return the error for the user, or ``None`` if this one must be raised unchanged."""
    if isinstance(error, FsfError) or is_interruption(error):
        return None
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return None
    text = _described(called, method, f"raised {text_of(error)}", error)
    if is_out_of_memory(error):
        return MemoryError(text)
    # What cannot be read is at fault, not the plugin.
    return (
        DataError(text, reason=text_of(error)) if isinstance(error, OSError) else PluginError(text)
    )


@contextmanager
def calling(called: Called, method: str) -> Iterator[None]:
    """Explain what a plugin raises in a block.

    Raises:
        PluginError: it raised what no contract allows, ``SystemExit`` for one.
        DataError: it raised an ``OSError``.
        MemoryError: memory was too small.
    """
    try:
        yield
    except BaseException as error:
        explained = _explained(called, method, error)
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
            explained = _explained(named(self), name, error)
            if explained is None:
                raise
            raise explained from error
        if not expected:  # resolved once, when the annotated modules have been loaded
            expected.append(_types_of(declared))
        if expected[0] and not isinstance(result, expected[0]):
            wanted = " or ".join(map(_type_name, expected[0]))
            raise malformed(self, name, f"a result of type {_type_name(type(result))}", wanted)
        if isinstance(result, Iterator):
            return _iterated(named(self), name, result)
        return result

    setattr(call, _GUARDED, function)
    return call


def without_guard(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that a guard was put around, or the function itself."""
    found: Callable[..., Any] = vars(function).get(_GUARDED, function)
    return found


def _type_name(cls: type) -> str:
    return "None" if cls is types.NoneType else cls.__name__


def _iterated(called: Called, name: str, items: Iterator[Any]) -> Iterator[Any]:
    with calling(called, name):
        try:
            yield from items
        except GeneratorExit:  # its reader needs no more
            return


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
        if cls is Any or not isinstance(cls, type):
            return ()
        found += [list, tuple] if cls is list else [cls]
    return tuple(found)
