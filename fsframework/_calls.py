"""Faults of plugins: whatever one raises becomes one sentence that names it, at one boundary.

Plugins are called without ceremony. Where an exception leaves the engine, ``contained`` finds the
component that it passed last in its traceback.
"""

from __future__ import annotations

import errno
import random
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, NoneType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from fsframework.errors import DataError, FsfError, PluginError

__all__ = [
    "Called",
    "about",
    "checked",
    "contained",
    "entered",
    "generator_states",
    "is_out_of_memory",
    "is_raised_by",
    "item",
    "malformed",
    "named",
    "remember",
    "reseed",
    "seeded",
    "text_of",
    "top_level",
]

_MOST_TEXT = 500
_OF = "fsframework: of "
"""Begins the note of an exception with the item that a call was about."""
_Result = TypeVar("_Result")


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
        return f"{self.kind} {self.name!r}".lstrip() if self.name else self.kind


_ITEM: ContextVar[str] = ContextVar("item", default="")
_known: WeakKeyDictionary[type, Called] = WeakKeyDictionary()


def remember(cls: type, kind: str, name: str, check: str) -> None:
    """Record how messages name a class, and how its plugin is checked (a command or a call)."""
    usual = Called(kind, name, top_level(cls.__module__), check)
    _known[cls] = vars(cls).get("_label", usual)


def named(plugin: object) -> Called:
    """Return how messages name a component or a class, such as ``method 'protonet'``."""
    if isinstance(plugin, Called):
        return plugin
    cls = plugin if isinstance(plugin, type) else type(plugin)
    usual = Called(getattr(cls, "_kind", ""), cls.__name__, top_level(cls.__module__))
    return _known.get(cls, usual)


def top_level(target: str) -> str:
    """Return the top-level package of a module, or of a target ``module:attribute``.

    >>> top_level("fsf_reports.figures:figure")
    'fsf_reports'
    """
    return target.partition(":")[0].partition(".")[0]


@contextmanager
def about(item: str) -> Iterator[None]:
    """Name the item that calls in a block are about, such as ``tasks 0 to 15``."""
    token = _ITEM.set(item)
    try:
        yield
    except BaseException as error:
        if not isinstance(error, FsfError):
            error.add_note(f"{_OF}{item}")
        raise
    finally:
        _ITEM.reset(token)


def item() -> str:
    """Return the item that calls are about now; empty if none is named."""
    return _ITEM.get()


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


def malformed(plugin: object, method: str, found: str, expected: str) -> PluginError:
    """Return the error for a result that breaks the contract.

    >>> print(malformed(Path(), "scores", "complex64", "float32"))
    'PosixPath': scores returned complex64; it must return float32
    """
    event = f"returned {found}; it must return {expected}"
    return PluginError(_described(named(plugin), method, _ITEM.get(), event))


def checked(plugin: object, method: str, found: _Result, *expected: Any) -> _Result:
    """Return what a plugin returned if it is of an expected type.

    Raises:
        PluginError: it is not.
    """
    if isinstance(found, expected):
        return found
    names = ["None" if cls is NoneType else cls.__name__ for cls in (type(found), *expected)]
    raise malformed(plugin, method, f"a result of type {names[0]}", " or ".join(names[1:]))


@contextmanager
def contained(fallback: Called | None = None, method: str = "") -> Iterator[None]:
    """Explain what a component raises in a block, at the outermost call of the engine.

    Args:
        fallback: whom an exception is ascribed to that passed through no component's code;
            ``method`` names what was called.

    Raises:
        PluginError: it raised what no contract allows, ``SystemExit`` for one.
        DataError: it raised an ``OSError``: what cannot be read is at fault, not the plugin.
        MemoryError: memory was too small.
        KeyboardInterrupt: the user interrupted it; nobody else is expected to raise this.
    """
    try:
        yield
    except BaseException as error:
        system = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.ENOLCK)
        if system or isinstance(error, (FsfError, KeyboardInterrupt)):
            raise
        while isinstance(error.__cause__, StopIteration):  # a generator has replaced it
            error = error.__cause__
        called, method = _culprit(error) or (fallback, method)
        if called is None:
            raise
        notes = [note for note in getattr(error, "__notes__", ()) if note.startswith(_OF)]
        item = notes[0].removeprefix(_OF) if notes else _ITEM.get()
        text = _described(called, method, item, f"raised {text_of(error)}", error)
        if is_out_of_memory(error):
            raise MemoryError(text) from error
        if isinstance(error, OSError):
            raise DataError(text, reason=text_of(error)) from error
        raise PluginError(text) from error


_ALONE = threading.RLock()
"""Held by the thread whose seed the generators of the process have."""


@contextmanager
def entered() -> Iterator[None]:
    """Enclose a call of the public API: faults are explained, and the caller's state is kept.

    Generators of random numbers stay as they were, and the caller's modes of PyTorch, such as
    ``torch.inference_mode()`` or another default type, do not reach the call.
    """
    with contained(), ExitStack() as stack:
        if (torch := sys.modules.get("torch")) is not None:
            stack.enter_context(torch.inference_mode(mode=False))
            stack.enter_context(torch.enable_grad())
            for device in ("cpu", "cuda", "mps"):
                if torch.is_autocast_enabled(device):
                    stack.enter_context(torch.autocast(device, enabled=False))
            if torch.get_default_device().type != "cpu":  # a device slows every call down
                stack.enter_context(torch.device("cpu"))
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.float32)
        stack.enter_context(seeded(0))
        yield


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run a block with the generators of the process set by a seed, then restore their states.

    These are Python's, NumPy's and PyTorch's. They are there only once, so other threads wait.
    """
    with _ALONE:
        states: list[tuple[Any, Any]] = [(random.setstate, random.getstate())]
        if (numpy := sys.modules.get("numpy")) is not None:
            states.append((numpy.random.set_state, numpy.random.get_state()))
        if (torch := sys.modules.get("torch")) is not None:
            states.append((torch.set_rng_state, torch.get_rng_state()))
            if torch.cuda.is_initialized():
                states.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
        reseed(seed)
        try:
            yield
        finally:
            for restore, state in states:
                restore(state)


def reseed(seed: int) -> None:
    """Set the generators of the process by a seed, within ``seeded``.

    This avoids ``torch.manual_seed``, which without a GPU queues a call for one every time, with a
    trace of the whole stack, and takes longer than scoring a batch of tasks.
    """
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed)


def generator_states() -> list[Any]:
    """Return what changes whenever something is drawn from the generators of the process."""
    _, key, *rest = sys.modules["numpy"].random.get_state()
    torch = sys.modules["torch"]
    tensors = [torch.get_rng_state()]
    tensors += torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [random.getstate(), key.tobytes(), rest, *(one.numpy().tobytes() for one in tensors)]


def is_raised_by(error: BaseException, package: str) -> bool:
    """Return whether an exception was raised by or through a package, and not by this one."""
    ours = top_level(__name__)
    passed = [name for name, _ in _places(error) if name in (package, ours)]
    return bool(passed) and passed[-1] != ours


def _described(
    called: Called, method: str, item: str, event: str, error: BaseException | None = None
) -> str:
    places = [] if error is None else [p for name, p in _places(error) if name == called.package]
    about_item, place = f" of {item}" if item else "", places[-1] if places else ""
    hint = f"; check it with {called.check}" if called.check else ""
    return f"{called}: {method}{about_item} {event}{place}{hint}"


def _places(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield the package of each frame that an exception passed, outermost first, and the place."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = frame.f_globals.get("__name__", "")
        yield top_level(name), f" ({Path(frame.f_code.co_filename).name}, line {line})"


def _culprit(error: BaseException) -> tuple[Called, str] | None:
    """Return the component whose code an exception passed last, and the method of the engine."""
    found: tuple[Called, str] | None = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if (cls := _component_of(frame)) is not None:
            called, method = named(cls), frame.f_code.co_name
            method = "its constructor" if method == "__init__" else method
            if found is None or found[0] != called or not method.startswith("_"):
                found = called, method
    return found


def _component_of(frame: FrameType) -> type | None:
    """Return the class of a component in whose own code a frame is."""
    code, module = frame.f_code, frame.f_globals.get("__name__", "")
    if not code.co_argcount or module.startswith("fsframework."):
        return None
    first = frame.f_locals.get(code.co_varnames[0])
    cls = first if isinstance(first, type) else type(first)
    own = any(base.__module__ == module for base in cls.__mro__)
    return cls if own and bool(getattr(cls, "_kind", None)) else None
